package optim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
	"drun/tensor/optim"
)

// Optimizer updates parameters from their gradients.
type Optimizer struct {
	starlib.Opaque
	kind   string
	opt    *optim.Optimizer
	lbfgs  *optim.LBFGS // for optim.lbfgs, which takes its own steps
	groups []group
	step   int // steps done
	maker

	replica *starlib.Replica // nil: each rank trains a model of its own
	partner Partner          // set if the state is divided among ranks
}

// Partner is called at each step of an optimizer whose state is divided among ranks.
type Partner interface {
	Before(thread *starlark.Thread) error // the step's learning rates are set, nothing is changed yet
	After(thread *starlark.Thread) error  // this rank's part has been updated
}

// Shareable returns an error if the optimizer's state cannot be divided among ranks.
func (o *Optimizer) Shareable() error {
	switch {
	case o.lbfgs != nil:
		return errors.New("optim.lbfgs works on all parameters at once: its state cannot be divided among ranks")
	case !o.opt.Divisible():
		return fmt.Errorf("optim.%s needs whole parameters: its state cannot be divided among ranks", o.kind)
	case o.partner != nil:
		return errors.New("the optimizer's state is already divided among ranks")
	}
	return nil
}

// Partner is the one that the state is divided with; nil: it is not divided.
func (o *Optimizer) Partner() Partner { return o.partner }

// Step takes one step.
func (o *Optimizer) Step(thread *starlark.Thread) error { return o.update(thread, o.opt.Step) }

// Renew makes the ranks count its steps anew, after they made different numbers of them.
func (o *Optimizer) Renew() {
	if r := o.replica; r != nil {
		o.replica = &starlib.Replica{At: r.At, Calls: r.Calls, Nth: o.made[r.Calls]}
		o.made[r.Calls]++
	}
}

// Made returns the state, nil before the first step.
func (o *Optimizer) Made() []starlib.Entry {
	if o.step == 0 {
		return nil
	}
	return o.State()
}

// Divide keeps part own of parts of the optimizer's state; set names the ranks.
func (o *Optimizer) Divide(own, parts int, set string, partner Partner) error {
	o.partner = partner
	return o.opt.Shard(own, parts, set)
}

var (
	_ starlib.Stateful     = (*Optimizer)(nil)
	_ starlark.HasSetField = (*Optimizer)(nil)
)

// newOptimizer makes an optimizer: build gets the parameter groups with their first learning rates.
func (k maker) newOptimizer(c *starlib.Call, kind string, weightDecay starlark.Value, build func([]optim.ParamGroup) (*optim.Optimizer, error)) (_ starlark.Value, err error) {
	groups := parameters(c.Arg("params"), c.Arg("lr"), try.To(decayOf(weightDecay)))
	o := &Optimizer{Opaque: "Optimizer", kind: kind, groups: groups, maker: k}
	flat := make([]optim.ParamGroup, len(groups))
	for i := range groups {
		g := &groups[i]
		if g.lr, err = g.rate.at(c.Thread, 0); err != nil {
			return nil, err // it may come from a function of the recipe
		}
		flat[i] = optim.ParamGroup{Params: g.params, LR: g.lr, WeightDecay: g.decay}
	}
	o.opt = try.To(build(flat))
	for i := range groups {
		if m, err := groups[i].momentum(0); err != nil || m != 0 && !o.opt.HasMomentum() {
			return nil, cmp.Or(err, fmt.Errorf("lr: the schedule has cycle_momentum, but optim.%s has no momentum; give it one, or leave cycle_momentum out", kind))
		}
	}
	k.rank.Optimizer = true
	if !c.Bool("local") {
		calls := ""
		for _, frame := range c.Thread.CallStack() {
			calls += fmt.Sprintln(frame.Pos)
		}
		o.replica = &starlib.Replica{At: c.Position(), Calls: calls, Nth: k.made[calls]}
		k.made[calls]++
	}
	return o, nil
}

