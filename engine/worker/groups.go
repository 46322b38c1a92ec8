package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"drun/collective"
	"drun/collective/hier"
	"drun/collective/shm"
	"drun/engine"
	"drun/engine/board"
	"drun/engine/rendezvous"
	"drun/internal/each"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib/distributed"
)

// shmName is how a recipe names the built-in backend.
const shmName = "shm"

// openGroup makes the Comm of a group that has its own backend, only on its member ranks: others need neither the
// plugin nor what it runs on. A plugin has a process for each such group, and its ranks meet under keys of their own.
func (w *worker) openGroup(ctx context.Context, name string, group collective.Group) (collective.Comm, error) {
	limit, check := joinLimit, func() error { return nil }
	if p, ok := ctx.(*collective.WaitLimit); ok {
		limit, check = max(limit, p.Limit), p.Check
	}
	inner, stop := context.WithTimeout(ctx, limit)
	defer stop()
	comm, err := w.connectGroup(&collective.WaitLimit{Context: inner, Check: check}, name, group)
	if err == nil {
		w.groups = append(w.groups, ownGroup{group.ID, comm})
		return comm, nil
	}
	if cause := w.board.Aborted(); cause != nil {
		return nil, cause // another rank has failed already
	}
	if cause := context.Cause(w.ctx); cause != nil {
		return nil, cause
	}
	var b *collective.BackendError
	if errors.As(err, &b) {
		return nil, b.In(group.ID, w.job.Placement.Rank, group.Ranks)
	}
	if inner.Err() != nil {
		err = fmt.Errorf("its ranks were not connected within %v: %s", limit, err.Error()) // not the cancellation by the caller
	}
	return nil, exit.WithCode(fmt.Errorf("backend %s of group %d, of %s: %w", name, group.ID, collective.RankList(group.Ranks), err), exit.Backend)
}

func (w *worker) connectGroup(ctx *collective.WaitLimit, name string, group collective.Group) (_ collective.Comm, err error) {
	defer try.Caught(&err)
	var here []int // ranks of the group on this node
	for _, rank := range group.Ranks {
		if slices.Contains(w.job.Peers, rank) {
			here = append(here, rank)
		}
	}
	own := w.job.Placement.Rank
	deterministic := w.job.Groups == nil || *w.job.Groups
	world := collective.World{
		Rank: slices.Index(group.Ranks, own), Size: len(group.Ranks), LocalRank: slices.Index(here, own), LocalSize: len(here),
		Store:       w.store.In(w.keys(fmt.Sprintf("%s.%d.%d", backendKeys, group.ID, group.Ranks[0]))),
		NodeAddress: w.job.NodeAddress, Deterministic: deterministic,
	}
	if name == shmName {
		if len(here) < len(group.Ranks) {
			return nil, exit.Permanent(errors.New("it reaches the ranks of one node only"))
		}
		memory := try.To(shm.Rendezvous(ctx, world.Store, "memory", world.Rank, world.Size))
		return shm.Open(memory, world.Rank, world.Size)
	}
	plugin := try.To(w.find(name))
	if w.job.Groups == nil && plugin.OwnOrder {
		deterministic, world.Deterministic = false, false
	}
	backend := w.plugins(plugin, w.lostPlugin(group.ID))
	h := w.job.Hierarchy
	if plugin.WholeWorld {
		h = nil
	}
	if h != nil {
		nodes := each.Of(group.Ranks, func(rank int) int { return h.Nodes[rank] })
		backend = &hier.Backend{Far: backend, Nodes: nodes, Links: h.Links}
	}
	comm, err := backend.Open(ctx, world)
	if err != nil {
		return nil, collective.Renamed(err, group.Ranks)
	}
	if err := warmUp(ctx, comm); err != nil {
		comm.Abort(err)
		return nil, errors.Join(collective.Renamed(err, group.Ranks), comm.Close())
	}
	// Where all ranks of the group are on one node of several, none has started the plugin.
	if p, ok := comm.(interface{ Version() string }); ok && world.Rank == 0 {
		uses := &engine.Uses{Plugin: plugin.Plugin, Orders: !deterministic && h == nil}
		uses.Version = p.Version()
		err = w.channel.Send(&engine.ToAgent{Uses: uses})
	}
	return comm, err
}

