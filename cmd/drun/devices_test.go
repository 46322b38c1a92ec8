package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// deviceRuns are the recipes of the examples, the cookbook and the benchmarks that compute on a device, each with few steps. The first ones are
// run by make test, the others by make test-opencl.
var deviceRuns = []string{
	"examples/cnn.star -p epochs=1 -p samples=200 -p width=2",
	"examples/cookbook/data_parallel.star -p epochs=1",
	"bench/tiny.star -p steps=1",

	"examples/gpt.star -p epochs=1 -p batch=512 -p context=8 -p width=8 -p layers=1 -p heads=2 -p sample=12",
	"examples/kmeans.star -p samples=200 -p rounds=5",
	"examples/linreg.star -p samples=500 -p features=4",
	"examples/parameter_server.star -p epochs=1 -p hidden=8",
	"examples/pipeline.star -p epochs=1 -p hidden=8",
	"examples/spiral.star -p epochs=2 -p points=20 -p hidden=8",
	"examples/tensor_parallel.star -p epochs=1 -p hidden=8",
	"examples/cookbook/accumulate.star -p epochs=1",
	"examples/cookbook/char_gpt.star -p steps=12 -p letters=4",
	"examples/cookbook/cnn.star -p epochs=1 -p width=2",
	"examples/cookbook/ctc_lines.star -p steps=2 -p batch=4 -p width=4 -p hidden=8",
	"examples/digits.star -p epochs=1 -p hidden=8",
	"examples/cookbook/early_stopping.star -p epochs=2",
	"examples/cookbook/fedavg.star -p rounds=1 -p local_epochs=1",
	"examples/cookbook/finetune.star -p epochs=1",
	"examples/cookbook/heat.star -p steps=5",
	"examples/cookbook/kfold.star -p folds=2 -p epochs=1",
	"examples/cookbook/logistic.star -p steps=5",
	"examples/cookbook/maml.star -p steps=2",
	"examples/cookbook/ppo.star -p rounds=1 -p episodes=2 -p epochs=1",
	"examples/cookbook/reviews.star -p epochs=1",
	"examples/cookbook/score_matching.star -p steps=5",
	"examples/cookbook/tune.star",
	"examples/cookbook/vae.star -p epochs=1 -p hidden=8",
	"examples/cookbook/vit_lora.star -p epochs=1",
	"examples/cookbook/wgan_gp.star -p epochs=1",
	"bench/cnn.star -p steps=1",
	"bench/gpt.star -p steps=1",
	"bench/mlp.star -p steps=1",
	"bench/sharded.star -p width=64 -p layers=2 -p kind=fsdp",
}

const (
	deviceRunsOfTest = 3
	copiesFile       = "testdata/device-copies.txt"
)

// programCache lets a script's runs use the programs for OpenCL devices that were compiled before: each takes PoCL's compiler long.
func programCache(env *testscript.Env) {
	if dir, err := os.UserCacheDir(); err == nil {
		env.Setenv("XDG_CACHE_HOME", dir)
	}
}

func needOpenCL(t *testing.T) {
	if _, err := exec.LookPath("clinfo"); err != nil {
		t.Skip("no OpenCL device: apt-get install pocl-opencl-icd ocl-icd-libopencl1 clinfo")
	}
}

// Recipes computed on the device, on one and two ranks, have the metrics, the parameters after each update, and the artifacts of the processor,
// and copy to the device and back what testdata/device-copies.txt says, per call of the recipe: batches go there, losses and what is digested come
// back.
func TestRecipesOnDevice(t *testing.T) {
	needOpenCL(t)
	recipes := deviceRuns
	if !long() {
		recipes = recipes[:deviceRunsOfTest]
	}
	content, err := os.ReadFile(copiesFile)
	ok(t, err)
	stated := map[string]string{}
	for section := range strings.SplitSeq(string(content), "\n\n") {
		title, table, _ := strings.Cut(strings.TrimSpace(section), "\n")
		stated[title] = table
	}
	root, err := filepath.Abs("../..")
	ok(t, err)
	var mu sync.Mutex // guards stated
	dir := t.TempDir()
	for _, recipe := range recipes {
		for _, ranks := range []string{"1", "2"} {
			if ranks == "1" && (strings.Contains(recipe, "parameter_server") || strings.Contains(recipe, "/pipeline")) {
				continue
			}
			file, args, _ := strings.Cut(recipe, " ")
			script := fmt.Sprintf(`exec cp -r %s/examples %[1]s/bench .
drun run %s -n %s --data examples/data --name there --device opencl %s
drun replay there --device cpu
stdout 'the same bits'
drun sql 'SELECT call, sum(uploads) AS uploads, sum(downloads) AS downloads FROM device_copies WHERE rank = 0 GROUP BY call ORDER BY call'
copied '%s -n %[3]s'
`, root, file, ranks, args, recipe)
			name := strings.TrimSuffix(filepath.Base(file), ".star") + "-" + filepath.Base(filepath.Dir(file)) + "-" + ranks
			ok(t, os.WriteFile(filepath.Join(dir, name+".txtar"), []byte(script), 0o600))
		}
	}
	t.Run("recipes", func(t *testing.T) { // which end before the next line
		testscript.Run(t, testscript.Params{Dir: dir, Setup: func(env *testscript.Env) error {
			programCache(env)
			return nil
		}, Cmds: commands(map[string]func(*testscript.TestScript, []string){
			"copied TITLE": func(ts *testscript.TestScript, args []string) {
				mu.Lock()
				defer mu.Unlock()
				got := strings.TrimSpace(ts.ReadFile("stdout"))
				if *update {
					stated[args[0]] = got
				} else if want := stated[args[0]]; got != want {
					ts.Fatalf("%s\ncopies\n%s\nnot\n%s", args[0], got, want)
				}
			},
		})})
	})
	if *update && long() {
		var all strings.Builder
		for _, title := range slices.Sorted(maps.Keys(stated)) {
			fmt.Fprintf(&all, "%s\n%s\n\n", title, stated[title])
		}
		ok(t, os.WriteFile(copiesFile, []byte(strings.TrimSpace(all.String())+"\n"), 0o644))
	}
}
