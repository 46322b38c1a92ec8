package sdk

import (
	"context"
	"errors"
	"sync"

	"drun/collective"
	"drun/plugins/internal/wire"
)

// store is drun's key-value store as the plugin sees it: its requests go to drun
// over a stream that drun opens.
type store struct {
	ready chan struct{} // closed when there is a stream

	mu      sync.Mutex
	stream  wire.StoreServer
	last    uint64
	waiting map[uint64]chan *wire.StoreReply
	over    error
}

var _ collective.Store = (*store)(nil)

func newStore() *store {
	return &store{ready: make(chan struct{}), waiting: map[uint64]chan *wire.StoreReply{}}
}

// Store serves the stream.
func (s *server) Store(stream wire.StoreServer) error { return s.store.serve(stream) }

// serve passes replies to those who wait for them.
func (s *store) serve(stream wire.StoreServer) error {
	s.mu.Lock()
	if s.stream != nil {
		s.mu.Unlock()
		return errors.New("the store is connected already")
	}
	s.stream = stream
	close(s.ready)
	s.mu.Unlock()
	for {
		reply, err := stream.Recv()
		s.mu.Lock()
		if err != nil {
			s.over = errors.New("drun has closed its key-value store")
			for id, waiter := range s.waiting {
				close(waiter)
				delete(s.waiting, id)
			}
			s.mu.Unlock()
			return nil
		}
		if waiter := s.waiting[reply.ID]; waiter != nil {
			waiter <- reply // has room
			delete(s.waiting, reply.ID)
		}
		s.mu.Unlock()
	}
}

func (s *store) Set(ctx context.Context, key string, value []byte) error {
	_, err := s.ask(ctx, &wire.StoreRequest{Op: wire.StoreSet, Key: key, Value: value})
	return err
}

func (s *store) Get(ctx context.Context, key string) ([]byte, error) {
	return s.ask(ctx, &wire.StoreRequest{Op: wire.StoreGet, Key: key})
}

func (s *store) ask(ctx context.Context, q *wire.StoreRequest) ([]byte, error) {
	if err := collective.Wait(ctx, s.ready); err != nil {
		return nil, err
	}
	waiter, err := s.send(q)
	if err != nil {
		return nil, err
	}
	replied := make(chan struct{})
	var reply *wire.StoreReply
	go func() {
		defer close(replied)
		reply = <-waiter
	}()
	if err := collective.Wait(ctx, replied); err != nil {
		s.cancel(q.ID)
		return nil, err
	}
	switch {
	case reply == nil:
		return nil, s.over
	case reply.Error != "":
		return nil, errors.New(reply.Error)
	}
	return reply.Value, nil
}

func (s *store) send(q *wire.StoreRequest) (chan *wire.StoreReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		return nil, s.over
	}
	s.last++
	q.ID = s.last
	waiter := make(chan *wire.StoreReply, 1)
	s.waiting[q.ID] = waiter
	return waiter, s.stream.Send(q)
}

// cancel tells drun that nobody waits for a reply any more.
func (s *store) cancel(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if waiter := s.waiting[id]; waiter != nil {
		close(waiter)
		delete(s.waiting, id)
		_ = s.stream.Send(&wire.StoreRequest{ID: id, Op: wire.StoreCancel})
	}
}
