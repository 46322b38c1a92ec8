package worker_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"drun/engine/recipetest"
	"drun/engine/record"
	"drun/engine/run"
	"drun/engine/worker"
	"drun/history"
	"drun/internal/exit"
)

// flipEnv says what a faulty processor does: RANK|OP|WHEN|FILE. On that rank, a bit of the result of the operation is flipped:
// in its nth computation, where WHEN is n, in one process only, which makes the file; in the nth and all later ones (n+); or
// once in n elements (1/n), each time with a line "twice" or "once" in the file, as the operation was computed.
const flipEnv = "DRUN_TEST_FLIP"

func TestMain(m *testing.M) {
	if spec := strings.Split(os.Getenv(flipEnv), "|"); len(spec) == 4 {
		*worker.Disturb = faulty(spec[0], spec[1], spec[2], spec[3])
	}
	recipetest.Main(m)
}

func faulty(rank, op, when, file string) func(int, string, bool, []byte) {
	var mu sync.Mutex
	every, often := strings.CutPrefix(when, "1/")
	first, lasting := strings.CutSuffix(when, "+")
	nth, _ := strconv.Atoi(first)
	elements, _ := strconv.ParseFloat(every, 64)
	count, next := 0, rand.ExpFloat64()*elements
	return func(on int, what string, twice bool, result []byte) {
		if strconv.Itoa(on) != rank || what != op || len(result) < 4 {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		count++
		if often {
			for ; next < float64(len(result)/4); next += rand.ExpFloat64() * elements {
				result[4*int(next)+rand.IntN(4)] ^= 1 << rand.IntN(8)
				if f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
					fmt.Fprintln(f, map[bool]string{true: "twice", false: "once"}[twice])
					f.Close()
				}
			}
			next -= float64(len(result) / 4)
			return
		}
		if count == nth || lasting && count > nth {
			f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL, 0o600)
			if f.Close(); err == nil || lasting {
				result[rand.IntN(len(result)/4)*4+2] ^= 1 << rand.IntN(7)
			}
		}
	}
}

