package distributed

import (
	"bytes"
	"fmt"
	"slices"

	"drun/collective"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/nn"
	startensor "drun/starlib/tensor"
	"drun/tensor"

	"go.starlark.net/starlark"
)

// ddp is a module whose gradients are averaged during backward: as soon as the gradients of a bucket of parameters
// are complete, an asynchronous all_reduce starts, while backward computes the next (Li et al. 2020, PyTorch
// Distributed). Buckets go from the last parameter to the first, as gradients do.
type ddp struct {
	replica
	buckets []*bucket
	next    int  // the bucket that starts next: the order is the same on all ranks
	seen    bool // whether this pass reached a parameter
	hook    hook // nil: an exact average
	unequal bool // ranks may use different parameters
	static  bool // each pass uses the same parameters
	used    []byte
	joined  *joinCall // nil outside dist.join
}

// replica is what wrapped modules have in common: a group, and buffers that are kept equal to those of its first rank.
type replica struct {
	*nn.Model
	world   *World
	g       *Group
	ctx     *collective.WaitLimit
	names   []string
	params  []*tensor.Tensor // of the model
	buffers []*tensor.Tensor // sent to all by the first rank before forward and after backward, in training
	thread  *starlark.Thread
	on      bool // whether backward synchronises
}

// newReplica reads the arguments module and broadcast_buffers; all is the module's parameters and buffers.
func newReplica(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (r replica, all []*tensor.Tensor) {
	r = replica{Model: c.Arg("module").(*nn.Model), world: g.world, g: g, ctx: ctx, on: true, thread: c.Thread}
	r.names, r.params = r.Parameters()
	for _, e := range r.State() {
		t := e.Value.(*startensor.Value).Tensor()
		if all = append(all, t); c.Bool("broadcast_buffers") && !slices.Contains(r.params, t) {
			r.buffers = append(r.buffers, t)
		}
	}
	return r, all
}

// notInStages returns an error if the module has a pipeline in it.
func (r *replica) notInStages() error {
	for i, p := range r.params {
		if of := p.Placement(); of != nil && of.Stage {
			return fmt.Errorf("%s is in a pipeline, whose backward pass goes through it once for each micro-batch: average gradients with dist.sync_grad", r.names[i])
		}
	}
	return nil
}

// wrappedModules are modules that synchronise in backward; a module's finish ends its pass.
type wrappedModules []interface{ finish() error }

// add makes the module's passes end with the rank's backward passes.
func (m *wrappedModules) add(w *World, module interface{ finish() error }) {
	*m = append(*m, module)
	w.tensors.BackwardDone = m.finish
}

func (m *wrappedModules) finish() error {
	for _, module := range *m {
		if err := module.finish(); err != nil {
			return err
		}
	}
	return nil
}

type bucket struct {
	params []*tensor.Tensor
	ready  int
	works  []collective.Work
	copied [][2]*tensor.Tensor // gradients that are not contiguous or on a device, and their copies, which are averaged
}

var ddpMethods = &starlib.Methods{
	Type: "DDP",
	Doc:  "A module whose gradients are averaged over the ranks during backward; otherwise it behaves like the module.",
	Defs: []*starlib.Def{{
		Sig: `set_sync(on: bool)`,
		Doc: "Sets whether backward averages the gradients; otherwise they accumulate on each rank.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			c.Recv.(*ddp).on = c.Bool("on")
			return nil, nil
		},
	}},
}

