package sdk

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"

	"drun/collective"
	"drun/plugins/internal/wire"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"
)

func serve(backend collective.Backend) {
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
