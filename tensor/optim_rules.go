package tensor

import (
	"fmt"
	"unsafe"

	"drun/kernel"
	"drun/kernel/dtype"
)

// SGDOptions are the settings of NewSGD.
type SGDOptions struct {
	Momentum float64
	Nesterov bool
}

// NewSGD makes stochastic gradient descent with PyTorch's rule: g += decay·p;
// buf = momentum·buf + g, the first time g; p -= lr·buf, or lr·(g +
// momentum·buf) with Nesterov's momentum.
func NewSGD(groups []ParamGroup, o SGDOptions) (*Optimizer, error) {
	if o.Momentum < 0 {
		return nil, fmt.Errorf("sgd: momentum must not be negative, not %v", o.Momentum)
	}
	if o.Nesterov && o.Momentum == 0 {
		return nil, fmt.Errorf("sgd: nesterov needs a momentum")
	}
	return newOptimizer(groups, o)
}

func (o SGDOptions) buffers() []string {
	if o.Momentum == 0 {
		return nil
	}
	return []string{"momentum"}
}

func (o SGDOptions) update(dt dtype.Type, n int, g *ParamGroup, step int64, p, grad unsafe.Pointer, state []unsafe.Pointer) {
	var m unsafe.Pointer
	if len(state) > 0 {
		m = state[0]
	}
	kernel.SGD{LR: g.LR, Momentum: g.momentum(o.Momentum), WeightDecay: g.WeightDecay, Nesterov: o.Nesterov, First: step == 1}.
		Step(dt, n, p, grad, m)
}

// AdamOptions are the settings of NewAdam.
type AdamOptions struct {
	Beta1, Beta2, Eps float64
	Decoupled         bool // AdamW: weight decay is decoupled from the gradient
}

// NewAdam makes Adam (Kingma and Ba, 2015) or AdamW (Loshchilov and Hutter,
// 2019).
func NewAdam(groups []ParamGroup, o AdamOptions) (*Optimizer, error) {
	for _, b := range []float64{o.Beta1, o.Beta2} {
		if !(b >= 0 && b < 1) {
			return nil, fmt.Errorf("adam: betas must be at least 0 and less than 1, not %v", b)
		}
	}
	if o.Eps < 0 {
		return nil, fmt.Errorf("adam: eps must not be negative, not %v", o.Eps)
	}
	return newOptimizer(groups, o)
}

func (o AdamOptions) buffers() []string { return []string{"exp_avg", "exp_avg_sq"} }

func (o AdamOptions) update(dt dtype.Type, n int, g *ParamGroup, step int64, p, grad unsafe.Pointer, state []unsafe.Pointer) {
	kernel.Adam{LR: g.LR, Beta1: g.momentum(o.Beta1), Beta2: o.Beta2, Eps: o.Eps, WeightDecay: g.WeightDecay, Decoupled: o.Decoupled,
		Count: int(step)}.Step(dt, n, p, grad, state[0], state[1])
}
