package distributed

import (
	"errors"
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
	"go.starlark.net/starlarkstruct"
)

// unit is a set of parameters that are gathered together.
type unit struct {
	*nn.Unit
	of      *fsdp
	sheets  []*tensor.Sheet // one for each dtype
	depth   int             // forward calls in progress
	open    int             // calls whose backward is in progress
	trained int             // parameters that get a gradient
	ready   int             // how many of these have theirs in this pass
}

func chooseUnits(c *starlib.Call, m *nn.Model) (_ map[*nn.Model]bool, err error) {
	defer try.Caught(&err)
	chosen, parts := map[*nn.Model]bool{}, m.Parts()
	switch arg := c.Arg("units").(type) {
	case starlark.NoneType:
		for _, child := range m.Children() {
			chosen[child] = true
		}
	case starlark.Int:
		least, ok := arg.Int64()
		try.FailIf(!ok || least < 1, "units = %s: want a number of parameters of at least 1", arg)
		unitsOfSize(m, int(least), parts, chosen)
	case *nn.Model:
		return nil, errors.New("units: want a list of modules, not one module")
	case starlark.Callable:
		for _, part := range parts[1:] {
			v := try.To(starlark.Call(c.Thread, arg, starlark.Tuple{part}, nil))
			is, ok := v.(starlark.Bool)
			try.FailIf(!ok, "units: the function must return True or False, not %s", v.Type())
			chosen[part] = bool(is)
		}
	case starlark.Iterable:
		for v := range starlark.Elements(arg) {
			part, ok := v.(*nn.Model)
			try.FailIf(!ok, "units: want modules, got %s", v.Type())
			i := slices.Index(parts, part)
			try.FailIf(i < 1, "units: %s is not a part of the module that can be a unit: parts of nn's own layers cannot be, since the layer computes with them directly", part.Name())
			chosen[part] = true
		}
	default:
		return nil, fmt.Errorf("units: want a list of modules, a function of a module, or a number of parameters; got %s", arg.Type())
	}
	return chosen, nil
}

// unitsOfSize chooses modules with at least least parameters outside nested units; it returns how many of m's parameters are in no unit.
func unitsOfSize(m *nn.Model, least int, parts []*nn.Model, chosen map[*nn.Model]bool) int {
	_, params := m.Parameters()
	n := 0
	for _, p := range params {
		n += p.Len()
	}
	for _, child := range m.Children() {
		if !slices.Contains(parts, child) {
			continue
		}
		_, within := child.Parameters()
		total := 0
		for _, p := range within {
			total += p.Len()
		}
		left := unitsOfSize(child, least, parts, chosen)
		if n -= total - left; left >= least && !chosen[child] {
			chosen[child] = true
			n -= left
		}
	}
	return n
}

// divide gives the ranks their parts of a unit's parameters, with the values of the first rank's.
func (f *fsdp) divide(c *starlib.Call, of *nn.Unit) (err error) {
	defer try.Caught(&err)
	u := &unit{Unit: of, of: f}
	for _, d := range dtype.Types() {
		var same []*tensor.Tensor
		for _, p := range u.Params {
			if p.DType() == d {
				same = append(same, p)
			}
		}
		if len(same) == 0 {
			continue
		}
		s := try.To(tensor.NewSheet(same, f.g.own, f.g.Size(), listText(f.g.ranks), f.disk))
		values := try.To(s.Fill())
		if values.Len() > 0 {
			for _, g := range f.groups() {
				try.Ok(g.do(f.ctx, collective.NewBroadcast(bufferOf(values), 0), origin(c).In(collective.Step)))
			}
		}
		s.Take()
		s.Drop()
		for i, p := range s.Params {
			f.shards[p] = s.Shards[i]
			p.OnGradReady(func(*tensor.Tensor) error { return u.arrived() })
		}
		u.sheets = append(u.sheets, s)
	}
	u.Wrap(u.forward)
	f.units = append(f.units, u)
	return nil
}

// call marks a collective as one of this unit, so that ranks that are at different units do not mix them.
func (u *unit) call(call collective.Call) collective.Call {
	name := u.String()
	call.Digest = fnv([]byte(name))
	call.Detail = func() string { return name }
	return call
}

// gather gives the unit the parameters of all ranks; float32 ones are rounded to as.
func (u *unit) gather(as dtype.Type, at collective.Origin) (err error) {
	defer try.Caught(&err)
	f := u.of
	for _, s := range u.sheets {
		if s.Current() {
			continue
		}
		values := try.To(s.Fill())
		if s.Len() == 0 {
			continue
		}
		from, to, each := s.Bounds()
		part := f.world.memory.stage((to - from) * s.DType().Size())
		s.Part(part)
		own, all := collective.Buffer{DType: s.DType(), Data: part}, values
		if s.DType() == dtype.Float32 && as != dtype.Float32 {
			own = bufferOf(try.To(f.cast(part, as)))
			all = try.To(tensor.Empty(f.world.tensors, []int{s.Len()}, as))
		}
		call := u.call(collective.NewAllGather(own, bufferOf(all)))
		call.Counts = uneven(partSizes(f.g, s.Len(), each))
		try.Ok(f.g.do(f.ctx, call, at.In(collective.Step)))
		if all != values {
			s.Set(all)
		}
	}
	return nil
}

