package recipetest

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"drun/collective/disttest"
	"drun/engine/record"
	"drun/engine/run"
	"drun/internal/exit"
)

// A round is one run of random collectives, and the fault that hits one of its ranks.
type round struct {
	fault  string
	ranks  int
	victim int
	after  time.Duration // since the ranks are ready
	seed   uint64
}

func (r round) String() string {
	return fmt.Sprintf("%s of rank %d of %d after %v, seed %d", r.fault, r.victim, r.ranks, r.after, r.seed)
}

// stopTimeout is the --timeout of runs in which a rank stops for good.
const stopTimeout = 700 * time.Millisecond

// TestFaults kills, stops or delays a rank at a random moment of random collectives, DRUN_FAULT_ROUNDS times (200 is a
// thorough test; by default only a few), and checks after each round that nothing is left behind. DRUN_TEST_SEED
// repeats a test.
func TestFaults(t *testing.T) {
	rounds, err := strconv.Atoi(cmp.Or(os.Getenv("DRUN_FAULT_ROUNDS"), "6"))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(disttest.Seed(t), 1))
	faults := []string{"kill", "stop", "kill", "pause", "kill", "delay"}
	slowest := time.Duration(0)
	for i := range rounds {
		r := round{fault: faults[i%len(faults)], ranks: 2 + rng.IntN(3), seed: rng.Uint64() >> 33,
			after: time.Duration(rng.IntN(120_000)) * time.Microsecond}
		r.victim = rng.IntN(r.ranks)
		if took := r.run(t); r.fault == "kill" {
			slowest = max(slowest, took)
		}
		if t.Failed() {
			t.Fatalf("in round %d: %v", i+1, r)
		}
	}
	t.Logf("%d rounds; the slowest run ended %v after the kill", rounds, slowest)
}

// run runs the recipe, causes the round's fault, and checks how the run ended. It returns the time from a fault that
// ends the run to the end.
func (r round) run(t *testing.T) time.Duration {
	folder := t.TempDir()
	temp := filepath.Join(folder, "tmp")
	if err := os.Mkdir(temp, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", temp)
	before := openFiles(t)
	var errs bytes.Buffer
	pids := make([]int, r.ranks)
	o := run.Options{
		Recipe: "testdata/faults/random.star", Nproc: r.ranks, History: record.History{Home: filepath.Join(folder, ".drun")}, Timeout: 20 * time.Second,
		Parameters: run.Parameters{Params: []string{fmt.Sprintf("seed=%d", r.seed)}}, Threads: 1, Testing: true, Output: run.Output{Stderr: &errs},
		Hooks: run.Hooks{OnSpawn: func(rank, pid int) { pids[rank] = pid }},
	}
	done := make(chan time.Time, 1) // when the fault happened
	ready := &await{word: []byte("ready"), times: r.ranks, do: func() {
		time.Sleep(r.after)
		done <- time.Now()
		r.strike(pids[r.victim])
	}}
	o.Stdout = ready
	switch r.fault {
	case "pause", "delay":
		o.Params = append(o.Params, "steps=60")
	case "stop":
		o.Timeout = stopTimeout
		o.Params = append(o.Params, fmt.Sprintf("timeout=%g", stopTimeout.Seconds()))
	}
	if r.fault == "delay" {
		o.Params = append(o.Params, "late=0.03")
	}
	result, err := run.Run(o)
	ended := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	var took time.Duration
	select {
	case at := <-done:
		took = ended.Sub(at)
	case <-time.After(time.Second):
		t.Error("the run ended before the fault")
	}
	ready.Wait()
	for _, problem := range slices.Concat(r.check(result, took), left(pids), leaks(t, before)) {
		t.Error(problem)
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the folder for temporary files: %v %v", left, err)
	}
	if t.Failed() {
		t.Log(errs.String(), outcome{result: result})
	}
	return took
}

// strike causes the fault.
func (r round) strike(pid int) {
	switch r.fault {
	case "kill":
		_ = syscall.Kill(pid, syscall.SIGKILL)
	case "stop":
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	case "pause":
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		time.Sleep(time.Duration(r.seed%300) * time.Millisecond)
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// check lists what is wrong with the end of the run.
func (r round) check(result *run.Result, took time.Duration) (problems []string) {
	want, limit, cause := exit.Done, 20*time.Second, ""
	switch r.fault {
	case "kill":
		want, limit, cause = exit.RankLost, disttest.Bound(), fmt.Sprintf("rank %d was lost: killed by signal 9 (SIGKILL)", r.victim)
	case "stop":
		// The timeout of the other ranks, the agent's disttest.Bound() for ranks that do not end, and the time before
		// the wait.
		want, limit, cause = exit.Timeout, stopTimeout+2*disttest.Bound(), "timed out after "
	}
	if result.Code != want {
		problems = append(problems, fmt.Sprintf("exit code %d, want %d", result.Code, want))
	}
	if took > limit {
		problems = append(problems, fmt.Sprintf("the run ended after %v, want at most %v", took, limit))
	}
	told := map[int]bool{}
	for _, f := range result.Failures {
		told[f.Rank] = true
		if text := f.Message + f.Traceback; f.Rank != r.victim && !strings.Contains(text, cause) {
			problems = append(problems, fmt.Sprintf("rank %d names another cause: %s", f.Rank, text))
		}
	}
	if cause != "" && len(told) < r.ranks-1 {
		problems = append(problems, fmt.Sprintf("only ranks %v reported the cause", told))
	}
	if cause != "" && result.Snapshot == nil {
		problems = append(problems, "there is no snapshot")
	}
	return problems
}

// await calls do in its own goroutine once a word has been written a number of times.
type await struct {
	sync.WaitGroup
	word  []byte
	times int
	do    func()
}

func (a *await) Write(p []byte) (int, error) {
	if n := bytes.Count(p, a.word); n > 0 && a.times > 0 {
		if a.times -= n; a.times <= 0 {
			a.Go(a.do)
		}
	}
	return len(p), nil
}
