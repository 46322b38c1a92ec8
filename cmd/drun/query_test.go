package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
)

// drun runs a command line in this process.
func drun(args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	code = execute(context.Background(), args, &out, &errs)
	return out.String(), errs.String(), code
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// recorded makes a home with two runs.
func recorded(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	db, err := history.Open(home)
	ok(t, err)
	defer db.Close()
	when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r, err := db.Begin(history.RunInfo{Name: "calm-otter", Recipe: "examples/digits.star", WorldSize: 2, Backend: "shm",
		Given: records.Given{Command: []string{"drun", "run", "examples/digits.star"}, Version: "v1"}, Threads: 1})
	ok(t, err)
	ok(t, r.Write(&history.Batch{Params: []history.Param{{Name: "lr", Value: 0.1}, {Name: "whole", Value: 1.0}, {Name: "hidden", Value: 128}}}))
	ok(t, r.AddSources([]records.Source{records.NewSource("examples/digits.star", "recipe", []byte("def main(): pass\n"))}))
	ok(t, r.BeginAttempt())
	ok(t, r.Write(&history.Batch{
		Batch: records.Batch{Points: []records.Point{
			{Name: "acc", Step: 0, Value: 0.30000000000000004, Exact: true, Time: when},
			{Name: "loss", Step: 0, Value: math.Inf(1), Rank: 1, Exact: true, Time: when},
			{Name: "loss", Step: 1, Value: math.NaN(), Rank: 1, Exact: true, Time: when.Add(time.Millisecond)},
		},
		},
	}))
	ok(t, r.Write(&history.Batch{Lines: []history.LogLine{{Rank: 0, Stream: "stdout", Time: when, Text: "hello <from> 0"},
		{Rank: 1, Stream: "stderr", Time: when, Text: "hello from 1"}, {Rank: -1, Stream: "stderr", Time: when, Text: "saved"}}}))
	for _, tag := range []string{"base", "first-try", "on-the-small-machine", "warm"} {
		ok(t, r.Tag(tag))
	}
	ok(t, r.Write(&history.Batch{Checkpoints: []history.Checkpoint{{Step: 7, Bytes: 2048, Time: when}}}))
	ok(t, r.Write(&history.Batch{End: &history.End{Status: history.Done, Seconds: 1.5}}))
	r, err = db.Begin(history.RunInfo{Name: "wild-goose", Recipe: "bad.star", WorldSize: 1, Backend: "shm"})
	ok(t, err)
	ok(t, r.Write(&history.Batch{End: &history.End{Status: history.Failed, ExitCode: 1, Error: "bad.star:3:5: boom\n  in main"}}))
	return home
}

func TestShowJSONHasTheDocumentedShape(t *testing.T) {
	home := recorded(t)
	out, errs, code := drun("show", "calm-otter", "--json", "--home", home)
	if code != 0 || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var d map[string]any
	ok(t, json.Unmarshal([]byte(out), &d))
	started, err := time.Parse(time.RFC3339, d["started"].(string))
	if err != nil || time.Since(started) > time.Minute || d["seconds"].(float64) < 0 {
		t.Errorf("started %v, seconds %v, %v", d["started"], d["seconds"], err)
	}
	for _, want := range []string{`"id": 1`, `"name": "calm-otter"`, `"recipe": "examples/digits.star"`, `"status": "done"`,
		`"world_size": 2`, `"backend": "shm"`, `"seed": 0`, `"lr": 0.1`, `"whole": 1.0`, `"hidden": 128`,
		`"first": 0.30000000000000004`, `"first": "Infinity"`, `"last": "NaN"`, `"count": 2`, `"attempt": 0`,
		`"path": "examples/digits.star"`, `"sha256": "`, `"step": 7`, `"bytes": 2048`} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is missing in %s", want, out)
		}
	}
	out, _, code = drun("runs", "--json", "--home", home)
	var list []map[string]any
	ok(t, json.Unmarshal([]byte(out), &list))
	if code != 0 || len(list) != 2 || list[0]["id"] != 2.0 || list[1]["name"] != "calm-otter" || list[1]["metrics"] == nil {
		t.Errorf("runs = %v", list)
	}
	if _, has := list[1]["attempts"]; has {
		t.Error("runs --json has attempts")
	}
}

