// Package optim updates tensors from their gradients: optimizers, L-BFGS, and moving averages of parameters. starlib's module
// optim calls it.
package optim

import (
	"fmt"
	"slices"
	"unsafe"

	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/kernel/opencl"
	"drun/tensor"
)

// A ParamGroup is a group of parameters that share a learning rate. LR, WeightDecay and Momentum
// may be changed between steps.
type ParamGroup struct {
	Params      []*tensor.Tensor
	LR          float64
	WeightDecay float64
	Momentum    float64 // instead of the rule's momentum, or its Beta1; 0: the rule's
}

// An Optimizer updates parameters from their gradients. It moves the parameters of a group into one buffer, and keeps
// their gradients and its own state in buffers of the same layout, so that a step is one kernel call and a collective
// can reduce the gradients where they are.
type Optimizer struct {
	groups []ParamGroup
	flats  []*flat
	rule   Rule
	params int
	steps  *tensor.Tensor            // int64: updates done so far to each parameter
	state  map[string]*tensor.Tensor // nil: not needed yet
	set    string                    // names the ranks that share the state, see Shard
}

// flat holds the parameters of one group and type.
type flat struct {
	*tensor.Flat
	group   *ParamGroup
	first   int              // number of Params[0] in the optimizer
	buffers []*tensor.Tensor // of the elements from from to to
	// The elements that Step updates: all, or this rank's part, see Shard.
	from, to, each int
}

// New makes an optimizer. The parameters are leaves of type float32 or float64, of which at least one requires a gradient.
func New(groups []ParamGroup, rule Rule) (_ *Optimizer, err error) {
	defer try.Caught(&err)
	o := &Optimizer{groups: groups, rule: rule}
	seen := map[*tensor.Tensor]bool{}
	var lists [][]*tensor.Tensor
	for gi := range groups {
		g := &groups[gi]
		try.FailIf(len(g.Params) == 0, "the list of parameters is empty")
		for i, p := range g.Params {
			try.Ok(checkParam(p, o.params+i))
			if seen[p] {
				return nil, fmt.Errorf("parameter %d is given twice", o.params+i)
			}
			seen[p] = true
			if last := len(lists) - 1; i == 0 || lists[last][0].DType() != p.DType() {
				o.flats = append(o.flats, &flat{group: g, first: o.params + i})
				lists = append(lists, []*tensor.Tensor{p})
			} else {
				lists[last] = append(lists[last], p)
			}
		}
		o.params += len(g.Params)
	}
	try.FailIf(o.params == 0, "there are no parameters")
	first := groups[0].Params[0]
	try.FailIf(!slices.ContainsFunc(slices.Concat(lists...), (*tensor.Tensor).RequiresGrad),
		"parameter 0 (shape %s) does not require a gradient, nor does another: there is nothing to optimize", tensor.ShapeString(first.Shape()))
	moved := 0
	for i, f := range o.flats {
		f.Flat = try.To(tensor.NewFlat(lists[i]))
		f.to, f.each = f.Data.Len(), f.Data.Len()
		moved += f.Data.Storage().Bytes()
	}
	tensor.Reclaim(moved)
	o.steps, err = tensor.Zeros(first.Context(), []int{o.params}, dtype.Int64)
	return o, err
}

func checkParam(p *tensor.Tensor, i int) error {
	switch {
	case p.Frozen():
		return fmt.Errorf("parameter %d is frozen, as all values made at top level are; make it in main()", i)
	case !p.IsLeaf():
		return fmt.Errorf("parameter %d (shape %s) is the result of an operation, not a leaf", i, tensor.ShapeString(p.Shape()))
	}
	return tensor.NeedFloat("parameters", p)
}

// prepare makes the state when it is first needed, since Shard may be called before that.
func (o *Optimizer) prepare() (err error) {
	defer try.Caught(&err)
	if o.state != nil {
		return nil
	}
	state := map[string]*tensor.Tensor{"step": o.steps}
	for _, f := range o.flats {
		f.buffers = nil
		for bi, name := range o.rule.buffers() {
			b := try.To(tensor.NewFlatBuffer(f.Data, f.to-f.from, f.Data.DType()))
			if r, ok := o.rule.(Adagrad); ok && bi == 0 && r.Initial != 0 {
				try.Ok(b.Fill(tensor.Float(r.Initial)))
			}
			f.buffers = append(f.buffers, b)
			for i, p := range f.Params {
				var s *tensor.Tensor
				if o.set != "" {
					s = f.Part(b, i, f.from, f.to, o.set)
				} else if s = f.Window(b, i); p.Share() != nil {
					s.SetShare(p.Share())
				}
				state[fmt.Sprintf("%s.%d", name, f.first+i)] = s
			}
		}
	}
	try.Ok(o.wholeState(state))
	o.state = state
	return nil
}

// Step updates all parameters that have a gradient and still require one.
func (o *Optimizer) Step() (err error) {
	defer try.Caught(&err)
	try.Ok(o.prepare())
	steps := tensor.Elems[int64](o.steps)
	for _, f := range o.flats {
		try.Ok(f.owned())
		// Neighbours with a gradient and the same number of updates are updated together.
		for i := 0; i < len(f.Params); {
			if !f.Params[i].Moves() {
				i++
				continue
			}
			if r, ok := o.rule.(wholeRule); ok {
				o.updateWhole(r, f, i, &run{ParamGroup: f.group, dt: f.Data.DType(), step: steps[f.first+i] + 1})
				steps[f.first+i]++
				i++
				continue
			}
			j := i
			for ; j < len(f.Params) && f.Params[j].Moves() && steps[f.first+j] == steps[f.first+i]; j++ {
			}
			o.update(f, i, j, steps[f.first+i]+1)
			for k := i; k < j; k++ {
				steps[f.first+k]++
			}
			i = j
		}
		f.changed()
	}
	o.steps.Touched()
	return nil
}

