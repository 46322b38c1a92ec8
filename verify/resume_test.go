package verify

import (
	"cmp"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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
	if err := os.CopyFS(dir, os.DirFS("../examples")); err != nil {
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
			r, err := Resume(run.Options{Recipe: stormy(t, name), Nproc: 4, Params: params, Timeout: time.Minute, Threads: 1,
				Stdout: io.Discard, Stderr: io.Discard}, kills, rng)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(r.Recovery)
			t.Logf("%d kills, %d points, %d recorded twice; from a kill to the next step %v in the median, %v at most", r.Kills, r.Points, r.Again,
				r.Recovery[len(r.Recovery)/2], r.Recovery[len(r.Recovery)-1])
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
