package optim

import (
	"math"

	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/tensor"
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
// calls the closure for the loss and its gradients. It has one group of parameters.
type LBFGS struct {
	*Optimizer
	o       LBFGSOptions
	f       *flat
	numbers *tensor.Tensor // float64, see the constants below
	ro      *tensor.Tensor // float64 (history)
	// Flat vectors of the parameters' type: the direction, the previous gradient, and
	// the history's steps and changes of the gradient, one row each, oldest first.
	d, before, steps, changes *tensor.Tensor
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
	try.FailIf(len(groups) != 1, "lbfgs has one group of parameters, not %d", len(groups))
	opt := try.To(New(groups, nil))
	try.FailIf(len(opt.flats) != 1, "lbfgs needs parameters of one dtype")
	l := &LBFGS{Optimizer: opt, o: o, f: opt.flats[0]}
	n, dt := l.f.Data.Len(), l.f.Data.DType()
	l.numbers, l.ro = l.zeros(dtype.Float64, lbfgsNumbers), l.zeros(dtype.Float64, o.History)
	l.d, l.before = l.zeros(dt, n), l.zeros(dt, n)
	l.steps, l.changes = l.zeros(dt, o.History, n), l.zeros(dt, o.History, n)
	opt.state = map[string]*tensor.Tensor{"step": opt.steps, "numbers": l.numbers, "ro": l.ro, "d": l.d, "prev_flat_grad": l.before, "old_stps": l.steps, "old_dirs": l.changes}
	return l, nil
}

// From here on, functions without an error fail as try.To does.

func (l *LBFGS) zeros(dt dtype.Type, shape ...int) *tensor.Tensor {
	return try.To(tensor.Zeros(l.f.Data.Context(), shape, dt))
}

// number reads a tensor of one element that is not needed afterwards.
func number(t *tensor.Tensor, err error) float64 {
	s := try.To(try.To(t, err).Item())
	tensor.Discard(t)
	return s.Float()
}

// inner returns the inner product of two vectors.
func inner(a, b *tensor.Tensor) float64 {
	products := try.To(tensor.Mul(a, b))
	defer tensor.Discard(products)
	return number(tensor.Sum(products, nil, false))
}

// magnitudes applies Max or Sum to the magnitudes of a vector's elements.
func magnitudes(a *tensor.Tensor, of func(*tensor.Tensor) (*tensor.Tensor, error)) float64 {
	size := try.To(tensor.Unary(tensor.OpAbs, a))
	defer tensor.Discard(size)
	return number(of(size))
}

func largest(a *tensor.Tensor) float64 { return magnitudes(a, tensor.Max) }

func times(a *tensor.Tensor, by float64) *tensor.Tensor {
	return try.To(tensor.BinaryScalar(tensor.OpMul, a, tensor.Float(by), false))
}

// addTimes does to += by·a, in place.
func addTimes(to, a *tensor.Tensor, by float64) {
	part := times(a, by)
	try.Ok(tensor.BinaryInPlace(tensor.OpAdd, to, part))
	tensor.Discard(part)
}

func overwrite(to, a *tensor.Tensor) { try.Ok(tensor.CopyInto(to, a)) }

// gradient returns a copy of all gradients, with zeros for parameters without one.
func (l *LBFGS) gradient() *tensor.Tensor {
	try.Ok(l.f.owned())
	g := l.zeros(l.f.Data.DType(), l.f.Data.Len())
	for i, p := range l.f.Params {
		if p.Moves() {
			overwrite(l.f.Window(g, i), p.Grad())
		}
	}
	return g
}

// Step does up to MaxIter iterations and returns the first loss. closure clears the
// gradients, computes the loss and its gradients, and returns the loss.
func (l *LBFGS) Step(closure func() (float64, error)) (first float64, err error) {
	defer try.Caught(&err)
	c := l.f.Data.Context()
	evaluate := func() (float64, *tensor.Tensor) { return try.To(closure()), l.gradient() }
	first, g := evaluate()
	c.BeginNoGrad()
	defer c.EndNoGrad()
	err = l.iterate(func() (float64, *tensor.Tensor) { // the closure records
		c.EndNoGrad()
		defer c.BeginNoGrad()
		return evaluate()
	}, first, g)
	l.numbers.Touched()
	l.ro.Touched()
	for i := range tensor.Elems[int64](l.Optimizer.steps) {
		tensor.Elems[int64](l.Optimizer.steps)[i]++
	}
	l.Optimizer.steps.Touched()
	l.f.changed()
	return first, err
}

func (l *LBFGS) iterate(evaluate func() (float64, *tensor.Tensor), loss float64, g *tensor.Tensor) (err error) {
	defer try.Caught(&err)
	state, lr := tensor.Elems[float64](l.numbers), l.f.group.LR
	state[lbfgsEvaluations]++
	if largest(g) <= l.o.TolGrad {
		return nil
	}
	evaluations := 1
	for n := 1; n <= l.o.MaxIter; n++ {
		state[lbfgsIterations]++
		begin := state[lbfgsIterations] == 1
		if begin {
			overwrite(l.d, times(g, -1))
			state[lbfgsKept], state[lbfgsDiagonal] = 0, 1
		} else {
			l.direct(g, state)
		}
		overwrite(l.before, g)
		lossBefore := loss
		state[lbfgsLoss] = loss
		t := lr
		if begin {
			t = min(1, 1/magnitudes(g, func(t *tensor.Tensor) (*tensor.Tensor, error) { return tensor.Sum(t, nil, false) })) * lr
		}
		state[lbfgsStep] = t
		slope := inner(g, l.d)
		if slope > -l.o.TolChange {
			return nil
		}
		made := 0
		if l.o.StrongWolfe {
			start := try.To(tensor.Clone(l.f.Data))
			at := func(t float64) point {
				overwrite(l.f.Data, start)
				addTimes(l.f.Data, l.d, t)
				loss, g := evaluate()
				overwrite(l.f.Data, start)
				return point{t, loss, g, inner(g, l.d)}
			}
			var best point
			best, made = strongWolfe(at, t, largest(l.d), loss, g, slope, l.o.TolChange)
			loss, g, t = best.f, best.g, best.t
			state[lbfgsStep] = t
			addTimes(l.f.Data, l.d, t)
		} else {
			addTimes(l.f.Data, l.d, t)
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
func (l *LBFGS) direct(g *tensor.Tensor, state []float64) {
	ro, n := tensor.Elems[float64](l.ro), l.f.Data.Len()
	row := func(t *tensor.Tensor, i int) *tensor.Tensor {
		return try.To(tensor.OnStorage(t.Context(), t.Storage(), i*n, []int{n}, t.DType()))
	}
	y, s := try.To(tensor.Sub(g, l.before)), times(l.d, state[lbfgsStep])
	if ys := inner(y, s); ys > 1e-10 {
		kept := int(state[lbfgsKept])
		if kept == l.o.History { // drop the oldest
			kept--
			for i := range kept {
				overwrite(row(l.changes, i), row(l.changes, i+1))
				overwrite(row(l.steps, i), row(l.steps, i+1))
				ro[i] = ro[i+1]
			}
		}
		overwrite(row(l.changes, kept), y)
		overwrite(row(l.steps, kept), s)
		ro[kept] = 1 / ys
		state[lbfgsDiagonal] = ys / inner(y, y)
		state[lbfgsKept] = float64(kept + 1)
	}
	kept := int(state[lbfgsKept])
	al := make([]float64, kept)
	q := times(g, -1)
	for i := kept - 1; i >= 0; i-- {
		al[i] = inner(row(l.steps, i), q) * ro[i]
		addTimes(q, row(l.changes, i), -al[i])
	}
	r := times(q, state[lbfgsDiagonal])
	for i := 0; i < kept; i++ {
		be := inner(row(l.changes, i), r) * ro[i]
		addTimes(r, row(l.steps, i), al[i]-be)
	}
	overwrite(l.d, r)
}

// point is a step of a line search: the loss there, its gradient, and the slope along the direction.
type point struct {
	t, f  float64
	g     *tensor.Tensor
	slope float64
}

// strongWolfe searches for a step that meets the strong Wolfe conditions: first a bracket,
// then zoom (Nocedal and Wright, "Numerical Optimization", algorithms 3.5 and 3.6, with
// PyTorch's guards against too little progress). width is the direction's largest element.
func strongWolfe(at func(t float64) point, t, width, f float64, g *tensor.Tensor, slope, tolChange float64) (best point, evaluations int) {
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
			// If it is close to an end twice, or at it: move 0.1 away from the nearer end.
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

// cubicMinimum returns the minimum of the cubic through two points and their slopes, between least and largest.
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
