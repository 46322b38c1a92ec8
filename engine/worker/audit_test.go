package worker_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"drun/engine/recipetest"
	"drun/engine/record"
	"drun/engine/run"
	"drun/engine/worker"
	"drun/history"
	"drun/internal/exit"
)

// flipEnv says what a faulty processor does: RANK OP NTH FILE. On that rank, a bit of the result of the nth computation of
// the operation is flipped; of an operation with a +, the nth and all later ones. Without the +, that happens in one process
// only: the one that makes the file.
const flipEnv = "DRUN_TEST_FLIP"

func TestMain(m *testing.M) {
	if spec := strings.Fields(os.Getenv(flipEnv)); len(spec) == 4 {
		rank, _ := strconv.Atoi(spec[0])
		nth, _ := strconv.ParseInt(spec[2], 10, 64)
		op, lasting := strings.CutSuffix(spec[1], "+")
		var count atomic.Int64
		*worker.Disturb = func(on int, what string, result []byte) {
			if on != rank || what != op || len(result) == 0 {
				return
			}
			n := count.Add(1)
			if lasting && n >= nth {
				result[rand.IntN(len(result)/4)*4+2] ^= 1 << rand.IntN(7)
			}
			if n == nth && !lasting {
				if file, err := os.OpenFile(spec[3], os.O_CREATE|os.O_EXCL, 0o600); err == nil {
					file.Close()
					result[rand.IntN(len(result)/4)*4+2] ^= 1 << rand.IntN(7)
				}
			}
		}
	}
	recipetest.Main(m)
}

const auditedRecipe = `
def main():
    model = nn.sequential(nn.linear(8, 16), nn.tanh(), nn.linear(16, 1))
    dist.broadcast_tensors(model.parameters())
    opt = optim.adam(model.parameters(), lr = 0.01)
    state = {"model": model, "opt": opt, "step": -1}
    checkpoint.restore(state)
    for step in range(state["step"] + 1, 20):
        loss = model(tensor.randn(32, 8)).square().mean()
        loss.backward()
        dist.sync_grad(model.parameters())
        opt.step()
        opt.zero_grad()
        run.log(loss = loss.item(), step = step)
        state["step"] = step
        if step % 4 == 0:
            checkpoint.save(state, step = step)
`

// audited runs the recipe with a fault, and returns how it ended, its metrics and what drun said.
func audited(t *testing.T, ranks int, flip string, change func(o *run.Options)) (r *run.Result, points, said string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "train.star")
	if err := os.WriteFile(path, []byte(auditedRecipe), 0o600); err != nil {
		t.Fatal(err)
	}
	if flip != "" {
		t.Setenv(flipEnv, flip+" "+filepath.Join(dir, "flipped"))
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
		points += fmt.Sprintf("%d %x\n", p.Step, p.Value)
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
	return r, points, said
}

func TestAudit(t *testing.T) {
	_, want, _ := audited(t, 2, "", func(o *run.Options) { o.Audit = 0 })
	if r, points, _ := audited(t, 2, "", nil); r.Code != exit.Done || points != want || r.Restarts != 0 {
		t.Errorf("without a fault: %d, %d restarts, same %t", r.Code, r.Restarts, points == want)
	}
	r, points, said := audited(t, 2, "1 product 91", nil)
	if r.Code != exit.Done || r.Restarts != 1 || points != want {
		t.Errorf("a passing fault: code %d, %d restarts, the same bits %t:\n%s", r.Code, r.Restarts, points == want, said)
	}
	for _, part := range []string{"rank 1: ", "train.star:", "the product was computed twice and had two results", "core ", "restart 1 of 1"} {
		if !strings.Contains(said, part) {
			t.Errorf("a passing fault: %q is not said:\n%s", part, said)
		}
	}
	r, _, said = audited(t, 2, "1 product+ 20", nil)
	if r.Code != exit.RankLost || r.Restarts != 3 || r.Failure == nil || r.Failure.Rank != 1 || !strings.Contains(said, "computed twice") {
		t.Errorf("a lasting fault: code %d, %d restarts:\n%s", r.Code, r.Restarts, said)
	}
	r, _, _ = audited(t, 2, "0 product 91", func(o *run.Options) { o.AuditAbort = true })
	if r.Code != exit.RankLost || r.Restarts != 0 || r.Failure == nil || r.Failure.Rank != 0 {
		t.Errorf("--audit-abort: code %d, %d restarts", r.Code, r.Restarts)
	}
}

