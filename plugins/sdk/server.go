package sdk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"sync"
	"sync/atomic"

	"drun/collective"
	"drun/plugins/internal/wire"

	"golang.org/x/sys/unix"
)

// server answers the control service, and runs the calls of the arena.
type server struct {
	backend collective.Backend
	arena   *wire.Arena
	store   store
	stdio   sync.Once

	executor atomic.Pointer[executor] // nil before Open

	mu    sync.Mutex
	comms map[uint32]*comm
	next  uint32
}

func newServer(backend collective.Backend) (*server, error) {
	unix.CloseOnExec(wire.ArenaFD)
	arena, err := wire.OpenArena(os.NewFile(wire.ArenaFD, "arena"))
	if err != nil {
		return nil, err
	}
	file := os.NewFile(wire.LifelineFD, "lifeline")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("no lifeline: %w", err)
	}
	// The process ends when its drun is gone, whatever it is doing.
	lifeline := &wire.Lifeline{Conn: conn, Ended: func() { os.Exit(1) }}
	return &server{backend: backend, arena: arena, store: store{rpc.NewClient(lifeline)}, comms: map[uint32]*comm{}}, nil
}

func (s *server) Describe(ctx context.Context, q *wire.DescribeRequest) (*wire.Description, error) {
	s.stdio.Do(stdio)
	d := &wire.Description{Name: s.backend.Name(), Version: version(s.backend)}
	if b, ok := s.backend.(collective.Describer); ok {
		d.Properties = b.Properties()
	}
	if p, ok := s.backend.(Prober); ok && !q.NoProbe {
		if failure := guarded(func() error { return p.Probe(ctx) }); failure != nil {
			if d.Problem = failure.Text; d.Problem == "" {
				d.Problem = "it gives no reason"
			}
		}
	}
	return d, nil
}

func (s *server) Open(ctx context.Context, q *wire.OpenRequest) (*wire.Opened, error) {
	world := collective.World{Rank: q.Rank, Size: q.Size, LocalRank: q.LocalRank, LocalSize: q.LocalSize,
		NodeAddress: q.NodeAddress, Deterministic: q.Deterministic}
	if q.Store {
		world.Store = s.store
	}
	if m, ok := s.backend.(Mapper); ok {
		m.Map(s.arena.Mem)
	}
	reply := s.opened(func() (collective.Comm, error) { return s.backend.Open(ctx, world) })
	if reply.Failure == nil && !reply.None {
		s.execute(world.LocalSize)
	}
	return reply, nil
}

func (s *server) Split(ctx context.Context, q *wire.SplitRequest) (*wire.Opened, error) {
	parent, err := s.comm(q.Comm)
	if err != nil {
		return &wire.Opened{Failure: &wire.Failure{Status: wire.Broken, Text: err.Error()}}, nil
	}
	group := collective.Group{ID: q.ID, Ranks: q.Ranks}
	return s.opened(func() (collective.Comm, error) { return parent.Split(ctx, group) }), nil
}

// opened makes a Comm and gives it a number.
func (s *server) opened(open func() (collective.Comm, error)) *wire.Opened {
	reply := &wire.Opened{}
	reply.Failure = guarded(func() error {
		c, err := open()
		if err != nil {
			return err
		}
		if c == nil {
			reply.None = true
			return nil
		}
		reply.Rank, reply.Size = c.Rank(), c.Size()
		reply.Comm = s.add(c)
		return nil
	})
	return reply
}

func (s *server) add(c collective.Comm) uint32 {
	ctx, end := context.WithCancelCause(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.next
	s.next++
	s.comms[n] = &comm{Comm: c, ctx: ctx, end: end}
	return n
}

func (s *server) comm(n uint32) (*comm, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.comms[n]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("there is no group %d", n)
}

func (s *server) Abort(_ context.Context, q *wire.AbortRequest) (*wire.Done, error) {
	c, err := s.comm(q.Comm)
	if err != nil {
		return &wire.Done{}, nil // closed already
	}
	cause := errors.New(q.Cause)
	failure := guarded(func() error { c.Abort(cause); return nil })
	c.end(cause)
	return &wire.Done{Failure: failure}, nil
}

func (s *server) Statistics(_ context.Context, q *wire.CommRequest) (*wire.Counts, error) {
	reply := &wire.Counts{}
	c, err := s.comm(q.Comm)
	if err != nil {
		return reply, nil
	}
	guarded(func() error { reply.Counts = c.statistics(); return nil })
	return reply, nil
}

// Close closes a group; with the world, all groups that are open.
func (s *server) Close(_ context.Context, q *wire.CommRequest) (*wire.Done, error) {
	if x := s.executor.Load(); x != nil {
		x.awaitStarts()
	}
	s.mu.Lock()
	var closing []*comm
	for n := s.next; n > 0; n-- { // the world last
		if c := s.comms[n-1]; c != nil && (q.Comm == 0 || q.Comm == n-1) {
			closing = append(closing, c)
			delete(s.comms, n-1)
		}
	}
	s.mu.Unlock()
	done := &wire.Done{}
	for _, c := range closing {
		if failure := guarded(c.Close); done.Failure == nil {
			done.Failure = failure
		}
		c.end(collective.ErrClosed)
	}
	return done, nil
}

// store is drun's key-value store as the plugin sees it.
type store struct{ drun *rpc.Client }

func (s store) Set(ctx context.Context, key string, value []byte) error {
	return s.ask(ctx, "Store.Set", wire.Entry{Key: key, Value: value}, new(struct{}))
}

func (s store) Get(ctx context.Context, key string) ([]byte, error) {
	value := new([]byte)
	if err := s.ask(ctx, "Store.Get", key, value); err != nil {
		return nil, err
	}
	return *value, nil
}

func (s store) ask(ctx context.Context, what string, request, reply any) error {
	_, err := collective.Run(ctx, func() error { return s.drun.Call(what, request, reply) })
	return err
}
