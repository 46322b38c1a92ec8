package worker

import (
	"context"
	"strconv"
	"strings"
	"time"

	"drun/collective"
	"drun/engine"
	"drun/engine/board"
	"drun/engine/rendezvous"
	"drun/starlib/distributed"
)

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
