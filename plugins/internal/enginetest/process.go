package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
)

// FileStore is a key-value store of files in a folder, for ranks in processes
// of their own.
type FileStore string

func (s FileStore) path(key string) string {
	return filepath.Join(string(s), fmt.Sprintf("%x", key))
}

// Set gives key its value.
func (s FileStore) Set(_ context.Context, key string, value []byte) error {
	f, err := os.CreateTemp(string(s), "new")
	if err != nil {
		return err
	}
	_, err = f.Write(value)
	return errors.Join(err, f.Close(), os.Rename(f.Name(), s.path(key)))
}

// Get waits until the key exists.
func (s FileStore) Get(ctx context.Context, key string) ([]byte, error) {
	sleep := collective.NewSleep(ctx)
	for {
		value, err := os.ReadFile(s.path(key))
		if !errors.Is(err, fs.ErrNotExist) {
			return value, err
		}
		slice, err := sleep.Next()
		if err != nil {
			return nil, fmt.Errorf("waiting for %q: %w", key, err)
		}
		time.Sleep(min(slice, 5*time.Millisecond))
	}
}

// A Worker is what one rank does in a process of its own. What it prints comes
// back to the test; an error is printed too, and its exit code is 1.
type Worker func(comm collective.Comm, args []string) error

// Main runs a package's tests or, in a process that [Spawn] started, a worker.
func Main(m *testing.M, backend func() collective.Backend, workers map[string]Worker) {
	name := os.Getenv("ENGINETEST_WORKER")
	if name == "" {
		os.Exit(m.Run())
	}
	if err := work(backend(), workers[name]); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func work(backend collective.Backend, worker Worker) error {
	rank, err := strconv.Atoi(os.Getenv("RANK"))
	if err != nil {
		return err
	}
	size, err := strconv.Atoi(os.Getenv("WORLD_SIZE"))
	if err != nil {
		return err
	}
	world := collective.World{Rank: rank, Size: size, LocalRank: rank, LocalSize: size, Store: FileStore(os.Getenv("ENGINETEST_STORE"))}
	comm, err := backend.Open(disttest.Context, world)
	if err != nil {
		return err
	}
	if err := worker(comm, os.Args[1:]); err != nil {
		return err
	}
	return comm.Close()
}

// Processes are the ranks of a world, each a process.
type Processes struct {
	ranks  []*exec.Cmd
	output []*bytes.Buffer
}

// Spawn starts n processes of this test binary that run a worker given to
// [Main]. They are killed when the test ends.
func Spawn(t testing.TB, n int, worker string, env []string, args ...string) *Processes {
	t.Helper()
	p, store := &Processes{}, t.TempDir()
	for rank := range n {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), "ENGINETEST_WORKER="+worker, "ENGINETEST_STORE="+store,
			fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("WORLD_SIZE=%d", n))
		cmd.Env = append(cmd.Env, env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out := new(bytes.Buffer)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p.ranks, p.output = append(p.ranks, cmd), append(p.output, out)
	}
	t.Cleanup(func() {
		for rank := range p.ranks {
			p.Kill(rank)
			_ = p.ranks[rank].Wait()
		}
	})
	return p
}

// Kill sends SIGKILL to a rank.
func (p *Processes) Kill(rank int) { _ = p.ranks[rank].Process.Kill() }

// Wait waits for a rank to end, and gives what it printed and its status. It
// kills a rank that has not ended in time.
func (p *Processes) Wait(rank int) (output string, err error) {
	timer := time.AfterFunc(disttest.Limit, func() { p.Kill(rank) })
	defer timer.Stop()
	err = p.ranks[rank].Wait()
	return strings.TrimSpace(p.output[rank].String()), err
}
