package run_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drun/checkpoints"
	"drun/engine/record"
	"drun/engine/run"
	"drun/history"
)

const logsAndSaves = `
def main():
    for step in range(100000):
        for i in range(50):
            run.log(x = i, step = 50 * step + i, all_ranks = True)
        checkpoint.save({"x": step, "t": tensor.full((1000,), step)}, step = step)
        print("saved", step)
`

// agent runs a recipe in a process that can be killed; TestMain comes here.
func agent(dir string) int {
	r, err := run.Run(run.Options{Recipe: filepath.Join(dir, "recipe.star"), Nproc: 2, History: record.History{Home: filepath.Join(dir, "home"), Name: "job", Resume: os.Getenv("DRUN_TEST_RESUME"), Keep: 2},
		Timeout: time.Minute, Threads: 1, Output: run.Output{Stdout: os.Stdout, Stderr: os.Stderr}, Testing: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if r.Code != 0 {
		fmt.Fprintf(os.Stderr, "the run: %+v\n", r.Failure)
	}
	return int(r.Code)
}

// When a checkpoint is there, so is all that the ranks had logged before it,
// whenever the agent is killed.
func TestLoggedBeforeSaved(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 8
	}
	for round := range rounds {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "recipe.star"), []byte(logsAndSaves), 0o644); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), "DRUN_TEST_AGENT="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		last := fmt.Sprintf("[%d] saved %d", rand.IntN(2), 1+rand.IntN(3)) // then the one before is complete
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if lines.Text() == last {
				break
			}
		}
		unlock := func() {}
		switch round % 3 { // 0: at once
		case 1:
			time.Sleep(rand.N(20 * time.Millisecond))
		case 2: // the points have to wait, and with them the checkpoint
			unlock = lockHistory(t, filepath.Join(dir, "home"))
			time.Sleep(100 * time.Millisecond)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		unlock()
		cancel()
		checkLogged(t, filepath.Join(dir, "home"))
	}
}

// lockHistory keeps others from writing to the history.
func lockHistory(t *testing.T, home string) (unlock func()) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(home, "history.db")+"?_txlock=immediate&_busy_timeout=10000")
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = tx.Rollback()
		db.Close()
	}
}

// left opens what a run left in a home: the history, its first run's uid, and the checkpoints.
func left(t *testing.T, home string) (*history.DB, string, *checkpoints.Store) {
	t.Helper()
	db, err := history.OpenReadOnly(home)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	show, err := db.Get(1)
	if err != nil {
		t.Fatal(err)
	}
	store, err := checkpoints.OpenReadOnly(home)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return db, show.UID, store
}

func checkLogged(t *testing.T, home string) {
	t.Helper()
	db, uid, store := left(t, home)
	info, err := store.Find(uid, checkpoints.Last)
	if err != nil {
		t.Fatal(err)
	}
	points, err := db.Points(1)
	if err != nil {
		t.Fatal(err)
	}
	var count [2]int64
	for _, p := range points {
		if p.Step < 50*(info.Step+1) {
			count[p.Rank]++
		}
	}
	if want := 50 * (info.Step + 1); count != [2]int64{want, want} {
		t.Errorf("the checkpoint of step %d is there, and of the %d points that each rank logged before it are %v", info.Step, want, count)
	}
}

// A history whose runs come from themselves is damaged, and no run waits for it.
func TestRunThatComesFromItself(t *testing.T) {
	dir := t.TempDir()
	save := "def main():\n    checkpoint.restore({'x': 0})\n    checkpoint.save({'x': 1}, step = 1)\n"
	if r, out, err := start(t, dir, save); err != nil || r.Code != 0 {
		t.Fatalf("%s %v %+v", out, err, r.Failure)
	}
	edit(t, filepath.Join(dir, "home", "history.db"), "UPDATE runs SET parent = 1, parent_step = 1")
	_, err := run.Run(run.Options{Recipe: filepath.Join(dir, "recipe.star"), Nproc: 1, History: record.History{Home: filepath.Join(dir, "home"), Resume: "1"},
		Timeout: time.Minute, Output: run.Output{Stdout: os.Stdout, Stderr: os.Stderr}})
	if err == nil || !strings.Contains(err.Error(), "history.db is damaged: runs.parent of run 1") {
		t.Errorf("got %v", err)
	}
}

// Before its first save a resumed run's last checkpoint is the one that it resumes
// from; afterwards it is its own.
func TestLastIsOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	recipe := "def main():\n    s = {'x': 0}\n    checkpoint.restore(s)\n    s['x'] += 1\n    checkpoint.save(s, step = s['x'])\n" +
		"    s['x'] = -1\n    checkpoint.restore(s)\n    print('has', s['x'])\n"
	if r, out, err := start(t, dir, recipe); err != nil || r.Code != 0 || !strings.Contains(out, "has 1\n") {
		t.Fatalf("%s %v %+v", out, err, r)
	}
	var out strings.Builder
	r, err := run.Run(run.Options{Recipe: filepath.Join(dir, "recipe.star"), Nproc: 1, History: record.History{Home: filepath.Join(dir, "home"), Resume: "1"},
		Timeout: time.Minute, Threads: 1, Output: run.Output{Stdout: &out, Stderr: os.Stderr}})
	if err != nil || r.Code != 0 || !strings.Contains(out.String(), "has 2\n") {
		t.Fatalf("%s %v %+v", out.String(), err, r)
	}
}
