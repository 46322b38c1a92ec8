package replay

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"drun/collective/disttest"
	"drun/engine/recipetest"
	"drun/engine/run"
)

func TestMain(m *testing.M) { recipetest.Main(m) }

// stormy is an example that also saves in memory after each step.
func stormy(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../examples")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, name+".star")
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(source)
	for _, edit := range [][2]string{
		{"    checkpoint.restore(state)", "    state[\"n\"] = 0\n    checkpoint.restore(state)"},
		{"            run.log(", "            log(state, "},
		{"def main():", "def log(state, metrics = None, **named):\n    run.log(metrics, **named)\n    state[\"n\"] += 1\n    checkpoint.save(state, step = state[\"n\"], memory = True)\n\ndef main():"},
	} {
		if strings.Count(text, edit[0]) != 1 {
			t.Fatalf("%s has %q not once", file, edit[0])
		}
		text = strings.Replace(text, edit[0], edit[1], 1)
	}
	// The end of an epoch is a checkpoint on disk, of another step than those in memory.
	text = strings.Replace(text, "checkpoint.save(state, step = epoch)", "checkpoint.save(state, step = 1000000 + epoch)", 1)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestStorm kills random ranks at random moments, DRUN_STORM_KILLS times for each model (200 is a
// thorough test), while each step is saved in memory.
func TestStorm(t *testing.T) {
	kills, err := strconv.Atoi(cmp.Or(os.Getenv("DRUN_STORM_KILLS"), "5"))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(disttest.Seed(t), 2))
	for name, params := range map[string][]string{
		"digits": {"epochs=2"},
		"cnn":    {"epochs=1"},
		"gpt":    {"epochs=1", "width=32", "context=32", "sample=10"},
	} {
		t.Run(name, func(t *testing.T) {
			if kills < 20 && testing.Short() && name != "digits" {
				t.Skip("one model is enough for the race detector")
			}
			r, err := Resume(run.Options{Recipe: stormy(t, name), Nproc: 4, Parameters: run.Parameters{Params: params}, Timeout: time.Minute, Threads: 1,
				Output: run.Output{Stdout: io.Discard, Stderr: io.Discard}}, kills, rng, func(string) {})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d kills, %d points, %d recorded twice", r.Kills, r.Points, r.Again)
			if !r.Same {
				t.Errorf("after kills: %s", r.First)
			}
			if r.Kills < kills {
				t.Errorf("%d kills, want %d", r.Kills, kills)
			}
			if most := 2 * r.Kills; r.Again > most { // a step of some of these recipes records two points
				t.Errorf("%d points were recorded again after %d kills: more than a step was done twice", r.Again, r.Kills)
			}
		})
	}
}

func recipe(t *testing.T, source string) run.Options {
	t.Helper()
	file := filepath.Join(t.TempDir(), "recipe.star")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	return run.Options{Recipe: file, Nproc: 2, Timeout: time.Minute, Threads: 1, Output: run.Output{Stdout: io.Discard, Stderr: io.Discard}}
}

// What a recipe does not restore is found, in metrics and in checkpoints.
func TestResumeNoticesDifferences(t *testing.T) {
	const loop = `
def main():
    state = {"x": 0, "n": 0}
    checkpoint.restore(state)
    forgotten = 0
    for n in range(state["n"], 40):
        forgotten += 1
        %s
        state["n"] = n + 1
        checkpoint.save(state, step = n, memory = n %% 10 < 9)
        for _ in range(100000):
            pass
`
	rng := rand.New(rand.NewPCG(disttest.Seed(t), 3))
	for _, c := range []struct{ step, want string }{
		{`run.log(y = forgotten, step = n)`, "metric y at step "},
		{`run.log(y = -0.0 if forgotten == n + 1 else 0.0, step = n, all_ranks = True)`, " is 0, was -0"},
		{`run.log(m = 1, step = 0) if forgotten == 1 and n > 0 else None`, "metric m at step 0 of rank 0 was recorded only after kills"},
		{`run.log(m = 1, step = 0) if forgotten == 40 else None`, "metric m at step 0 of rank 0 was not recorded"},
		{`state["x"] = forgotten`, "x of rank 0 differs in the last checkpoint"},
		{`run.log({"y": forgotten}, step = n, exact = False)`, ""}, // a timing
	} {
		r, err := Resume(recipe(t, fmt.Sprintf(loop, c.step)), 2, rng, func(string) {})
		if err != nil {
			t.Errorf("%s: %v", c.step, err)
			continue
		}
		if r.Same != (c.want == "") || !strings.Contains(r.First, c.want) || c.want == "" && r.Kills < 2 {
			t.Errorf("%s: %+v, want %q", c.step, r, c.want)
		}
	}
}

func TestResumeRefusals(t *testing.T) {
	rng := rand.New(rand.NewPCG(disttest.Seed(t), 4))
	for source, want := range map[string]string{
		"def main():\n    pass":       "saves no checkpoint",
		"def main():\n    fail('no')": "the undisturbed run failed: ",
		"def main():\n    checkpoint.save({}, step = 1)\n    x = run.nothing": "recipe.star:3",
	} {
		_, err := Resume(recipe(t, source), 2, rng, func(string) {})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", source, err, want)
		}
	}
}

// States that are handed over in memory files survive kills as small ones do: what is equal on
// all ranks, and what is each rank's own.
func TestStormOfLargeStates(t *testing.T) {
	kills, err := strconv.Atoi(cmp.Or(os.Getenv("DRUN_STORM_KILLS"), "5"))
	if err != nil {
		t.Fatal(err)
	}
	o := recipe(t, `
def main():
    r = dist.rank()
    state = {"w": tensor.zeros(1 << 18), "own": tensor.full((1 << 17,), r), "n": 0}
    checkpoint.restore(state)
    for n in range(state["n"], 60):
        x = dist.all_reduce(tensor.full((1 << 18,), n + r))
        state["w"].add_(x)
        state["own"].add_(x[0] * r)
        run.log(w = state["w"].sum().item(), own = state["own"].sum().item(), step = n, all_ranks = True)
        state["n"] = n + 1
        checkpoint.save(state, step = n, memory = n % 10 > 0)
`)
	o.Nproc = 4
	r, err := Resume(o, kills, rand.New(rand.NewPCG(disttest.Seed(t), 5)), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Same {
		t.Errorf("after kills: %s", r.First)
	}
	if r.Kills < kills {
		t.Errorf("%d kills, want %d", r.Kills, kills)
	}
	if most := 8 * r.Kills; r.Again > most { // a step records two points of each rank
		t.Errorf("%d points were recorded again after %d kills: more than a step was done twice", r.Again, r.Kills)
	}
}
