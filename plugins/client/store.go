package client

import (
	"context"
	"sync"

	"drun/collective"
	"drun/plugins/internal/wire"
)

// serveStore lets the plugin use the key-value store, until its process ends.
func (x *process) serveStore(store collective.Store) error {
	stream, err := wire.OpenStore(x.ctx, x.control)
	if err != nil {
		return err
	}
	s := &storeServer{store: store, stream: stream, waits: map[uint64]context.CancelFunc{}}
	x.reading.Go(func() {
		for {
			q, err := stream.Recv()
			if err != nil {
				break
			}
			s.handle(x.ctx, q)
		}
		s.running.Wait()
	})
	return nil
}

type storeServer struct {
	store   collective.Store
	running sync.WaitGroup

	mu     sync.Mutex // guards sending too
	stream wire.StoreClient
	waits  map[uint64]context.CancelFunc
}

func (s *storeServer) handle(ctx context.Context, q *wire.StoreRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.Op == wire.StoreCancel {
		if cancel := s.waits[q.ID]; cancel != nil {
			cancel()
		}
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	s.waits[q.ID] = cancel
	s.running.Go(func() {
		reply := &wire.StoreReply{ID: q.ID}
		var err error
		if q.Op == wire.StoreSet {
			err = s.store.Set(ctx, q.Key, q.Value)
		} else {
			reply.Value, err = s.store.Get(ctx, q.Key)
		}
		if err != nil {
			reply.Error = err.Error()
		}
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waits, q.ID)
		_ = s.stream.Send(reply) // the plugin is gone: nobody waits
	})
}
