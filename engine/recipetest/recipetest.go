// Package recipetest runs chunked recipe files on real ranks: each chunk on every backend, at world sizes that the
// chunk lists (see sizes), as a subtest each. The tests of a builtin are one file in testdata.
//
// Comments at the beginning of a chunk say how it is run:
//
//	# name: barrier waits     the name of its subtests
//	# ranks: 1 2 4            world sizes; default 1
//	# exit: 3                 the run's exit code; default 1 where an error is expected, else 0
//	# everywhere: yes         every rank reports the expected error, not just some
//	# within: 2s              the run ends in that time; default 30s
//	# prints: text            a line that some rank prints
//	# timeout: 1s             --timeout
//	# params: a=1 b=2         -p
//	# deterministic: yes      --deterministic
//	# restarts: 1             --max-restarts
//	# alone: yes              it measures time, so no other recipe runs beside it
//
// The recipes of a file run concurrently; leaks are checked once all have ended.
package recipetest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"drun/engine/record"
	"drun/engine/run"
	"drun/engine/worker"
	"drun/internal/each"
	"drun/internal/testlimit"
	"drun/starlib/lang/chunk"
)

// Main is the TestMain of a package that runs recipes: workers run the test program too. If it is given a way to
// start plugins, backends may be plugins, found as drun finds them.
func Main(m *testing.M, plugins ...worker.Starter) {
	if worker.Invoked() {
		os.Exit(worker.Main(plugins...))
	}
	os.Exit(m.Run())
}

// whole says to run each recipe on every backend at every world size that it names.
var whole = os.Getenv("DRUN_TEST_RECIPES") == "all"

// sizes are the world sizes at which the i-th chunk of a file runs on a backend. In shared memory, the chunks of a
// file take turns with the sizes that they name: each runs at one size above 1, and every third also at 1. Plugins
// need one more process per rank, so they never run at 1, and at most at 4 if a chunk names such a size.
func sizes(s setting, i int, backend string) []int {
	alone, several := []int(nil), []int(nil)
	for _, n := range s.ranks {
		if n == 1 {
			alone = []int{1}
		} else {
			several = append(several, n)
		}
	}
	switch {
	case backend != "shm" && len(several) == 0:
		return nil
	case whole || len(s.ranks) == 1:
		return s.ranks
	case backend != "shm" && slices.Min(several) <= 4:
		several = slices.DeleteFunc(several, func(n int) bool { return n > 4 })
	}
	if backend != "shm" || i%3 != 0 {
		alone = nil
	}
	return append(alone, several[i%len(several)])
}

// Run runs every chunk of the .star files in dir on the backends.
func Run(t *testing.T, dir string, backends ...string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.star"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recipes in %s (%v)", dir, err)
	}
	home := t.TempDir() // shared, since making a history takes longer than most runs
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		chunks, err := chunk.Read(filepath.Base(file), src)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".star"), func(t *testing.T) {
			before := openFiles(t)
			t.Cleanup(func() { // once all chunks of the file have ended
				for _, problem := range leaks(t, before) {
					t.Error(problem)
				}
			})
			for i, c := range chunks {
				s, err := settings(c)
				if err != nil {
					t.Fatalf("%s: %s: %v", file, c.Name, err)
				}
				for _, backend := range backends {
					for _, ranks := range sizes(s, i, backend) {
						t.Run(fmt.Sprintf("%s/%s-%d", c.Name, backend, ranks), func(t *testing.T) {
							if !s.alone {
								t.Parallel()
							}
							runChunk(t, dir, home, c, s, backend, ranks)
						})
					}
				}
			}
		})
	}
}

// startsAtMost limits how long a backend's processes may take to start.
const startsAtMost = 3 * time.Second

func runChunk(t *testing.T, dir, home string, c chunk.Chunk, s setting, backend string, ranks int) {
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(filepath.Join(dir, "files"))); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	recipe := filepath.Join(folder, c.File)
	if err := os.WriteFile(recipe, c.Source, 0o644); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	var pids []int
	start := time.Now()
	result, err := run.Run(run.Options{
		Recipe: recipe, Nproc: ranks, Communication: run.Communication{Backend: backend, Deterministic: s.ordered}, History: record.History{Home: home}, Parameters: run.Parameters{Params: s.params},
		Timeout: s.timeout, Threads: 1, Memory: rankMemory * ranks / 9 * 10, Testing: true, MaxRestarts: s.restarts, Output: run.Output{Stdout: &out, Stderr: &errs},
		Hooks: run.Hooks{OnSpawn: func(_, pid int) { pids = append(pids, pid) }},
	})
	took := time.Since(start)
	got := outcome{err: err, result: result}
	for _, problem := range append(got.check(c, s), left(pids)...) {
		t.Error(problem)
	}
	limit := s.within
	if backend != "shm" {
		limit += startsAtMost
	}
	if limit = testlimit.Time(limit); took > limit {
		t.Errorf("it took %s, want at most %s", took, limit)
	}
	if s.prints != "" && !strings.Contains(out.String(), s.prints) {
		t.Errorf("no rank printed %q", s.prints)
	}
	if t.Failed() {
		t.Logf("output:\n%s%s%s", out.String(), errs.String(), got)
	}
}

// rankMemory is what each rank may use: so little that a recipe uses it up soon.
const rankMemory = 256 << 20

func openFiles(t *testing.T) int {
	t.Helper()
	return len(list(t, "/proc/self/fd"))
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return each.Of(entries, os.DirEntry.Name)
}

func left(pids []int) (problems []string) {
	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil {
			problems = append(problems, fmt.Sprintf("process %d is left", pid))
		}
	}
	return problems
}

// leaks lists what runs that have all ended left behind: processes, shared memory (which has no name, only mappings), and
// files and sockets beyond those that were open before.
func leaks(t *testing.T, before int) (problems []string) {
	t.Helper()
	for _, pid := range children(t) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil {
			problems = append(problems, fmt.Sprintf("process %d is left: %q", pid, line))
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "memfd:drun") {
			problems = append(problems, "shared memory is still mapped: "+strings.TrimSpace(line))
		}
	}
	if n := openFiles(t); n > before {
		problems = append(problems, fmt.Sprintf("%d descriptors are left open", n-before))
	}
	return problems
}

func children(t *testing.T) (pids []int) {
	t.Helper()
	for _, thread := range list(t, "/proc/self/task") {
		data, err := os.ReadFile("/proc/self/task/" + thread + "/children")
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(data)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}
