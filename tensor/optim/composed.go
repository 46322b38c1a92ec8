package optim

import (
	"fmt"
	"math"
	"unsafe"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
	"drun/tensor"
)

// The rules of this file are made of tensor operations: they are used too seldom for kernels of their own.

// scratch holds the intermediate results of one update, which nothing else refers to.
type scratch []*tensor.Tensor

func (s *scratch) keep(t *tensor.Tensor, err error) *tensor.Tensor {
	*s = append(*s, try.To(t, err))
	return t
}

func (s *scratch) free() {
	for _, t := range *s {
		tensor.Discard(t)
	}
}

func (s *scratch) unary(op tensor.UnaryOp, a *tensor.Tensor) *tensor.Tensor {
	return s.keep(tensor.Unary(op, a))
}

func (s *scratch) binary(op tensor.BinaryOp, a, b *tensor.Tensor) *tensor.Tensor {
	return s.keep(tensor.Binary(op, a, b))
}

func (s *scratch) number(op tensor.BinaryOp, a *tensor.Tensor, x float64) *tensor.Tensor {
	return s.keep(tensor.BinaryScalar(op, a, tensor.Float(x), false))
}

// root is √(a·scale) + eps.
func (s *scratch) root(a *tensor.Tensor, scale, eps float64) *tensor.Tensor {
	return s.number(tensor.OpAdd, s.unary(tensor.OpSqrt, s.number(tensor.OpMul, a, scale)), eps)
}

// towards moves a to b by the share w, in place.
func (s *scratch) towards(a, b *tensor.Tensor, w float64) {
	addTimes(a, s.binary(tensor.OpSub, b, a), w)
}

// square is decay·v + (1-decay)·g², in place.
func (s *scratch) square(v, g *tensor.Tensor, decay float64) {
	scale(v, decay)
	addTimes(v, s.unary(tensor.OpSquare, g), 1-decay)
}

func scale(t *tensor.Tensor, by float64) {
	try.Ok(tensor.BinaryScalarInPlace(tensor.OpMul, t, tensor.Float(by)))
}

// tensors views what an update works on: parameters, gradients and state, each of shape (n).
func (x *run) tensors() (p, g *tensor.Tensor, state [3]*tensor.Tensor) {
	view := func(b *tensor.Tensor, at int) *tensor.Tensor {
		return try.To(tensor.OnStorage(b.Context(), b.Storage(), at, []int{x.n}, x.dt))
	}
	for i, b := range x.of.buffers {
		state[i] = view(b, x.at-x.of.from)
	}
	return view(x.of.Data, x.at), view(x.of.Grads, x.at), state
}

// decayed returns the gradient with the weight decay; a decoupled one is done to p at once.
func (x *run) decayed(s *scratch, p, g *tensor.Tensor, decoupled bool) *tensor.Tensor {
	switch {
	case x.WeightDecay == 0:
	case decoupled:
		scale(p, 1-float64(x.LR*x.WeightDecay))
	default:
		return s.binary(tensor.OpAdd, g, s.number(tensor.OpMul, p, x.WeightDecay))
	}
	return g
}

// pow is a^b in float64, with the same bits on every processor, unlike math.Pow's.
func pow(a, b float64) (out float64) {
	view := func(v *float64) kernel.View { return kernel.View{Data: unsafe.Pointer(v), Strides: []int{1}} }
	kernel.Binary(kernel.Pow, dtype.Float64, []int{1}, view(&out), view(&a), view(&b))
	return out
}

// moments begins an update of Adam's kind: it moves both averages, and returns them with parameters and gradients.
func (x *run) moments(s *scratch, beta1, beta2 float64, decoupled bool) (p, g, first, second *tensor.Tensor) {
	p, g, state := x.tensors()
	g = x.decayed(s, p, g, decoupled)
	s.towards(state[0], g, 1-beta1)
	s.square(state[1], g, beta2)
	return p, g, state[0], state[1]
}

