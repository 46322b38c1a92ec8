package run_test

import (
	"bytes"
	"drun/internal/exit"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"drun/engine/record"
	"drun/engine/run"
	"drun/history"

	"golang.org/x/sys/unix"
)

// onLine calls something when a text comes by.
type onLine struct {
	text string
	do   func()
	all  bytes.Buffer
}

func (o *onLine) Write(p []byte) (int, error) {
	if o.do != nil && bytes.Contains(p, []byte(o.text)) {
		do := o.do
		o.do = nil
		do()
	}
	return o.all.Write(p)
}

func runSource(t *testing.T, source string, change func(*run.Options)) *run.Result {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "recipe.star")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	o := run.Options{Recipe: file, Nproc: 1, History: record.History{Home: filepath.Join(dir, "home")}, Timeout: time.Minute, Threads: 1, Grace: 30 * time.Second,
		Output: run.Output{Stdout: io.Discard, Stderr: io.Discard}}
	change(&o)
	r, err := run.Run(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The ranks leave it to the agent what a signal means, which many send to all
// processes of a run; a recipe has its grace before it asks for the first time.
func TestSignalsReachAllProcesses(t *testing.T) {
	t.Parallel()
	const source = `def main():
    dist.barrier()
    if dist.rank() == 0: print("ready")
    t = run.elapsed()
    while run.elapsed() < t + 1: pass
    n = 0
    while not run.should_stop(): n += 1
    print("stopped by itself")
`
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			signals := make(chan os.Signal, 1)
			var pids []int
			out := &onLine{text: "ready", do: func() {
				for _, pid := range pids {
					_ = unix.Kill(pid, sig)
				}
				signals <- sig
			}}
			r := runSource(t, source, func(o *run.Options) {
				o.Nproc, o.Stdout, o.Signals = 2, out, signals
				o.OnSpawn = func(_, pid int) { pids = append(pids, pid) }
			})
			if r.Code != exit.Interrupted || r.Failure != nil || strings.Count(out.all.String(), "stopped by itself") != 2 {
				t.Errorf("exit code %d, %+v: %s", r.Code, r.Failure, out.all.String())
			}
		})
	}
}

// So it is while the ranks start, when they do not ignore them yet.
func TestSignalsWhileRanksStart(t *testing.T) {
	var pids []int
	signals := make(chan os.Signal, 1)
	r := runSource(t, "def main():\n    while True: dist.barrier()\n", func(o *run.Options) {
		o.Nproc, o.Signals = 2, signals
		o.OnSpawn = func(_, pid int) {
			if pids = append(pids, pid); len(pids) == 2 {
				for _, pid := range pids {
					_ = unix.Kill(pid, unix.SIGTERM)
				}
				time.AfterFunc(time.Second, func() { signals <- unix.SIGTERM })
			}
		}
	})
	if r.Code != exit.Interrupted || r.Failure == nil || !strings.Contains(r.Failure.Message, "interrupted by SIGTERM") {
		t.Errorf("exit code %d, %+v", r.Code, r.Failure)
	}
}

// A recipe that never asks is ended at once, and so is one that does not come to it.
func TestGrace(t *testing.T) {
	for name, c := range map[string]struct {
		source string
		grace  time.Duration
		least  time.Duration
		most   time.Duration
	}{
		"never asks":          {"def main():\n    print('ready') # run.should_stop()\n    while True: pass\n", time.Minute, 0, 10 * time.Second},
		"does not come to it": {"def main():\n    print('ready')\n    while True: pass\n    run.should_stop()\n", 2 * time.Second, 2 * time.Second, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			signals := make(chan os.Signal, 1)
			var at time.Time
			r := runSource(t, c.source, func(o *run.Options) {
				o.Signals, o.Grace = signals, c.grace
				o.Stdout = &onLine{text: "ready", do: func() { at = time.Now(); signals <- unix.SIGTERM }}
			})
			if took := time.Since(at); r.Code != exit.Interrupted || took < c.least || took > c.most {
				t.Errorf("exit code %d after %v", r.Code, took)
			}
		})
	}
}