func wrappers(w *World) []*starlib.Def {
	return []*starlib.Def{
		{
			Sig: `ddp(module: Module, group: Group = None, timeout: number = None, broadcast_buffers: bool = True, find_unused_parameters: bool = False, static_graph: bool = False, bucket_cap_mb: number = 1, hook: callable | CommHook = None) -> DDP`,
			Doc: "The module with its gradients averaged over the ranks during backward, in buckets, while backward\n" +
				"computes the next gradients. First its parameters and buffers are set to those of the group's first\n" +
				"rank. In training, the first rank's buffers (batch_norm's running statistics) are sent to all ranks\n" +
				"again before each forward pass that records gradients and after each backward, unless\n" +
				"broadcast_buffers = False: such a forward pass is a collective. After eval(), inside tensor.no_grad\n" +
				"and after .set_sync(False), which accumulates gradients without averaging them, it is not. So all\n" +
				"ranks evaluate and save the same model. Ranks that use different parameters in a pass are an error, unless\n" +
				"find_unused_parameters = True: a rank that does not use a parameter then counts as one whose gradient is 0.\n" +
				"static_graph = True says that each pass uses the same parameters, so that only the first compares which.\n" +
				"bucket_cap_mb is how many MiB of gradients are averaged together. hook averages a bucket in another way: one of\n" +
				"dist.hooks, or a function that gets a struct with buffer, the bucket's gradients as one vector, their shapes, index,\n" +
				"is_last and group, and returns the averaged vector or its Work.",
			Fn: w.inGroup(newDDP),
		},
		{
			Sig: `fsdp(module: Module, units = None, reshard_after_forward: bool = True, broadcast_buffers: bool = True, param_dtype: string = None, reduce_dtype: string = None, offload: string = None, group: Group | Mesh = None, timeout: number = None) -> FSDP`,
			Doc: "The module with its parameters divided among the ranks of the group; they start as those of its first\n" +
				"rank. A unit's parameters are gathered before each of its forward and backward passes and dropped\n" +
				"afterwards; in backward its gradients are averaged, and each rank keeps its part. units are modules\n" +
				"within: a list, a function that is called with each module and says whether it is a unit, or the least\n" +
				"number of parameters of a unit; by default the modules directly in this one. What is in no unit, or in\n" +
				"several, is gathered for the whole pass. Make optimizers from the result's parameters(), this rank's\n" +
				"parts. With reshard_after_forward = False parameters stay from forward to backward: more memory, fewer\n" +
				"calls. broadcast_buffers is as in dist.ddp. Each pass is a collective, also in evaluation. With a mesh of two\n" +
				"dimensions as group, parameters are divided along the second only, and the ranks along the first have the\n" +
				"same parts (hybrid sharding): what is gathered stays, for instance, within a node. param_dtype = \"bfloat16\"\n" +
				"gathers float32 parameters in half the bytes and computes the units' products with them, as nn.autocast\n" +
				"does; each rank's parts, which the optimizer updates, stay float32. reduce_dtype = \"bfloat16\" averages\n" +
				"gradients so, too. With offload = \"disk\" this rank's parts, and what an optimizer keeps of them, are a file\n" +
				"in the run's home: memory holds of them what there is room for, and the bits are the same.",
			Fn: w.fsdp,
		},
		{Sig: `zero(optimizer: Optimizer, group: Group = None, timeout: number = None) -> Optimizer`, Fn: w.inGroup(newZero),
			Doc: "The optimizer, whose state is divided among the ranks of the group from now on (stage 1 of ZeRO): each\n" +
				"rank keeps the moments of a part of the parameters, updates that part in step(), and gets the parts of\n" +
				"the others. step() is then a collective. The result has the same bits as without zero. Parameters, state and,\n" +
				"in each step, gradients and learning rates must be the same on all ranks; where they differ, every rank\n" +
				"gets an error. A checkpoint has the whole state: any number of ranks restores it, divided or not.\n" +
				"optim.lbfgs cannot be divided."},
		{Sig: `unwrap(module: Module | DDP | FSDP) -> Module`,
			Doc: "The module inside a DDP or FSDP, or the module itself.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				switch d := c.Arg("module").(type) {
				case *ddp:
					return d.Model, nil
				case *fsdp:
					return d.Model, nil
				}
				return c.Arg("module"), nil
			}},
	}
}

func newDDP(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	shared, all := newReplica(g, c, ctx)
	g = try.To(copiesOf(g, c, shared.params))
	try.Ok(shared.notInStages())
	shared.g = g
	d := &ddp{replica: shared, unequal: c.Bool("find_unused_parameters"), static: c.Bool("static_graph")}
	switch fn := c.Arg("hook").(type) {
	case *compression:
		d.hook = fn
	case starlark.Callable:
		d.hook = ownHook{fn}
	}
	most := c.Float("bucket_cap_mb")
	try.FailIf(!(most > 0), "argument bucket_cap_mb: want a number above 0, got %v", c.Arg("bucket_cap_mb"))
	try.Ok(spreadAgreed(g, ctx, all, ofFirst, anyType, origin(c)))
	if g.comm == nil {
		return d, nil
	}
	key := fmt.Appendf(nil, "%v %v %v %v", d.unequal, d.static, most, c.Arg("hook") == starlark.None)
	try.Ok(g.agree(ctx, key, origin(c), "the ranks' options differ", func() string { return string(key) }))
	d.divide(int(min(most, 1<<20) * (1 << 20)))
	for _, b := range d.buckets {
		for _, p := range b.params {
			p.OnGradReady(func(*tensor.Tensor) error { return d.ready(b) })
		}
	}
	g.world.wrapped.add(g.world, d)
	return d, nil
}