// bias returns 1 - beta^step.
func (x *run) bias(beta float64) float64 { return 1 - pow(beta, float64(x.step)) }

// NAdam is Adam with Nesterov's momentum (Dozat 2016), with PyTorch's formulas.
type NAdam struct {
	Beta1, Beta2, Eps, MomentumDecay float64
	Decoupled                        bool
	product                          *muProduct
}

// NewNAdam returns r ready for use.
func NewNAdam(r NAdam) NAdam {
	r.product = &muProduct{value: 1}
	return r
}

// muProduct is the product of the momenta of all steps up to one.
type muProduct struct {
	step  int64
	value float64
}

func (r NAdam) mu(step int64) float64 {
	return r.Beta1 * (1 - float64(0.5*pow(0.96, float64(float64(step)*r.MomentumDecay))))
}

func (r NAdam) upTo(step int64) float64 {
	m := r.product
	if m.step > step {
		*m = muProduct{value: 1}
	}
	for ; m.step < step && m.value > 0; m.step++ {
		m.value *= r.mu(m.step + 1)
	}
	return m.value
}

func (NAdam) buffers() []string { return []string{"exp_avg", "exp_avg_sq"} }

func (r NAdam) update(x *run) {
	var s scratch
	defer s.free()
	p, g, first, second := x.moments(&s, r.Beta1, r.Beta2, r.Decoupled)
	mu, next, all := r.mu(x.step), r.mu(x.step+1), r.upTo(x.step)
	root := s.root(second, 1/x.bias(r.Beta2), r.Eps)
	addTimes(p, s.binary(tensor.OpDiv, g, root), -x.LR*(1-mu)/(1-all))
	addTimes(p, s.binary(tensor.OpDiv, first, root), -x.LR*next/(1-float64(all*next)))
}

// RAdam is Adam whose step is plain momentum until the variance of its rate is known well enough (Liu et al. 2020).
type RAdam struct {
	Beta1, Beta2, Eps float64
	Decoupled         bool
}

func (RAdam) buffers() []string { return []string{"exp_avg", "exp_avg_sq"} }

func (r RAdam) update(x *run) {
	var s scratch
	defer s.free()
	p, _, step, second := x.moments(&s, r.Beta1, r.Beta2, r.Decoupled)
	bias := x.bias(r.Beta2)
	most := 2/(1-r.Beta2) - 1
	length := most - 2*float64(x.step)*(1-bias)/bias
	rate := x.LR / x.bias(r.Beta1)
	if length > 5 {
		rate *= math.Sqrt((length-4)*(length-2)*most/((most-4)*(most-2)*length)) * math.Sqrt(bias)
		step = s.binary(tensor.OpDiv, step, s.root(second, 1, r.Eps))
	}
	addTimes(p, step, -rate)
}

// Adamax is Adam with the infinity norm (Kingma and Ba 2015, section 7.1).
type Adamax struct{ Beta1, Beta2, Eps float64 }

func (Adamax) buffers() []string { return []string{"exp_avg", "exp_inf"} }

func (r Adamax) update(x *run) {
	var s scratch
	defer s.free()
	p, g, state := x.tensors()
	g = x.decayed(&s, p, g, false)
	s.towards(state[0], g, 1-r.Beta1)
	scale(state[1], r.Beta2)
	size := s.number(tensor.OpAdd, s.unary(tensor.OpAbs, g), r.Eps)
	try.Ok(tensor.CopyInto(state[1], s.binary(tensor.OpMaximum, state[1], size)))
	addTimes(p, s.binary(tensor.OpDiv, state[0], state[1]), -x.LR/x.bias(r.Beta1))
}

// Adadelta is Zeiler's rule (2012).
type Adadelta struct{ Rho, Eps float64 }

func (Adadelta) buffers() []string { return []string{"square_avg", "acc_delta"} }

