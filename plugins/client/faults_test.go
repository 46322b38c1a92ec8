package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/internal/exit"
	"drun/internal/scratch"
	"drun/internal/testlimit"
	"drun/kernel/dtype"
	"drun/plugins/host"

	"golang.org/x/sys/unix"
)

// program makes a plugin of that name: a script, or this program that acts.
func program(t *testing.T, name, script string) *host.Plugin {
	t.Helper()
	path := filepath.Join(t.TempDir(), host.Prefix+name)
	var err error
	if script != "" {
		err = os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755)
	} else {
		t.Setenv("HOSTTEST_PLUGIN", name)
		var self string
		if self, err = os.Executable(); err == nil {
			err = os.Symlink(self, path)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return &host.Plugin{Name: name, Path: path}
}

var alone = collective.World{Rank: 0, Size: 1, LocalRank: 0, LocalSize: 1}

func TestPluginsThatDoNotStart(t *testing.T) {
	old := startTimeout
	startTimeout = time.Second
	defer func() { startTimeout = old }()
	tmp, err := os.MkdirTemp("", "d") // its own, and short: other tests leave and take folders
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	t.Setenv("TMPDIR", tmp)
	for _, c := range []struct {
		name, script, want string
		lasts              bool // another attempt would end in the same way
	}{
		{"garbage", "echo 'Usage: garbage FILE'; exec sleep 5", `is not a plugin of drun: it printed "Usage: garbage FILE"`, true},
		{"leaver", "echo 'cannot find my library' >&2; exit 4", "it exited with status 4; its last words: cannot find my library", true},
		{"killed", "kill -9 $$", "it was killed by signal 9 (SIGKILL)", false},
		{"newer", "echo '1|99|unix|/tmp/none|grpc|'; exec sleep 5", "speaks version 99 of the plugin protocol, this drun version 4: use a newer drun", true},
		{"older", "echo '1|1|unix|/tmp/none|grpc|'; exec sleep 5", "speaks version 1 of the plugin protocol, this drun version 4: build the plugin", true},
		{"sleeper", "", "did not say within 1s that it has started, and was killed", false},
		{"unable", "", "it cannot run here: this machine has no such device", true},
		{"closed", "", "backend closed failed on rank 0: the door is closed", false},
		{"frantic", "", "backend frantic failed on rank 0: it panicked: no way in", false},
		{"boaster", "", "asked to be rank 0 of 1, it says that it is rank 0 of 7", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := sockets(t)
			start := time.Now()
			_, err := (&Backend{Plugin: program(t, c.name, c.script), Stderr: t.Output()}).Open(context.Background(), alone)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if exit.IsPermanent(err) != c.lasts {
				t.Errorf("tried again: %v", c.lasts)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			if left := sockets(t); left > before {
				t.Errorf("%d folders are left in %s", left-before, os.TempDir())
			}
		})
	}
}

// sockets counts the folders that plugins' sockets lie in.
func sockets(t *testing.T) int {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(scratch.Parent(), "drun-*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// safe is a buffer that a plugin's lines go to.
type safe struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func TestPluginsThatFailInACall(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"refuser", "backend refuser failed on rank 0: I would prefer not to"},
		{"panicker", "backend panicker failed on rank 0: it panicked: oh dear"},
		{"crasher", "the plugin is gone: it exited with status 2; its last words: panic: engine on fire"},
		{"quitter", "the plugin is gone: it exited with status 3; its last words: I quit"},
		{"nameless", "it does not say which rank a message came from"},
		{"flooder", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			died := make(chan error, 1)
			words := new(safe)
			b := &Backend{Plugin: program(t, c.name, ""), Stderr: words, OnDeath: func(err error) { died <- err }}
			comm, err := b.Open(context.Background(), alone)
			if err != nil {
				t.Fatal(err)
			}
			defer comm.Close()
			call := collective.NewAllReduce(collective.Of(make([]float32, 4)), dtype.Sum)
			if c.name == "nameless" {
				call = collective.NewRecv(collective.Of(make([]float32, 4)), collective.AnySource, 0)
			}
			start := time.Now()
			err = disttest.Do(comm, call)
			if took := time.Since(start); took > time.Second && c.name != "flooder" {
				t.Errorf("it took %v", took)
			}
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				if lines := strings.Count(words.String(), "\n"); lines == 0 || !strings.HasPrefix(words.String(), host.Prefix+c.name+": x") {
					t.Errorf("%d lines came through: %.100q", lines, words)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, new(*collective.BackendError)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if _, err := comm.Start(&call); err == nil {
				t.Error("calls can still be started")
			}
			if strings.Contains(c.want, "gone") {
				select {
				case <-died:
				case <-time.After(time.Second):
					t.Error("nobody was told of its death")
				}
			}
		})
	}
}

func TestAbortReachesABlockedPlugin(t *testing.T) {
	for _, c := range []struct {
		name  string
		words string // on stderr
	}{
		{"patient", ""},
		{"deaf", "it did not end its all_reduce(float32[4], sum) within 2s of being told to, and was killed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			words := new(safe)
			comm, err := (&Backend{Plugin: program(t, c.name, ""), Stderr: words}).Open(context.Background(), alone)
			if err != nil {
				t.Fatal(err)
			}
			pid := comm.(*Comm).cmd.Process.Pid
			cause := errors.New("enough")
			time.AfterFunc(50*time.Millisecond, func() { comm.Abort(cause) })
			start := time.Now()
			err = disttest.Do(comm, collective.NewAllReduce(collective.Of(make([]float32, 4)), dtype.Sum))
			if !errors.Is(err, cause) || time.Since(start) > time.Second {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			if c.words != "" {
				time.Sleep(abortLimit + 200*time.Millisecond)
			}
			if err := comm.Close(); err != nil {
				t.Error(err)
			}
			if !strings.Contains(words.String(), c.words) {
				t.Errorf("it said %q", words)
			}
			if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid))); err == nil {
				t.Errorf("process %d is left", pid)
			}
		})
	}
}

