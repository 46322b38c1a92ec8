// Package enginetest gives the plugins' tests worlds of ranks: all in one
// process, or each in its own.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/engine/rendezvous"
)

// InProcess is the [disttest.Factory] of worlds in this process, each with a store
// in memory. backend gives each rank its backend.
func InProcess(deterministic bool, backend func(rank int) collective.Backend) disttest.Factory {
	return func(t disttest.TB, n int) []collective.Comm {
		t.Helper()
		return disttest.Open(t, n, rendezvous.Memory(), deterministic, backend)
	}
}

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
