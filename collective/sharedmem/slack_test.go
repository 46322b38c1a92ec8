package sharedmem

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// The timers of processes that take all cores may be late, those of others and of the process that starts them not.
func TestTimerSlack(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own := slackOf(t, func(start func() error) error { return start() })
	for _, c := range []struct {
		processes int
		want      string
	}{{1, own}, {max(1, Cores()-1), own}, {max(2, Cores()), "1000000"}, {Cores() + 1, "1000000"}, {1, own}} {
		if got := slackOf(t, func(start func() error) error { return StartBeside(c.processes, start) }); got != c.want {
			t.Errorf("one of %d processes on %d cores has a slack of %s ns, want %s", c.processes, Cores(), got, c.want)
		}
	}
}

// slackOf is the slack of a process that is started so.
func slackOf(t *testing.T, by func(func() error) error) string {
	t.Helper()
	out, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command("cat", "/proc/self/timerslack_ns")
	cmd.Stdout = out
	if err := by(cmd.Start); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// Whoever sleeps leaves its place to other goroutines, is woken, and does not sleep for longer than it may.
func TestSleep(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var w Word
	var over Word
	go func() {
		for over.Load() == 0 {
			Sleep(&w, 0, time.Minute)
		}
		over.Store(2)
	}()
	for range 1000 {
		runtime.Gosched()
	}
	over.Store(1)
	w.Store(1)
	Wake(&w)
	for end := time.Now().Add(10 * time.Second); over.Load() != 2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it was not woken")
		}
	}
	started := time.Now()
	Sleep(&w, 1, 20*time.Millisecond)
	if took := time.Since(started); took < 15*time.Millisecond || took > 10*time.Second {
		t.Errorf("a sleep of 20 ms took %v", took)
	}
	Sleep(&w, 0, time.Minute) // the value is another: not at all
}
