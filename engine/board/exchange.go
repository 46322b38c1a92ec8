package board

import (
	"context"
	"sync"

	"drun/collective"
	"drun/collective/sharedmem"
)

// exchanger compares the calls of a backend that does not do it itself. Every
// rank posts its fingerprint and waits until all of the group have posted
// theirs: one round, before the backend sees the call.
type exchanger struct {
	collective.Comm
	board *Board
	win   *window
	line  *line

	start sync.Mutex    // calls of Start come from several goroutines
	last  chan struct{} // closed when the latest asynchronous collective is done; may be nil
}

func (x *exchanger) Start(c *collective.Call) (collective.Work, error) {
	if c.Seq == 0 {
		x.start.Lock()
		defer x.start.Unlock()
		return x.Comm.Start(c)
	}
	w := &exchanged{x: x, call: *c, before: x.last}
	if c.Async {
		w.done = make(chan struct{})
		x.last = w.done
		go func() {
			defer close(w.done)
			w.err = w.run(&collective.Patience{Context: context.Background(), Limit: c.Limit, Check: x.board.Aborted})
		}()
	}
	return w, nil
}

// exchanged is a collective that is compared before it begins.
type exchanged struct {
	x      *exchanger
	call   collective.Call
	before chan struct{} // collectives happen in order
	done   chan struct{} // nil: whoever waits does the work
	err    error
}

func (w *exchanged) Wait(ctx context.Context) error {
	if w.done == nil {
		return w.run(ctx)
	}
	if err := collective.Wait(ctx, w.done); err != nil {
		return err
	}
	return w.err
}

func (w *exchanged) Done() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

func (w *exchanged) run(ctx context.Context) error {
	if w.before != nil {
		if err := collective.Wait(ctx, w.before); err != nil {
			return err
		}
	}
	if err := w.x.compare(ctx, w.call.Seq, w.call.Fingerprint); err != nil {
		return err
	}
	w.x.start.Lock()
	inner, err := w.x.Comm.Start(&w.call)
	w.x.start.Unlock()
	if err != nil {
		return err
	}
	return inner.Wait(ctx)
}

// compare posts the fingerprint of collective seq and waits for all ranks'.
func (x *exchanger) compare(ctx context.Context, seq, fingerprint uint64) error {
	own := &x.line.posted[seq%2]
	own.fingerprint = fingerprint
	own.seq.Store(seq)
	gate := sharedmem.At[sharedmem.Gate](x.win.mem, gateAt)
	gate.Open()

	size, next, same := x.Size(), 0, true
	ready := func() bool {
		for ; next < size; next++ {
			p := &x.win.line(next).posted[seq%2]
			if p.seq.Load() != seq {
				return false
			}
			same = same && p.fingerprint == fingerprint
		}
		return true
	}
	if !ready() {
		if err := gate.Wait(ctx, ready); err != nil {
			return err
		}
	}
	if !same {
		return collective.ErrFingerprint
	}
	return nil
}
