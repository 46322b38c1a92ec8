package distributed

import (
	"fmt"
	"math"
	"os"
	"slices"

	"drun/collective"
	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"

	"go.starlark.net/starlark"
)

// fsdp is a module whose parameters are divided among the ranks of a group (Rajbhandari et al. 2020, stage 3 of
// ZeRO; Zhao et al. 2023, PyTorch FSDP). Each unit's parameters are gathered before its forward and its backward
// pass and dropped afterwards; its gradients are averaged as soon as they are complete, and each rank keeps its part.
type fsdp struct {
	replica
	copies *Group // the ranks that have the same parts (hybrid sharding); nil: this one alone
	units  []*unit
	shards map[*tensor.Tensor]*tensor.Tensor // from a parameter to this rank's part
	keep   bool                              // parameters stay from forward to backward
	param  dtype.Type                        // in which float32 parameters are gathered for a pass
	reduce dtype.Type                        // in which float32 gradients are averaged
	disk   *tensor.Pool                      // where this rank's parts are; nil: in memory
	had    map[*tensor.Tensor]bool           // parameters whose gradient was averaged in this pass
	seen   bool                              // this pass reached a unit
}

// fsdp reads the argument group: the ranks that divide the parameters, or a mesh.
func (w *World) fsdp(c *starlib.Call) (starlark.Value, error) {
	m, ok := c.Arg("group").(*mesh)
	if !ok {
		return newFSDP(try.To(w.group(c)), nil, c, try.To(w.until(c)))
	}
	try.FailIf(len(m.dims) > 2, "argument group: want a mesh of one dimension or two (copies, parts), got %s", m)
	copies := (*Group)(nil)
	if len(m.dims) == 2 && m.dims[0].group.Size() > 1 {
		copies = m.dims[0].group
	}
	return newFSDP(m.dims[len(m.dims)-1].group, copies, c, try.To(w.until(c)))
}

func newFSDP(g, copies *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	shared, all := newReplica(g, c, ctx)
	f := &fsdp{replica: shared, copies: copies, keep: !c.Bool("reshard_after_forward"), shards: map[*tensor.Tensor]*tensor.Tensor{}, had: map[*tensor.Tensor]bool{},
		param: try.To(exchangeDType(c, "param_dtype")), reduce: try.To(exchangeDType(c, "reduce_dtype"))}
	for i, p := range f.params {
		try.FailIf(p.Frozen(), "parameter %s was made at top level and is frozen: make it in main()", f.names[i])
		try.FailIf(p.Claimed(), "parameter %s already belongs to an optimizer, dist.ddp or dist.fsdp: make the optimizer afterwards, from the wrapped module's parameters()", f.names[i])
	}
	switch text, _ := starlark.AsString(c.Arg("offload")); text {
	case "":
	case "disk":
		f.disk = try.To(g.world.diskPool())
	default:
		return nil, fmt.Errorf("argument offload: want \"disk\", got %s", c.Arg("offload"))
	}
	try.Ok(f.notInStages())
	for _, g := range f.groups() {
		try.Ok(sameParts(g, f.params))
	}
	chosen, err := chooseUnits(c, f.Model)
	if err != nil || g.Size() == 1 && copies == nil && f.param == f.reduce && f.param == dtype.Float32 && f.disk == nil {
		return f, err
	}
	units := f.Units(chosen)
	key := fmt.Appendf(appendShapes(nil, all), "|%s %s", f.param, f.reduce)
	for _, u := range units {
		key = fmt.Appendf(key, "|%s %d", u.Path, len(u.Params))
	}
	for _, g := range f.groups() {
		try.Ok(g.agree(ctx, key, origin(c), "the ranks' models or units differ", func() string { return fmt.Sprintf("digest %x", fnv(key)) }))
	}
	try.Ok(exchangeable(all))
	garbage := 0
	for _, u := range units {
		try.Ok(f.divide(c, u))
		for _, p := range u.Params {
			garbage += p.Len() * p.DType().Size()
		}
		garbage = tensor.Reclaim(garbage)
	}
	if buffers := slices.DeleteFunc(slices.Clone(all), func(t *tensor.Tensor) bool { return f.shards[t] != nil }); len(buffers) > 0 {
		for _, g := range f.groups() {
			try.Ok(spreadAgreed(g, ctx, buffers, ofFirst, anyType, origin(c)))
		}
	}
	g.world.wrapped.add(g.world, f)
	return f, err
}