// owned returns an error if a parameter has moved into another optimizer's buffer.
func (f *flat) owned() error {
	for i := range f.Params {
		if !f.Owns(i) {
			return fmt.Errorf("parameter %d was taken over by another optimizer", f.first+i)
		}
	}
	return nil
}

// changed marks the parameters as written by a step.
func (f *flat) changed() {
	f.Data.Touched()
	f.Data.Context().Watched("the optimizer's step", f.Data, f.Grads)
}

// update updates parameters i up to, not including, j, as far as they are this rank's.
func (o *Optimizer) update(f *flat, i, j int, step int64) {
	at, end := max(f.At(i), f.from), min(f.At(j), f.to)
	if at >= end {
		return
	}
	if o.updateOnDevice(f, at, end-at, step) {
		return
	}
	x := &run{ParamGroup: f.group, dt: f.Data.DType(), n: end - at, step: step, p: pointer(f.Data, at), grad: pointer(f.Grads, at), of: f, at: at}
	for i, b := range f.buffers {
		x.state[i] = pointer(b, at-f.from)
	}
	o.rule.update(x)
}

// updateOnDevice is update of n elements from at on, on the device; false if that is the processor, or has no kernel for the rule.
func (o *Optimizer) updateOnDevice(f *flat, at, n int, step int64) bool {
	d, read, change := tensor.DeviceOf(f.Data)
	if d == nil {
		return false
	}
	switch o.rule.(type) {
	case SGD, Adam, RMSprop, Adagrad, Lion:
	default: // made of tensor operations
		return false
	}
	x := &run{ParamGroup: f.group, step: step}
	var state [3]opencl.Place
	grad := read(f.Grads).Plus(at)
	for i, b := range f.buffers {
		state[i] = change(b).Plus(at - f.from)
	}
	dt, p := f.Data.DType(), change(f.Data).Plus(at)
	switch r := o.rule.(type) {
	case SGD:
		d.SGD(r.of(x), dt, n, p, grad, state[0])
	case Adam:
		d.Adam(r.of(x), dt, n, p, grad, state[0], state[1])
	case RMSprop:
		m, a := state[1], state[2]
		if r.Momentum == 0 {
			m, a = opencl.Place{}, m
		}
		d.RMSprop(r.of(x), dt, n, p, grad, state[0], m, a)
	case Adagrad:
		d.Adagrad(r.of(x), dt, n, p, grad, state[0])
	case Lion:
		d.Lion(r.of(x), dt, n, p, grad, state[0])
	}
	return true
}

// pointer returns the address of an element of a buffer.
func pointer(b *tensor.Tensor, at int) unsafe.Pointer {
	return unsafe.Pointer(&b.Bytes()[at*b.DType().Size()])
}

func (o *Optimizer) ZeroGrad() {
	for _, f := range o.flats {
		for _, p := range f.Params {
			_ = p.SetGrad(nil)
		}
	}
}

// Groups returns the groups, whose LR and WeightDecay may be changed in place.
func (o *Optimizer) Groups() []ParamGroup { return o.groups }

// State returns the tensors that a checkpoint must hold, by name: a buffer of each parameter such as "exp_avg.0", and
// "step", int64, one entry for each parameter. They are the optimizer's own: CopyInto restores them.
func (o *Optimizer) State() map[string]*tensor.Tensor {
	if err := o.prepare(); err != nil {
		panic(noMemory{err})
	}
	return o.state
}

// noMemory is panicked with to end a builtin's call where no error can be returned.
type noMemory struct{ error }

// Misuse distinguishes it from a bug in drun.
func (noMemory) Misuse() {}

// Memory returns the parameters, one part for each group and type. Equal values give equal bytes, wherever they are in memory.
func (o *Optimizer) Memory() []tensor.Contents {
	return each.Of(o.flats, func(f *flat) tensor.Contents { return tensor.ContentsOf(f.Data) })
}

// Moments returns what the optimizer knows of its parameters, such as averages of their gradients, as Memory does.
func (o *Optimizer) Moments() (all []tensor.Contents) {
	for _, f := range o.flats {
		all = append(all, each.Of(f.buffers, tensor.ContentsOf)...)
	}
	return all
}

// Shard keeps only part own of the optimizer's state, cut into parts: Step then updates that part of the parameters,
// and leaves the rest to the other ranks of the set. State returns shares.
func (o *Optimizer) Shard(own, parts int, set string) (err error) {
	defer try.Caught(&err)
	whole := make([][]*tensor.Tensor, len(o.flats))
	for i, f := range o.flats {
		whole[i] = f.buffers
		f.from, f.to, f.each = tensor.Cut(f.Data.Len(), own, parts)
	}
	o.set = set
	if o.state == nil {
		return nil
	}
	o.state = nil
	try.Ok(o.prepare())
	for i, f := range o.flats {
		for n, b := range f.buffers {
			copy(b.Bytes(), whole[i][n].Bytes()[f.from*b.DType().Size():])
			tensor.Discard(whole[i][n])
		}
	}
	return nil
}

// Buffer holds adjacent parameters of an optimizer: Data is all of them, of which Step updates the elements from From up
// to To; Each is the length of all parts but the last.
type Buffer struct {
	Data           *tensor.Tensor
	From, To, Each int
}

func (o *Optimizer) Buffers() []Buffer {
	return each.Of(o.flats, func(f *flat) Buffer { return Buffer{f.Data, f.from, f.to, f.each} })
}
