// Package hier is the backend of runs over several nodes. It is made of two others: the ranks of a node exchange
// through shared memory (collective/shm), and the nodes through any other backend, which engine/worker gives it.
//
// The first ranks of each node, as many as the smallest node has but at most [Backend.Links], have a link: the ranks
// with the same position in their nodes are a world of the other backend, one rank a node. Large calls are cut into one
// slice per link. Links carry only messages, so a group needs no connections of its own: its messages have other tags.
//
// Every collective begins with an agreement: the ranks of a node compare fingerprints in a round of shared memory, one
// rank of each node tells those of the other nodes in ceil(log2 nodes) messages, and a second round tells its
// neighbours. The data of small calls travels with it, which completes the call. Large reductions continue in
// pipeline.go, calls that only move data in move.go.
//
// Contributions are reduced in the order of the ranks, with the kernels of shm, so the bits are those of shm on one
// machine, wherever the ranks are.
package hier

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"drun/collective"
	"drun/collective/progress"
	"drun/collective/sharedmem"
	"drun/collective/shm"
	"drun/internal/each"
	"drun/internal/try"
)

// MostLinks is how many ranks of a node have a link, unless [Backend.Links] says otherwise: a link costs a connection to
// every other node, and with a plugin a process.
const MostLinks = 4

// Backend joins a world whose ranks are on several nodes.
type Backend struct {
	Far    collective.Backend // connects one rank of each node
	Memory *os.File           // of shm.Create, for the ranks of this node; nil: they meet in the store
	Nodes  []int              // of each rank: equal for those that share memory
	Links  int                // ranks of a node that have a link, at most; 0: MostLinks
}

func (b *Backend) Name() string { return b.Far.Name() }

// Open joins the world. On a single node it opens shm alone.
func (b *Backend) Open(ctx context.Context, of collective.World) (_ collective.Comm, err error) {
	defer try.Caught(&err)
	if len(b.Nodes) != of.Size {
		return nil, fmt.Errorf("hier: the nodes of %d ranks are known, in a world of %d", len(b.Nodes), of.Size)
	}
	l := newLayout(b.Nodes, b.Links)
	node, position := l.node[of.Rank], l.position[of.Rank]
	memory := b.Memory
	if memory == nil {
		memory = try.To(shm.Rendezvous(ctx, of.Store, fmt.Sprintf("node %d", node), position, len(l.members[node])))
	}
	near := try.To(shm.Open(memory, position, len(l.members[node])))
	if len(l.members) == 1 {
		return near, nil
	}
	w := &world{layout: l, rank: of.Rank, near: near, crowded: sharedmem.Crowded(len(l.members[node]) + l.links), end: progress.End{Ended: make(chan struct{})}, boxes: map[boxKey]*box{}, outgoing: map[hop]*progress.Background{}}
	w.ctx, w.stop = context.WithCancel(context.Background())
	if position < l.links {
		w.far, err = b.Far.Open(ctx, collective.World{Rank: node, Size: len(l.members), LocalRank: position, LocalSize: l.links,
			Store: linkStore{of.Store, fmt.Sprintf("link %d/", position)}, NodeAddress: of.NodeAddress})
		if err != nil {
			err = w.explain(err)
			near.Abort(err)
			return nil, errors.Join(err, near.Close())
		}
	}
	w.pumps()
	return newComm(w, 0, collective.AllRanks(of.Size), near), nil
}

// linkStore is the part of the store for the ranks of a link.
type linkStore struct {
	collective.Store
	prefix string
}

func (s linkStore) Set(ctx context.Context, key string, value []byte) error {
	return s.Store.Set(ctx, s.prefix+key, value)
}

func (s linkStore) Get(ctx context.Context, key string) ([]byte, error) {
	return s.Store.Get(ctx, s.prefix+key)
}

// layout says where the ranks are.
type layout struct {
	node     []int   // of each rank; nodes are numbered in the order of their first ranks
	position []int   // of each rank among those of its node
	members  [][]int // the ranks of each node, ascending
	links    int     // ranks with a lower position have a link
}

func newLayout(nodes []int, most int) layout {
	var l layout
	number := map[int]int{}
	for rank, n := range nodes {
		k, known := number[n]
		if !known {
			k = len(l.members)
			number[n], l.members = k, append(l.members, nil)
		}
		l.node, l.position = append(l.node, k), append(l.position, len(l.members[k]))
		l.members[k] = append(l.members[k], rank)
	}
	if l.links = most; most <= 0 {
		l.links = MostLinks
	}
	for _, m := range l.members {
		l.links = min(l.links, len(m))
	}
	return l
}

// linked reports whether two ranks of different nodes have the same link.
func (l *layout) linked(a, b int) bool {
	return l.position[a] == l.position[b] && l.position[a] < l.links
}

// world is what the Comms of a rank share.
type world struct {
	layout
	rank          int
	near          *shm.Comm
	far           collective.Comm // of this rank's link; nil: it has none
	ctx           context.Context // ends with the world's Comm
	stop          func()
	busy          sync.WaitGroup // goroutines that use near or far
	farMu, nearMu sync.Mutex     // guard the starting of calls of far, and of messages of near
	pool          pool           // of memory for far

	crowded bool // this node's ranks, and what serves their links, are more than its cores

	mail     sync.Mutex
	boxes    map[boxKey]*box
	outgoing map[hop]*progress.Background // the latest packet there

	end     progress.End
	aborted sync.Once
}

// fail ends everything with the first cause, on this rank and soon on all others.
func (w *world) fail(cause error) {
	w.end.Fail(cause)
	w.aborted.Do(func() {
		w.near.Abort(cause)
		if w.far != nil {
			w.far.Abort(cause)
		}
	})
}

func (w *world) startFar(call *collective.Call) (collective.Work, error) {
	w.farMu.Lock()
	work, err := w.far.Start(call)
	w.farMu.Unlock()
	if err != nil {
		return nil, w.broken(err)
	}
	return &farWork{work, w}, nil
}

// farWork is a call on the link.
type farWork struct {
	collective.Work
	w *world
}

func (f *farWork) Wait(ctx context.Context) error { return f.w.broken(f.Work.Wait(ctx)) }

// broken restates an error of the link in terms of the world, and ends the world, since it cannot outlive a failed
// link.
func (w *world) broken(err error) error {
	if err == nil {
		return nil
	}
	if known := w.end.Cause(); known != nil {
		return known
	}
	err = w.explain(err)
	if errors.As(err, new(*collective.BackendError)) {
		w.fail(err)
	}
	return err
}

// explain replaces the ranks that the link's backend names by ranks of the world.
func (w *world) explain(err error) error {
	// The rank with this link on each node. The backend's own number of ranks would mislead.
	linked := each.Of(w.members, func(members []int) int { return members[min(w.position[w.rank], len(members)-1)] })
	var b *collective.BackendError
	var bad *collective.CallError
	switch {
	case errors.As(err, &b):
		return &collective.BackendError{Backend: b.Backend, Rank: w.rank, Msg: collective.Renamed(errors.New(b.Msg), linked).Error(), Own: b.Own}
	case errors.As(err, &bad), errors.Is(err, context.Canceled), errors.Is(err, collective.ErrTimeout):
		return err
	}
	return collective.Renamed(err, linked)
}
