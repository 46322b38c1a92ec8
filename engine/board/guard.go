package board

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"drun/collective"
	"drun/collective/sharedmem"
	"drun/internal/each"
	"drun/internal/try"
)

// guard puts every call of a Comm on the board. It has a method for each call of a Comm.
type guard struct {
	comm    collective.Comm
	board   *Board
	group   uint32
	ranks   []int  // in the world, by rank in the group
	backend string // of the group, where it has one of its own
	win     *window
	line    *line  // this rank's
	seq     uint64 // of the latest collective
	broken  error  // why no further call can be made

	// The latest context, and the same with the guard's check: one context serves many waits.
	from   *collective.WaitLimit
	within *collective.WaitLimit

	sync     guardedWork    // the synchronous call under way; there is at most one
	waiting  *guardedWork   // the call that the rank waits for
	slept    int64          // since when the wait sleeps; 0: it has only spun so far
	messages []*guardedWork // asynchronous sends and receives that may be under way
	traffic  []*traffic     // by rank in the group, see trafficWith
	counted
	calls []*guardedWork // asynchronous collectives that may be under way, or have failed
	over  time.Time      // since when the peer has ended, see check
	watch deadlockWatch
}

// Guard wraps the world's communicator of this rank. Its calls, and those of the groups split from it, are written
// on the board, compared with the other ranks' calls before data is touched, and explained when they fail: their
// errors then have the types of package collective.
func Guard(comm collective.Comm, b *Board) (collective.Comm, error) {
	ranks := collective.AllRanks(comm.Size())
	return b.guard(comm, collective.Group{}, ranks)
}

// guard wraps the communicator of a group of these global ranks.
func (b *Board) guard(comm collective.Comm, group collective.Group, ranks []int) (_ collective.Comm, err error) {
	defer try.Caught(&err)
	try.FailIf(len(ranks) > b.world, "a group of %d ranks does not fit on a board of %d", len(ranks), b.world)
	w := try.To(b.window(group.ID))
	b.use(group.ID)
	arena, hasArena := comm.(collective.Arena)
	g := &guard{comm: comm, board: b, group: group.ID, ranks: ranks, backend: group.Backend, win: w, line: w.line(b.rank)}
	if _, ok := comm.(collective.Verifier); !ok {
		g.comm = newExchanger(comm, g)
	}
	g.sync.g = g
	b.guards = append(b.guards, g)
	if hasArena {
		return &arenaGuard{g, arena}, nil
	}
	return g, nil
}

// arenaGuard keeps the Comm's arena visible through the guard.
type arenaGuard struct {
	*guard
	collective.Arena
}

func (g *guard) VerifiesArguments() bool { return collective.VerifiesArguments(g.comm) }
func (g *guard) Rank() int               { return g.comm.Rank() }
func (g *guard) Size() int               { return g.comm.Size() }

// Start writes the call on the board and starts it.
func (g *guard) Start(c *collective.Call) (collective.Work, error) {
	if err := g.ready(); err != nil {
		return nil, err
	}
	if err := c.Check(g.comm.Rank(), g.comm.Size()); err != nil {
		return nil, err // before the call gets a number, since the peers count on
	}
	if g.board.OnStart != nil {
		g.board.OnStart(c)
	}
	if c.Async && g.board.Unlimited.Load() {
		c.Limit = 0
	}
	g.number(c)
	w := &g.sync
	if c.Async || w.busy {
		w = &guardedWork{g: g}
	}
	w.begin(c)
	finished := g.finished()
	inner, err := g.comm.Start(c)
	if err != nil {
		w.busy = false
		if errors.Is(err, collective.ErrFingerprint) { // of an earlier call that nobody has waited for
			err = g.explain(w, err)
		}
		g.board.running(now())
		return nil, g.aborted(err)
	}
	w.inner = inner
	g.calls = g.calls[finished:] // they did not fail, or no call would start
	if c.Async && c.Seq > 0 {
		g.calls = append(g.calls, w)
	}
	if c.Seq == 0 {
		g.started(w)
	}
	if c.Kind == collective.Send {
		g.exchange(&g.sent, c.Peer, c.Tag, c.Pos)
	}
	return w, nil
}

