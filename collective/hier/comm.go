package hier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"drun/collective"
	"drun/collective/progress"
	"drun/collective/shm"
	"drun/internal/each"
	"drun/kernel/dtype"
)

// Comm is a rank's end of a group whose ranks are on several nodes.
type Comm struct {
	w     *world
	id    uint32
	ranks []int // of the world
	rank  int   // of the group, as are the ranks below
	near  *shm.Comm

	nodes   [][]int // the ranks on each node, ascending; nodes in the order of their first ranks
	node    int     // this rank's
	lanes   [][]int // each lane's rank on every node: between these the group's data goes
	lane    int     // this rank's; -1: none
	inOrder bool    // the ranks of each node are consecutive

	calls progress.Collectives
	box   *box
	wg    sync.WaitGroup // asynchronous calls

	end progress.End
}

var (
	_ collective.Verifier = (*Comm)(nil)
	_ collective.Arena    = (*Comm)(nil)
)

func newComm(w *world, id uint32, ranks []int, near *shm.Comm) *Comm {
	c := &Comm{w: w, id: id, ranks: ranks, rank: slices.Index(ranks, w.rank), near: near, lane: -1, inOrder: true}
	c.calls.Init(&c.wg, c.carryOut)
	nodes := each.Of(ranks, func(r int) int { return w.node[r] })
	l := newLayout(nodes, 0)
	c.nodes, c.node = l.members, l.node[c.rank]
	for _, here := range c.nodes {
		c.inOrder = c.inOrder && here[len(here)-1]-here[0] == len(here)-1
	}
	c.findLanes()
	c.box = w.join(id, c)
	return c
}

// findLanes makes a lane of each link that has a rank of the group on every node. If there is none, the first ranks
// of the nodes are a lane, whose messages other ranks forward.
func (c *Comm) findLanes() {
	for link := range c.w.links {
		var lane []int
		for _, here := range c.nodes {
			if i := slices.IndexFunc(here, func(rank int) bool { return c.w.position[c.ranks[rank]] == link }); i >= 0 {
				lane = append(lane, here[i])
			}
		}
		if len(lane) == len(c.nodes) {
			c.lanes = append(c.lanes, lane)
		}
	}
	if c.lanes == nil {
		lane := each.Of(c.nodes, func(here []int) int { return here[0] })
		c.lanes = [][]int{lane}
	}
	for i, lane := range c.lanes {
		if lane[c.node] == c.rank {
			c.lane = i
		}
	}
}

func (c *Comm) Rank() int { return c.rank }
func (c *Comm) Size() int { return len(c.ranks) }

// VerifiesFingerprints says that fingerprints are compared before any call touches data.
func (c *Comm) VerifiesFingerprints() {}

// Alloc returns memory that the ranks of the node share.
func (c *Comm) Alloc(dt dtype.Type, count int) (collective.Buffer, error) {
	return c.near.Alloc(dt, count)
}

func (c *Comm) Version() string {
	if v, ok := c.w.far.(interface{ Version() string }); ok {
		return v.Version()
	}
	return ""
}

func (c *Comm) Statistics() map[string]int64 {
	if s, ok := c.w.far.(interface{ Statistics() map[string]int64 }); ok {
		return s.Statistics()
	}
	return nil
}

// Start begins a call. A synchronous collective is carried out by its Wait.
func (c *Comm) Start(call *collective.Call) (collective.Work, error) {
	if err := c.failed(); err != nil {
		return nil, err
	}
	if call.Seq == 0 { // else the board's guard has checked it
		if err := call.Check(c.rank, len(c.ranks)); err != nil {
			return nil, err
		}
	}
	if call.Kind.PointToPoint() {
		return c.message(call)
	}
	return c.calls.Start(call), nil
}

func (c *Comm) carryOut(ctx context.Context, call *collective.Call) error {
	return c.whole(ctx, func(ctx context.Context) error { return newRun(ctx, c, call).do() })
}

// whole carries out a call. After an error in the middle the group is unusable.
func (c *Comm) whole(ctx context.Context, do func(context.Context) error) error {
	err := c.failed()
	if err != nil {
		return err
	}
	if err = do(collective.Also(ctx, c.failed)); err != nil {
		failure := fmt.Errorf("an earlier call on this group failed: %w", err)
		if cause := c.failed(); cause != nil && !errors.Is(err, collective.ErrFingerprint) {
			err = cause // it was cut short
		}
		c.end.Fail(failure)
	}
	return err
}

func (c *Comm) failed() error { return cmp.Or(c.end.Cause(), c.w.end.Cause()) }

// Split makes a group: its ranks on this node share an area of the node's memory, and traffic between nodes uses the
// existing links. A group on one node is a plain shm group.
func (c *Comm) Split(ctx context.Context, group collective.Group) (collective.Comm, error) {
	if err := collective.CheckRanks(group.Ranks, len(c.ranks)); err != nil {
		return nil, err
	}
	sub, err := c.split(ctx, group)
	if err != nil || sub == nil {
		return nil, err
	}
	if len(sub.nodes) == 1 {
		c.w.leave(group.ID)
		return sub.near, nil
	}
	return sub, nil
}

func (c *Comm) split(ctx context.Context, group collective.Group) (sub *Comm, err error) {
	if err := c.failed(); err != nil {
		return nil, err
	}
	if err := c.calls.Last().Join(ctx); err != nil {
		return nil, err
	}
	err = c.whole(ctx, func(ctx context.Context) error {
		call := collective.Call{Kind: collective.NewGroup, Tag: int(group.ID)}
		if _, err := newRun(ctx, c, &call).agree(nil, nil); err != nil {
			return err
		}
		here, ranks := []int(nil), make([]int, len(group.Ranks))
		for i, r := range group.Ranks {
			ranks[i] = c.ranks[r]
			if p := slices.Index(c.nodes[c.node], r); p >= 0 {
				here = append(here, p)
			}
		}
		if !slices.Contains(group.Ranks, c.rank) {
			here = nil
		}
		near, err := c.near.Split(ctx, collective.Group{ID: group.ID, Ranks: here})
		if err != nil || near == nil {
			return err
		}
		sub = newComm(c.w, group.ID, ranks, near.(*shm.Comm))
		return nil
	})
	return sub, err
}

func (c *Comm) Abort(cause error) {
	c.end.Fail(cause)
	c.near.Abort(cause)
	if c.id == 0 {
		c.w.fail(cause)
		return
	}
	c.w.tellAbort(c)
}

var errAborted = fmt.Errorf("hier: %w", collective.ErrAborted)

func (c *Comm) Close() error {
	return c.end.Close(func() error {
		pending := c.calls.Last().Pending()
		if c.id == 0 && c.failed() == nil {
			c.w.flush()
		}
		c.end.Fail(collective.ErrClosed)
		if pending {
			c.near.Abort(collective.ErrClosed)
		}
		c.wg.Wait()
		if c.id == 0 {
			return c.w.shut()
		}
		c.w.leave(c.id)
		return c.near.Close()
	})
}

func (w *world) shut() error {
	w.end.Fail(collective.ErrClosed)
	w.mail.Lock()
	w.boxes = nil
	w.mail.Unlock()
	w.stop()
	w.busy.Wait()
	err := w.near.Close()
	if w.far != nil {
		err = errors.Join(err, w.far.Close())
	}
	return err
}