func TestOutput(t *testing.T) {
	home := recorded(t)
	const stamp, later = "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.001Z"
	for _, c := range []struct {
		args string
		want []string // all on stdout; one starting with "=" is the whole of it
	}{
		{"runs", []string{"ID  NAME", "wild-goose", "failed", "calm-otter", "done", "TAGS", " base,first-try,on-the-small-machine,warm ", "acc=0.3 loss=NaN"}},
		{"runs --limit 1", []string{"wild-goose", "ERROR", "bad.star:3:5: boom\n"}},
		{"runs --where metrics.acc.last>0.2", []string{"calm-otter", " base,first-try"}},
		{"runs --where id>0 --sort id --columns id,name,tags,metrics.loss.last,seconds", []string{"id  name        tags                                      metrics.loss.last  seconds\n1   calm-otter  base,first-try,on-the-small-machine,warm  NaN                1.5\n"}},
		{"runs --tag warm --tag base --columns params.lr --json", []string{"=[\n  {\n    \"params.lr\": 0.1\n  }\n]\n"}},
		{"runs --where False --json", []string{"=[]\n"}},
		{"runs --trash", []string{"="}},
		{"runs --trash --columns id", []string{"=id\n"}},
		{"runs --trash --all --json", []string{"=[]\n"}},
		{"runs --sort -id --limit 1 --json", []string{`"name": "wild-goose"`}},
		{"show 1", []string{"run 1 calm-otter: done", "2, backend shm, 1 thread each", "tags", "base", "hidden     128", "lr         0.1",
			"whole      1.0", "2.0 KiB", "ATTEMPT", "examples/digits.star"}},
		{"compare 1 2", []string{"PARAMETER       1 calm-otter                              2 wild-goose\nhidden          128                                       -\n",
			"whole           1.0                                       -\n\nRUN  ", "status          done                                      failed\n",
			"loss.last       NaN                                       -\n", "\nthe rest, 7 values, is the same", "--- run 1: examples/digits.star\n+++ /dev/null\n@@ -1 +0,0 @@\n-def main(): pass\n"}},
		{"compare 2 2", []string{"nothing differs: of metrics"}},
		{"compare 1 2 --json", []string{`"kind": "parameter"`, "\"values\": [\n        1.0,\n        null\n", `"recipe_diff": "--- run 1`, `"NaN"`}},
		{"compare 1 2 2 2 2 2 2", []string{"ID  NAME        hidden  lr   whole  ranks  ", "1   calm-otter  128     0.1  1.0    2      done    ", "\nVERSION drun\n  v1  runs 1\n      runs 2 2 2 2 2 2\n"}},
		{"show last", []string{"run 2 wild-goose: failed", "bad.star:3:5: boom", "exit code", "1"}},
		{"metrics 1 --csv", []string{"=name,step,rank,value,time\nacc,0,0,0.30000000000000004," + stamp + "\nloss,0,1,Infinity," + stamp +
			"\nloss,1,1,NaN," + later + "\n"}},
		{"metrics 1 acc", []string{"NAME  STEP  RANK  VALUE", "0.30000000000000004"}},
		{"metrics 1 acc --json", []string{`"value": 0.30000000000000004`, `"time": "` + stamp + `"`}},
		{"metrics 2 --json", []string{"=[]\n"}},
		{"logs calm-otter", []string{"=[0] hello <from> 0\n[1] hello from 1\n[drun] saved\n"}},
		{"logs 1 --rank 1", []string{"=[1] hello from 1\n"}},
		{"logs 1 --rank -1", []string{"=[drun] saved\n"}},
		{"logs 1 --grep ^h.*0$ --follow", []string{"=[0] hello <from> 0\n"}},
		{"logs 1 --rank 0 --json", []string{`"text": "hello <from> 0"`, `"stream": "stdout"`, `"rank": 0`}},
		{"logs 1 --rank 0 --json -f", []string{`={"rank":0,"stream":"stdout","time":"` + stamp + `","text":"hello <from> 0"}` + "\n"}},
		{"logs 2", []string{"="}},
		{"logs 2 1", []string{"=1[0] hello <from> 0\n1[1] hello from 1\n1[drun] saved\n"}},
		{"logs 2 1 --follow --rank 1", []string{"=1[1] hello from 1\n"}},
		{"logs 1 2 --json --rank 0", []string{`"run": 1,`, `"text": "hello <from> 0"`}},
		{"source 1", []string{"=def main(): pass\n"}},
		{"source 1 examples/digits.star", []string{"=def main(): pass\n"}},
		{"source 1 --json", []string{`"role": "recipe",`, `"content": "def main(): pass\n"`, `"sha256": "caee137c38eb`}},
		{"source 1 --diff 2", []string{"=--- run 1: examples/digits.star\n+++ /dev/null\n@@ -1 +0,0 @@\n-def main(): pass\n"}},
		{"source 1 --diff 2 --json", []string{`"diff": "--- run 1`}},
		{"source 2", []string{"="}},
		{"plot 1 acc --width 40 --height 3", []string{"acc over step\n 0.3 ┼─", "\n\n1 calm-otter: 1 point\n"}},
		{"plot 1 acc --json --width 20", []string{"=[\n  {\n    \"run\": 1,\n    \"name\": \"acc\",\n    \"x\": 0,\n    \"value\": 0.30000000000000004\n  }\n]\n"}},
		{"version", []string{"drun ", "SQLite 3."}},
		{"version --json", []string{`"version": "`}},
		{"help exit-codes", []string{"7  storage failed", "130  interrupted"}},
		{"help metrics", []string{"--points N"}},
		{"", []string{"Available Commands", "exit-codes"}},
	} {
		out, errs, code := drun(append(strings.Fields(c.args), "--home", home)...)
		if code != 0 || errs != "" {
			t.Errorf("drun %s: exit %d, %s", c.args, code, errs)
		}
		for _, want := range c.want {
			if whole, exact := strings.CutPrefix(want, "="); exact && out != whole || !exact && !strings.Contains(out, want) {
				t.Errorf("drun %s printed\n%s\nwithout %q", c.args, out, want)
			}
		}
		if strings.Contains(out, "\x1b") {
			t.Errorf("drun %s: colours without a terminal", c.args)
		}
		var told strings.Builder
		if code := execute(t.Context(), append(strings.Fields(c.args), "--home", home), fullDisk{}, &told); out != "" &&
			(code != int(exit.Recipe) || strings.Count(told.String(), "no space left on device") != 1) {
			t.Errorf("drun %s, with a full disk: exit %d, %s", c.args, code, told.String())
		}
	}
	if out, _, _ := drun("runs", "--limit", "1", "--home", home); strings.Contains(out, "calm-otter") {
		t.Error("--limit 1 shows two runs")
	}
}

