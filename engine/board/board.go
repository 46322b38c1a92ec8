// Package board is the status board of a node: shared memory in which every rank writes what it is doing, so that a
// collective that cannot go on is explained instead of hanging.
//
// The agent creates the board and watches it; each worker opens it as its rank and wraps its communicator in [Guard],
// after which every call is on the board: what it is, where in the recipe, since when. From this come the reports of
// mismatches, of ranks that will never come and of timeouts, and the abort that ends all waits with the first cause.
package board

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"drun/collective"
	"drun/collective/sharedmem"
	"drun/internal/try"
)

// MaxWorld limits the memory that a faulty process can ask for: a board's size grows with its world.
const MaxWorld = 1 << 20

// Observer is the rank of a process that watches without being a rank.
const Observer = -1

// A Board is one process's view of the board: a single piece of shared memory, with a source file for each part of it. Its
// methods may be called from any goroutine, except At and Note, which belong to the recipe's goroutine.
type Board struct {
	file *os.File
	mem  []byte
	layout
	waits uint64 // in which this rank has slept
	head  *header
	rank  int
	world int
	own   *slot  // nil for an observer
	near  [2]int // see Near
	names names

	guards []*guard // of this rank's groups

	// OnStart, if set, is called before each of this rank's calls, and OnWait now and then while it waits, both on the recipe's
	// goroutine: a debugger may hold the rank there.
	OnStart func(*collective.Call)
	OnWait  func()
	// OnStuck, if set, is told that this rank waits in a circle. While it returns true, the wait does not end with an error.
	OnStuck func(why string) bool
	// Unlimited, once set, leaves time limits to this process alone, which stops their clocks while ranks are held.
	Unlimited atomic.Bool

	draining  atomic.Bool   // see DrainMessages
	taken     atomic.Uint64 // how often arrived messages were taken in, see DrainMessages
	takenThen uint64        // taken when this rank last wrote its needs

	mu     sync.Mutex
	groups map[uint32]*window
}

// Create makes the board of a world of that size, as a file that workers inherit.
func Create(world int) (_ *os.File, err error) {
	defer try.Caught(&err)
	try.FailIf(world < 1 || world > MaxWorld, "a world has 1 to %d ranks, not %d", MaxWorld, world)
	f := try.To(sharedmem.Create("drun-board"))
	mem, err := sharedmem.Map(f, 0, causeAt)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	defer func() { _ = sharedmem.Unmap(mem) }()
	h := sharedmem.At[header](mem, 0)
	h.magic, h.world = magic, uint32(world)
	return f, nil
}

// Open maps the board in f as one of its ranks, or as [Observer]. The board keeps f and closes it.
func Open(f *os.File, rank int) (_ *Board, err error) {
	defer try.Caught(&err)
	mem := try.To(sharedmem.Map(f, 0, causeAt))
	h := *sharedmem.At[identity](mem, 0)
	_ = sharedmem.Unmap(mem)
	if h.magic != magic || h.world < 1 || h.world > MaxWorld {
		return nil, fmt.Errorf("the file given as status board is something else, or from another version of drun")
	}
	at := newLayout(int(h.world))
	mem = try.To(sharedmem.Map(f, 0, at.snapshotAt+at.snapshotSize))
	b := &Board{file: f, mem: mem, layout: at, head: sharedmem.At[header](mem, 0), rank: rank, groups: map[uint32]*window{}}
	b.world = int(h.world)
	if rank != Observer && (rank < 0 || rank >= b.world) {
		_ = sharedmem.Unmap(mem)
		return nil, fmt.Errorf("rank %d is not on a board of %d ranks", rank, b.world)
	}
	if rank != Observer {
		b.own = b.slot(rank)
		b.needsOf(rank).process.Store(uint32(os.Getpid()))
		b.names.table = mem[b.namesAt+rank*tableSize:][:tableSize]
	}
	return b, nil
}

// Close unmaps the board. Its guards can no longer be used.
func (b *Board) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.groups {
		_ = sharedmem.Unmap(w.mem)
	}
	b.groups = nil
	_ = sharedmem.Unmap(b.mem)
	return b.file.Close()
}

func (b *Board) slot(rank int) *slot { return sharedmem.At[slot](b.mem, b.slotsAt+rank*slotSize) }

// SetState says what this rank does from now on.
func (b *Board) SetState(s collective.State) {
	if s == collective.Returned {
		b.settle()
	}
	b.SetRankState(b.rank, s)
}

// SetRankState sets the state of another rank, for the agent that saw it die.
func (b *Board) SetRankState(rank int, s collective.State) {
	own := b.slot(rank)
	own.since = now()
	own.state.Store(uint32(s))
}

func (b *Board) State(rank int) collective.State {
	return collective.State(b.slot(rank).state.Load())
}

// spend adds a call that ended to the time that the rank has spent in calls; slept is when the rank went to sleep
// in it, or 0.
func (b *Board) spend(end, slept int64) {
	b.own.spent.Store(b.own.spent.Load() + end - b.own.entered)
	if slept != 0 {
		b.own.slept.Store(b.own.slept.Load() + end - slept)
	}
}

// Spent tells how long a rank has been in calls, and how much of that it slept because others were not there. It
// includes the current call and omits calls too short to be worth reading the clock for.
func (b *Board) Spent(rank int) (calls, waiting time.Duration) {
	s := b.slot(rank)
	calls, waiting = time.Duration(s.spent.Load()), time.Duration(s.slept.Load())
	if collective.State(s.state.Load()) == collective.Waiting {
		so := since(s.entered)
		calls, waiting = calls+so, waiting+so
	}
	return calls, waiting
}

// At notes where the recipe is, outside of calls. It takes a few nanoseconds.
func (b *Board) At(pos collective.Position) {
	b.own.file = b.names.index(pos.File)
	b.own.line, b.own.col = pos.Line, pos.Col
}

// Note says in a few words what the rank does outside of calls ("saving a checkpoint"); "" when it is done.
func (b *Board) Note(what string) {
	b.own.note = b.names.note(what)
	b.own.since = now()
}

// RequestStop asks the recipes to end, as SIGUSR1 and SIGINT do.
func (b *Board) RequestStop() { b.head.stop.Store(1) }

// StopRequested reports whether anyone has asked for a stop, and notes that the recipe looks: a run that never
// looks is ended at once.
func (b *Board) StopRequested() bool {
	if b.own != nil && b.head.asked.Load() == 0 {
		b.head.asked.Store(1)
	}
	return b.head.stop.Load() != 0
}

// StopObserved reports whether some rank has ever called StopRequested.
func (b *Board) StopObserved() bool { return b.head.asked.Load() != 0 }

// The clock of the board is CLOCK_MONOTONIC, which all processes of a machine share. Go's own monotonic clock is
// much cheaper to read, but starts at another time in every process.
var (
	clockStart  = time.Now()
	clockOffset = monotonic()
)

// Now reads CLOCK_MONOTONIC in nanoseconds, which all processes of a machine can compare.
func Now() int64 { return now() }

func now() int64 { return clockOffset + int64(time.Since(clockStart)) }

func since(t int64) time.Duration {
	if t == 0 {
		return 0
	}
	return max(0, time.Duration(now()-t))
}
