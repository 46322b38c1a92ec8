// Package sdk is what the author of a communication engine imports to make it a backend of drun. The engine implements
// [collective.Backend]; its program is
//
//	func main() { sdk.Serve(backend) }
//
// built as drun-backend-NAME. drun starts one such process per rank (plugins/client is the other end). The buffers of
// the calls lie in memory that both processes map, so that a call is neither copied nor encoded.
package sdk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"drun/collective"
	"drun/collective/reduction"
	"drun/kernel/dtype"
	"drun/plugins/internal/blocking"
	"drun/plugins/internal/mesh"
	"drun/plugins/internal/wire"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"
)

// A Prober is a Backend that can check whether it can run on this machine.
type Prober interface {
	// Probe returns nil, or an error that says what is missing and how to get it. It is called before Open, and by `drun
	// backends`.
	Probe(ctx context.Context) error
}

// A Versioned backend reports its version and that of its library: "gloo 0.5". Without it drun shows the version of
// the plugin's module.
type Versioned interface {
	Version() string
}

// A Counter is a Comm that counts what it does, under names of its own. drun itself counts the calls of every plugin,
// their bytes and microseconds; `drun backends bench` shows both.
type Counter interface {
	Statistics() map[string]int64
}

// A Mapper is a Backend that wants to know the memory in which the calls' buffers lie, to prepare it for DMA. Map is
// called once, before Open; the memory stays mapped as long as the process lives, most of it untouched.
type Mapper interface {
	Map(arena []byte)
}

// Serve runs the plugin until its drun is gone, and does not return.
//
// The Backend and its Comms are used as package collective says; in addition: Open's world.Store is drun's key-value
// store, shared by all ranks; the calls' Shape and Pos are not set; calls have been checked ([collective.Call.Check])
// and compared between the ranks already. An error, or a panic, becomes the error of the call, under the plugin's name;
// one that is not a [collective.CallError] ends the use of the Comm. What the program writes to stderr goes to the
// run's log; stdout is ignored.
func Serve(backend collective.Backend) {
	name := backend.Name()
	if os.Getenv(wire.Handshake.MagicCookieKey) != wire.Handshake.MagicCookieValue {
		fmt.Fprintf(os.Stderr, "drun-backend-%s is a plugin of drun, which starts it: drun run RECIPE.star --backend %s\n", name, name)
		os.Exit(1)
	}
	s, err := newServer(backend)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	unix.CloseOnExec(wire.ProgramFD)
	// The program was executed by a descriptor, whose number would be its name.
	_ = os.WriteFile("/proc/self/comm", []byte("drun-backend-"+name), 0)
	// Slurm sends a job's signals to all of its processes; only the agent handles them. Unlike an ignored signal,
	// this is not inherited by processes that the plugin starts.
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2)
	if err := silence(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  wire.Handshake,
		VersionedPlugins: map[int]plugin.PluginSet{wire.Version: {wire.Name: &wire.Plugin{Service: s}}},
		GRPCServer:       plugin.DefaultGRPCServer,
		Logger:           hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Error, DisableTime: true}),
	})
	os.Exit(0)
}

// An Engine carries out blocking calls, one collective at a time; [NewComm] makes a Comm of it. Each group has its own Engine.
type Engine = blocking.Engine

// A Header announces a message.
type Header = blocking.Header

// NewComm makes the Comm of rank among size ranks of the backend called name: it adds order, asynchronous calls, limits,
// aborts, and the matching of messages by tag.
func NewComm(name string, engine Engine, rank, size int) collective.Comm {
	return blocking.New(name, engine, rank, size)
}

// A Mesh connects a rank with every other of its group over TCP. It is an Engine without Do and Split; an engine can send
// any other data with Give and Take.
type Mesh = mesh.Mesh

// Connect connects the ranks of a group and lets in nobody else: host is the address to listen on, and prefix begins the
// group's keys in the store.
func Connect(ctx context.Context, store collective.Store, prefix, host string, rank, size int) (*Mesh, error) {
	return mesh.Connect(ctx, store, prefix, host, rank, size)
}

// Reduce combines the ranks' contributions, given in the order of the ranks and each as long as out, which may be one
// of them. It supports every dtype and operation of the contract, with the same bits as drun's own backend.
func Reduce(out collective.Buffer, parts [][]byte, op dtype.ReduceOp) {
	reduction.Combine(out, parts, op)
}

// silence discards what the program and its libraries print to stdout. Only the handshake, which follows, goes to the
// original stdout.
func silence() error {
	out, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		return fmt.Errorf("stdout: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	if err := unix.Dup3(int(null.Fd()), 1, 0); err != nil {
		return fmt.Errorf("stdout: %w", err)
	}
	os.Stdout = os.NewFile(uintptr(out), "stdout")
	return nil
}

// stdio restores the program's own streams: go-plugin has replaced them by pipes, whose lines would come late and not
// survive a crash.
func stdio() {
	os.Stdout, os.Stderr = os.NewFile(1, "stdout"), os.NewFile(2, "stderr")
}

// version is the one that the backend reports, or that of its program's build.
func version(backend collective.Backend) string {
	if v, ok := backend.(Versioned); ok {
		return v.Version()
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// guarded runs the author's code and turns a panic into a failure.
func guarded(f func() error) (failure *wire.Failure) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(os.Stderr, "panic: %v\n%s", p, debug.Stack())
			failure = &wire.Failure{Status: wire.Panicked, Text: fmt.Sprint(p)}
		}
	}()
	status, text := wire.Encode(f())
	if status == wire.OK {
		return nil
	}
	return &wire.Failure{Status: status, Text: text}
}

// comm is one of the backend's Comms, as slots name it.
type comm struct {
	collective.Comm
	ctx context.Context // ends when the Comm is aborted
	end context.CancelCauseFunc
	// Closed when the latest asynchronous collective has been reported; nil before there was one.
	last chan struct{}
	done counters
}

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
