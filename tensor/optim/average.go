package optim

import (
	"drun/internal/try"
	"drun/tensor"
)

// An Average keeps an exponential moving average of parameters, or with Equal the mean of all updates. It counts its updates:
// the first one copies the parameters, as PyTorch's AveragedModel does.
type Average struct {
	Decay   float64
	Equal   bool
	Updates int
	Swapped bool // the parameters hold the averages, and the averages the parameters

	params, averages []*tensor.Tensor
}

// NewAverage makes an average that starts as the parameters' values.
func NewAverage(params []*tensor.Tensor, decay float64) (_ *Average, err error) {
	defer try.Caught(&err)
	a := &Average{Decay: decay, params: params}
	for i, p := range params {
		try.Ok(checkParam(p, i))
		c := try.To(tensor.Clone(p.Detach()))
		if s := p.Share(); s != nil {
			c.SetShare(s)
		}
		a.averages = append(a.averages, c)
	}
	return a, nil
}

// Averages returns the tensors that a checkpoint must hold, in the order of the parameters.
func (a *Average) Averages() []*tensor.Tensor { return a.averages }

// Update moves the averages: average += (1 - decay)·(parameter - average), or with Equal by 1/(updates + 1).
func (a *Average) Update() (err error) {
	defer try.Caught(&err)
	try.FailIf(a.Swapped, "the parameters hold the averages now: call swap() to put them back first")
	share := 1 - a.Decay
	if a.Equal {
		share = 1 / float64(a.Updates+1)
	}
	for i, p := range a.params {
		if a.Updates == 0 {
			try.Ok(tensor.CopyInto(a.averages[i], p.Detach()))
			continue
		}
		away := try.To(tensor.Sub(p.Detach(), a.averages[i]))
		addTimes(a.averages[i], away, share)
		tensor.Discard(away)
	}
	a.Updates++
	return nil
}

// Swap exchanges the parameters' values with the averages.
func (a *Average) Swap() (err error) {
	defer try.Caught(&err)
	for i, p := range a.params {
		held := try.To(tensor.Clone(p.Detach()))
		try.Ok(tensor.CopyInto(p.Detach(), a.averages[i]))
		try.Ok(tensor.CopyInto(a.averages[i], held))
		tensor.Discard(held)
	}
	a.Swapped = !a.Swapped
	return nil
}