// audited runs a recipe with a fault, and returns how it ended, its losses, what drun said, and the file of faulty.
func audited(t *testing.T, ranks int, flip string, change func(o *run.Options)) (r *run.Result, losses, said, flips string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "train.star")
	if err := os.WriteFile(path, []byte(recipetest.Training), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(flipEnv, "")
	if flip != "" {
		t.Setenv(flipEnv, flip+"|"+filepath.Join(dir, "flipped"))
	}
	o := run.Options{Recipe: path, Nproc: ranks, Audit: 1, Threads: 1, Timeout: time.Minute, History: record.History{Home: filepath.Join(dir, "home")}, Output: run.Output{Stdout: io.Discard, Stderr: io.Discard}}
	if change != nil {
		change(&o)
	}
	r, err := run.Run(o)
	if err != nil {
		t.Fatal(err)
	}
	db, err := history.OpenReadOnly(o.Home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	list, err := db.Points(r.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p.Exact {
			losses += fmt.Sprintf("%d %x\n", p.Step, p.Value)
		}
	}
	_, err = db.Logs(r.ID, history.LogFilter{}, func(l history.LogLine) error {
		said += l.Text + "\n"
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err := db.Get(r.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range d.Attempts {
		said += a.Error + "\n"
	}
	if r.Failure != nil {
		said += r.Failure.Text(ranks)
	}
	flipped, _ := os.ReadFile(filepath.Join(dir, "flipped")) // there may be none
	return r, losses, said, string(flipped)
}

func TestAudit(t *testing.T) {
	_, want, _, _ := audited(t, 2, "", func(o *run.Options) { o.Audit = 0 })
	if r, losses, _, _ := audited(t, 2, "", nil); r.Code != exit.Done || losses != want || r.Restarts != 0 {
		t.Errorf("without a fault: %d, %d restarts, same %t", r.Code, r.Restarts, losses == want)
	}
	for op, c := range map[string]struct {
		nth  int
		line string
	}{"product": {91, "train.star:11:21: "}, "draw": {30, "train.star:11:34: "}, "optimizer's step": {21, "train.star:14:17: "}, "copy": {9, ""}} {
		r, losses, said, flips := audited(t, 2, fmt.Sprintf("1|%s|%d", op, c.nth), nil)
		if r.Code != exit.Done || r.Restarts != 1 || losses != want {
			t.Errorf("%s: code %d, %d restarts, the same bits %t, %q:\n%s", op, r.Code, r.Restarts, losses == want, flips, said)
		}
		for _, part := range []string{"rank 1: ", c.line + "the " + op + " was computed twice and had two results", "core ", "restart 1 of 1"} {
			if !strings.Contains(said, part) {
				t.Errorf("%s: %q is not said:\n%s", op, part, said)
			}
		}
	}
	r, _, said, _ := audited(t, 2, "1|product|20+", nil)
	if r.Code != exit.RankLost || r.Restarts != 3 || r.Failure == nil || r.Failure.Rank != 1 || !strings.Contains(said, "computed twice") {
		t.Errorf("a lasting fault: code %d, %d restarts:\n%s", r.Code, r.Restarts, said)
	}
	r, _, _, _ = audited(t, 2, "0|product|91", func(o *run.Options) { o.AuditAbort = true })
	if r.Code != exit.RankLost || r.Restarts != 0 || r.Failure == nil || r.Failure.Rank != 0 {
		t.Errorf("--audit-abort: code %d, %d restarts", r.Code, r.Restarts)
	}
}

// A fault after the gradients were averaged makes the ranks' parameters differ, whatever the share.
func TestAuditOfParameters(t *testing.T) {
	for ranks, c := range map[int]struct {
		update    int
		who, what string
	}{
		2: {10, "", "train.star:7:21: the parameters of ranks 0 and 1, which were equal after update 9, differ after update 10"},
		3: {1, "rank 1: ", "the parameters, which were equal on all ranks before the first update, differ from those of all others after update 1"},
		4: {10, "rank 1: ", "the parameters, which were equal on all ranks after update 9, differ from those of all others after update 10"},
	} {
		_, want, _, _ := audited(t, ranks, "", func(o *run.Options) { o.Audit = 0 })
		r, losses, said, _ := audited(t, ranks, fmt.Sprintf("1|update|%d", c.update), func(o *run.Options) { o.Audit = 1e-9 })
		if r.Code != exit.Done || r.Restarts != 1 || losses != want || !strings.Contains(said, c.what) || !strings.Contains(said, c.who) {
			t.Errorf("%d ranks: code %d, %d restarts, the same bits %t:\n%s", ranks, r.Code, r.Restarts, losses == want, said)
		}
	}
	// What is found is found before the checkpoint after it counts.
	_, want, _, _ := audited(t, 2, "", nil)
	if r, losses, said, _ := audited(t, 2, "0|update|13", nil); r.Code != exit.Done || r.Restarts != 1 || losses != want || !strings.Contains(said, "checkpoint.restore: step 6 of this run") {
		t.Errorf("right before a save: code %d, %d restarts, the same bits %t:\n%s", r.Code, r.Restarts, losses == want, said)
	}
	// A wrong state of the optimizer is found before it is saved, though the parameters are still equal.
	for _, ranks := range []int{2, 3} {
		_, want, _, _ := audited(t, ranks, "", func(o *run.Options) { o.Audit = 0 })
		r, losses, said, _ := audited(t, ranks, "1|optimizer's step|2", func(o *run.Options) { o.Audit = 1e-9 })
		if r.Code != exit.Done || r.Restarts != 1 || losses != want || !strings.Contains(said, "the optimizers' states") {
			t.Errorf("%d ranks, a state: code %d, %d restarts, the same bits %t:\n%s", ranks, r.Code, r.Restarts, losses == want, said)
		}
	}
	// Before they are averaged, a wrong gradient makes all ranks wrong alike: only a second computation finds it.
	if r, losses, said, _ := audited(t, 2, "1|product|16", func(o *run.Options) { o.Audit = 1e-9 }); r.Code != exit.Done || r.Restarts != 0 || losses == want {
		t.Errorf("a gradient: %d restarts, the same bits %t:\n%s", r.Restarts, losses == want, said)
	}
}

// TestAuditRate has runs in which one kernel of one of three ranks flips a bit once in 10⁶ elements, DRUN_AUDIT_RUNS of them,
// and compares how many of the flips lie in calls that are computed twice with the share.
func TestAuditRate(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv("DRUN_AUDIT_RUNS"))
	if err != nil {
		runs = 2
	}
	const share, ranks = 0.5, 3
	wide := func(o *run.Options) { o.Audit, o.Params = share, []string{"hidden=1024"} }
	_, want, _, _ := audited(t, ranks, "", wide)
	twice, once, ended, differ := 0, 0, 0, 0
	ops := []string{"product", "optimizer's step", "function", "function's gradient"}
	for n := range runs {
		op, rank := ops[n%len(ops)], n%ranks
		r, losses, said, flips := audited(t, ranks, fmt.Sprintf("%d|%s|1/1000000", rank, op), wide)
		inTwo, inOne := strings.Count(flips, "twice"), strings.Count(flips, "once")
		twice, once = twice+inTwo, once+inOne
		describe := func(what string) {
			t.Errorf("rank %d, %s: %s: flips %q, code %d, %d restarts, the same bits %t:\n%s", rank, op, what, flips, r.Code, r.Restarts, losses == want, said)
		}
		// A flip that was found is named with its rank, as an operation or by the parameters that it made differ.
		named := strings.Contains(said, fmt.Sprintf("rank %d: ", rank)) && (strings.Contains(said, "the "+op+" was computed twice") || strings.Contains(said, "differ from those of all others"))
		lost := r.Code == exit.RankLost && r.Restarts == 3 && r.Failure.Rank == rank
		switch {
		case r.Code != exit.Done && !lost:
			describe("it did not end as it should")
		case r.Restarts > 0 && !named:
			describe("the rank and the operation are not named")
		case inTwo > 0 && r.Restarts == 0 || r.Restarts > inTwo+inOne:
			describe("not every flip in a call that was computed twice was found")
		case !lost && losses != want && (inOne == 0 || op == "optimizer's step"):
			describe("every flip was found, and yet")
		}
		if lost {
			ended++
		} else if losses != want {
			differ++
		}
	}
	// A call that is computed twice has two computations, each of which may have the fault: of c computations, a share of
	// 2p/(1+p) belongs to such calls.
	p, all := 2*share/(1+share), float64(twice+once)
	t.Logf("%d of %d flips were in calls that were computed twice; computed: %.2f; %d of %d runs ended, %d have other bits", twice, twice+once, p, ended, runs, differ)
	if d := float64(twice) - p*all; runs >= 50 && d*d > 25*all*p*(1-p) {
		t.Errorf("%d of %d flips were in calls that were computed twice, computed %.2f", twice, twice+once, p)
	}
}