// fullDisk is an output on a full disk.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestSQL(t *testing.T) {
	home := recorded(t)
	for query, want := range map[string]string{
		"select count(*) from metrics":                              "count(*)\n3\n",
		"select value, bits is null as b from metrics order by seq": "value                b\n0.30000000000000004  1\nInfinity             1\nNULL                 0\n",
		"select error from runs where id = 2":                       "error\nbad.star:3:5: boom\\n  in main\n",
		"select content from sources":                               "content\ndef main(): pass\\n\n",
		"select x'fffe' as b":                                       "b\nx'fffe'\n",
	} {
		if out, errs, code := drun("sql", query, "--home", home); out != want || code != 0 {
			t.Errorf("%s gave %q, %d, %s", query, out, code, errs)
		}
	}
	out, _, code := drun("sql", "select 2 as z, name as a from runs where 0", "--json", "--home", home)
	if out != "[]\n" || code != 0 {
		t.Errorf("no rows: %q", out)
	}
	out, _, _ = drun("sql", "select 2 as z, '<' as a", "--json", "--home", home)
	if strings.Join(strings.Fields(out), "") != `[{"z":2,"a":"<"}]` {
		t.Errorf("one row: %q", out)
	}
}

func TestMistakesOnTheCommandLine(t *testing.T) {
	home := recorded(t)
	for args, want := range map[string]string{
		"rnus":                      "did you mean run or runs?",
		"ls":                        "did you mean runs? all",
		"history":                   "did you mean runs? all",
		"status":                    "did you mean show? all",
		"delete 3":                  "did you mean rm? all",
		"qq":                        "hint: see: drun help",
		"recipe.star":               "drun run recipe.star",
		"runs --nope":               "unknown flag: --nope",
		"runs 1":                    "wrong number of arguments: 1",
		"runs --limit 0":            "must be at least 1",
		"runs --limit x":            `--limit wants a whole number, not "x"`,
		"runs --limit 3 --all":      "exclude each other",
		"runs --where id<":          "column 4: got end of file",
		"runs --where idd==1":       "did you mean id?",
		"runs --sort metrics.acc.x": "a metric has no .x",
		"runs --columns id,":        "trailing comma",
		"runs --where id<'x'":       "int cannot be compared with string (<) (run 2)",
		"compare 1":                 "one run alone cannot be compared: run 1",
		"compare 1 3":               "the newest: ",
		"show":                      "usage: drun show RUN",
		"show 3":                    "the newest: ",
		"show calm-oter":            "nearest: 1 calm-otter",
		"metrics 1 accuracy":        "it has: acc, loss",
		"metrics 2 acc":             "it recorded none",
		"metrics 1 --points 3":      "must be at least 4",
		"metrics 1 --csv --json":    "exclude each other",
		"logs 1 --rank 2":           "the run's ranks are 0 to 1",
		"logs 1 --grep (":           "missing closing )",
		"plot 1":                    "either name runs, or choose them with --where and --tag",
		"plot 1 accuracy":           "it has: acc, loss",
		"plot 1 loss":               "none is finite",
		"plot 1 acc --width 3":      "at least 20 columns",
		"source 1 other.star":       `run 1 has no file "other.star"`,
		"source 3":                  "the newest: ",
		"source 1 x --diff 2":       "name none",
		"sql":                       "wrong number of arguments: 0",
		"sql selec":                 `near "selec": syntax error`,
		"sql delete\tfrom\truns":    "not authorized",
		"sql attach\t'x.db'\tas\tx": "not authorized",
		"help nothing":              `no help on "nothing"`,
	} {
		out, errs, code := drun(append(strings.Split(args, " "), "--home", home)...)
		if code != 2 || !strings.Contains(errs, want) || out != "" {
			t.Errorf("drun %s: exit %d, %q on stderr (want %q), %q on stdout", args, code, errs, want, out)
		}
	}
}

