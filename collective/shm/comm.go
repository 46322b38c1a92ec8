package shm

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"drun/collective"
	"drun/collective/progress"
	"drun/collective/reduction"
	"drun/collective/sharedmem"
	"drun/internal/each"
	"drun/internal/try"
)

// Comm is a rank's end of a group over shared memory.
type Comm struct {
	region     *region
	offset     int64
	rank, size int
	world      []int // the ranks' numbers in the world
	layout     layout
	mem        []byte
	control    *control
	arrivals   [2][]*arrival // by parity and rank
	spin       int           // how often a wait looks before it sleeps

	// The state of the collective that is running.
	round   uint64
	sources [][]byte // what is reduced, in rank order
	reducer reduction.Reducer

	calls   progress.Collectives
	mailbox mailbox
	wg      sync.WaitGroup // asynchronous calls

	end progress.End

	mapping  sync.RWMutex // held by Abort while it writes to the memory
	unmapped bool
}

var (
	_ collective.Verifier         = (*Comm)(nil)
	_ collective.ArgumentVerifier = (*Comm)(nil)
	_ collective.Arena            = (*Comm)(nil)
)

// How often a wait polls memory before it sleeps, with a pause of some 20 ns each time: for about as long as sleeping
// and being woken would take, so that a wait costs at most twice the better choice. An asynchronous call polls less, so
// as not to compete with the recipe for the core.
const (
	spinAlone = 2000
	spinAsync = 100
)

var errAborted = fmt.Errorf("shm: %w", collective.ErrAborted)

// newComm joins the group of these ranks of the world, whose area is at offset, as rank.
func newComm(r *region, offset int64, rank int, world []int) (*Comm, error) {
	size := len(world)
	c := &Comm{region: r, offset: offset, rank: rank, size: size, world: world, layout: newLayout(size)}
	mem, err := sharedmem.Map(r.file, offset, c.layout.total)
	if err != nil {
		return nil, err
	}
	c.mem = mem
	c.control = sharedmem.At[control](mem, 0)
	for i := range 2 * size {
		c.arrivals[i%2] = append(c.arrivals[i%2], sharedmem.At[arrival](mem, arrivalsAt+i*sharedmem.CacheLine))
	}
	if int(r.head.size) <= r.cores {
		c.spin = spinAlone
	}
	c.sources = make([][]byte, size)
	c.calls.Init(&c.wg, c.carryOut)
	c.mailbox.init(c)
	r.refs.Add(1)
	return c, nil
}

func (c *Comm) Rank() int { return c.rank }
func (c *Comm) Size() int { return c.size }

// VerifiesFingerprints says that fingerprints are compared in the first round of every call.
func (c *Comm) VerifiesFingerprints() {}

// VerifiesArguments says that the calls' arguments are compared in the same round.
func (c *Comm) VerifiesArguments() bool { return true }

// Start begins a call. A synchronous one is carried out by its Wait.
func (c *Comm) Start(call *collective.Call) (collective.Work, error) {
	if err := c.failed(); err != nil {
		return nil, err
	}
	if call.Seq == 0 { // else the board's guard has checked it
		if err := call.Check(c.rank, c.size); err != nil {
			return nil, err
		}
	}
	if call.Kind.PointToPoint() {
		return c.mailbox.start(call)
	}
	return c.calls.Start(call), nil
}

func (c *Comm) carryOut(ctx context.Context, call *collective.Call) error {
	if err := c.failed(); err != nil {
		return err
	}
	r := run{Comm: c, ctx: ctx, call: call, fingerprint: call.Fingerprint, passed: call.Passed, spin: c.spin}
	if r.fingerprint == 0 {
		r.fingerprint, r.passed = call.Fingerprints()
	}
	if call.Async {
		r.spin = min(r.spin, spinAsync)
	}
	err := r.do()
	if err != nil && !errors.Is(err, collective.ErrArguments) && c.end.Cause() == nil {
		// Interrupted in the middle of its rounds, the group is unusable.
		c.end.Fail(fmt.Errorf("an earlier call on this group failed: %w", err))
	}
	return err
}

func (c *Comm) failed() error {
	if err := c.end.Cause(); err != nil {
		return err
	}
	if c.control.aborted.Load() != 0 {
		return errAborted
	}
	return nil
}

func (c *Comm) Abort(cause error) {
	c.end.Fail(cause)
	c.mapping.RLock()
	defer c.mapping.RUnlock()
	if c.unmapped {
		return
	}
	c.control.aborted.Store(1)
	c.control.gate.Open()
	c.mailbox.wakeAll()
}

func (c *Comm) Close() error {
	return c.end.Close(func() error {
		pending := c.calls.Last().Pending()
		c.end.Fail(collective.ErrClosed)
		if pending {
			c.Abort(collective.ErrClosed)
		}
		c.mailbox.doorbell(c.rank).Open() // its waits look at the cause
		c.wg.Wait()
		c.mapping.Lock()
		defer c.mapping.Unlock()
		last := int(c.control.closed.Add(1)) == c.size
		err := sharedmem.Unmap(c.mem)
		c.unmapped = true
		if last {
			sharedmem.Discard(c.region.file, c.offset, c.layout.total)
		}
		return cmp.Or(err, c.region.release())
	})
}

// Split makes a group with an area of its own in the same region. The first of its ranks reserves the area; all ranks
// of c tell each other in an all_gather where their groups are.
func (c *Comm) Split(ctx context.Context, group collective.Group) (_ collective.Comm, err error) {
	defer try.Caught(&err)
	rank := slices.Index(group.Ranks, c.rank)
	try.Ok(collective.CheckRanks(group.Ranks, c.size))
	try.Ok(c.failed())
	var mine, all = make([]byte, 8), make([]byte, 8*c.size)
	if rank == 0 {
		total := uint64(newLayout(len(group.Ranks)).total)
		binary.NativeEndian.PutUint64(mine, c.region.head.next.Add(total)-total)
	}
	call := collective.NewAllGather(collective.Of(mine), collective.Of(all))
	call.Fingerprint = (&collective.Call{Kind: collective.NewGroup, Tag: int(group.ID)}).Hash()
	w := try.To(c.Start(&call))
	if err := w.Wait(ctx); err != nil || rank < 0 {
		return nil, err
	}
	offset := binary.NativeEndian.Uint64(all[8*group.Ranks[0]:])
	try.FailIf(offset > arenasAt-uint64(newLayout(len(group.Ranks)).total), "shm: there is no room for another group")
	world := each.Of(group.Ranks, func(r int) int { return c.world[r] })
	sub := try.To(newComm(c.region, int64(offset), rank, world))
	return sub, nil
}
