package board

import (
	"context"
	"slices"
	"sync"

	"drun/collective"
)

// exchanger compares calls for a backend that does not do so itself. Every rank posts its fingerprint and waits
// until all ranks of the group have posted theirs: one round, before the backend sees the call. Ranks on several
// nodes share no board, and gather the fingerprints with the backend.
type exchanger struct {
	collective.Comm
	win   *window
	own   *line
	lines []*line // of all ranks of the group; nil when some are on other nodes

	start sync.Mutex    // calls of Start come from several goroutines
	last  chan struct{} // closed when the latest asynchronous collective has ended; may be nil

	// background limits the asynchronous calls' waits; Abort and Close end it.
	background collective.WaitLimit
	end        context.CancelCauseFunc
	running    sync.WaitGroup
}

func newExchanger(comm collective.Comm, g *guard) *exchanger {
	x := &exchanger{Comm: comm, win: g.win, own: g.line}
	for _, rank := range g.ranks {
		if !g.board.isNear(rank) {
			x.lines = nil
			break
		}
		x.lines = append(x.lines, g.win.line(rank))
	}
	x.background.Context, x.end = context.WithCancelCause(context.Background())
	x.background.Check = g.board.Aborted
	return x
}

func (x *exchanger) Abort(cause error) {
	x.end(cause)
	x.Comm.Abort(cause)
}

func (x *exchanger) Close() error {
	x.end(collective.ErrClosed)
	x.running.Wait()
	return x.Comm.Close()
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
		ctx := x.background
		ctx.Limit = c.Limit
		x.running.Go(func() {
			defer close(w.done)
			w.err = w.run(&ctx)
		})
	}
	return w, nil
}

// exchanged is a collective that is compared before it begins.
type exchanged struct {
	x      *exchanger
	call   collective.Call
	before chan struct{} // collectives run in order
	done   chan struct{} // nil: Wait makes the call
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

// compareInTurn waits until the preceding collectives have ended, then compares.
func (x *exchanger) compareInTurn(ctx context.Context, c *collective.Call) error {
	if x.last != nil {
		if err := collective.Wait(ctx, x.last); err != nil {
			return err
		}
	}
	return x.compare(ctx, c.Seq, c.Fingerprint)
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
	if w.call.Kind == collective.AllToAll {
		if err := w.x.compareCounts(ctx, &w.call); err != nil {
			return err
		}
	}
	w.x.start.Lock()
	inner, err := w.x.Comm.Start(&w.call)
	w.x.start.Unlock()
	if err != nil {
		return err
	}
	return inner.Wait(ctx)
}

// compare posts the fingerprint of collective seq and waits for those of all ranks.
func (x *exchanger) compare(ctx context.Context, seq, fingerprint uint64) error {
	if x.lines == nil {
		return x.gather(ctx, fingerprint)
	}
	own := &x.own.posted[seq%2]
	own.fingerprint = fingerprint
	own.seq.Store(seq)
	x.win.gate.Open()

	next, same := 0, true
	ready := func() bool {
		for ; next < len(x.lines); next++ {
			p := &x.lines[next].posted[seq%2]
			if p.seq.Load() != seq {
				return false
			}
			same = same && p.fingerprint == fingerprint
		}
		return true
	}
	if !ready() {
		if err := x.win.gate.Wait(ctx, ready); err != nil {
			return err
		}
	}
	if !same {
		return collective.ErrFingerprint
	}
	return nil
}

// compareCounts tells every rank how many elements each other sends and receives. No fingerprint can hold these,
// and the backend would notice a difference only during the call.
func (x *exchanger) compareCounts(ctx context.Context, c *collective.Call) error {
	n := x.Size()
	var own []int64
	for _, k := range slices.Concat(c.Counts, c.RecvCounts) {
		own = append(own, int64(k))
	}
	all := make([]int64, n*len(own))
	if err := x.do(ctx, collective.NewAllGather(collective.Of(own), collective.Of(all))); err != nil {
		return err
	}
	for from := range n {
		for to := range n {
			if sent, received := all[from*2*n+to], all[to*2*n+n+from]; sent != received {
				return collective.ErrFingerprint
			}
		}
	}
	return nil
}

// do makes a call of the exchanger's own.
func (x *exchanger) do(ctx context.Context, call collective.Call) error {
	x.start.Lock()
	work, err := x.Comm.Start(&call)
	x.start.Unlock()
	if err != nil {
		return err
	}
	return work.Wait(ctx)
}

// gather compares fingerprints over the backend.
func (x *exchanger) gather(ctx context.Context, fingerprint uint64) error {
	all := make([]int64, x.Size())
	if err := x.do(ctx, collective.NewAllGather(collective.Of([]int64{int64(fingerprint)}), collective.Of(all))); err != nil {
		return err
	}
	for _, f := range all {
		if f != int64(fingerprint) {
			return collective.ErrFingerprint
		}
	}
	return nil
}