func (o *Optimizer) String() string { return fmt.Sprintf("<optim.%s after %d steps>", o.kind, o.step) }

// closed takes a step. closure, if any, computes the loss and its gradients before it; the
// result is what its first call returned.
func (o *Optimizer) closed(thread *starlark.Thread, closure starlark.Callable) (starlark.Value, error) {
	var first starlark.Value = starlark.None
	evaluate := func() (float64, error) {
		v, err := starlark.Call(thread, closure, nil, nil)
		if err != nil {
			return 0, err
		}
		if first == starlark.None {
			first = v
		}
		return lossOf(v)
	}
	switch {
	case o.lbfgs != nil && closure == nil:
		return nil, fmt.Errorf("optim.lbfgs needs a closure that clears the gradients, computes the loss, calls backward() and returns the loss: opt.step(closure)")
	case o.lbfgs != nil:
		return first, o.update(thread, func() error {
			_, err := o.lbfgs.Step(evaluate)
			return err
		})
	case closure != nil:
		if _, err := evaluate(); err != nil {
			return nil, err
		}
	}
	return first, o.update(thread, o.opt.Step)
}

// lossOf returns a closure's result as a number.
func lossOf(v starlark.Value) (float64, error) {
	if t, ok := v.(*startensor.Value); ok {
		s, err := t.Tensor().Item()
		return s.Float(), err
	}
	f, ok := starlark.AsFloat(v)
	if !ok {
		return 0, fmt.Errorf("the closure must return the loss, a Tensor of one element or a number, not %s", v.Type())
	}
	return f, nil
}

// update takes one step with this step's learning rates.
func (o *Optimizer) update(thread *starlark.Thread, step func() error) (err error) {
	defer try.Caught(&err)
	flat := o.opt.Groups()
	for i := range o.groups {
		g := &o.groups[i]
		for _, p := range g.params {
			try.FailIf(len(o.averaged) > 0 && o.averaged[p], "the parameters hold the averages of optim.ema, which a step would train: call its swap() again first")
		}
		lr := try.To(g.rate.at(thread, o.step))
		g.lr, flat[i].LR = lr, lr
		flat[i].Momentum = try.To(g.momentum(o.step))
	}
	if o.partner != nil {
		whole := step
		step = func() error {
			err := o.partner.Before(thread)
			if err == nil {
				err = whole()
			}
			if err == nil {
				err = o.partner.After(thread)
			}
			return err
		}
	}
	if o.rank.OnUpdate == nil {
		try.Ok(step())
		o.step++
		return nil
	}
	if o.replica != nil && o.replica.Steps == 0 {
		try.Ok(o.rank.OnUpdate(thread, memory(o.opt.Memory()), o.replica, true))
	}
	try.Ok(step())
	o.step++
	if o.replica != nil {
		if o.replica.Steps++; o.replica.State == nil && o.partner == nil {
			o.replica.State = func() []starlib.Memory { return memory(o.opt.Moments()) }
		}
	}
	return o.rank.OnUpdate(thread, memory(o.opt.Memory()), o.replica, false)
}

func memory(parts []tensor.Contents) []starlib.Memory {
	return each.Of(parts, func(m tensor.Contents) starlib.Memory { return m })
}

// Tensors returns the optimizer as the tensor package knows it, for instance for the
// flat gradients that a collective reduces.
func (o *Optimizer) Tensors() *optim.Optimizer { return o.opt }