// cast returns float32 values in another dtype.
func (f *fsdp) cast(values []byte, to dtype.Type) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	t := try.To(tensor.FromBytes(f.world.tensors, values, []int{len(values) / dtype.Float32.Size()}, dtype.Float32))
	return tensor.Cast(t, to)
}

func (u *unit) drop() {
	for _, s := range u.sheets {
		s.Drop()
	}
}

func (u *unit) forward(thread *starlark.Thread, compute func() (starlark.Value, error)) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	f := u.of
	f.thread = thread
	recording := f.world.tensors.Recording()
	if u == f.units[0] && recording && f.on && len(f.buffers) > 0 && f.Training() {
		try.Ok(within("fsdp", f.spreadBuffers("dist.fsdp in forward")))
	}
	try.Ok(within("fsdp", u.gather(f.param, originOf("dist.fsdp in forward", starlib.Position(thread)))))
	if recording {
		u.trained = 0
		for _, p := range u.Params {
			if p.RequiresGrad() {
				u.trained++
			}
		}
	}
	mark := f.world.tensors.Mark()
	u.depth++
	was := f.world.tensors.Autocast(false)
	f.world.tensors.Autocast(was || f.param == dtype.BFloat16)
	out, err := compute()
	f.world.tensors.Autocast(was)
	u.depth--
	if err == nil {
		out, err = u.results(out, mark)
	}
	if u.depth == 0 && u.open == 0 && !(f.keep && recording) {
		u.drop()
	}
	return out, err
}

// results ensures that the unit is gathered before a backward pass reaches the operations that made the tensors in v.
func (u *unit) results(v starlark.Value, mark uint64) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	each := func(items []starlark.Value) []starlark.Value {
		for i := range items {
			items[i] = try.To(u.results(items[i], mark))
		}
		return items
	}
	switch v := v.(type) {
	case *startensor.Value:
		return startensor.Result(tensor.BeforeBackward(v.Tensor(), func() error { return u.backward(mark) }))
	case starlark.Tuple:
		return starlark.Tuple(each(slices.Clone(v))), nil
	case *starlark.List:
		return starlark.NewList(each(slices.Collect(starlark.Elements(v)))), nil
	case *starlark.Dict:
		out := starlark.NewDict(v.Len())
		for _, kv := range v.Items() {
			try.Ok(out.SetKey(kv[0], try.To(u.results(kv[1], mark))))
		}
		return out, nil
	case *starlarkstruct.Struct:
		fields := starlark.StringDict{}
		v.ToStringDict(fields)
		for name, item := range fields {
			fields[name] = try.To(u.results(item, mark))
		}
		return starlarkstruct.FromStringDict(v.Constructor(), fields), nil
	}
	return v, nil
}

// backward begins the backward pass of a call of the unit, whose operations began at mark.
func (u *unit) backward(mark uint64) (err error) {
	defer try.Caught(&err)
	f := u.of
	adds := f.world.tensors.AddsGrads()
	if adds && !f.seen {
		f.seen = true
		for _, u := range f.units {
			u.ready = 0
		}
	}
	u.open++
	f.world.tensors.AfterBackward(mark, func() error {
		if u.open--; u.open == 0 {
			u.drop()
		}
		return nil
	})
	try.Ok(within("fsdp", u.gather(f.param, f.origin())))
	for _, s := range u.sheets {
		if adds {
			try.To(s.Grads())
		}
	}
	return nil
}

func (u *unit) arrived() error {
	if u.ready++; u.ready == u.trained && u.of.on {
		return within("fsdp", u.reduce())
	}
	return nil
}

// reduce averages the unit's gradients, and keeps this rank's part.
func (u *unit) reduce() (err error) {
	defer try.Caught(&err)
	f := u.of
	for _, s := range u.sheets {
		grads := try.To(s.Grads())
		from, to, each := s.Bounds()
		as := s.DType()
		if as == dtype.Float32 {
			as = f.reduce
		}
		if as != s.DType() {
			grads = try.To(tensor.Cast(grads, as))
		}
		part := collective.Buffer{DType: as, Data: f.world.memory.stage((to - from) * as.Size())}
		call := u.call(collective.NewReduceScatter(bufferOf(grads), part, dtype.Avg))
		call.Counts = uneven(partSizes(f.g, s.Len(), each))
		if s.Len() > 0 {
			try.Ok(f.g.do(f.ctx, call, f.origin()))
		}
		if f.copies != nil && from < to {
			try.Ok(f.copies.do(f.ctx, u.call(collective.NewAllReduce(part, dtype.Avg)), f.origin()))
		}
		if as != s.DType() {
			narrow := try.To(tensor.FromBytes(f.world.tensors, part.Data, []int{to - from}, as))
			part = bufferOf(try.To(tensor.Cast(narrow, s.DType())))
		}
		for _, p := range s.Params {
			f.had[p] = f.had[p] || p.Grad() != nil
		}
		try.Ok(s.Spread(part.Data))
	}
	return nil
}
