// Package enginetest gives the plugins' tests worlds of ranks: all in one process, or each in its own.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/engine/rendezvous"
	"drun/kernel/dtype"
)

// InProcess is the [disttest.Factory] of worlds in this process, each with a store in memory. backend gives each rank its
// backend.
func InProcess(deterministic bool, backend func(rank int) collective.Backend) disttest.Factory {
	return func(t testing.TB, n int) []collective.Comm {
		t.Helper()
		return disttest.Open(t, n, rendezvous.Memory(), deterministic, backend)
	}
}

// InRankOrder runs the part of the suite whose results depend on the order in which contributions are combined, for an
// engine that has passed the suite for any order; make long runs the whole suite again.
func InRankOrder(t *testing.T, factory disttest.Factory) {
	if os.Getenv("DRUN_TEST_LONG") != "" {
		disttest.Conformance(t, factory)
		return
	}
	disttest.InRankOrder(t, factory)
}

// Copy copies a file.
func Copy(t testing.TB, from, to string, mode fs.FileMode) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Killed starts three processes that run the worker "endless", and kills rank 1: the others must soon end with an
// error of the backend that names the lost rank.
func Killed(t *testing.T, backend string) {
	p := Spawn(t, 3, "endless")
	time.Sleep(time.Second)
	p.Kill(1)
	start := time.Now()
	names := regexp.MustCompile(`rank 1 at \[?127\.0\.0\.1\]?:\d+`)
	said := false
	for _, rank := range []int{0, 2} {
		out, err := p.Wait(rank)
		if err == nil || !strings.Contains(out, "backend "+backend+" failed on rank") || strings.Contains(out, "fake:") {
			t.Errorf("rank %d ended with %v: %s", rank, err, out)
		}
		said = said || names.MatchString(out)
	}
	if !said {
		t.Error("nobody named the rank and address that was lost")
	}
	if took := time.Since(start); took > disttest.Bound() {
		t.Errorf("the survivors ended after %v", took)
	}
}

// Endless is a worker that reduces until it fails.
func Endless(comm collective.Comm, _ []string) error {
	x := make([]float32, 1<<16)
	for {
		if err := disttest.Do(comm, collective.NewAllReduce(collective.Of(x), dtype.Sum)); err != nil {
			return err
		}
	}
}

// FileStore is a key-value store of files in a folder, for ranks in processes of their own.
type FileStore string

func (s FileStore) path(key string) string {
	return filepath.Join(string(s), fmt.Sprintf("%x", key))
}

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

// Main is [disttest.Main] for processes that [Spawn] started.
func Main(m *testing.M, backend func() collective.Backend, workers map[string]disttest.Worker) {
	disttest.Main(m, func(rank, size int) (collective.Comm, error) {
		return backend().Open(disttest.Context, collective.World{Rank: rank, Size: size, LocalRank: rank, LocalSize: size,
			Store: FileStore(os.Getenv("ENGINETEST_STORE"))})
	}, workers)
}

// Spawn starts n processes of this test binary that run a worker given to [Main].
func Spawn(t testing.TB, n int, worker string, env ...string) *disttest.Processes {
	t.Helper()
	return disttest.Spawn(t, n, worker, append(env, "ENGINETEST_STORE="+t.TempDir()), nil)
}