// lostPlugin ends the run if this rank's plugin for that group has ended by itself. That is the cause, not the
// broken connections, which other ranks may notice first, and this rank through them.
func (w *worker) lostPlugin(group uint32) func(error) {
	return func(err error) {
		var b *collective.BackendError
		if errors.As(err, &b) {
			err = b.In(group, w.job.Placement.Rank, nil)
		}
		w.stop(err)
		w.board.Abort(w.job.Placement.Rank, err)
	}
}

// find asks the node for the plugin of that name, and verifies it.
func (w *worker) find(name string) (*engine.Plugin, error) {
	if w.plugins == nil {
		return nil, noHost
	}
	reply, err := w.ask("looking for the backend "+name, &engine.ToAgent{Find: name})
	if err != nil {
		return nil, err
	}
	if reply.Found == nil || reply.Found.Plugin == nil && reply.Found.Failure == nil {
		return nil, fmt.Errorf("no backend %q was found", name)
	}
	if f := reply.Found.Failure; f != nil {
		if err = f.Err(); f.Permanent {
			err = exit.Permanent(err)
		}
		return nil, err
	}
	return reply.Found.Plugin, nil
}

// An ownGroup is a group with a backend of its own.
type ownGroup struct {
	id   uint32
	comm collective.Comm
}

// leaveGroup waits until all ranks of a group have come to destroy it, and releases it. The error is that of the
// rank that does not come, or the end of the run.
func (w *worker) leaveGroup(ctx context.Context, id uint32, ranks []int, last func() error) error {
	defer w.board.DrainMessages()()
	if err := last(); err != nil {
		return err
	}
	leave := &engine.Leave{Group: id, Ranks: ranks}
	if m := w.board.Exchanged(id); m != nil {
		leave.Messages = append(leave.Messages, *m)
	}
	_, err := w.askWithin(ctx, "leaving a group", &engine.ToAgent{Leave: leave})
	w.groups = slices.DeleteFunc(w.groups, func(g ownGroup) bool { return g.id == id })
	return err
}

// part waits until all ranks have returned from main: none may close its backend, or leave messages that block their
// senders, while another still communicates. What goes wrong then is the failure of another rank.
func (w *worker) part(comm collective.Comm) {
	if comm == nil {
		return
	}
	leave := &engine.Leave{Messages: w.board.AllExchanged()}
	defer w.board.DrainMessages()()
	_, _ = w.ask("", &engine.ToAgent{Leave: leave})
}

func (w *worker) closeGroups() {
	for _, g := range slices.Backward(w.groups) {
		_ = g.comm.Close()
	}
}

// warmUpLimit is long for a few bytes, whatever the network.
const warmUpLimit = 30 * time.Second

// warmUp proves with a small all_reduce that the backend reaches every rank and adds correctly, before the recipe
// relies on it.
func warmUp(ctx context.Context, comm collective.Comm) error {
	// Each rank adds elements of its own, so that an error can name the rank.
	given := make([]int64, comm.Size())
	given[comm.Rank()] = int64(comm.Rank()) + 1
	call := collective.NewAllReduce(collective.Of(given), dtype.Sum)
	limit := collective.Within(ctx, warmUpLimit)
	if p, ok := ctx.(*collective.WaitLimit); ok {
		limit.Check = p.Check
	}
	work, err := comm.Start(&call)
	if err == nil {
		err = work.Wait(limit)
	}
	if errors.Is(err, collective.ErrTimeout) {
		return fmt.Errorf("the first all_reduce, of %d bytes, did not end within %v: not every rank can be reached", 8*len(given), warmUpLimit)
	}
	if err != nil {
		return fmt.Errorf("the first all_reduce failed: %w", err)
	}
	for rank, got := range given {
		if want := int64(rank) + 1; got != want {
			return fmt.Errorf("the first all_reduce gave a wrong sum: rank %d gave %d, and %d came to rank %d", rank, want, got, comm.Rank())
		}
	}
	return nil
}