// finished counts the leading asynchronous collectives that have ended.
func (g *guard) finished() (n int) {
	for n < len(g.calls) && g.calls[n].Done() {
		n++
	}
	return n
}

// disagreed gives the call on which the ranks disagreed when w failed: w itself, or an earlier asynchronous one.
func (g *guard) disagreed(w *guardedWork) *guardedWork {
	for _, earlier := range g.calls {
		if earlier.seq < w.seq && errors.Is(earlier.inner.Wait(collective.Within(context.Background(), time.Second)), collective.ErrFingerprint) {
			return earlier
		}
	}
	return w
}

// number gives a call its place among the group's collectives.
func (g *guard) number(c *collective.Call) {
	c.Group, c.Seq, c.Fingerprint, c.Passed = g.group, 0, 0, 0
	if !c.Kind.PointToPoint() {
		g.seq++
		c.Seq = g.seq
		c.Fingerprint, c.Passed = c.Fingerprints()
	}
}

// ready returns the reason why no call can be made any more, or nil.
func (g *guard) ready() error {
	if g.broken != nil {
		return g.broken
	}
	return g.board.Aborted()
}

// aborted prefers the first cause of an abort to the error of a backend that it tore down.
func (g *guard) aborted(err error) error {
	g.board.AwaitCause(err)
	if cause := g.board.Aborted(); cause != nil {
		return cause
	}
	return g.named(err)
}

type guardedWork struct {
	g       *guard
	inner   collective.Work
	entry   *entry
	seq     uint64
	kind    collective.Kind
	peer    int
	tag     int
	busy    bool
	async   bool
	counted bool // as ended, see traffic.go
	brief   bool // it moves few bytes

	detail func() string // of the call
}

// begin writes the call in the journal and, if the rank is about to wait for it, in the rank's slot.
func (w *guardedWork) begin(c *collective.Call) {
	b, l := w.g.board, w.g.line
	n := l.calls.Load()
	e := w.g.win.entry(b.rank, n, b.world)
	e.write(c, b.names.index(c.Pos.File), b.names.index(c.Builtin), now())
	sharedmem.Publish(&l.calls, n+1)
	if c.Seq > 0 {
		sharedmem.Publish(&l.arrived, c.Seq)
	}
	b.own.group = w.g.group
	sharedmem.Publish(&b.own.calls, n+1)
	if !c.Async {
		b.own.entered = e.began
		sharedmem.Publish32(&b.own.state, uint32(collective.Waiting))
	}
	w.entry, w.seq, w.kind, w.peer, w.tag = e, c.Seq, c.Kind, c.Peer, c.Tag
	w.detail = c.Detail
	w.counted = false
	w.busy, w.async, w.brief = true, c.Async, len(c.Send.Data)+len(c.Recv.Data) <= brief
}

// brief is the size in bytes up to which a call that has not slept is too short to be worth reading the clock again.
const brief = 64 << 10

// running notes that the rank has been back in its recipe since that time.
func (b *Board) running(since int64) {
	b.own.since = since
	sharedmem.Publish32(&b.own.state, uint32(collective.Running))
}

func (w *guardedWork) Wait(ctx context.Context) error {
	g := w.g
	if !w.busy {
		return &collective.CallError{Kind: w.kind, Problem: "this work has been waited for already"}
	}
	if w.async {
		if w.entry.seq == w.seq {
			w.entry.waited = true
		}
		g.board.own.entered = now()
		g.board.own.state.Store(uint32(collective.Waiting))
	}
	g.waiting, g.over, g.slept = w, time.Time{}, 0
	err := w.inner.Wait(g.bounded(ctx))
	w.busy = false
	end := w.entry.began
	if err != nil || g.slept != 0 || w.async || !w.brief {
		end = now()
		g.board.spend(end, g.slept)
	}
	agreed := !errors.Is(err, collective.ErrArguments) // otherwise only the call is over, and the group goes on
	if err != nil && agreed {
		err = g.explain(w, err)
		end = now()
	} else if w.entry.seq == w.seq { // not yet overwritten by later calls
		w.entry.ended = end
	}
	if err == nil && w.seq == 0 {
		w.count()
	}
	g.clearNeeds()
	g.board.running(end)
	return err
}

