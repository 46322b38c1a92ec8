package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"drun/collective"
	"drun/collective/sharedmem"
	"drun/internal/exit"
	"drun/internal/scratch"
	"drun/internal/try"
	"drun/plugins/host"
	"drun/plugins/internal/wire"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
)

type process struct {
	plugin  *host.Plugin
	rank    int
	beside  int
	cmd     *exec.Cmd
	client  *plugin.Client
	control *grpc.ClientConn
	about   *wire.Description
	arena   *wire.Arena
	words   *words
	line    *wire.Lifeline   // the plugin ends when it is closed
	store   collective.Store // for the plugin; may be nil
	ctx     context.Context
	end     context.CancelFunc

	dead    atomic.Pointer[error]
	closing atomic.Bool
	onDeath func(error)
	reading sync.WaitGroup
}

// How long a plugin may take.
const (
	startLimit = 10 * time.Second
	closeLimit = 2 * time.Second
	abortLimit = 2 * time.Second
)

// startTimeout is startLimit, except in tests.
var startTimeout = startLimit

// start runs the program and asks it to describe itself. What it writes to stderr goes to the writer; onDeath, which may be nil,
// is called once it has ended without being told to.
func start(ctx context.Context, p *host.Plugin, world collective.World, describe wire.DescribeRequest, stderr io.Writer, onDeath func(error)) (*process, error) {
	program, err := p.Open()
	if err != nil {
		return nil, exit.Permanent(err)
	}
	defer program.Close()
	arena, err := wire.CreateArena()
	if err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		arena.Close()
		return nil, fmt.Errorf("lifeline: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "lifeline"), os.NewFile(uintptr(fds[1]), "lifeline")
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		arena.Close()
		return nil, fmt.Errorf("lifeline: %w", err)
	}
	x := &process{plugin: p, rank: world.Rank, beside: besides(world), store: world.Store, arena: arena, words: newWords(filepath.Base(p.Path), stderr), onDeath: onDeath}
	x.line = &wire.Lifeline{Conn: conn, Ended: x.watch}
	x.ctx, x.end = context.WithCancel(context.Background())
	if err := x.launch(ctx, describe, program, theirs); err != nil {
		x.kill()
		x.release()
		return nil, err
	}
	return x, nil
}

func (x *process) launch(ctx context.Context, describe wire.DescribeRequest, program, theirs *os.File) (err error) {
	defer try.Caught(&err)
	// The socket lies in a folder of its own, needed only until we are connected, so that nothing is left of it however
	// both processes end. Only this user can open the folder, and could inspect both processes as well, so the
	// connection is not encrypted: keys and certificates took a fifth of the processor time of starting a rank.
	dir := try.To(scratch.Make(""))
	defer dir.Remove()
	x.cmd = &exec.Cmd{Path: program.Name(), Args: []string{x.plugin.Path}, ExtraFiles: []*os.File{x.arena.File, theirs}}
	if !script(program) {
		x.cmd.Path = fmt.Sprintf("/proc/self/fd/%d", wire.ProgramFD)
		x.cmd.ExtraFiles = append(x.cmd.ExtraFiles, program)
	}
	x.cmd.Env = append(os.Environ(), plugin.EnvUnixSocketDir+"="+dir.Path, "PLUGIN_CLIENT_CERT=") // which would ask for encryption, if something else set it
	x.client = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  wire.Handshake,
		VersionedPlugins: map[int]plugin.PluginSet{wire.Version: {wire.Name: &wire.Plugin{}}},
		Cmd:              x.cmd,
		SkipHostEnv:      true,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		StartTimeout:     startTimeout,
		Stderr:           x.words,
		Logger:           hclog.NewNullLogger(),
		// It connects only once, since the socket's name does not last.
		GRPCDialOptions: []grpc.DialOption{grpc.WithIdleTimeout(0)},
	})
	began := make(chan error, 1)
	go func() { began <- x.connect(&describe) }()
	select {
	case err = <-began:
	case <-ctx.Done():
		x.kill()
		_ = <-began // as late as the context
		return context.Cause(ctx)
	}
	theirs.Close() // else the end of the process would go unnoticed
	if err != nil {
		return x.explain(err)
	}
	if x.about.Name != x.plugin.Name {
		return exit.Permanent(fmt.Errorf("%s says that it is the backend %q: its file should be named %s%s",
			x.plugin.Path, x.about.Name, host.Prefix, x.about.Name))
	}
	try.Ok(exit.Permanent(x.plugin.Unchanged(program)))
	server := rpc.NewServer()
	try.Ok(server.RegisterName("Store", &storeServer{x.ctx, x.store}))
	x.reading.Go(func() {
		server.ServeConn(x.line)
		x.watch()
	})
	return nil
}

// besides is how many processes here wait for each other: each rank has one and its plugin.
func besides(world collective.World) int { return 2 * max(1, world.LocalSize) }

// script reports whether an interpreter executes the program. The interpreter opens the file again, and a script may look
// for its folder, so a script is executed by its path. Any other program is executed by a descriptor that it inherits, so
// that it is the very file that was checked. (A descriptor of this process would not do: when Go starts a program it moves
// its own descriptors to free numbers, and may take that one.)
func script(program *os.File) bool {
	var start [2]byte
	_, err := program.ReadAt(start[:], 0)
	return err == nil && string(start[:]) == "#!"
}