// diskPool returns the pool of what is kept on disk: in the run's home or, on a machine that has none, where temporary files are.
func (w *World) diskPool() (_ *tensor.Pool, err error) {
	if w.disk == nil {
		dir := w.rank.Outputs.Home()
		if _, err := os.Stat(dir); dir == "" || err != nil {
			dir = os.TempDir()
		}
		if w.disk, err = tensor.NewDiskPool(dir); err != nil {
			return nil, fmt.Errorf("offload: %w", err)
		}
	}
	return w.disk, nil
}

// exchangeDType reads an argument that says in which dtype float32 values are exchanged.
func exchangeDType(c *starlib.Call, name string) (dtype.Type, error) {
	switch text, _ := starlark.AsString(c.Arg(name)); text {
	case "", "float32":
		return dtype.Float32, nil
	case "bfloat16":
		return dtype.BFloat16, nil
	default:
		return 0, fmt.Errorf("argument %s: want \"bfloat16\" or \"float32\", got %s", name, c.Arg(name))
	}
}

// groups are the ranks that have the other parts and, with hybrid sharding, those that have the same one.
func (f *fsdp) groups() []*Group {
	if f.copies == nil {
		return []*Group{f.g}
	}
	return []*Group{f.g, f.copies}
}

// spreadBuffers gives the first rank's buffers to all ranks.
func (f *fsdp) spreadBuffers(builtin string) (err error) {
	defer try.Caught(&err)
	for _, g := range f.groups() {
		try.Ok(f.replica.spreadBuffers(g, builtin, ofFirst))
	}
	return nil
}

// origin returns the recipe's backward pass.
func (f *fsdp) origin() collective.Origin {
	return originOf("dist.fsdp in backward", starlib.Position(f.thread)).In(collective.Step)
}

// finish averages the remaining gradients, of parameters that took no part in the pass; then the ranks compare which those are.
func (f *fsdp) finish() error {
	seen := f.seen
	f.seen = false
	if !seen || !f.on {
		return nil
	}
	return within("fsdp", f.reduceRest())
}

func (f *fsdp) reduceRest() (err error) {
	defer try.Caught(&err)
	for _, u := range f.units {
		if slices.ContainsFunc(u.Params, func(p *tensor.Tensor) bool { return p.Grad() != nil }) {
			try.Ok(u.reduce())
		}
	}
	key := appendMarks(nil, f.params, func(p *tensor.Tensor) bool { return f.had[p] })
	clear(f.had)
	for _, g := range f.groups() {
		if texts := try.To(g.compare(f.ctx, key, nil, f.origin())); texts != nil {
			return gradMismatch(g, f.params, func(i int) string { return f.names[i] }, texts)
		}
	}
	if len(f.buffers) == 0 || !f.Training() {
		return nil
	}
	return f.spreadBuffers("dist.fsdp in backward")
}

func (f *fsdp) Type() string   { return "FSDP" }
func (f *fsdp) String() string { return "fsdp(" + f.Model.String() + ")" }

func (f *fsdp) Attr(name string) (starlark.Value, error) {
	if v, err := fsdpMethods.Attr(f, name); v != nil || err != nil {
		return v, err
	}
	return f.Model.Attr(name)
}

func (f *fsdp) AttrNames() []string {
	names := append(f.Model.AttrNames(), fsdpMethods.AttrNames()...)
	slices.Sort(names)
	return slices.Compact(names)
}

// State returns every parameter and buffer; for parameters, this rank's parts.
func (f *fsdp) State() []starlib.Entry {
	entries := f.Model.State()
	for i := range entries {
		if shard := f.shards[entries[i].Value.(*startensor.Value).Tensor()]; shard != nil {
			entries[i].Value = (*startensor.Value)(shard)
		}
	}
	return entries
}

// SetState copies whole tensors; of parameters, this rank's parts.
func (f *fsdp) SetState(entries []starlib.Entry) error {
	live := map[string]*tensor.Tensor{}
	for _, e := range f.State() {
		live[e.Name] = e.Value.(*startensor.Value).Tensor()
	}
	return startensor.Restore(f.world.tensors, "dist.fsdp", live, entries)
}

// Weights returns the entries for files of weights, which need whole tensors.
func (f *fsdp) Weights() []starlib.Entry {
	if len(f.units) == 0 {
		return f.Model.Weights()
	}
	return f.State()
}

// own returns this rank's part of a divided parameter; any other tensor itself.
func (f *fsdp) own(p *tensor.Tensor) starlark.Value {
	if shard := f.shards[p]; shard != nil {
		p = shard
	}
	return (*startensor.Value)(p)
}

