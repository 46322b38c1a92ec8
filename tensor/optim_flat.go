package tensor

import (
	"fmt"
	"slices"
	"unsafe"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// A ParamGroup is parameters that share a learning rate. LR, WeightDecay and Momentum
// may be changed between steps.
type ParamGroup struct {
	Params      []*Tensor
	LR          float64
	WeightDecay float64
	Momentum    float64 // instead of the optimizer's momentum, or its Beta1; 0: the optimizer's
}

// momentum is the group's, or else the optimizer's.
func (g *ParamGroup) momentum(own float64) float64 {
	if g.Momentum != 0 {
		return g.Momentum
	}
	return own
}

// HasMomentum reports whether the optimizer uses ParamGroup.Momentum.
func (o *Optimizer) HasMomentum() bool {
	switch r := o.rule.(type) {
	case SGDOptions:
		return r.Momentum > 0
	case RMSpropOptions:
		return r.Momentum > 0
	case AdamOptions, LionOptions:
		return true
	}
	return false
}

// An Optimizer updates parameters from their gradients. It moves the
// parameters of a group into one buffer, and keeps their gradients and its
// own state in buffers of the same layout, so that a step is one kernel call
// and a collective can reduce the gradients where they are.
type Optimizer struct {
	groups []ParamGroup
	flats  []*flat
	rule   updateRule
	params int
	steps  *Tensor            // int64: updates done so far to each parameter
	state  map[string]*Tensor // nil: not needed yet
	first  float64            // initial value of the rule's first buffer
	set    string             // names the ranks that share the state, see Shard
}

// An updateRule is what distinguishes optimizers.
type updateRule interface {
	// buffers names the state kept for each element.
	buffers() []string
	// update changes n elements. step counts from 1 for these parameters.
	update(dt dtype.Type, n int, g *ParamGroup, step int64, p, grad unsafe.Pointer, state []unsafe.Pointer)
}

// flat is the parameters of one group and type, in one buffer.
type flat struct {
	group   *ParamGroup
	params  []*Tensor
	first   int   // number of params[0] in the optimizer
	at      []int // offset of each; at[len(params)] is the end
	data    *Tensor
	grads   *Tensor
	buffers []*Tensor // of the elements from from to to
	// What Step updates: all, or this rank's part, see Shard.
	from, to, each int
}

// flatAlign is the alignment of parameters' offsets, in elements; the gaps hold zeros.
const flatAlign = 16

func newOptimizer(groups []ParamGroup, rule updateRule) (_ *Optimizer, err error) {
	defer try.Caught(&err)
	o := &Optimizer{groups: groups, rule: rule}
	seen := map[*Tensor]bool{}
	for gi := range groups {
		g := &groups[gi]
		if len(g.Params) == 0 {
			return nil, fmt.Errorf("the list of parameters is empty")
		}
		var f *flat
		for i, p := range g.Params {
			try.Ok(checkParam(p, o.params+i))
			if seen[p] {
				return nil, fmt.Errorf("parameter %d is given twice", o.params+i)
			}
			seen[p] = true
			if f == nil || f.params[0].dtype != p.dtype {
				f = &flat{group: g, first: o.params + i, at: []int{0}}
				o.flats = append(o.flats, f)
			}
			f.params = append(f.params, p)
			end := f.at[len(f.at)-1] + p.n
			f.at = append(f.at, (end+flatAlign-1)/flatAlign*flatAlign)
		}
		o.params += len(g.Params)
	}
	if o.params == 0 {
		return nil, fmt.Errorf("there are no parameters")
	}
	if !slices.ContainsFunc(groups, func(g ParamGroup) bool { return slices.ContainsFunc(g.Params, (*Tensor).RequiresGrad) }) {
		return nil, fmt.Errorf("parameter 0 (shape %s) does not require a gradient, nor does another: there is nothing to optimize", ShapeString(groups[0].Params[0].shape))
	}
	moved := 0
	for _, f := range o.flats {
		try.Ok(f.gatherUp())
		moved += f.data.st.bytes
	}
	reclaim(moved)
	o.steps, err = Zeros(groups[0].Params[0].ctx, []int{o.params}, dtype.Int64)
	return o, err
}

// prepare makes the state when it is first needed: Shard may have been called by then.
func (o *Optimizer) prepare() (err error) {
	defer try.Caught(&err)
	if o.state != nil {
		return nil
	}
	state := map[string]*Tensor{"step": o.steps}
	for _, f := range o.flats {
		f.buffers = nil
		for bi, name := range o.rule.buffers() {
			st := try.To(newStorage("optimizer", (f.to-f.from)*f.data.dtype.Size()))
			st.flat = true
			b := try.To(OnStorage(f.data.ctx, st, 0, []int{f.to - f.from}, f.data.dtype))
			if bi == 0 && o.first != 0 {
				fill(b, Float(o.first))
			}
			f.buffers = append(f.buffers, b)
			for i, p := range f.params {
				state[fmt.Sprintf("%s.%d", name, f.first+i)] = f.stateOf(b, i, p, o.set)
			}
		}
	}
	o.state = state
	return nil
}

// stateOf is parameter i's part of a buffer.
func (f *flat) stateOf(b *Tensor, i int, p *Tensor, set string) *Tensor {
	if set != "" {
		first, n, off := within(f.at[i], p.n, f.from, f.to)
		v := viewOf(b, 1)
		v.shape[0], v.strides[0] = n, 1
		v.off = off
		v.SetShare(&Share{Shape: p.shape, From: first, Set: set})
		return v.seal()
	}
	w := f.window(b, i, p.shape)
	if s := p.Share(); s != nil {
		w.SetShare(s)
	}
	return w
}

func checkParam(p *Tensor, i int) error {
	switch {
	case p.frozen:
		return fmt.Errorf("parameter %d is frozen, as all values made at top level are; make it in main()", i)
	case p.node != nil:
		return fmt.Errorf("parameter %d (shape %s) is the result of an operation, not a leaf", i, ShapeString(p.shape))
	}
	return NeedFloat("parameters", p)
}

// window is the part of a flat buffer that belongs to parameter i.
func (f *flat) window(buffer *Tensor, i int, shape []int) *Tensor {
	v := viewOf(buffer, len(shape))
	copy(v.shape, shape)
	setContiguous(v.strides, shape)
	v.off += f.at[i]
	return v.seal()
}

// gatherUp makes the buffers and moves the parameters, and any gradients, into them.
func (f *flat) gatherUp() (err error) {
	defer try.Caught(&err)
	p0 := f.params[0]
	size := []int{f.at[len(f.params)]}
	f.to, f.each = size[0], size[0]
	make := func(s *Storage, err error) *Tensor {
		try.Ok(err)
		s.flat = true
		return try.To(OnStorage(p0.ctx, s, 0, size, p0.dtype))
	}
	bytes := size[0] * p0.dtype.Size()
	f.data = make(newStorage("optimizer", bytes))
	if p0.ctx.GradStorage != nil {
		f.grads = make(p0.ctx.GradStorage(bytes))
	} else {
		f.grads = make(newStorage("optimizer", bytes))
	}
	fill(f.grads, Int(0))
	for i, p := range f.params {
		w := f.window(f.data, i, p.shape)
		kCopy(w, p)
		p.st, p.off, p.contiguous = w.st, w.off, true
		copy(p.strides, w.strides)
		s := p.leafState()
		s.slot, s.owner = f.window(f.grads, i, p.shape), f
		if p.grad != nil {
			try.Ok(p.SetGrad(p.grad))
		}
	}
	return nil
}

// moves reports whether a step updates t: it has a gradient, and has not been frozen since.
func (t *Tensor) moves() bool { return t.grad != nil && t.requiresGrad }

// Step updates all parameters that have a gradient and still require one.
func (o *Optimizer) Step() error {
	if err := o.prepare(); err != nil {
		return err
	}
	steps := Elems[int64](o.steps)
	for _, f := range o.flats {
		for i, p := range f.params {
			if p.leaf.owner != f {
				return fmt.Errorf("parameter %d was taken over by another optimizer", f.first+i)
			}
		}
		// Neighbours with a gradient and the same number of updates are updated together.
		for i := 0; i < len(f.params); {
			if !f.params[i].moves() {
				i++
				continue
			}
			j := i
			for ; j < len(f.params) && f.params[j].moves() && steps[f.first+j] == steps[f.first+i]; j++ {
			}
			o.update(f, i, j, steps[f.first+i]+1)
			for k := i; k < j; k++ {
				steps[f.first+k]++
			}
			i = j
		}
		f.data.st.version++
		if c := f.params[0].ctx; c != nil && c.Watch != nil {
			c.watch("the optimizer's step", f.data, f.grads)
		}
	}
	o.steps.st.version++
	return nil
}

// update updates parameters i up to, not including, j, as far as they are this rank's.
func (o *Optimizer) update(f *flat, i, j int, step int64) {
	at, end := max(f.at[i], f.from), min(f.at[j], f.to)
	if at >= end {
		return
	}
	var arr [2]unsafe.Pointer
	state := arr[:0]
	for _, b := range f.buffers {
		state = append(state, b.ptrAt(at-f.from))
	}
	o.rule.update(f.data.dtype, end-at, f.group, step, f.data.ptrAt(at), f.grads.ptrAt(at), state)
}

// ZeroGrad removes all gradients.
func (o *Optimizer) ZeroGrad() {
	for _, f := range o.flats {
		for _, p := range f.params {
			p.grad = nil
		}
	}
}

// Groups returns the groups, whose LR and WeightDecay may be changed in place.
func (o *Optimizer) Groups() []ParamGroup { return o.groups }

// State returns the tensors that a checkpoint must hold, by name: a buffer of
// each parameter such as "exp_avg.0", and "step", int64, one entry for each
// parameter. They are the optimizer's own: CopyInto restores them.
func (o *Optimizer) State() map[string]*Tensor {
	if err := o.prepare(); err != nil {
		panic(noMemory{err})
	}
	return o.state
}

// noMemory ends a builtin's call where no error can be returned.
type noMemory struct{ error }

// Misuse distinguishes it from a fault in drun.
func (noMemory) Misuse() {}

// Bytes returns the parameters' bytes, one part for each group and type: equal values give equal bytes, wherever they lie.
func (o *Optimizer) Bytes() [][]byte {
	parts := make([][]byte, len(o.flats))
	for i, f := range o.flats {
		parts[i] = f.data.Bytes()
	}
	return parts
}

// Coalesce joins tensors that are adjacent in an optimizer's buffer, so
// that one call can work on many. The results are flat and cover the same
// elements, with gaps of zeros between them; other contiguous tensors are
// returned as they are. All ts must be contiguous.
func Coalesce(ts []*Tensor) []*Tensor {
	var out []*Tensor
	for i := 0; i < len(ts); {
		first, end, j := ts[i], ts[i].off+ts[i].n, i+1
		for ; j < len(ts) && ts[j].st == first.st && first.st.flat && ts[j].dtype == first.dtype &&
			ts[j].off == (end+flatAlign-1)/flatAlign*flatAlign; j++ {
			end = ts[j].off + ts[j].n
		}
		if j == i+1 {
			out = append(out, first)
		} else {
			v := viewOf(first, 1)
			v.shape[0], v.strides[0] = end-first.off, 1
			out = append(out, v.seal())
		}
		i = j
	}
	return out
}
