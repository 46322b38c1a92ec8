package worker

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"drun/collective"
	"drun/engine/board"
	"drun/engine/rendezvous"
	"drun/starlib/dist"
)

// The namespaces of a run's store.
const (
	recipeKeys  = "recipe"
	backendKeys = "backend"
)

// meet gives access to the run's store, which is reached when it is first used.
func (w *worker) meet() *rendezvous.Store {
	switch at := w.job.Store; {
	case w.job.Place.WorldSize == 1:
		return rendezvous.Memory()
	case at.Problem != "":
		return rendezvous.Unavailable(errors.New(at.Problem))
	default:
		return rendezvous.Dial(at.Address, at.Token)
	}
}

// recipeStore is the store as the recipe sees it. What it waits for is on the
// board, and it does not wait for ranks that will set no more keys.
type recipeStore struct {
	*rendezvous.Store
	board *board.Board
	rank  int
}

var _ dist.Store = (*recipeStore)(nil)

func (s *recipeStore) MultiGet(ctx context.Context, keys []string) ([][]byte, error) {
	s.note(keys)
	defer s.board.Note("")
	return s.Store.MultiGet(s.watched(ctx), keys)
}

func (s *recipeStore) Wait(ctx context.Context, keys []string) error {
	s.note(keys)
	defer s.board.Note("")
	return s.Store.Wait(s.watched(ctx), keys)
}

func (s *recipeStore) note(keys []string) {
	const shown = 4 // a note is short
	if len(keys) == 0 {
		return
	}
	var b strings.Builder
	b.WriteString("waiting for store key ")
	for i, key := range keys[:min(len(keys), shown)] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Quote(key[:min(len(key), 100)]))
	}
	if len(keys) > shown {
		b.WriteString(", …")
	}
	s.board.Note(b.String())
}

// watched has the wait look at the other ranks.
func (s *recipeStore) watched(ctx context.Context) context.Context {
	if p, ok := ctx.(*collective.Patience); ok {
		return &collective.Patience{Context: p.Context, Limit: p.Limit, Check: s.alone}
	}
	return &collective.Patience{Context: ctx, Check: s.alone}
}

// alone reports that nobody is left who could set a key. A rank that failed is
// the agent's to report, which ends all waits.
func (s *recipeStore) alone() error {
	if s.board.World() == 1 {
		return errors.New("there is no other rank that could set it")
	}
	for r := range s.board.World() {
		if r != s.rank && s.board.State(r) != collective.Returned {
			return nil
		}
	}
	return errors.New("all other ranks have returned from main")
}