func (w *guardedWork) Done() bool { return w.inner.Done() }

// Source is the sender of a received message.
func (w *guardedWork) Source() int {
	if r, ok := w.inner.(collective.Receipt); ok {
		return r.Source()
	}
	return w.peer
}

// bounded adds the guard's check to ctx.
func (g *guard) bounded(ctx context.Context) *collective.WaitLimit {
	p, ok := ctx.(*collective.WaitLimit)
	if ok && p == g.from {
		return g.within
	}
	if !ok {
		return &collective.WaitLimit{Context: ctx, Check: g.check}
	}
	g.from = p
	g.within = &collective.WaitLimit{Context: p.Context, Limit: p.Limit, Check: g.check}
	return g.within
}

// Split makes the group with the backend and puts it on the board. Like any other collective, it is recorded,
// compared and, if it fails, explained.
func (g *guard) Split(ctx context.Context, group collective.Group) (_ collective.Comm, err error) {
	defer try.Caught(&err)
	try.Ok(g.ready())
	try.Ok(checkGroup(group, g.comm.Size()))
	if group.Internal {
		comm, err := g.comm.Split(&collective.WaitLimit{Context: ctx, Check: g.board.Aborted}, group)
		if err != nil {
			return nil, g.aborted(err)
		}
		return g.guardGroup(comm, group)
	}
	if group.Open != nil {
		try.Ok(g.board.setBackend(group.ID, group.Backend))
	}
	c := collective.Call{Kind: collective.NewGroup, Tag: int(group.ID), Origin: group.Origin}
	w := &guardedWork{g: g}
	g.number(&c)
	w.begin(&c)
	g.waiting, g.over = w, time.Time{}
	defer g.clearNeeds()
	comm, err := g.split(g.bounded(ctx), group, &c)
	if err != nil {
		err = g.explain(w, err)
		g.board.running(now())
		return nil, err
	}
	w.entry.ended = now()
	g.board.running(w.entry.ended)
	return g.guardGroup(comm, group)
}

// guardGroup guards this rank's place in a group; nil if it is not a member.
func (g *guard) guardGroup(comm collective.Comm, group collective.Group) (collective.Comm, error) {
	if comm == nil {
		return nil, nil
	}
	global := each.Of(group.Ranks, func(r int) int { return g.ranks[r] })
	return g.board.guard(comm, group, global)
}

func (g *guard) split(ctx context.Context, group collective.Group, c *collective.Call) (collective.Comm, error) {
	if x, ok := g.comm.(*exchanger); ok {
		if err := x.compareInTurn(ctx, c); err != nil {
			return nil, err
		}
	}
	if group.Open != nil {
		return group.Open(ctx)
	}
	return g.comm.Split(ctx, group)
}

// checkGroup checks a group's own validity before the call gets a number.
func checkGroup(group collective.Group, size int) error {
	for i, r := range group.Ranks {
		if r < 0 || r >= size {
			return &collective.CallError{Kind: collective.NewGroup, Problem: fmt.Sprintf("rank %d is not in the group that it is made from: valid are 0 to %d", r, size-1)}
		}
		if slices.Contains(group.Ranks[:i], r) {
			return &collective.CallError{Kind: collective.NewGroup, Problem: fmt.Sprintf("rank %d is named twice", r)}
		}
	}
	return nil
}

func (g *guard) Abort(err error) {
	g.board.Abort(g.board.rank, err)
	g.comm.Abort(err)
}

func (g *guard) Close() error {
	g.board.guards = slices.DeleteFunc(g.board.guards, func(other *guard) bool { return other == g })
	return g.comm.Close()
}
