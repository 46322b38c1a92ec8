package worker

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/kernel/opencl"
	"drun/starlib"
)

// watchDevice fails the rank when a device's driver has not answered for longer than the collectives' limit: the rank's thread is in the driver
// then, and nothing can end it but the process's end.
func (w *worker) watchDevice(d *opencl.Device) (stop func()) {
	tick, done := time.NewTicker(min(w.job.Timeout/4+1, time.Second)), make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			waits, by := d.Waits()
			if waits <= w.job.Timeout {
				continue
			}
			where := ""
			if by.File != "" {
				where = fmt.Sprintf("%s: %s: ", by.Position(), by.Call)
			}
			w.tell(w.abort(exit.WithHint(exit.Errorf(exit.Requirement, "%s%s (%s, driver %s) has not answered for %v", where, d.Device, d.Name, d.Driver, waits.Round(time.Second/10)),
				"if the kernels just take that long, --timeout gives them more time")))
			return
		}
	}()
	return func() {
		tick.Stop()
		close(done)
	}
}

// caller returns the call that the recipe is in.
func (w *worker) caller() (c opencl.Caller) {
	if w.thread == nil || w.thread.CallStackDepth() == 0 {
		return c
	}
	at := starlib.Position(w.thread)
	return opencl.Caller{Call: w.thread.DebugFrame(0).Callable().Name(), File: at.Filename(), Line: at.Line, Column: at.Col}
}

// copies lists what the recipe's calls copied to a device and back.
func copies(d *opencl.Device) (list []records.Copies) {
	for at, t := range d.Copied {
		if at.File != "" {
			list = append(list, records.Copies{Position: at.Position(), Call: at.Call, Uploads: t.Up.Count, UploadedBytes: t.Up.Bytes,
				Downloads: t.Down.Count, DownloadedBytes: t.Down.Bytes})
		}
	}
	slices.SortFunc(list, func(a, b records.Copies) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.Call, b.Call))
	})
	return list
}

// openDevice opens the device that computes the rank's tensors, and has it prove its bits; nil: the processor.
func (w *worker) openDevice() (_ *opencl.Device, err error) {
	defer func() {
		if err != nil {
			err = exit.Permanent(exit.WithCode(err, exit.Requirement))
		}
	}()
	defer try.Caught(&err)
	d := try.To(opencl.Choose(w.job.Device, w.job.Placement.LocalRank))
	if d != nil && !w.job.OtherBits {
		try.Ok(d.Prove())
	}
	return d, nil
}
