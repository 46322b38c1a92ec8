package board

import (
	"context"
	"slices"
	"sync"

	"drun/collective"
	"drun/collective/progress"
	"drun/internal/each"
	"drun/internal/try"
)

// exchanger compares calls for a backend that does not do so itself. Every rank posts its fingerprint and waits
// until all ranks of the group have posted theirs: one round, before the backend sees the call. Ranks on several
// nodes share no board, and gather the fingerprints with the backend.
type exchanger struct {
	collective.Comm
	win   *window
	own   *line
	lines []*line // of all ranks of the group; nil when some are on other nodes

	start   sync.Mutex // calls of Comm.Start come from several goroutines
	calls   progress.Collectives
	running sync.WaitGroup
	// background ends the asynchronous calls' waits; Abort and Close end it.
	background context.Context
	end        context.CancelCauseFunc
	aborted    func() error
}

func newExchanger(comm collective.Comm, g *guard) *exchanger {
	x := &exchanger{Comm: comm, win: g.win, own: g.line, aborted: g.board.Aborted}
	x.calls.Init(&x.running, x.run)
	if !slices.ContainsFunc(g.ranks, func(r int) bool { return !g.board.isNear(r) }) {
		x.lines = each.Of(g.ranks, g.win.line)
	}
	x.background, x.end = context.WithCancelCause(context.Background())
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
	return x.calls.Start(c), nil
}

// compareInTurn waits until the preceding collectives have ended, then compares.
func (x *exchanger) compareInTurn(ctx context.Context, c *collective.Call) error {
	if err := x.calls.Last().Join(ctx); err != nil {
		return err
	}
	return x.compare(ctx, c.Seq, c.Fingerprint)
}

// run compares a collective, then has the backend carry it out.
func (x *exchanger) run(ctx context.Context, c *collective.Call) (err error) {
	defer try.Caught(&err)
	if c.Async {
		ctx = &collective.WaitLimit{Context: x.background, Limit: c.Limit, Check: x.aborted}
	}
	try.Ok(x.compare(ctx, c.Seq, c.Fingerprint))
	if c.Kind == collective.AllToAll {
		try.Ok(x.compareCounts(ctx, c))
	}
	return x.do(ctx, c)
}

// compare posts the fingerprint of collective seq and waits for those of all ranks.
func (x *exchanger) compare(ctx context.Context, seq, fingerprint uint64) error {
	if x.lines == nil {
		all, err := x.gather(ctx, []int64{int64(fingerprint)})
		if err == nil && slices.ContainsFunc(all, func(f int64) bool { return f != int64(fingerprint) }) {
			err = collective.ErrFingerprint
		}
		return err
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
	all, err := x.gather(ctx, each.Of(slices.Concat(c.Counts, c.RecvCounts), func(k int) int64 { return int64(k) }))
	if err != nil {
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
func (x *exchanger) do(ctx context.Context, call *collective.Call) error {
	x.start.Lock()
	work, err := x.Comm.Start(call)
	x.start.Unlock()
	if err != nil {
		return err
	}
	return work.Wait(ctx)
}

// gather gives every rank the numbers of all, over the backend.
func (x *exchanger) gather(ctx context.Context, own []int64) (all []int64, err error) {
	all = make([]int64, x.Size()*len(own))
	call := collective.NewAllGather(collective.Of(own), collective.Of(all))
	return all, x.do(ctx, &call)
}