func (r Adadelta) update(x *run) {
	var s scratch
	defer s.free()
	p, g, state := x.tensors()
	g = x.decayed(&s, p, g, false)
	s.square(state[0], g, r.Rho)
	root := func(t *tensor.Tensor) *tensor.Tensor {
		return s.unary(tensor.OpSqrt, s.number(tensor.OpAdd, t, r.Eps))
	}
	delta := s.binary(tensor.OpMul, s.binary(tensor.OpDiv, root(state[1]), root(state[0])), g)
	s.square(state[1], delta, r.Rho)
	addTimes(p, delta, -x.LR)
}

// A wholeRule updates one parameter at a time, as its shape demands. Its state, besides buffers, has shapes of its own.
type wholeRule interface {
	Rule
	shapes(p []int) map[string][]int
	whole(x *run, p, g *tensor.Tensor, state map[string]*tensor.Tensor)
}

// Adafactor keeps, for a matrix, only means of its squared gradient's rows and columns (Shazeer and Stern 2018), with PyTorch's
// formulas. An Eps of 0 is the type's epsilon.
type Adafactor struct{ Beta2Decay, Eps, Floor, Clip float64 }

func (Adafactor) buffers() []string { return nil }
func (Adafactor) update(*run)       {}

func (Adafactor) shapes(p []int) map[string][]int {
	n := len(p)
	if n < 2 {
		return map[string][]int{"variance": p}
	}
	row, col := append([]int(nil), p...), append([]int(nil), p...)
	row[n-1], col[n-2] = 1, 1
	return map[string][]int{"row_var": row, "col_var": col}
}

func (r Adafactor) whole(x *run, p, g *tensor.Tensor, state map[string]*tensor.Tensor) {
	var s scratch
	defer s.free()
	eps := r.Eps
	if eps == 0 {
		eps = map[dtype.Type]float64{dtype.Float32: 0x1p-23, dtype.Float64: 0x1p-52}[x.dt]
	}
	share := pow(float64(x.step), r.Beta2Decay)
	rms := func(t *tensor.Tensor) float64 {
		return try.To(s.keep(tensor.Norm(t, 2, nil, false)).Item()).Float() / math.Sqrt(float64(t.Len()))
	}
	rate := max(r.Floor, rms(p)) * min(x.LR, 1/math.Sqrt(float64(x.step)))
	x.decayed(&s, p, g, true)
	square := s.unary(tensor.OpSquare, g)
	var v *tensor.Tensor
	if g.Dim() > 1 {
		s.towards(state["row_var"], s.keep(tensor.Mean(square, []int{-1}, true)), share)
		s.towards(state["col_var"], s.keep(tensor.Mean(square, []int{-2}, true)), share)
		mean := s.number(tensor.OpMaximum, s.keep(tensor.Mean(state["row_var"], []int{-2}, true)), eps)
		v = s.binary(tensor.OpDiv, s.binary(tensor.OpMul, state["row_var"], state["col_var"]), mean)
	} else {
		v = state["variance"]
		s.towards(v, square, share)
	}
	update := s.binary(tensor.OpMul, s.unary(tensor.OpRsqrt, s.number(tensor.OpMaximum, v, eps*eps)), g)
	addTimes(p, update, -rate/max(1, rms(update)/r.Clip))
}

// Muon moves matrices by their momentum, made nearly orthogonal by a Newton-Schulz iteration in bfloat16 (Jordan et al. 2024), with
// PyTorch's formulas.
type Muon struct {
	Momentum, Eps float64
	Nesterov      bool
	Coefficients  [3]float64
	Steps         int
	Adjust        string // "original", "match_rms_adamw" or "spectral_unclamped"
}