func TestStorageTrouble(t *testing.T) {
	dir := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(dir, "history.db"), []byte("no database"), 0o666))
	for _, args := range [][]string{{"runs"}, {"show", "last"}, {"metrics", "1"}, {"logs", "1"}, {"sql", "select 1"}} {
		_, errs, code := drun(append(args, "--home", dir)...)
		if code != 7 || !strings.Contains(errs, "is not a SQLite database") || !strings.Contains(errs, "hint: move the file away") {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
		_, errs, code = drun(append(args, "--home", filepath.Join(dir, "history.db"))...)
		if code != 7 || !strings.Contains(errs, "a file stands where a folder is needed") {
			t.Errorf("%v in a file: exit %d, %s", args, code, errs)
		}
	}
}

func TestWithoutHistory(t *testing.T) {
	t.Setenv("DRUN_HOME", filepath.Join(t.TempDir(), "nothing"))
	if out, errs, code := drun("runs", "--json"); out != "[]\n" || code != 0 || !strings.Contains(errs, "nothing was run here yet") {
		t.Errorf("runs: %q, %q, %d", out, errs, code)
	}
	if _, errs, code := drun("show", "last"); code != 2 || !strings.Contains(errs, "nothing was run here yet") {
		t.Errorf("show: %q, %d", errs, code)
	}
	if _, err := os.Stat(os.Getenv("DRUN_HOME")); err == nil {
		t.Error("looking made the folder")
	}
}

// A file without a tensor makes no checkpoint.
func TestImportOfNothing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "w.safetensors")
	ok(t, os.WriteFile(file, []byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"), 0o666))
	out, errs, code := drun("checkpoints", "import", file, "--home", filepath.Join(dir, "home"))
	if code != 2 || out != "" || !strings.Contains(errs, "has no tensors") {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	if _, err := os.Stat(filepath.Join(dir, "home")); err == nil {
		t.Error("a home was made")
	}
}