func (x *process) connect(describe *wire.DescribeRequest) (err error) {
	defer try.Caught(&err)
	try.Ok(sharedmem.StartBeside(x.beside, func() error { _, err := x.client.Start(); return err }))
	protocol := try.To(x.client.Client())
	x.control = try.To(protocol.Dispense(wire.Name)).(*grpc.ClientConn)
	ctx, stop := context.WithTimeout(x.ctx, startTimeout)
	defer stop()
	x.about = try.To(wire.Describe.Ask(ctx, x.control, describe))
	return nil
}

// Messages of go-plugin, whose errors have no types.
var (
	unknownLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s)^Unrecognized remote plugin message: (.*?)\n`) })
	otherAPI    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`Plugin version: (\d+), Client versions`) })
)

// explain says in drun's terms why a plugin did not start, and whether it would fail again: the machine may just be busy,
// or have killed it.
func (x *process) explain(err error) error {
	text := err.Error()
	if m := otherAPI().FindStringSubmatch(text); m != nil {
		if n, _ := strconv.Atoi(m[1]); n > wire.Version {
			return exit.Permanent(fmt.Errorf("%s speaks version %d of the plugin protocol, this drun version %d: use a newer drun", x.plugin.Path, n, wire.Version))
		}
		return exit.Permanent(fmt.Errorf("%s speaks version %s of the plugin protocol, this drun version %d: build the plugin with this drun's plugins/sdk", x.plugin.Path, m[1], wire.Version))
	}
	if strings.Contains(text, "timeout while waiting") || errors.Is(err, context.DeadlineExceeded) || strings.Contains(text, "DeadlineExceeded") {
		return fmt.Errorf("%s did not say within %v that it has started, and was killed%s", x.plugin.Path, startTimeout, x.lastWords())
	}
	// Otherwise it has ended, or is about to: its state says more than its pipes.
	what := x.state()
	if m := unknownLine().FindStringSubmatch(text); m != nil && m[1] != "" {
		const most = 80
		return exit.Permanent(fmt.Errorf("%s is not a plugin of drun: it printed %q%s", x.plugin.Path, m[1][:min(len(m[1]), most)], x.lastWords()))
	}
	lasts := what != "" && x.cmd.ProcessState.Exited()
	if what == "" && strings.Contains(text, "exec format error") {
		what, lasts = "it is not a program that this machine can run", true
	}
	if what == "" {
		what = text
	}
	err = fmt.Errorf("%s did not start: %s%s", x.plugin.Path, what, x.lastWords())
	if lasts {
		return exit.Permanent(err)
	}
	return err
}

func (x *process) lastWords() string {
	if said := x.words.latest(); said != "" {
		return "; its last words: " + said
	}
	return ""
}

// state waits briefly for the process's end and says how it ended; "" if it runs.
func (x *process) state() string {
	for range 100 {
		if x.client.Exited() {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if !x.client.Exited() || x.cmd.ProcessState == nil {
		return ""
	}
	status, ok := x.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return fmt.Sprintf("it was killed by signal %d (%s)", status.Signal(), unix.SignalName(status.Signal()))
	}
	return fmt.Sprintf("it exited with status %d", x.cmd.ProcessState.ExitCode())
}

// watch is called when the other end of the lifeline has closed.
func (x *process) watch() {
	if x.closing.Load() {
		return
	}
	what := x.state()
	if what == "" {
		what = "it closed its connection to drun"
	}
	x.die(fmt.Sprintf("the plugin is gone: %s%s", what, x.lastWords()))
}

// die ends all waits for the plugin.
func (x *process) die(msg string) {
	var err error = &collective.BackendError{Backend: x.plugin.Name, Rank: x.rank, Msg: msg, Own: true}
	if !x.dead.CompareAndSwap(nil, &err) {
		return
	}
	x.end()
	x.arena.WakeAll()
	if x.onDeath != nil {
		x.onDeath(err)
	}
}

// kill ends the process at once.
func (x *process) kill() {
	x.closing.Store(true)
	if x.cmd != nil && x.cmd.Process != nil {
		_ = x.cmd.Process.Kill()
	}
}

// shut lets the process end by itself, within the limit.
func (x *process) shut() {
	x.closing.Store(true)
	x.line.Close()
	for end := time.Now().Add(closeLimit); !x.client.Exited() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	x.kill()
}

// release frees our resources for the process, once it has been told to end.
func (x *process) release() {
	x.end()
	x.line.Close()
	if x.client != nil {
		// Something that the plugin started may hold its pipes: we do not wait for that.
		over := make(chan struct{})
		go func() {
			x.client.Kill()
			close(over)
		}()
		select {
		case <-over:
		case <-time.After(closeLimit):
		}
	}
	x.reading.Wait()
	x.words.line() // the last may not have ended
	x.arena.Close()
}

// storeServer answers a plugin's requests to the key-value store.
type storeServer struct {
	ctx   context.Context // ends with the process
	store collective.Store
}

var errNoStore = errors.New("there is no key-value store")

func (s *storeServer) Set(e wire.Entry, _ *struct{}) error {
	if s.store == nil {
		return errNoStore
	}
	return s.store.Set(s.ctx, e.Key, e.Value)
}

func (s *storeServer) Get(key string, value *[]byte) (err error) {
	if s.store == nil {
		return errNoStore
	}
	*value, err = s.store.Get(s.ctx, key)
	return err
}
