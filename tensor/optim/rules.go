package optim

import (
	"unsafe"

	"drun/kernel"
	"drun/kernel/dtype"
)

// A Rule is an optimizer's update rule: one of the types below. It has the rule's own settings; the rates, weight
// decay and step number are filled in for each update.
type Rule interface {
	// buffers names the state kept for each element.
	buffers() []string
	update(*run)
}

// run is a range of adjacent elements of a group's parameters that are updated together.
type run struct {
	*ParamGroup
	dt      dtype.Type
	n       int
	step    int64 // counts from 1 for these parameters
	p, grad unsafe.Pointer
	state   [3]unsafe.Pointer // in the rule's buffers; nil: there is none
	of      *flat
	at      int // of the first element, in the flat buffers
}

// momentum returns the group's momentum, or else the rule's own.
func (x *run) momentum(own float64) float64 {
	if x.Momentum != 0 {
		return x.Momentum
	}
	return own
}

func (o *Optimizer) HasMomentum() bool {
	switch r := o.rule.(type) {
	case SGD:
		return r.Momentum > 0
	case RMSprop:
		return r.Momentum > 0
	case Adam, Lion, RAdam, Adamax, Muon:
		return true
	}
	return false
}

// SGD is stochastic gradient descent with PyTorch's rule: g += decay·p; buf = momentum·buf + g, the first time g; p
// -= lr·buf, or lr·(g + momentum·buf) with Nesterov's momentum.
type SGD kernel.SGD

func (r SGD) buffers() []string {
	if r.Momentum == 0 {
		return nil
	}
	return []string{"momentum"}
}

// of returns the update of a run.
func (r SGD) of(x *run) kernel.SGD {
	r.LR, r.WeightDecay, r.Momentum, r.First = x.LR, x.WeightDecay, x.momentum(r.Momentum), x.step == 1
	return kernel.SGD(r)
}

func (r SGD) update(x *run) {
	r.of(x).Step(x.dt, x.n, x.p, x.grad, x.state[0])
}

// Adam is Adam (Kingma and Ba, 2015) or, if Decoupled, AdamW (Loshchilov and Hutter, 2019).
type Adam kernel.Adam

func (Adam) buffers() []string { return []string{"exp_avg", "exp_avg_sq"} }

func (r Adam) of(x *run) kernel.Adam {
	r.LR, r.WeightDecay, r.Beta1, r.Count = x.LR, x.WeightDecay, x.momentum(r.Beta1), int(x.step)
	return kernel.Adam(r)
}

func (r Adam) update(x *run) {
	r.of(x).Step(x.dt, x.n, x.p, x.grad, x.state[0], x.state[1])
}

// RMSprop is Hinton's rule (2012), with PyTorch's formulas: eps is added after the root, and Centered
// subtracts the mean gradient's square from the mean square (Graves 2013).
type RMSprop struct {
	Alpha, Eps, Momentum float64
	Centered             bool
}

func (r RMSprop) buffers() []string {
	names := []string{"square_avg"}
	if r.Momentum > 0 {
		names = append(names, "momentum_buffer")
	}
	if r.Centered {
		names = append(names, "grad_avg")
	}
	return names
}

func (r RMSprop) of(x *run) kernel.RMSprop {
	return kernel.RMSprop{LR: x.LR, Alpha: r.Alpha, Eps: r.Eps, WeightDecay: x.WeightDecay, Momentum: x.momentum(r.Momentum)}
}

func (r RMSprop) update(x *run) {
	m, a := x.state[1], x.state[2]
	if r.Momentum == 0 {
		m, a = nil, m
	}
	r.of(x).Step(x.dt, x.n, x.p, x.grad, x.state[0], m, a)
}

// Adagrad is Duchi's rule (2011): step n moves by lr / (1 + (n-1)·LRDecay).
type Adagrad struct {
	LRDecay, Eps, Initial float64 // Initial is the initial value of the sums of squares
}

func (Adagrad) buffers() []string { return []string{"sum"} }

func (r Adagrad) of(x *run) kernel.Adagrad {
	lr := x.LR / (1 + float64(float64(x.step-1)*r.LRDecay))
	return kernel.Adagrad{LR: lr, Eps: r.Eps, WeightDecay: x.WeightDecay}
}

func (r Adagrad) update(x *run) { r.of(x).Step(x.dt, x.n, x.p, x.grad, x.state[0]) }

// Lion is the rule of Chen et al. (2023): each weight moves by lr in the direction of the sign of the momentum mixed
// with the gradient; weight decay is decoupled.
type Lion kernel.Lion

func (Lion) buffers() []string { return []string{"exp_avg"} }

func (r Lion) of(x *run) kernel.Lion {
	r.LR, r.WeightDecay, r.Beta1 = x.LR, x.WeightDecay, x.momentum(r.Beta1)
	return kernel.Lion(r)
}

func (r Lion) update(x *run) { r.of(x).Step(x.dt, x.n, x.p, x.grad, x.state[0]) }