var fsdpMethods = &starlib.Methods{
	Type: "FSDP",
	Doc:  "A module whose parameters are divided among the ranks; otherwise it behaves like the module.",
	Defs: []*starlib.Def{
		{Sig: `parameters() -> list`, Fn: func(c *starlib.Call) (starlark.Value, error) { return c.Recv.(*fsdp).parameters(false), nil },
			Doc: "This rank's elements of each parameter, one-dimensional; some are empty.\nMake optimizers from them."},
		{Sig: `named_parameters() -> list`, Fn: func(c *starlib.Call) (starlark.Value, error) { return c.Recv.(*fsdp).parameters(true), nil },
			Doc: `Pairs of a name, such as "0.weight", and this rank's part of the parameter.`},
		{Sig: `state(rank0_only: bool = False) -> dict`, Fn: func(c *starlib.Call) (starlark.Value, error) { return c.Recv.(*fsdp).whole(c) },
			Doc: "A dict from names to all parameters and buffers, whole: copies, gathered from the ranks, for\n" +
				"checkpoint.save_file and load_state. Every rank of the group calls it; with rank0_only all but the group's\n" +
				"first get an empty dict."},
		{Sig: `load_state(dict: dict, strict: bool = True) -> list`, Fn: func(c *starlib.Call) (starlark.Value, error) { return c.Recv.(*fsdp).load(c) },
			Doc: "Copies whole tensors into the parameters, of which each rank keeps its part, and buffers of the same names, as\n" +
				"load_state of a module does. Every rank must pass the same ones."},
		{Sig: `clip_grad_norm(max_norm: number) -> float`, Fn: func(c *starlib.Call) (starlark.Value, error) { return c.Recv.(*fsdp).clip(c) },
			Doc: "Scales the gradients so that their total 2-norm, over all ranks, is at most max_norm, and returns the norm\n" +
				"before scaling. If that is infinite or NaN, the gradients stay as they are. Every rank of the group calls it."},
		{Sig: `set_sync(on: bool)`,
			Doc: "Sets whether backward averages the gradients; otherwise each rank accumulates all of them, which takes the\n" +
				"memory of a whole model's gradients.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				c.Recv.(*fsdp).on = c.Bool("on")
				return nil, nil
			}},
	},
}

// parameters lists this rank's parts of the parameters, in pairs with their names if named.
func (f *fsdp) parameters(named bool) starlark.Value {
	list := make([]starlark.Value, len(f.params))
	for i, p := range f.params {
		if list[i] = f.own(p); named {
			list[i] = starlark.Tuple{starlark.String(f.names[i]), list[i]}
		}
	}
	return starlark.NewList(list)
}

func (f *fsdp) whole(c *starlib.Call) (starlark.Value, error) {
	out := new(starlark.Dict)
	wanted := !c.Bool("rank0_only") || f.g.own == 0
	copies := map[*tensor.Tensor]*tensor.Tensor{}
	for _, u := range f.units {
		if f.param != dtype.Float32 {
			u.drop() // what is there may be rounded
		}
		try.Ok(u.gather(dtype.Float32, origin(c)))
		for _, p := range u.Params {
			if wanted {
				copies[p] = try.To(tensor.Clone(p.Detach()))
			}
		}
		u.drop()
	}
	if !wanted {
		return out, nil
	}
	for _, e := range f.Model.State() {
		t := e.Value.(*startensor.Value).Tensor()
		if copies[t] == nil {
			copies[t] = try.To(tensor.Clone(t.Detach()))
		}
		try.Ok(out.SetKey(starlark.String(e.Name), (*startensor.Value)(copies[t])))
	}
	return out, nil
}

func (f *fsdp) load(c *starlib.Call) (starlark.Value, error) {
	for _, u := range f.units { // what the state lacks stays as it is
		for _, s := range u.sheets {
			values := try.To(s.Fill())
			from, to, _ := s.Bounds()
			size := s.DType().Size()
			s.Part(values.Bytes()[from*size : to*size])
		}
	}
	differences, err := f.LoadState(c.Arg("dict").(*starlark.Dict), c.Bool("strict"))
	for _, u := range f.units {
		for _, s := range u.sheets {
			if err == nil {
				s.Take()
			}
		}
		u.drop()
	}
	if err != nil {
		return nil, err
	}
	list := each.Of(differences, func(d string) starlark.Value { return starlark.String(d) })
	return starlark.NewList(list), nil
}

// clip clips by the norm over all ranks: the squares of their parts are added in rank order.
func (f *fsdp) clip(c *starlib.Call) (starlark.Value, error) {
	limit := c.Float("max_norm")
	try.FailIf(!(limit > 0), "max_norm = %v: want more than 0", limit)
	own := each.Of(f.params, func(p *tensor.Tensor) *tensor.Tensor { return f.own(p).(*startensor.Value).Tensor() })
	norm := math.Sqrt(try.To(f.world.squareSum(c, f.params, own, f.g)))
	return starlark.Float(norm), tensor.ClipGrads(own, norm, limit)
}
