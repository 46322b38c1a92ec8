package run_test

import (
	"bytes"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"drun/engine/recipetest"
	"drun/engine/record"
	"drun/engine/run"
	"drun/engine/worker"
	"drun/history"
	"drun/internal/exit"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("DRUN_TEST_AGENT"); dir != "" && !worker.Invoked() {
		os.Exit(agent(dir))
	}
	recipetest.Main(m)
}

// edit changes a database as an attacker could.
func edit(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
}

// start runs a recipe in a folder and gives what it printed.
func start(t *testing.T, dir, source string, params ...string) (*run.Result, string, error) {
	t.Helper()
	return startOn(t, dir, 1, source, params...)
}

func startOn(t *testing.T, dir string, ranks int, source string, params ...string) (*run.Result, string, error) {
	t.Helper()
	file := filepath.Join(dir, "recipe.star")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r, err := run.Run(run.Options{Recipe: file, Nproc: ranks, History: record.History{Home: filepath.Join(dir, "home")}, Parameters: run.Parameters{Params: params},
		Timeout: 5e9, Threads: 1, Output: run.Output{Stdout: &out, Stderr: &out}})
	return r, out.String(), err
}

func stored(t *testing.T, dir string, id int64) (lines []string) {
	t.Helper()
	db, err := history.OpenReadOnly(filepath.Join(dir, "home"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Logs(id, history.LogFilter{}, func(l history.LogLine) error {
		lines = append(lines, l.Text)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return lines
}

func TestLongLine(t *testing.T) {
	dir := t.TempDir()
	r, out, err := start(t, dir, "def main():\n    print('x' * (1 << 20))\n    print('end')\n")
	if err != nil || r.Code != 0 {
		t.Fatal(r, err)
	}
	if got := strings.Count(out, "x"); got != 1<<20 {
		t.Errorf("%d of the line's characters were shown, want %d", got, 1<<20)
	}
	if !strings.HasSuffix(out, "\nend\n") {
		t.Errorf("the next line is lost: %q", out[len(out)-20:])
	}
	if got := strings.Count(strings.Join(stored(t, dir, r.ID), ""), "x"); got != 1<<20 {
		t.Errorf("%d of the line's characters were kept", got)
	}
}

// A run that ends in a usage error leaves nothing, not even its id's gap.
func TestUsageErrorLeavesNoRun(t *testing.T) {
	dir := t.TempDir()
	recipe := "p = run.params(lr = 0.1)\ndef main(): pass\n"
	first, _, err := start(t, dir, recipe)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := start(t, dir, recipe, "lr=high"); exit.CodeOf(err) != exit.Usage {
		t.Fatalf("a bad parameter: %v", err)
	}
	next, _, err := start(t, dir, recipe)
	if err != nil || next.ID != first.ID+1 {
		t.Fatalf("run %d follows run %d (%v)", next.ID, first.ID, err)
	}
}

// What a recipe marks as inexact is marked so in the history, and nothing else.
func TestInexactMetrics(t *testing.T) {
	dir := t.TempDir()
	r, _, err := start(t, dir, "def main():\n    for i in range(2):\n        run.log(loss = 1.0 + i)\n        run.log(seconds = 2.0, exact = False)\n")
	if err != nil || r.Code != 0 {
		t.Fatal(r, err)
	}
	db, err := history.OpenReadOnly(filepath.Join(dir, "home"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	points, err := db.Points(r.ID)
	if err != nil || len(points) != 4 {
		t.Fatal(points, err)
	}
	for _, p := range points {
		if p.Exact != (p.Name == "loss") {
			t.Errorf("%s of step %d: exact %v", p.Name, p.Step, p.Exact)
		}
	}
}
