// Package enginetest gives the plugins' tests worlds of ranks: all in one
// process, or each in its own.
package enginetest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"drun/collective"
	"drun/collective/disttest"
)

// Store is a key-value store in memory.
type Store struct {
	mu     sync.Mutex
	values map[string][]byte
	waits  map[string]chan struct{}
}

// NewStore makes an empty store.
func NewStore() *Store {
	return &Store{values: map[string][]byte{}, waits: map[string]chan struct{}{}}
}

// Set gives key its value, and wakes who waits for it.
func (s *Store) Set(_ context.Context, key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[key] = value
	if w := s.waits[key]; w != nil {
		close(w)
		delete(s.waits, key)
	}
	return nil
}

// Get waits until the key exists.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	value, ok := s.values[key]
	w := s.waits[key]
	if !ok && w == nil {
		w = make(chan struct{})
		s.waits[key] = w
	}
	s.mu.Unlock()
	if ok {
		return value, nil
	}
	if err := collective.Wait(ctx, w); err != nil {
		return nil, fmt.Errorf("waiting for %q: %w", key, err)
	}
	return s.Get(ctx, key)
}

// InRankOrder is a backend that is asked for deterministic reductions.
type InRankOrder struct{ collective.Backend }

// Open passes the wish on.
func (b InRankOrder) Open(ctx context.Context, world collective.World) (collective.Comm, error) {
	world.Deterministic = true
	return b.Backend.Open(ctx, world)
}

// InProcess is the [disttest.Factory] of worlds in this process. open gives
// each rank its backend.
func InProcess(backend func(rank int) collective.Backend) disttest.Factory {
	return func(t testing.TB, n int) []collective.Comm {
		t.Helper()
		comms, errs := make([]collective.Comm, n), make([]error, n)
		store := NewStore()
		var wg sync.WaitGroup
		for rank := range n {
			wg.Go(func() {
				world := collective.World{Rank: rank, Size: n, LocalRank: rank, LocalSize: n, Store: store}
				comms[rank], errs[rank] = backend(rank).Open(disttest.Context, world)
			})
		}
		wg.Wait()
		t.Cleanup(func() {
			for rank, c := range comms {
				wg.Go(func() {
					if c == nil {
						return
					}
					if err := c.Close(); err != nil {
						t.Errorf("close of rank %d: %v", rank, err)
					}
				})
			}
			wg.Wait()
		})
		for rank, err := range errs {
			if err != nil {
				t.Fatalf("rank %d: %v", rank, err)
			}
		}
		return comms
	}
}
