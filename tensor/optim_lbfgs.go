package tensor

import (
	"fmt"
	"math"
	"unsafe"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// LBFGSOptions are the settings of NewLBFGS.
type LBFGSOptions struct {
	MaxIter, MaxEval   int
	TolGrad, TolChange float64
	History            int
	StrongWolfe        bool
}

// LBFGS is the limited-memory method of Broyden, Fletcher, Goldfarb and Shanno (Liu and
// Nocedal 1989), as PyTorch has it: a step makes up to MaxIter iterations, each of which
// asks the closure for the loss and its gradients. It has one group of parameters.
type LBFGS struct {
	*Optimizer
	o       LBFGSOptions
	f       *flat
	numbers *Tensor // float64, see the constants below
	ro      *Tensor // float64 (history)
	// Flat vectors of the parameters' type: the direction, the gradient before, and the
	// history's steps and changes of the gradient, a row each, oldest first.
	d, before, steps, changes *Tensor
}

// What numbers holds.
const (
	lbfgsIterations = iota
	lbfgsEvaluations
	lbfgsStep
	lbfgsDiagonal
	lbfgsLoss
	lbfgsKept
	lbfgsNumbers
)

// NewLBFGS makes the optimizer. Its memory is 2·History + 2 times that of the parameters.
func NewLBFGS(groups []ParamGroup, o LBFGSOptions) (_ *LBFGS, err error) {
	defer try.Caught(&err)
	if len(groups) != 1 {
		return nil, fmt.Errorf("lbfgs has one group of parameters, not %d", len(groups))
	}
	opt := try.To(newOptimizer(groups, noRule{}))
	if len(opt.flats) != 1 {
		return nil, fmt.Errorf("lbfgs needs parameters of one dtype")
	}
	l := &LBFGS{Optimizer: opt, o: o, f: opt.flats[0]}
	n, b := l.f.data.n, build("lbfgs", l.f.data)
	l.numbers, l.ro = b.zeros(dtype.Float64, lbfgsNumbers), b.zeros(dtype.Float64, o.History)
	l.d, l.before = b.zeros(b.dtype, n), b.zeros(b.dtype, n)
	l.steps, l.changes = b.zeros(b.dtype, o.History, n), b.zeros(b.dtype, o.History, n)
	opt.state = map[string]*Tensor{"step": opt.steps, "numbers": l.numbers, "ro": l.ro, "d": l.d, "prev_flat_grad": l.before, "old_stps": l.steps, "old_dirs": l.changes}
	return l, nil
}

// noRule is for an optimizer that updates by itself.
type noRule struct{}

func (noRule) buffers() []string { return nil }
func (noRule) update(dtype.Type, int, *ParamGroup, int64, unsafe.Pointer, unsafe.Pointer, []unsafe.Pointer) {
}

// The arithmetic on flat vectors, which ends the function as try.To does. total is the sum of a chain's result.
func total(c chained) float64 {
	return try.To(c.then(func(t *Tensor) (*Tensor, error) { return Sum(t, nil, false) }).end()).at(0).f
}

func inner(a, b *Tensor) float64            { return total(chain(a).mul(b)) }
func largest(a *Tensor) float64             { return try.To(chain(a).unary(OpAbs).then(Max).end()).at(0).f }
func times64(a *Tensor, by float64) *Tensor { return try.To(chain(a).scalar(OpMul, Float(by)).end()) }

// addTimes does to += by·a, in place.
func addTimes(to, a *Tensor, by float64) {
	part := times64(a, by)
	kBinary(OpAdd, to, to, part)
	to.st.version++
	Discard(part)
}

func overwriteWith(to, a *Tensor) {
	kCopy(to, a)
	to.st.version++
}

// gradient is a copy of all gradients, with zeros for parameters without one.
func (l *LBFGS) gradient() (_ *Tensor, err error) {
	defer try.Caught(&err)
	g := try.To(zeros("lbfgs", l.f.data.ctx, l.f.data.shape, l.f.data.dtype))
	for i, p := range l.f.params {
		if p.leaf.owner != l.f {
			return nil, fmt.Errorf("parameter %d was taken over by another optimizer", i)
		}
		if p.grad != nil && p.requiresGrad {
			kCopy(l.f.window(g, i, p.shape), p.grad)
		}
	}
	return g, nil
}

// Step makes up to MaxIter iterations and gives the first loss. closure clears the
// gradients, computes the loss and its gradients, and returns the loss.
func (l *LBFGS) Step(closure func() (float64, error)) (first float64, err error) {
	defer try.Caught(&err)
	c := l.f.data.ctx
	evaluate := func() (float64, *Tensor) { return try.To(closure()), try.To(l.gradient()) }
	first, g := evaluate()
	c.BeginNoGrad()
	defer c.EndNoGrad()
	unrecorded := evaluate
	evaluate = func() (float64, *Tensor) { // the closure records
		depth := c.noGrad
		c.noGrad = depth - 1
		defer func() { c.noGrad = depth }()
		return unrecorded()
	}
	err = l.iterate(evaluate, first, g)
	l.f.data.st.version++
	l.numbers.st.version++
	l.ro.st.version++
	for i := range Elems[int64](l.Optimizer.steps) {
		Elems[int64](l.Optimizer.steps)[i]++
	}
	l.Optimizer.steps.st.version++
	if c.Watch != nil {
		c.watch("the optimizer's step", l.f.data, l.f.grads)
	}
	return first, err
}

func (l *LBFGS) iterate(evaluate func() (float64, *Tensor), loss float64, g *Tensor) (err error) {
	defer try.Caught(&err)
	state, lr := Elems[float64](l.numbers), l.f.group.LR
	state[lbfgsEvaluations]++
	if largest(g) <= l.o.TolGrad {
		return nil
	}
	evaluations := 1
	for n := 1; n <= l.o.MaxIter; n++ {
		state[lbfgsIterations]++
		begin := state[lbfgsIterations] == 1
		if begin {
			overwriteWith(l.d, times64(g, -1))
			state[lbfgsKept], state[lbfgsDiagonal] = 0, 1
		} else {
			l.direct(g, state)
		}
		overwriteWith(l.before, g)
		lossBefore := loss
		state[lbfgsLoss] = loss
		t := lr
		if begin {
			t = min(1, 1/total(chain(g).unary(OpAbs))) * lr
		}
		state[lbfgsStep] = t
		slope := inner(g, l.d)
		if slope > -l.o.TolChange {
			return nil
		}
		made := 0
		if l.o.StrongWolfe {
			start := try.To(Clone(l.f.data))
			at := func(t float64) point {
				overwriteWith(l.f.data, start)
				addTimes(l.f.data, l.d, t)
				loss, g := evaluate()
				overwriteWith(l.f.data, start)
				return point{t, loss, g, inner(g, l.d)}
			}
			var best point
			best, made = strongWolfe(at, t, largest(l.d), loss, g, slope, l.o.TolChange)
			loss, g, t = best.f, best.g, best.t
			state[lbfgsStep] = t
			addTimes(l.f.data, l.d, t)
		} else {
			addTimes(l.f.data, l.d, t)
			if n != l.o.MaxIter {
				loss, g = evaluate()
				made = 1
			}
		}
		evaluations += made
		state[lbfgsEvaluations] += float64(made)
		switch {
		case n == l.o.MaxIter || evaluations >= l.o.MaxEval:
			return nil
		case largest(g) <= l.o.TolGrad, math.Abs(largest(l.d)*t) <= l.o.TolChange, math.Abs(loss-lossBefore) < l.o.TolChange:
			return nil
		}
	}
	return nil
}

// direct adds the last step to the history, and sets l.d to the product of the inverse Hessian that it approximates
// with -g, by the two-loop recursion.
func (l *LBFGS) direct(g *Tensor, state []float64) {
	ro, n := Elems[float64](l.ro), l.f.data.n
	row := func(t *Tensor, i int) *Tensor {
		r := viewOf(t, 1)
		r.shape[0], r.strides[0] = n, 1
		r.off += i * n
		return r.seal()
	}
	y, s := try.To(chain(g).binary(OpSub, l.before).end()), times64(l.d, state[lbfgsStep])
	if ys := inner(y, s); ys > 1e-10 {
		kept := int(state[lbfgsKept])
		if kept == l.o.History { // the oldest goes
			kept--
			for i := range kept {
				overwriteWith(row(l.changes, i), row(l.changes, i+1))
				overwriteWith(row(l.steps, i), row(l.steps, i+1))
				ro[i] = ro[i+1]
			}
		}
		overwriteWith(row(l.changes, kept), y)
		overwriteWith(row(l.steps, kept), s)
		ro[kept] = 1 / ys
		state[lbfgsDiagonal] = ys / inner(y, y)
		state[lbfgsKept] = float64(kept + 1)
	}
	kept := int(state[lbfgsKept])
	al := make([]float64, kept)
	q := times64(g, -1)
	for i := kept - 1; i >= 0; i-- {
		al[i] = inner(row(l.steps, i), q) * ro[i]
		addTimes(q, row(l.changes, i), -al[i])
	}
	r := times64(q, state[lbfgsDiagonal])
	for i := 0; i < kept; i++ {
		be := inner(row(l.changes, i), r) * ro[i]
		addTimes(r, row(l.steps, i), al[i]-be)
	}
	overwriteWith(l.d, r)
}

// point is a step of a line search: the loss there, its gradient, and the slope along the
// direction.
type point struct {
	t, f  float64
	g     *Tensor
	slope float64
}

// strongWolfe searches for a step that meets the strong Wolfe conditions: first a bracket,
// then zoom (Nocedal and Wright, "Numerical Optimization", algorithms 3.5 and 3.6, with
// PyTorch's guards against too little progress). width is the direction's largest element.
func strongWolfe(at func(t float64) point, t, width, f float64, g *Tensor, slope, tolChange float64) (best point, evaluations int) {
	const c1, c2, most = 1e-4, 0.9, 25
	begin := point{0, f, g, slope}
	eval := func(t float64) point {
		evaluations++
		return at(t)
	}
	now := eval(t)
	before := begin
	var bracket []point
	done := false
	iterations := 0
	for ; iterations < most; iterations++ {
		if now.f > f+float64(c1*now.t*slope) || iterations > 1 && now.f >= before.f {
			bracket = []point{before, now}
			break
		}
		if math.Abs(now.slope) <= -c2*slope {
			bracket, done = []point{now}, true
			break
		}
		if now.slope >= 0 {
			bracket = []point{before, now}
			break
		}
		low, high := now.t+float64(0.01*(now.t-before.t)), now.t*10
		next := cubicMinimum(before, now, low, high)
		before = now
		now = eval(next)
	}
	if iterations == most {
		bracket = []point{begin, now}
	}
	slow := false
	lo, hi := 0, len(bracket)-1
	if len(bracket) == 2 && bracket[0].f > bracket[1].f {
		lo, hi = 1, 0
	}
	for !done && iterations < most {
		if math.Abs(bracket[1].t-bracket[0].t)*width < tolChange {
			break
		}
		least, largest := min(bracket[0].t, bracket[1].t), max(bracket[0].t, bracket[1].t)
		t := cubicMinimum(bracket[0], bracket[1], least, largest)
		edge := 0.1 * (largest - least)
		if min(largest-t, t-least) < edge {
			// Close to an end twice, or at it: move 0.1 away from the nearer end.
			if slow || t >= largest || t <= least {
				if math.Abs(t-largest) < math.Abs(t-least) {
					t = largest - edge
				} else {
					t = least + edge
				}
				slow = false
			} else {
				slow = true
			}
		} else {
			slow = false
		}
		p := eval(t)
		iterations++
		if p.f > f+float64(c1*p.t*slope) || p.f >= bracket[lo].f {
			bracket[hi] = p
			if bracket[0].f <= bracket[1].f {
				lo, hi = 0, 1
			} else {
				lo, hi = 1, 0
			}
			continue
		}
		if math.Abs(p.slope) <= -c2*slope {
			done = true
		} else if p.slope*(bracket[hi].t-bracket[lo].t) >= 0 {
			bracket[hi] = bracket[lo]
		}
		bracket[lo] = p
	}
	return bracket[lo], evaluations
}

// cubicMinimum is the minimum of the cubic through two points and their slopes, between
// least and largest.
func cubicMinimum(a, b point, least, largest float64) float64 {
	d1 := a.slope + b.slope - 3*(a.f-b.f)/(a.t-b.t)
	square := float64(d1*d1) - float64(a.slope*b.slope)
	if !(square >= 0) {
		return (least + largest) / 2
	}
	d2 := math.Sqrt(square)
	var t float64
	if a.t <= b.t {
		t = b.t - float64((b.t-a.t)*((b.slope+d2-d1)/(b.slope-a.slope+2*d2)))
	} else {
		t = a.t - float64((a.t-b.t)*((a.slope+d2-d1)/(a.slope-b.slope+2*d2)))
	}
	return min(max(t, least), largest)
}