var methods = &starlib.Methods{
	Type: "Optimizer",
	Doc:  "Updates parameters from their gradients. Its state is part of a checkpoint.",
	Attrs: [][2]string{
		{"lr", "the first group's learning rate in the last step (before any step, in the first); assigning a number sets a constant rate for all groups"},
		{"steps", "the number of steps done"},
	},
	Defs: []*starlib.Def{
		{Sig: "step(closure: callable = None)",
			Doc: "Updates the parameters that have a gradient and require one, and advances the schedule of the learning rate. closure, which lbfgs needs, is called first: it clears the gradients, computes the loss, calls backward() and returns the loss, which step returns.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				o := c.Recv.(*Optimizer)
				if c.IsNone("closure") && o.lbfgs == nil {
					return nil, o.update(c.Thread, o.opt.Step)
				}
				var closure starlark.Callable
				if !c.IsNone("closure") {
					closure = c.Callable("closure")
				}
				return o.closed(c.Thread, closure)
			}},
		{Sig: "zero_grad()",
			Doc: "Clears the parameters' gradients.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				c.Recv.(*Optimizer).opt.ZeroGrad()
				return nil, nil
			}},
	},
}

func (o *Optimizer) Attr(name string) (starlark.Value, error) {
	switch name {
	case "lr":
		return starlark.Float(o.groups[0].lr), nil
	case "steps":
		return starlark.MakeInt(o.step), nil
	}
	return methods.Attr(o, name)
}

func (o *Optimizer) AttrNames() []string { return methods.AttrNames() }

func (o *Optimizer) SetField(name string, v starlark.Value) (err error) {
	defer try.Caught(&err)
	if name != "lr" {
		return starlark.NoSuchAttrError(fmt.Sprintf("Optimizer has no field %s to assign; it has lr", name))
	}
	r := try.To(rateOf(v))
	c, ok := r.(constant)
	try.FailIf(!ok, "lr: want a number; schedules are given to optim.%s(lr = ...)", o.kind)
	for i := range o.groups {
		o.groups[i].rate, o.groups[i].lr = c, float64(c)
	}
	return nil
}

// State returns the algorithm's tensors, the number of steps, and the learning rates.
func (o *Optimizer) State() []starlib.Entry {
	rates := starlark.Tuple(each.Of(o.groups, func(g group) starlark.Value { return starlark.Float(g.lr) }))
	entries := []starlib.Entry{{Name: "steps", Value: starlark.MakeInt(o.step)}, {Name: "lr", Value: rates}}
	if moved := o.plateaus(); moved != nil {
		entries = append(entries, starlib.Entry{Name: "plateau", Value: moved})
	}
	live := o.opt.State()
	for _, name := range slices.Sorted(maps.Keys(live)) {
		entries = append(entries, starlib.Entry{Name: name, Value: (*startensor.Value)(live[name])})
	}
	return entries
}

// SetState copies the tensors into the live ones and takes over the steps
// and rates; a constant rate becomes the saved one.
func (o *Optimizer) SetState(entries []starlib.Entry) (err error) {
	defer try.Caught(&err)
	step, rates, moved := o.step, starlark.Tuple(nil), starlark.Value(nil)
	var tensors []starlib.Entry
	for _, e := range entries {
		switch e.Name {
		case "steps":
			n, err := starlark.AsInt32(e.Value)
			try.FailIf(err != nil || n < 0, "optim.%s: steps must be a number of 0 or more, not %s", o.kind, e.Value)
			step = n
		case "lr":
			var ok bool
			if rates, ok = e.Value.(starlark.Tuple); !ok || len(rates) != len(o.groups) {
				return fmt.Errorf("optim.%s has %d groups of parameters, but lr is %s", o.kind, len(o.groups), e.Value)
			}
		case "plateau":
			moved = e.Value
			try.Ok(o.setPlateaus(moved, false))
		default:
			tensors = append(tensors, e)
		}
	}
	try.Ok(startensor.Restore(o.ctx, "optim."+o.kind, o.opt.State(), tensors))
	for i, v := range rates {
		lr, ok := starlark.AsFloat(v)
		try.FailIf(!ok, "optim.%s: lr must be numbers, not %s", o.kind, rates)
		g := &o.groups[i]
		if _, ok := g.rate.(constant); ok {
			g.rate = constant(lr)
		}
		g.lr = lr
	}
	o.step = step
	if moved != nil {
		return o.setPlateaus(moved, true)
	}
	return nil
}
