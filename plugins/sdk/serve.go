// Package sdk is what the author of a communication engine imports to make it
// a backend of drun. The engine implements [collective.Backend]; its program is
//
//	func main() { sdk.Serve(backend) }
//
// built as drun-backend-NAME. drun starts one such process per rank (plugins/client is the other end). The buffers of
// the calls lie in memory that both processes map, so that a call is neither copied nor encoded.
package sdk

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"

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
	// Probe returns nil, or an error that says what is missing and how to get
	// it. It is asked before Open, and by `drun backends`.
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
	// The program was executed by a descriptor, which would be its name.
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

// NewComm makes the Comm of rank among size ranks of the backend called name: it adds
// order, asynchronous calls, limits, aborts, and the matching of messages by tag.
func NewComm(name string, engine Engine, rank, size int) collective.Comm {
	return blocking.New(name, engine, rank, size)
}

// A Mesh connects a rank with every other of its group over TCP. It is an Engine
// without Do and Split; an engine can send any other data with Give and Take.
type Mesh = mesh.Mesh

// Connect meets the other ranks of a group and lets in nobody else: host is the address
// to listen on, and prefix begins the group's keys in the store.
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