// What a rank has started ends with it.
func TestKillReachesTheProcessGroup(t *testing.T) {
	dir := t.TempDir()
	exe, note := filepath.Join(dir, "worker.sh"), filepath.Join(dir, "pid")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nsleep 300 >/dev/null 2>&1 3>&- &\necho $! >> '%s'\nexec '%s' \"$@\"\n", note, self)
	if err := os.WriteFile(exe, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	r := runSource(t, "def main():\n    if dist.rank() == 0: fail('no luck')\n    for i in range(1 << 50): sorted(range(1 << 22))\n", func(o *run.Options) { o.Nproc, o.Exe = 2, exe })
	if r.Code != exit.Recipe {
		t.Fatalf("exit code %d, %+v", r.Code, r.Failure)
	}
	text, err := os.ReadFile(note)
	if err != nil {
		t.Fatal(err)
	}
	gone := 0
	pids := strings.Fields(string(text))
	for _, field := range pids {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil || bytes.Contains(stat, []byte(") Z ")) {
				gone++
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	if len(pids) != 2 || gone != 2 {
		t.Errorf("of %v, %d are gone", pids, gone)
	}
}

// run.log's flags, steps, ranks and times reach the history as they were given.
func TestWhatIsLoggedIsKept(t *testing.T) {
	var home string
	before := time.Now()
	runSource(t, `def main():
    run.log(a = 1.5)
    run.log(a = 2.5, t = 7, exact = False)
    run.log({"a": 0.5}, step = 41)
    run.log(a = -1)
    run.log(r = 10 + dist.rank(), all_ranks = True)
`, func(o *run.Options) { o.Nproc, home = 2, o.Home })
	db, err := history.OpenReadOnly(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	points, err := db.Points(1)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, p := range points {
		got[fmt.Sprintf("%s@%d/%d=%v %v", p.Name, p.Step, p.Rank, p.Value, p.Exact)]++
		if p.Time.Before(before.Add(-time.Millisecond)) || p.Time.After(time.Now()) {
			t.Errorf("%s was logged at %v", p.Name, p.Time)
		}
	}
	for _, want := range []string{"a@0/0=1.5 true", "a@1/0=2.5 false", "t@0/0=7 false", "a@41/0=0.5 true", "a@2/0=-1 true", "r@0/0=10 true", "r@0/1=11 true"} {
		if got[want] != 1 {
			t.Errorf("%d of %s in %v", got[want], want, got)
		}
	}
	if len(points) != 7 {
		t.Errorf("%d points", len(points))
	}
	d, err := db.Get(1)
	if err != nil || d.Metrics["a"] != (history.MetricSummary{First: 1.5, Last: -1, Min: -1, Max: 2.5, Count: 4}) {
		t.Errorf("%+v, %v", d.Metrics, err)
	}
}

// What is logged is in the history soon after, whatever follows.
func TestRecordsAreKeptInTime(t *testing.T) {
	t.Parallel()
	var home string
	seen := make(chan time.Duration, 1)
	runSource(t, "def main():\n    run.log(x = 1)\n    print('logged')\n    t = run.elapsed()\n    while run.elapsed() < t + 4: pass\n", func(o *run.Options) {
		home = o.Home
		o.Stdout = &onLine{text: "logged", do: func() {
			start := time.Now()
			go func() {
				for time.Since(start) < 3*time.Second {
					if db, err := history.OpenReadOnly(home); err == nil {
						points, err := db.Points(1)
						db.Close()
						if err == nil && len(points) == 1 {
							break
						}
					}
					time.Sleep(10 * time.Millisecond)
				}
				seen <- time.Since(start)
			}()
		}}
	})
	if took := <-seen; took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
}

// heldUp is an output that nobody reads until it is released.
type heldUp struct {
	full    chan struct{} // closed at the first line
	release chan struct{}
	once    sync.Once
}

func (h *heldUp) Write(p []byte) (int, error) {
	h.once.Do(func() { close(h.full) })
	<-h.release
	return len(p), nil
}

// The end of a rank is seen, and ends the others, also while nobody reads what the
// ranks print.
func TestRankLostWhileOutputIsHeldUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "recipe.star")
	if err := os.WriteFile(file, []byte("def main():\n    for i in range(1 << 40):\n        print('line', i)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out := &heldUp{full: make(chan struct{}), release: make(chan struct{})}
	pids, ended := make(chan int, 2), make(chan *run.Result, 1)
	go func() {
		r, err := run.Run(run.Options{Recipe: file, Nproc: 2, History: record.History{Home: filepath.Join(dir, "home")}, Timeout: time.Minute, Threads: 1,
			Output: run.Output{Stdout: out, Stderr: io.Discard}, Hooks: run.Hooks{OnSpawn: func(_, pid int) { pids <- pid }}})
		if err != nil {
			t.Error(err)
		}
		ended <- r
	}()
	survivor, victim := <-pids, <-pids
	<-out.full
	time.Sleep(500 * time.Millisecond) // so that both have printed what is held up
	_ = syscall.Kill(victim, syscall.SIGKILL)
	for start := time.Now(); syscall.Kill(survivor, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Error("the other rank goes on")
			break
		}
	}
	close(out.release)
	if r := <-ended; r == nil || r.Code != exit.RankLost {
		t.Errorf("%+v", r)
	}
}