// divide puts the parameters into buckets of about that many bytes, last first: enough to hide a collective's latency, but little
// enough for the first one to start early.
func (d *ddp) divide(bucketBytes int) {
	size := 0
	for _, p := range slices.Backward(d.params) {
		n := p.Len() * p.DType().Size()
		if len(d.buckets) == 0 || size+n > bucketBytes || d.hook != nil && d.buckets[len(d.buckets)-1].params[0].DType() != p.DType() {
			d.buckets = append(d.buckets, &bucket{})
			size = 0
		}
		b := d.buckets[len(d.buckets)-1]
		b.params = append(b.params, p)
		size += n
	}
	for _, b := range d.buckets {
		slices.Reverse(b.params) // in memory order, so that they can be one buffer
	}
}

// ready counts one more complete gradient of a bucket.
func (d *ddp) ready(b *bucket) (err error) {
	defer try.Caught(&err)
	if !d.on {
		return nil
	}
	d.seen = true
	b.ready++
	for d.next < len(d.buckets) && d.buckets[d.next].ready >= len(d.buckets[d.next].params) {
		try.Ok(d.announce(oneBucket))
		try.Ok(d.start(d.buckets[d.next]))
		d.next++
	}
	return nil
}

// origin returns the recipe's backward pass.
func (d *ddp) origin() collective.Origin {
	return originOf("dist.ddp in backward", starlib.Position(d.thread))
}

func (d *ddp) start(b *bucket) (err error) {
	defer try.Caught(&err)
	grads := make([]*tensor.Tensor, len(b.params))
	for i, p := range b.params {
		own := p.Grad()
		data := try.To(tensor.Contiguous(own))
		if grads[i] = data; data != own {
			b.copied = append(b.copied, [2]*tensor.Tensor{own, data})
		}
	}
	at := d.origin()
	if d.hook != nil {
		return d.startHook(b, grads)
	}
	for _, t := range tensor.Coalesce(grads, len(grads)) {
		if on, _, _ := tensor.DeviceOf(t); on != nil { // which goes on to write beside these gradients
			staged := try.To(tensor.Clone(t.Detach()))
			b.copied = append(b.copied, [2]*tensor.Tensor{t, staged})
			t = staged
		}
		tensor.Pin(t)
		b.works = append(b.works, try.To(d.g.begin(d.ctx, collective.NewAllReduce(bufferOf(t), dtype.Avg), at)))
	}
	return nil
}

// startHook has the hook average a bucket's gradients.
func (d *ddp) startHook(b *bucket, grads []*tensor.Tensor) (err error) {
	defer try.Caught(&err)
	flats, shapes := make([]*tensor.Tensor, len(grads)), make([][]int, len(grads))
	for i, t := range grads {
		flats[i], shapes[i] = try.To(tensor.Reshape(t, []int{t.Len()})), t.Shape()
	}
	out := try.To(d.hook.average(d, b, try.To(tensor.Cat(flats, 0)), shapes))
	raw := try.To(tensor.Contiguous(out)).Bytes()
	for _, t := range grads {
		n := t.Len() * t.DType().Size()
		try.Ok(writeRaw(t, raw[:n]))
		raw = raw[n:]
	}
	return nil
}

// finish ends the pass.
func (d *ddp) finish() error {
	if !d.seen {
		return nil
	}
	buffers, end := len(d.buffers) > 0 && d.Training(), endOfPass
	if buffers {
		end = endWithBuffers
	}
	unused, err := d.startRest()
	if err == nil {
		err = d.announce(end)
	}
	if err == nil {
		err = d.endPass(unused, buffers, false)
	}
	return within("ddp", err)
}