// A fault after the gradients were averaged makes the ranks' parameters differ, whatever the share.
func TestAuditOfParameters(t *testing.T) {
	for ranks, c := range map[int]struct{ who, what string }{
		2: {"", "train.star:5:21: the parameters of ranks 0 and 1, which were equal after update 9, differ after update 10"},
		3: {"rank 1: ", "the parameters, which were equal on all ranks after update 9, differ from those of all others after update 10"},
	} {
		_, want, _ := audited(t, ranks, "", func(o *run.Options) { o.Audit = 0 })
		r, points, said := audited(t, ranks, "1 update 10", func(o *run.Options) { o.Audit = 1e-9 })
		if r.Code != exit.Done || r.Restarts != 1 || points != want || !strings.Contains(said, c.what) || !strings.Contains(said, c.who) {
			t.Errorf("%d ranks: code %d, %d restarts, the same bits %t:\n%s", ranks, r.Code, r.Restarts, points == want, said)
		}
	}
	// What is found is found before the checkpoint after it counts.
	_, want, _ := audited(t, 2, "", nil)
	if r, points, said := audited(t, 2, "0 update 13", nil); r.Code != exit.Done || r.Restarts != 1 || points != want || !strings.Contains(said, "checkpoint.restore: step 8 of this run") {
		t.Errorf("right before a save: code %d, %d restarts, the same bits %t:\n%s", r.Code, r.Restarts, points == want, said)
	}
	// Before they are averaged, a wrong gradient makes all ranks wrong alike: only a second computation finds it.
	if r, points, said := audited(t, 2, "1 product 16", func(o *run.Options) { o.Audit = 1e-9 }); r.Code != exit.Done || r.Restarts != 0 || points == want {
		t.Errorf("a gradient: %d restarts, the same bits %t:\n%s", r.Restarts, points == want, said)
	}
}

// TestAuditRate has faults at random moments, DRUN_AUDIT_RUNS of them, and compares how many are found with the share of
// operations that is computed twice.
func TestAuditRate(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv("DRUN_AUDIT_RUNS"))
	if err != nil {
		runs = 2
	}
	const share = 0.5
	_, want, _ := audited(t, 2, "", nil)
	var found []int
	for n := range runs {
		// Every product that is not computed twice counts once, so moments are drawn from the fewest there can be.
		flip := fmt.Sprintf("%d product %d", n%2, 1+rand.IntN(80))
		r, points, said := audited(t, 2, flip, func(o *run.Options) { o.Audit = share })
		if r.Code != exit.Done || r.Restarts > 1 || r.Restarts == 1 && (points != want || !strings.Contains(said, "rank "+strconv.Itoa(n%2)+": ")) {
			t.Errorf("%s: code %d, %d restarts, the same bits %t:\n%s", flip, r.Code, r.Restarts, points == want, said)
		}
		if r.Restarts == 1 {
			found = append(found, n)
		}
	}
	// A call that is computed twice has two computations, each of which may have the fault: of c computations, a share of
	// 2p/(1+p) belongs to such calls.
	p := 2 * share / (1 + share)
	t.Logf("%d of %d faults were found; computed: %.2f", len(found), runs, p)
	if deviation := 5 * float64(runs) * p * (1 - p); runs >= 50 && (float64(len(found))-p*float64(runs))*(float64(len(found))-p*float64(runs)) > 5*deviation {
		t.Errorf("%d of %d faults were found, computed %.2f", len(found), runs, p)
	}
}