func (Muon) buffers() []string             { return []string{"momentum_buffer"} }
func (Muon) shapes([]int) map[string][]int { return nil }
func (Muon) update(*run)                   {}
func (r Muon) whole(x *run, p, g *tensor.Tensor, state map[string]*tensor.Tensor) {
	var s scratch
	defer s.free()
	momentum, buf := x.momentum(r.Momentum), state["momentum_buffer"]
	s.towards(buf, g, 1-momentum)
	step := buf
	if r.Nesterov {
		step = s.binary(tensor.OpAdd, g, s.number(tensor.OpMul, s.binary(tensor.OpSub, buf, g), momentum))
	}
	rows, cols := float64(p.Shape()[0]), float64(p.Shape()[1])
	rate := x.LR * math.Sqrt(max(1, rows/cols))
	switch r.Adjust {
	case "match_rms_adamw":
		rate = x.LR * 0.2 * math.Sqrt(max(rows, cols))
	case "spectral_unclamped":
		rate = x.LR * math.Sqrt(rows/cols)
	}
	x.decayed(&s, p, g, true)
	addTimes(p, s.keep(tensor.Cast(r.orthogonal(&s, step), x.dt)), -rate)
}

func (r Muon) orthogonal(s *scratch, g *tensor.Tensor) *tensor.Tensor {
	turn := g.Shape()[0] > g.Shape()[1]
	t := s.keep(tensor.Cast(g, dtype.BFloat16))
	if turn {
		t = try.To(tensor.Transpose(t, 0, 1))
	}
	size := s.number(tensor.OpMaximum, s.keep(tensor.Norm(t, 2, nil, false)), r.Eps)
	t = s.binary(tensor.OpDiv, t, size)
	// times is c·x, or with y also d·y x, rounded once.
	sum := func(x *tensor.Tensor, c float64, product *tensor.Tensor, d float64) *tensor.Tensor {
		wide := func(t *tensor.Tensor, by float64) *tensor.Tensor {
			return s.number(tensor.OpMul, s.keep(tensor.Cast(t, dtype.Float32)), by)
		}
		return s.keep(tensor.Cast(s.binary(tensor.OpAdd, wide(x, c), wide(product, d)), dtype.BFloat16))
	}
	for range r.Steps {
		gram := s.keep(tensor.MatMul(t, try.To(tensor.Transpose(t, 0, 1))))
		gram = sum(gram, r.Coefficients[1], s.keep(tensor.MatMul(gram, gram)), r.Coefficients[2])
		t = sum(t, r.Coefficients[0], s.keep(tensor.MatMul(gram, t)), 1)
	}
	if turn {
		t = try.To(tensor.Transpose(t, 0, 1))
	}
	return t
}

// Divisible reports whether ranks can share the state, see Shard.
func (o *Optimizer) Divisible() bool {
	_, whole := o.rule.(wholeRule)
	return !whole
}

// wholeState makes the state that has shapes of its own, and adds it to state.
func (o *Optimizer) wholeState(state map[string]*tensor.Tensor) (err error) {
	defer try.Caught(&err)
	r, ok := o.rule.(wholeRule)
	if !ok {
		return nil
	}
	for _, f := range o.flats {
		for i, p := range f.Params {
			if !p.Whole() {
				return fmt.Errorf("parameter %d is divided among the ranks, and this optimizer needs whole ones", f.first+i)
			}
			for name, shape := range r.shapes(p.Shape()) {
				state[fmt.Sprintf("%s.%d", name, f.first+i)] = try.To(tensor.Zeros(p.Context(), shape, p.DType()))
			}
		}
	}
	return nil
}

// updateWhole updates parameter i.
func (o *Optimizer) updateWhole(r wholeRule, f *flat, i int, x *run) {
	p := f.Params[i]
	state := map[string]*tensor.Tensor{}
	for _, name := range r.buffers() {
		state[name] = o.state[fmt.Sprintf("%s.%d", name, f.first+i)]
	}
	for name := range r.shapes(p.Shape()) {
		state[name] = o.state[fmt.Sprintf("%s.%d", name, f.first+i)]
	}
	r.whole(x, f.Window(f.Data, i), f.Window(f.Grads, i), state)
}