// within adds to err what it happened in; nil stays nil.
func within(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// startRest starts the buckets of which parameters took no part in the pass, and returns these. A rank does not know which they
// are on other ranks, so it sends zeros for their gradients, and all ranks make the same calls.
func (d *ddp) startRest() (unused []*tensor.Tensor, err error) {
	defer try.Caught(&err)
	for _, b := range d.buckets[d.next:] {
		for _, p := range b.params {
			if p.Grad() != nil {
				continue
			}
			try.Ok(zeroGrad(p))
			unused = append(unused, p)
		}
		try.Ok(d.announce(oneBucket))
		try.Ok(d.start(b))
	}
	return unused, nil
}

func zeroGrad(p *tensor.Tensor) (err error) {
	defer try.Caught(&err)
	zeros := try.To(zerosLike(p))
	return p.SetGrad(zeros)
}

// endPass waits for the buckets, and compares which parameters the ranks have used; then they get the first rank's buffers, if asked
// for. shadow is a pass of other ranks, within dist.join.
func (d *ddp) endPass(unused []*tensor.Tensor, buffers, shadow bool) (err error) {
	defer try.Caught(&err)
	for _, b := range d.buckets {
		for _, work := range b.works {
			try.Ok(work.Wait(d.ctx))
		}
		for _, p := range b.params {
			p.Grad().Touched()
		}
		for _, c := range slices.Backward(b.copied) {
			try.Ok(tensor.CopyInto(c[0].Detach(), c[1].Detach()))
		}
		b.ready, b.works, b.copied = 0, nil, nil
	}
	d.next, d.seen = 0, false
	if j := d.joined; j != nil && !j.initial && j.active < d.g.Size() {
		for _, p := range d.params {
			of := try.To(tensor.BinaryScalar(tensor.OpMul, p.Grad().Detach(), tensor.Float(float64(d.g.Size())/float64(j.active)), false))
			try.Ok(p.SetGrad(of))
		}
	}
	if err := d.compareUsed(unused, shadow); err != nil || !buffers {
		return err
	}
	return d.spreadBuffers("dist.ddp in backward")
}

// spreadBuffers gives the buffers of the first rank, or in dist.join of the first that still trains, to all.
func (d *ddp) spreadBuffers(builtin string) error {
	source := ofFirst
	if d.joined != nil {
		source = d.joined.ofLeader
	}
	return d.replica.spreadBuffers(d.g, builtin, source)
}

// compareUsed drops the gradients of parameters that no rank has used, and compares which each has used.
func (d *ddp) compareUsed(unused []*tensor.Tensor, shadow bool) (err error) {
	defer try.Caught(&err)
	n := len(d.params)
	used := appendMarks(nil, d.params, func(p *tensor.Tensor) bool { return !slices.Contains(unused, p) })
	if d.unequal || d.joined != nil {
		// In dist.join a rank that has finished has used none, and is not compared: the others say also which they have not used.
		marks := slices.Clone(used[:n])
		if !d.unequal {
			marks = appendMarks(marks, d.params, func(p *tensor.Tensor) bool { return !shadow && slices.Contains(unused, p) })
		}
		try.Ok(d.g.do(d.ctx, collective.NewAllReduce(collective.Of(marks), dtype.Max), d.origin()))
		for i := range n {
			try.FailIf(!d.unequal && marks[i] == '1' && marks[n+i] == '1', "parameter %s has a gradient on some of the ranks that have not finished, but none on others", d.names[i])
		}
		unused = slices.DeleteFunc(unused, func(p *tensor.Tensor) bool { return marks[slices.Index(d.params, p)] == '1' })
	}
	for _, p := range unused {
		try.Ok(p.SetGrad(nil))
	}
	if d.unequal || shadow {
		return nil
	}
	if d.static && d.used != nil {
		for i, p := range d.params {
			try.FailIf(used[i] != d.used[i], "static_graph = True, but parameter %s is used in some passes only", d.names[slices.Index(d.params, p)])
		}
		return nil
	}
	if d.used = used; d.joined != nil {
		return nil
	}
	return agreeOnGrads(d.g, d.ctx, d.params, func(i int) string { return d.names[i] }, d.origin())
}

func (d *ddp) Type() string   { return "DDP" }
func (d *ddp) String() string { return "ddp(" + d.Model.String() + ")" }

func (d *ddp) CallInternal(thread *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	d.thread = thread
	if d.on && d.g.comm != nil && len(d.buffers) > 0 && d.Training() && d.world.tensors.Recording() {
		try.Ok(d.announce(forwardBuffers))
		try.Ok(within("ddp", d.spreadBuffers("dist.ddp in forward")))
	}
	return d.Model.CallInternal(thread, args, kwargs)
}

// spreadBuffers gives one rank's buffers to all ranks, with the calls that source makes. Buffers that are already
// equal are not written: the graph of an earlier pass may refer to them.
func (d *replica) spreadBuffers(g *Group, builtin string, source newCall) error {
	at := originOf(builtin, starlib.Position(d.thread)).In(collective.Step)
	return staged(g, d.ctx, dtype.Uint8, d.buffers, source, at, func(t *tensor.Tensor, raw []byte) error {
		data, err := tensor.Contiguous(t)
		if err == nil && !bytes.Equal(data.Bytes(), raw) {
			err = writeRaw(t, raw)
		}
		return err
	})
}

func (d *ddp) Attr(name string) (starlark.Value, error) {
	if v, err := ddpMethods.Attr(d, name); v != nil || err != nil {
		return v, err
	}
	return d.Model.Attr(name)
}

func (d *ddp) AttrNames() []string { return append(d.Model.AttrNames(), ddpMethods.AttrNames()...) }
