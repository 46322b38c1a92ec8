package nccl

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/kernel/dtype"
	"drun/plugins/client"
	"drun/plugins/host"
	"drun/plugins/internal/enginetest"
)

// asPlugin makes worlds in which each rank is a plugin's process, as in a run.
func asPlugin(deterministic bool, log io.Writer) disttest.Factory {
	program, err := os.Executable()
	return enginetest.InProcess(deterministic, func(int) collective.Backend {
		if err != nil {
			panic(err)
		}
		return &client.Backend{Plugin: &host.Plugin{Name: "nccl", Path: program}, Stderr: log}
	})
}

// What NCCL prints comes into the run's log, and does not disturb the plugin.
func TestLog(t *testing.T) {
	t.Setenv("NCCLTEST_PLUGIN", "1")
	t.Setenv("NCCL_DEBUG", "INFO")
	var log locked
	disttest.RunWith(t, asPlugin(false, &log), 2, func(t *testing.T, rank int, comm collective.Comm) {
		if err := disttest.Do(comm, collective.NewBarrier()); err != nil {
			t.Error(err)
		}
	})
	for _, line := range []string{"NCCL INFO fake: rank 0 of 2 joins", "NCCL INFO fake: rank 1 of 2 joins"} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("the log does not say %q:\n%s", line, log.String())
		}
	}
}

// locked is a buffer for several writers.
type locked struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// An abort that hangs in NCCL ends with the plugin's process.
func TestAbortThatHangs(t *testing.T) {
	t.Setenv("NCCLTEST_PLUGIN", "1")
	t.Setenv("FAKE_FAIL", "ncclCommAbort:1:hang")
	var log locked
	comms := asPlugin(false, &log)(t, 2)
	ended := make(chan error)
	go func() { ended <- disttest.Do(comms[0], collective.NewBarrier()) }()
	time.Sleep(100 * time.Millisecond)
	cause := errors.New("enough")
	comms[0].Abort(cause)
	select {
	case err := <-ended:
		if !errors.Is(err, cause) {
			t.Errorf("the barrier ended with %v", err)
		}
	case <-time.After(disttest.Bound()):
		t.Fatal("the barrier goes on")
	}
	for end := time.Now().Add(5 * time.Second); !strings.Contains(log.String(), "was killed"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the plugin was not killed; its log: %s", log.String())
		}
	}
}

func TestNothingLeftBehind(t *testing.T) {
	t.Setenv("NCCLTEST_PLUGIN", "1")
	name, value, _ := strings.Cut(given(t), "=")
	t.Setenv(name, value)
	t.Setenv("FAKE_NCCL_DIR", t.TempDir())
	var log locked
	factory := asPlugin(false, &log)
	t.Run("world", func(t *testing.T) {
		disttest.RunWith(t, factory, 3, func(t *testing.T, rank int, comm collective.Comm) {
			group, err := comm.Split(disttest.Context, collective.Group{ID: 1, Ranks: []int{2, 0}})
			if err != nil {
				t.Error(err)
				return
			}
			x := make([]float32, 100_000)
			if group != nil {
				to := 1 - group.Rank()
				call := collective.NewSend(collective.Of(x), to, 1)
				call.Async = true
				sent, err := group.Start(&call)
				if err == nil {
					err = disttest.Do(group, collective.NewRecv(collective.Of(make([]float32, 100_000)), to, 1))
				}
				if err == nil {
					err = sent.Wait(disttest.Context)
				}
				if err == nil {
					err = group.Close()
				}
				if err != nil {
					t.Error(err)
				}
			}
			if err := disttest.Do(comm, collective.NewAllReduce(collective.Of(x), dtype.Max)); err != nil {
				t.Error(err)
			}
		})
	})
	if log.String() != "" {
		t.Errorf("the log says %s", log.String())
	}
	if left, _ := filepath.Glob(filepath.Join(os.Getenv("FAKE_NCCL_DIR"), "*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}
