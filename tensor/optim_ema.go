package tensor

import (
	"fmt"

	"drun/internal/try"
)

// An Average keeps an exponential moving average of parameters. It counts its updates:
// the first one copies the parameters, as PyTorch's AveragedModel does.
type Average struct {
	Decay   float64
	Updates int
	Swapped bool // the parameters hold the averages, and the averages the parameters

	params, averages []*Tensor
}

// NewAverage begins an average with the parameters' values.
func NewAverage(params []*Tensor, decay float64) (_ *Average, err error) {
	defer try.Caught(&err)
	a := &Average{Decay: decay, params: params}
	for i, p := range params {
		if p.frozen {
			return nil, fmt.Errorf("parameter %d is frozen, as all values made at top level are; make it in main()", i)
		}
		if p.node != nil {
			return nil, fmt.Errorf("parameter %d (shape %s) is the result of an operation, not a leaf", i, ShapeString(p.shape))
		}
		try.Ok(NeedFloat("parameters", p))
		c := try.To(Clone(p.Detach()))
		if s := p.Share(); s != nil {
			c.SetShare(s)
		}
		a.averages = append(a.averages, c)
	}
	return a, nil
}

// Averages are the tensors that a checkpoint must hold, in the order of the parameters.
func (a *Average) Averages() []*Tensor { return a.averages }

// Update moves the averages: average += (1 - decay)·(parameter - average).
func (a *Average) Update() (err error) {
	defer try.Caught(&err)
	if a.Swapped {
		return fmt.Errorf("the parameters hold the averages now: call swap() to put them back first")
	}
	for i, p := range a.params {
		if a.Updates == 0 {
			kCopy(a.averages[i], p)
			continue
		}
		step := try.To(chain(p.Detach()).binary(OpSub, a.averages[i]).scalar(OpMul, Float(1-a.Decay)).end())
		kBinary(OpAdd, a.averages[i], a.averages[i], step)
		a.averages[i].st.version++
		Discard(step)
	}
	a.Updates++
	return nil
}

// Swap exchanges the parameters' values with the averages.
func (a *Average) Swap() (err error) {
	defer try.Caught(&err)
	for i, p := range a.params {
		held := try.To(Clone(p.Detach()))
		kCopy(p, a.averages[i])
		kCopy(a.averages[i], held)
		p.st.version++
		a.averages[i].st.version++
		Discard(held)
	}
	a.Swapped = !a.Swapped
	return nil
}
