package run_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"drun/checkpoints"
	"drun/engine/record"
	"drun/engine/run"
	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
)

// attempts runs a recipe with restarts and gives what the history has of it.
func attempts(t *testing.T, home, source string, change func(*run.Options)) (*run.Result, string, *history.Detail, []records.Point) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "recipe.star")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	o := run.Options{Recipe: file, Nproc: 2, History: record.History{Home: home}, Timeout: time.Minute, Threads: 1, Output: run.Output{Stdout: &out, Stderr: &out}, MaxRestarts: 3, Testing: true, Grace: time.Minute}
	change(&o)
	r, err := run.Run(o)
	if err != nil {
		t.Fatal(err, out.String())
	}
	db, err := history.OpenReadOnly(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	d, err := db.Get(r.ID)
	if err != nil {
		t.Fatal(err)
	}
	points, err := db.Points(r.ID)
	if err != nil {
		t.Fatal(err)
	}
	return r, out.String(), d, points
}

func listed(points []records.Point) string {
	var out []string
	for _, p := range points {
		out = append(out, fmt.Sprintf("%s.%d.%d=%v", p.Name, p.Step, p.Rank, p.Value))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Each point is there once, also of ranks that record before they restore, and whichever rank
// restores first.
func TestPointsOfAttempts(t *testing.T) {
	r, out, d, points := attempts(t, t.TempDir(), `
def main():
    run.log(early = 1, all_ranks = True)
    if dist.rank() == 1:
        testing.sleep(0.05)
        run.log(late = 1, all_ranks = True)
    state = {"n": 0}
    checkpoint.restore(state)
    for n in range(state["n"], 6):
        run.log(x = 10 * run.restart_count + n, all_ranks = True)
        if n == 2 + run.restart_count and run.restart_count < 2:
            dist.barrier()
            if dist.rank() == run.restart_count:
                testing.kill_self()
            dist.barrier()
        state["n"] = n + 1
        checkpoint.save(state, step = n, memory = n % 2 == 0)
`, func(*run.Options) {})
	if r.Code != exit.Done || r.Restarts != 2 || len(d.Attempts) != 3 || *d.Attempts[1].FromStep != 1 || *d.Attempts[2].FromStep != 2 || !r.Saved {
		t.Fatalf("%+v, attempts %+v\n%s", r, d.Attempts, out)
	}
	want := "early.0.0=1 early.0.1=1 late.0.1=1 x.0.0=0 x.0.1=0 x.1.0=1 x.1.1=1 x.2.0=12 x.2.1=12 x.3.0=23 x.3.1=23 x.4.0=24 x.4.1=24 x.5.0=25 x.5.1=25"
	if got := listed(points); got != want {
		t.Errorf("points\n%s, want\n%s", got, want)
	}
}

// A recipe that restores nothing begins anew, and so do its metrics.
func TestAttemptsThatBeginAnew(t *testing.T) {
	t.Parallel()
	r, _, d, points := attempts(t, t.TempDir(), `
def main():
    for n in range(3):
        run.log(x = n + 10 * run.restart_count)
    dist.barrier()
    if run.restart_count < 2:
        fail("again")
`, func(*run.Options) {})
	if r.Code != exit.Done || len(d.Attempts) != 3 || d.Attempts[0].Status != history.Failed || d.Attempts[2].FromStep != nil || !strings.Contains(d.Attempts[1].Error, "again") {
		t.Fatalf("%+v, attempts %+v", r, d.Attempts)
	}
	if got, want := listed(points), "x.0.0=20 x.1.0=21 x.2.0=22"; got != want {
		t.Errorf("points %s, want %s", got, want)
	}
	_, _, _, points = attempts(t, t.TempDir(), `
def main():
    run.log({"attempt %d" % run.restart_count: 1})
    dist.barrier() # rank 0 has logged before rank 1 fails
    fail("always")
`, func(*run.Options) {})
	if got, want := listed(points), "attempt 3.0.0=1"; got != want {
		t.Errorf("points of a run that failed %s, want %s", got, want)
	}
}

// A signal ends the pause before the next attempt, and no attempt follows a stop that was asked for.
func TestSignalsBetweenAttempts(t *testing.T) {
	signals := make(chan os.Signal, 1)
	start := time.Now()
	r, out, d, _ := attempts(t, t.TempDir(), `
def main():
    fail("always")
`, func(o *run.Options) {
		o.MaxRestarts, o.Signals = 1000, signals
		o.Stderr = &trigger{o.Stderr, "restart 2", func() { signals <- syscall.SIGINT }}
	})
	if took := time.Since(start); r.Code != exit.Interrupted && r.Code != exit.Recipe || took > 10*time.Second || string(d.Status) != r.Code.Status() || r.Restarts < 1 || len(d.Attempts) != r.Restarts+1 {
		t.Errorf("%+v after %v, %s\n%s", r, took, d.Status, out)
	}
	signals = make(chan os.Signal, 1)
	r, out, d, _ = attempts(t, t.TempDir(), `
def main():
    run.log(x = 1)
    print("ready")
    for _ in range(1000):
        if run.should_stop():
            fail("while it was stopping")
        testing.sleep(0.01)
`, func(o *run.Options) {
		o.Signals = signals
		o.Stdout = &trigger{o.Stdout, "ready", func() { signals <- syscall.SIGTERM }}
	})
	if r.Restarts != 0 || len(d.Attempts) != 1 || r.Code != exit.Recipe {
		t.Errorf("%+v, attempts %+v\n%s", r, d.Attempts, out)
	}
}

// trigger calls fn when a text is written for the first time.
type trigger struct {
	io.Writer
	text string
	fn   func()
}

func (t *trigger) Write(p []byte) (int, error) {
	if t.fn != nil && bytes.Contains(p, []byte(t.text)) {
		t.fn()
		t.fn = nil
	}
	return t.Writer.Write(p)
}

// What SIGUSR1 asks for before the run has begun is not forgotten, and holds for later attempts.
func TestShouldStopAfterARestart(t *testing.T) {
	signals := make(chan os.Signal, 1)
	r, out, _, _ := attempts(t, t.TempDir(), `
def main():
    for _ in range(2000):
        if run.should_stop():
            if run.restart_count == 0:
                fail("once")
            return
        testing.sleep(0.01)
    fail("nobody asked")
`, func(o *run.Options) {
		o.Signals = signals
		signals <- syscall.SIGUSR1
	})
	if r.Code != exit.Done || r.Restarts != 1 {
		t.Errorf("%+v\n%s", r, out)
	}
}

// A run is taken up by name, as often as it is needed, and left alone once it is done.
func TestResumeAuto(t *testing.T) {
	home := t.TempDir()
	const recipe = `
p = run.params(last = 9)
def main():
    state = {"n": 0}
    checkpoint.restore(state)
    for n in range(state["n"], 9):
        run.log(x = n)
        if n == 4 * (run.restart_count + 1) - 1:
            fail("in attempt", run.restart_count)
        state["n"] = n + 1
        checkpoint.save(state, step = n)
    print("params", p.last)
`
	auto := func(o *run.Options) { o.Resume, o.Name, o.MaxRestarts, o.Seed = record.Auto, "job", 0, 7 }
	for want := range 3 {
		r, out, d, points := attempts(t, home, recipe, func(o *run.Options) {
			auto(o)
			if want == 0 {
				o.Params = []string{"last=5"}
			}
		})
		if done := want == 2; (r.Code == exit.Done) != done || len(d.Attempts) != want+1 || d.Name != "job" || done != strings.Contains(out, "params 5") {
			t.Fatalf("start %d: %+v, %+v\n%s", want, r, d.Attempts, out)
		}
		if want == 2 && (listed(points) != "x.0.0=0 x.1.0=1 x.2.0=2 x.3.0=3 x.4.0=4 x.5.0=5 x.6.0=6 x.7.0=7 x.8.0=8" || *d.Attempts[2].FromStep != 6) {
			t.Errorf("points %s, from step %d", listed(points), *d.Attempts[2].FromStep)
		}
	}
	r, out, d, _ := attempts(t, home, recipe, auto)
	if r.Code != exit.Done || len(d.Attempts) != 3 || !strings.Contains(out, "job is done already") {
		t.Errorf("a run that was done: %+v, %d attempts\n%s", r, len(d.Attempts), out)
	}
	file := filepath.Join(t.TempDir(), "recipe.star")
	if err := os.WriteFile(file, []byte("def main():\n    fail('no')"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := run.Options{Recipe: file, Nproc: 1, History: record.History{Home: home, Resume: record.Auto, Name: "other"}, Seed: 1, Timeout: time.Minute, Threads: 1, Output: run.Output{Stdout: new(bytes.Buffer), Stderr: new(bytes.Buffer)}}
	if _, err := run.Run(o); err != nil {
		t.Fatal(err)
	}
	o.Seed, o.SeedGiven = 2, true
	if _, err := run.Run(o); err == nil || exit.CodeOf(err) != exit.Usage || !strings.Contains(err.Error(), "--seed 1, not 2") {
		t.Errorf("another seed: %v", err)
	}
	// A mistake in the command leaves the run as it was.
	o.Seed, o.Params = 1, []string{"unknown=1"}
	if _, err := run.Run(o); err != nil && exit.CodeOf(err) != exit.Usage {
		t.Error(err)
	}
	db, err := history.OpenReadOnly(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if id, err := db.Find("other"); err != nil || id != 2 {
		t.Errorf("the run was removed: %d, %v", id, err)
	}
	o.Name, o.Params = "", nil
	if _, err := run.Run(o); err == nil || exit.CodeOf(err) != exit.Usage {
		t.Errorf("no name: %v", err)
	}
}

// Which of several checkpoints an attempt goes on from is the one restored last before it records or saves.
func TestSeveralRestores(t *testing.T) {
	t.Parallel()
	for restores, want := range map[string]string{
		`at = checkpoint.restore(state, step = "best"); at = checkpoint.restore(state)`: "x.0.0=0 x.1.0=1 x.2.0=2 x.3.0=103",
		`at = checkpoint.restore(state); at = checkpoint.restore(state, step = "best")`: "x.0.0=0 x.1.0=101 x.2.0=102 x.3.0=103",
	} {
		_, out, d, points := attempts(t, t.TempDir(), `
def main():
    state = {"n": 0}
    at = None
    if run.restart_count > 0:
        `+restores+`
    for n in range(state["n"], 4):
        run.log(x = n + 100 * run.restart_count, step = n)
        state["n"] = n + 1
        if n == 3 and run.restart_count == 0:
            fail("once")
        checkpoint.save(state, step = n, score = -n)
`, func(o *run.Options) { o.Nproc = 1 })
		if got := listed(points); got != want || d.Status != history.Done {
			t.Errorf("%s: points %s, want %s\n%s", restores, got, want, out)
		}
	}
}

// A rank that records before it restores, in an attempt of another world size, and in one that ends before it
// restores, leaves no point twice.
func TestEarlyPointsOfOtherAttempts(t *testing.T) {
	home := t.TempDir()
	const recipe = `
def main():
    run.log(early = 1, step = 0, all_ranks = True)
    if run.restart_count == 1:
        dist.barrier()
        fail("before it restores")
    state = {"n": 0}
    checkpoint.restore(state)
    if run.restart_count < 3:
        state["n"] += 1
        checkpoint.save(state, step = state["n"])
        dist.barrier()
        fail("after it saved")
`
	for start, ranks := range []int{3, 3, 4, 2} {
		r, out, _, points := attempts(t, home, recipe, func(o *run.Options) {
			o.Nproc, o.Resume, o.Name, o.MaxRestarts = ranks, record.Auto, "job", 0
		})
		want := []string{"early.0.0=1 early.0.1=1 early.0.2=1", "early.0.0=1 early.0.1=1 early.0.2=1",
			"early.0.0=1 early.0.1=1 early.0.2=1 early.0.3=1", "early.0.0=1 early.0.1=1 early.0.2=1 early.0.3=1"}[start]
		if got := listed(points); got != want || (r.Code == exit.Done) != (start == 3) {
			t.Errorf("start %d: %+v, points %s, want %s\n%s", start, r, got, want, out)
		}
	}
}

// A run that is taken up goes on from its own checkpoints though its parent's are gone, is told when its own are,
// and keeps the seed.
func TestResumeAutoWithoutTheCatalog(t *testing.T) {
	home := t.TempDir()
	const recipe = `
def main():
    state = {"n": 0}
    at = checkpoint.restore(state)
    print("from", at, run.seed)
    state["n"] += 1
    checkpoint.save(state, step = state["n"])
    fail("again")
`
	attempts(t, home, recipe, func(o *run.Options) { o.Name, o.MaxRestarts, o.Seed, o.SeedGiven = "parent", 0, 5, true })
	attempts(t, home, recipe, func(o *run.Options) { o.Name, o.Resume, o.MaxRestarts = "child", "parent", 0 })
	store, err := checkpoints.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	list, err := store.List(uid(t, home, "parent"))
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if _, err := store.Delete(list...); err != nil {
		t.Fatal(err)
	}
	store.Close()
	auto := func(o *run.Options) { o.Name, o.Resume, o.MaxRestarts = "child", record.Auto, 0 }
	if _, out, d, _ := attempts(t, home, recipe, auto); !strings.Contains(out, "from 2 5") || len(d.Attempts) != 2 {
		t.Errorf("attempts %+v\n%s", d.Attempts, out)
	}
	for _, name := range []string{"checkpoints.db", "checkpoints.db-wal", "checkpoints.db-shm"} {
		_ = os.Remove(filepath.Join(home, name))
	}
	file := filepath.Join(t.TempDir(), "recipe.star")
	if err := os.WriteFile(file, []byte(recipe), 0o644); err != nil {
		t.Fatal(err)
	}
	o := run.Options{Recipe: file, Nproc: 2, History: record.History{Home: home}, Timeout: time.Minute, Threads: 1, Output: run.Output{Stdout: new(bytes.Buffer), Stderr: new(bytes.Buffer)}}
	auto(&o)
	if _, err := run.Run(o); err == nil || exit.CodeOf(err) != exit.Storage || !strings.Contains(err.Error(), "has saved 2 checkpoints") {
		t.Errorf("without its checkpoints: %v", err)
	}
}

func uid(t *testing.T, home, name string) string {
	t.Helper()
	db, err := history.OpenReadOnly(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	id, err := db.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	d, err := db.Get(id)
	if err != nil {
		t.Fatal(err)
	}
	return d.UID
}

// However often drun itself is killed, the run that is taken up has each point once in the end.
func TestKilledAndTakenUp(t *testing.T) {
	t.Parallel()
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "recipe.star"), []byte(`
def main():
    state = {"n": 0}
    checkpoint.restore(state)
    for n in range(state["n"], 150):
        run.log(x = n, step = n, all_ranks = True)
        state["n"] = n + 1
        checkpoint.save(state, step = n, memory = n % 3 == 2)
`), 0o644); err != nil {
			t.Fatal(err)
		}
		for kill := range 5 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			cmd := exec.CommandContext(ctx, os.Args[0])
			cmd.Env = append(os.Environ(), "DRUN_TEST_AGENT="+dir, "DRUN_TEST_RESUME=auto")
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if kill < 4 {
				time.AfterFunc(80*time.Millisecond+rand.N(200*time.Millisecond), func() { _ = cmd.Process.Kill() })
			}
			err := cmd.Wait()
			cancel()
			if kill == 4 && err != nil {
				t.Fatal(err)
			}
		}
		home := filepath.Join(dir, "home")
		db, err := history.OpenReadOnly(home)
		if err != nil {
			t.Fatal(err)
		}
		id, err := db.Find("job")
		if err != nil {
			t.Fatal(err)
		}
		d, err := db.Get(id)
		if err != nil {
			t.Fatal(err)
		}
		points, err := db.Points(id)
		if err != nil {
			t.Fatal(err)
		}
		db.Close()
		seen := map[string]int{}
		for _, p := range points {
			seen[fmt.Sprintf("%d of rank %d", p.Step, p.Rank)]++
		}
		for n := range 150 {
			for rank := range 2 {
				if key := fmt.Sprintf("%d of rank %d", n, rank); seen[key] != 1 {
					t.Errorf("after %d attempts, point %s is there %d times", len(d.Attempts), key, seen[key])
				}
			}
		}
		if t.Failed() {
			t.Fatalf("attempts %+v", d.Attempts)
		}
	}
}

// When drun is killed before a rank has restored, what the rank has recorded by then is there once.
func TestKilledBeforeRestoring(t *testing.T) {
	dir := t.TempDir()
	home := filepath.Join(dir, "home")
	const recipe = `
def main():
    run.log(early = 1, step = 0, all_ranks = True)
    if run.restart_count > 0:
        testing.sleep(60)
    for n in range(3):
        run.log(x = n, step = n, all_ranks = True)
    checkpoint.save({"n": 3}, step = 3)
    dist.barrier()
    fail("in the first attempt")
`
	if err := os.WriteFile(filepath.Join(dir, "recipe.star"), []byte(recipe), 0o644); err != nil {
		t.Fatal(err)
	}
	_, out, d, points := attempts(t, home, recipe, func(o *run.Options) { o.Name, o.Resume, o.MaxRestarts = "job", record.Auto, 0 })
	want := listed(points)
	if len(points) != 8 || len(d.Checkpoints) != 1 {
		t.Fatal(want, out)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), "DRUN_TEST_AGENT="+dir, "DRUN_TEST_RESUME=auto")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	db, err := history.OpenReadOnly(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for {
		recorded, err := db.AttemptPoints(1, 1)
		if err == nil && len(recorded) == 2 {
			break
		}
		if time.Sleep(5 * time.Millisecond); ctx.Err() != nil {
			t.Fatal(recorded, err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if points, err = db.Points(1); err != nil || listed(points) != want {
		t.Errorf("points %s, want %s (%v)", listed(points), want, err)
	}
}

// The newest checkpoint of a run that does not end well is on disk afterwards, though it was saved in memory.
func TestMemoryOfAFailedRun(t *testing.T) {
	home := t.TempDir()
	const recipe = `
def main():
    state = {"n": 0, "t": tensor.zeros(1 << 19)}
    at = checkpoint.restore(state)
    print("from", at, state["n"], state["t"].sum().item())
    for n in range(state["n"], 8):
        state["n"] = n + 1
        state["t"].add_(1)
        checkpoint.save(state, step = n, memory = n != 1)
        if n == 5 and at == None:
            dist.barrier()
            if dist.rank() == 1:
                testing.kill_self()
            dist.barrier()
`
	auto := func(o *run.Options) { o.Name, o.Resume, o.MaxRestarts = "job", record.Auto, 0 }
	r, out, d, _ := attempts(t, home, recipe, auto)
	if r.Code != exit.RankLost || !r.Saved || len(d.Checkpoints) != 2 || !strings.Contains(out, "the checkpoint of step 5 was in memory, and is on disk now") {
		t.Fatalf("%+v, checkpoints %+v\n%s", r, d.Checkpoints, out)
	}
	r, out, d, _ = attempts(t, home, recipe, auto)
	if r.Code != exit.Done || strings.Count(out, "from 5 6 3.145728e+06\n") != 2 || len(d.Checkpoints) != 2 {
		t.Fatalf("%+v, checkpoints %+v\n%s", r, d.Checkpoints, out)
	}
}
