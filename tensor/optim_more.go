package tensor

import (
	"fmt"
	"unsafe"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// RMSpropOptions are the settings of NewRMSprop.
type RMSpropOptions struct {
	Alpha, Eps, Momentum float64
	Centered             bool
}

// NewRMSprop makes RMSprop (Hinton 2012), with PyTorch's formulas: eps is added after the root, and Centered
// subtracts the mean gradient's square from the mean square (Graves 2013).
func NewRMSprop(groups []ParamGroup, o RMSpropOptions) (*Optimizer, error) {
	return newOptimizer(groups, o)
}

func (o RMSpropOptions) buffers() []string {
	names := []string{"square_avg"}
	if o.Momentum > 0 {
		names = append(names, "momentum_buffer")
	}
	if o.Centered {
		names = append(names, "grad_avg")
	}
	return names
}

func (o RMSpropOptions) update(dt dtype.Type, n int, g *ParamGroup, _ int64, p, grad unsafe.Pointer, state []unsafe.Pointer) {
	var m, a unsafe.Pointer
	if rest := state[1:]; len(rest) > 0 {
		if o.Momentum > 0 {
			m, rest = rest[0], rest[1:]
		}
		if o.Centered {
			a = rest[0]
		}
	}
	kernel.RMSprop{LR: g.LR, Alpha: o.Alpha, Eps: o.Eps, WeightDecay: g.WeightDecay, Momentum: g.momentum(o.Momentum)}.
		Step(dt, n, p, grad, state[0], m, a)
}

// AdagradOptions are the settings of NewAdagrad.
type AdagradOptions struct {
	LRDecay, Eps, Initial float64 // Initial is the initial value of the sums of squares
}

// NewAdagrad makes Adagrad (Duchi et al. 2011): step n moves by lr / (1 + (n-1)·LRDecay).
func NewAdagrad(groups []ParamGroup, o AdagradOptions) (*Optimizer, error) {
	opt, err := newOptimizer(groups, o)
	if err == nil && o.Initial != 0 {
		opt.first = o.Initial
	}
	return opt, err
}

func (o AdagradOptions) buffers() []string { return []string{"sum"} }

func (o AdagradOptions) update(dt dtype.Type, n int, g *ParamGroup, step int64, p, grad unsafe.Pointer, state []unsafe.Pointer) {
	lr := g.LR / (1 + float64(float64(step-1)*o.LRDecay))
	kernel.Adagrad{LR: lr, Eps: o.Eps, WeightDecay: g.WeightDecay}.Step(dt, n, p, grad, state[0])
}

// LionOptions are the settings of NewLion.
type LionOptions struct{ Beta1, Beta2 float64 }

// NewLion makes Lion (Chen et al. 2023): each weight moves by lr in the direction of the sign of the momentum mixed
// with the gradient; weight decay is decoupled.
func NewLion(groups []ParamGroup, o LionOptions) (*Optimizer, error) {
	return newOptimizer(groups, o)
}

func (o LionOptions) buffers() []string { return []string{"exp_avg"} }

func (o LionOptions) update(dt dtype.Type, n int, g *ParamGroup, _ int64, p, grad unsafe.Pointer, state []unsafe.Pointer) {
	kernel.Lion{LR: g.LR, Beta1: g.momentum(o.Beta1), Beta2: o.Beta2, WeightDecay: g.WeightDecay}.Step(dt, n, p, grad, state[0])
}

// ClipGradValues clamps each element of the gradients to between -limit and limit; NaN stays NaN.
func ClipGradValues(params []*Tensor, limit float64) (err error) {
	defer try.Caught(&err)
	if !(limit >= 0) {
		return fmt.Errorf("clip_grad_value: the limit must be 0 or more, not %v", limit)
	}
	for _, p := range params {
		if p.grad == nil {
			continue
		}
		try.Ok(NeedFloat("clip_grad_value", p.grad))
		kBinaryNumber(OpMinimum, p.grad, p.grad, Float(limit), false)
		kBinaryNumber(OpMaximum, p.grad, p.grad, Float(-limit), false)
		p.grad.st.version++
	}
	return nil
}