func TestKilledInTheMiddle(t *testing.T) {
	died := make(chan error, 1)
	comm, err := (&Backend{Plugin: program(t, "patient", ""), Stderr: t.Output(), OnDeath: func(err error) { died <- err }}).Open(context.Background(), alone)
	if err != nil {
		t.Fatal(err)
	}
	defer comm.Close()
	time.AfterFunc(50*time.Millisecond, func() { _ = comm.(*Comm).cmd.Process.Kill() })
	start := time.Now()
	err = disttest.Do(comm, collective.NewBarrier())
	if err == nil || !strings.Contains(err.Error(), "backend patient failed on rank 0: the plugin is gone: it was killed by signal 9 (SIGKILL)") {
		t.Error(err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("it took %v", took)
	}
	if err := <-died; err == nil {
		t.Error("no reason")
	}
}

// A plugin that is gone when its calls are aborted, for its end was noticed elsewhere first, is not taken for one that does not obey.
func TestKilledBeforeAnAbort(t *testing.T) {
	for range 3 {
		died := make(chan error, 1)
		comm, err := (&Backend{Plugin: program(t, "patient", ""), Stderr: t.Output(), OnDeath: func(err error) { died <- err }}).Open(context.Background(), alone)
		if err != nil {
			t.Fatal(err)
		}
		call := collective.NewBarrier()
		if _, err := comm.Start(&call); err != nil {
			t.Fatal(err)
		}
		_ = comm.(*Comm).cmd.Process.Kill()
		comm.Abort(errors.New("another rank's connection to it ended"))
		if err := <-died; !strings.Contains(err.Error(), "the plugin is gone: it was killed by signal 9 (SIGKILL)") {
			t.Error(err)
		}
		if err := comm.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestArenaIsPrivateAndNotCopied(t *testing.T) {
	comms := world(t, example(t), 1)
	c := comms[0].(*Comm)
	info, err := c.arena.File.Stat()
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if err := c.arena.File.Truncate(0); err == nil {
		t.Error("the arena can be shrunk")
	}
	b, err := c.Alloc(dtype.Float32, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if span, own, err := c.stage(b.Data); own || err != nil || span.Bytes != 4000 {
		t.Errorf("%v %v %v", span, own, err)
	}
}

// Whatever the plugin is at when it is killed or stops answering, the worker
// goes on within a bound, with an error that names it.
func TestPluginLostAtAnyPoint(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		for _, c := range []struct {
			at   string
			lost func(t *testing.T, comm collective.Comm, lose func()) error
		}{
			{"a call", func(t *testing.T, comm collective.Comm, lose func()) error {
				lose()
				return do(comm, collective.NewBarrier(), time.Second)
			}},
			{"new_group", func(t *testing.T, comm collective.Comm, lose func()) error {
				lose()
				_, err := comm.Split(collective.Within(context.Background(), time.Second), collective.Group{ID: 1, Ranks: []int{0}})
				return err
			}},
			{"alloc and statistics", func(t *testing.T, comm collective.Comm, lose func()) error {
				lose()
				comm.(*Comm).Statistics()
				return do(comm, collective.NewBarrier(), time.Second)
			}},
			{"abort", func(t *testing.T, comm collective.Comm, lose func()) error {
				lose()
				cause := errors.New("the cause")
				comm.Abort(cause)
				for pid, end := comm.(*Comm).cmd.Process.Pid, time.Now().Add(30*time.Second); syscall.Kill(pid, 0) == nil && time.Now().Before(end); {
					time.Sleep(10 * time.Millisecond)
				}
				return do(comm, collective.NewBarrier(), time.Second)
			}},
			{"close", func(t *testing.T, comm collective.Comm, lose func()) error {
				lose()
				_ = comm.Close()
				return do(comm, collective.NewBarrier(), time.Second)
			}},
		} {
			t.Run(fmt.Sprint(unix.SignalName(sig), " at ", c.at), func(t *testing.T) {
				t.Parallel()
				words := new(safe)
				b := &Backend{Plugin: example(t), Stderr: words}
				comm, err := b.Open(disttest.Context, alone)
				if err != nil {
					t.Fatal(err)
				}
				pid := comm.(*Comm).cmd.Process.Pid
				start := time.Now()
				err = c.lost(t, comm, func() {
					if err := syscall.Kill(pid, sig); err != nil {
						t.Error(err)
					}
					for sig == syscall.SIGSTOP { // all its threads
						stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
						if err != nil || strings.Contains(string(stat), ") T ") {
							break
						}
						time.Sleep(time.Millisecond)
					}
				})
				if err == nil {
					t.Error("no error")
				}
				if sig == syscall.SIGKILL && c.at != "close" && c.at != "abort" && !strings.Contains(fmt.Sprint(err), "the plugin is gone: it was killed by signal 9") {
					t.Errorf("it says %v", err)
				}
				if said := map[string]string{"close": "it did not close its group within 2s, and was killed", "abort": "it did not answer within 2s when told to abort, and was killed"}[c.at]; sig == syscall.SIGSTOP && said != "" {
					for end := time.Now().Add(10 * time.Second); !strings.Contains(words.String(), said); time.Sleep(10 * time.Millisecond) {
						if time.Now().After(end) {
							t.Fatalf("it says %q", words)
						}
					}
				}
				_ = comm.Close()
				if took := time.Since(start); took > testlimit.Time(8*time.Second) {
					t.Errorf("it took %v", took)
				}
				if syscall.Kill(pid, 0) == nil {
					t.Errorf("process %d is left", pid)
				}
			})
		}
	}
}

func do(comm collective.Comm, call collective.Call, limit time.Duration) error {
	w, err := comm.Start(&call)
	if err != nil {
		return err
	}
	return w.Wait(collective.Within(context.Background(), limit))
}

// A plugin that stops while it starts, or joins, is given up and killed.
func TestPluginStopsWhileItOpens(t *testing.T) {
	old := startTimeout
	startTimeout = time.Second
	defer func() { startTimeout = old }()
	for _, name := range []string{"stops before it starts", "stops when asked", "stops when it opens"} {
		p := program(t, strings.ReplaceAll(name, " ", "-"), "")
		start := time.Now()
		_, err := (&Backend{Plugin: p, Stderr: t.Output()}).Open(collective.Within(context.Background(), time.Second), alone)
		if err == nil || !strings.Contains(err.Error(), "was killed") {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
	}
}

// The plugin's Open gets the world as drun's was given it.
func TestWorldReachesThePlugin(t *testing.T) {
	for _, deterministic := range []bool{false, true} {
		world := collective.World{Rank: 2, Size: 5, LocalRank: 1, LocalSize: 3, NodeAddress: "10.0.0.7", Deterministic: deterministic}
		_, err := (&Backend{Plugin: program(t, "mirror", ""), Stderr: t.Output()}).Open(t.Context(), world)
		if want := fmt.Sprintf("%+v", world); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A plugin says what it can when it is asked, without being asked whether it can run here.
func TestProperties(t *testing.T) {
	for name, want := range map[string]collective.Properties{"conductor": {WholeWorld: true, BetweenNodes: 1}, "mirror": {}} {
		got, err := Properties(t.Context(), program(t, name, ""))
		if got != want || err != nil {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
}
