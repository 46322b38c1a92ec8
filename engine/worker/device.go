package worker

import (
	"drun/internal/exit"
	"drun/internal/try"
	"drun/kernel/opencl"
)

// openDevice opens the device that computes the rank's tensors, and checks its bits; nil: the processor.
func (w *worker) openDevice() (_ *opencl.Device, err error) {
	defer func() {
		if err != nil {
			err = exit.Permanent(exit.WithCode(err, exit.Requirement))
		}
	}()
	defer try.Caught(&err)
	d := try.To(opencl.Choose(w.job.Device, w.job.Placement.LocalRank))
	if d == nil || w.job.OtherBits {
		return d, nil
	}
	if difference := try.To(d.Check()); difference != "" {
		return nil, exit.WithHint(exit.Errorf(exit.Requirement, "%s (%s, driver %s) does not compute the processor's bits: %s", d.Device, d.Name, d.Driver, difference),
			"--device-bits any computes on it all the same; its runs have bits of their own")
	}
	return d, nil
}