// The namespaces of a run's store.
const (
	recipeKeys  = "recipe"
	backendKeys = "backend"
)

// keys is a namespace for this start of the ranks, which sees no keys of earlier ones.
func (w *worker) keys(space string) string {
	if n := w.job.RestartCount; n > 0 {
		space += "." + strconv.Itoa(n)
	}
	return space
}

// openStore gives access to the run's store, which the coordinator has.
func (w *worker) openStore() {
	// Replies to ranks of an earlier attempt, which may still be under way, have other numbers.
	w.remote = rendezvous.NewRemote(uint64(w.job.RestartCount)<<32, func(q *rendezvous.Request) error { return w.channel.Send(&engine.ToAgent{Store: q}) })
	if w.store = w.remote.Store(); w.job.Placement.WorldSize == 1 {
		w.store = rendezvous.Memory()
	}
}

// recipeStore is the store as the recipe sees it. Its waits are on the board, and end if no rank is left that could
// set the key.
type recipeStore struct {
	*rendezvous.Store
	board *board.Board
	limit time.Duration // of waits, unless the recipe says otherwise
}

var _ distributed.Store = (*recipeStore)(nil)

// In, Alone and File are other stores for the recipe: a part of the same one, one of this rank, and one in a file.
func (s *recipeStore) In(space string) distributed.Store {
	return &recipeStore{s.Store.Beneath(space), s.board, s.limit}
}

func (s *recipeStore) Alone() distributed.Store {
	return &recipeStore{rendezvous.Memory(), s.board, s.limit}
}

func (s *recipeStore) File(change func(func([]byte) ([]byte, error)) error) distributed.Store {
	return &recipeStore{rendezvous.File(change), s.board, s.limit}
}

func (s *recipeStore) Pop(ctx context.Context, queue string) (value []byte, err error) {
	err = s.watch(ctx, []string{queue}, func(ctx context.Context) error {
		value, err = s.Store.Pop(ctx, queue)
		return err
	})
	return value, err
}

func (s *recipeStore) MultiGet(ctx context.Context, keys []string) (values [][]byte, err error) {
	err = s.watch(ctx, keys, func(ctx context.Context) error {
		values, err = s.Store.MultiGet(ctx, keys)
		return err
	})
	return values, err
}

func (s *recipeStore) Wait(ctx context.Context, keys []string) error {
	return s.watch(ctx, keys, func(ctx context.Context) error { return s.Store.Wait(ctx, keys) })
}

func (s *recipeStore) watch(ctx context.Context, keys []string, wait func(context.Context) error) error {
	watchdog := s.board.Watch(note(keys))
	defer watchdog.Close()
	p, ok := ctx.(*collective.WaitLimit)
	switch {
	case !ok:
		p = &collective.WaitLimit{Context: ctx, Check: watchdog.Check}
	case p.Limit == s.limit: // a timeout that the recipe gave holds in full
		p = &collective.WaitLimit{Context: p.Context, Limit: p.Limit, Check: watchdog.Check}
	}
	return wait(p)
}

// note says in a few words what a rank waits for.
func note(keys []string) string {
	const most = 4
	var shown []string
	for _, key := range keys[:min(len(keys), most)] {
		shown = append(shown, strconv.Quote(key[:min(len(key), 100)]))
	}
	if len(keys) > most {
		shown = append(shown, "…")
	}
	if shown == nil {
		return ""
	}
	return "waiting for store key " + strings.Join(shown, ", ")
}
