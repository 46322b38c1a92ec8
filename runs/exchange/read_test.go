package exchange

import (
	"bufio"
	"bytes"
	"database/sql"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drun/history"
	"drun/history/records"
	"drun/internal/each"
	"drun/internal/exit"
	"drun/internal/terminal"
)

func put(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	ok(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func shown(r *history.Foreign) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.Name, r.Status)
	for _, p := range r.Points {
		fmt.Fprintf(&b, " %s@%d/%d=%v", p.Name, p.Step, p.Rank, p.Value)
	}
	return b.String()
}

func TestReadCSV(t *testing.T) {
	for content, want := range map[string]string{
		"metric,step,value\nloss,3,0.5\nloss,4,NaN\nacc,,-Infinity\n": " done loss@3/0=0.5 loss@4/0=NaN acc@0/0=-Inf",
		"name,step,rank,value,time\n'=x,1,2,1,2026-01-02T03:04:05Z\n": " done =x@1/2=1",
		"step,loss,acc\n0,1,\n10,0.5,0.9\n":                           " done loss@0/0=1 loss@10/0=0.5 acc@10/0=0.9",
		"\ufeffloss\n1\n2\n":                                          " done loss@0/0=1 loss@1/0=2",
		"run,metric,value\na,x,1\nb,x,2\na,x,3\n":                     "a done x@0/0=1 x@0/0=3|b done x@0/0=2",
		"run,run_name,metric,value,step\n7,bold,x,1e999,1\n":          "bold done x@1/0=+Inf",
		"step,value\n1,2\n":                                           " done value@1/0=2",
		"step,x\n9007199254740993,1\n3.0,1\n":                         " done x@9007199254740993/0=1 x@3/0=1",
	} {
		runs, _, err := Read(put(t, "a.csv", content))
		var got []string
		for i := range runs {
			got = append(got, shown(&runs[i]))
		}
		if err != nil || strings.Join(got, "|") != want {
			t.Errorf("%q: %q, %v, want %q", content, got, err, want)
		}
	}
	for content, want := range map[string]string{
		"": "is empty", "step,loss\n9007199254740993.0,2\n": "want a whole number", "time,loss\n0000-01-01T00:00:00+23:59,1\n": "in the year -1",
		strings.Repeat("m", 2000) + "\n1\n": "has 2000 bytes", "l\xe9\n1\n": "not UTF-8", "a,\n1,2\n": "without a name", "a,a\n1,2\n": `two columns are called "a"`, "a,b\n1\n": "wrong number of fields", "loss\nx\n": `:2: loss is "x": want a number`,
		"step,loss\n1.5,2\n": "want a whole number", "time,loss\nnow,2\n": "want a time", "rank,loss\n-1,2\n": "from 0", "\"a\n": "a.csv",
	} {
		if _, _, err := Read(put(t, "a.csv", content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", content, err, want)
		}
	}
	for path, want := range map[string]string{"nothing.csv": "nothing.csv: no such file", "/dev/null": "is not a regular file", t.TempDir(): "no file of events is beneath it"} {
		if _, _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) || exit.CodeOf(err) != exit.Usage {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// What drun export writes comes back, and not twice.
func TestCSVThereAndBack(t *testing.T) {
	path := put(t, "runs.csv", string(written(t, "csv")))
	runs, _, err := Read(path)
	ok(t, err)
	db, err := history.Open(t.TempDir())
	ok(t, err)
	defer db.Close()
	for i := range runs {
		id, err := db.Enter(&runs[i], []string{"drun"})
		ok(t, err)
		if again, err := db.Enter(&runs[i], nil); err != nil || again != 0 {
			t.Errorf("entered twice: %d, %v", again, err)
		}
		points, err := db.Points(id)
		ok(t, err)
		for k, v := range values {
			if p := points[k]; !same(p.Value, v) || p.Rank != k%2 || !p.Time.Equal(when) {
				t.Errorf("%+v, want %v", p, v)
			}
		}
		if name := points[len(values)].Name; name != "=cmd(\"'\x1b\n," {
			t.Errorf("%q", name)
		}
	}
	if found, err := db.Find("second"); err != nil || found != 1 {
		t.Errorf("%d, %v", found, err)
	}
	// A name that is taken or cannot be one.
	for i, name := range []string{"second", "bad name!"} {
		id, err := db.Enter(&history.Foreign{Mark: fmt.Sprint("m", i), Name: name, Status: history.Done, Started: when}, nil)
		ok(t, err)
		d, err := db.Get(id)
		if err != nil || d.Name == name || len(d.Notes) != 1 || d.Notes[0].Text != "called "+name {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

// A name that begins like a formula comes back as it was.
func TestCellsThereAndBack(t *testing.T) {
	for c := range rune(128) {
		for _, name := range []string{string(c), string(c) + "x", "'" + string(c), "''" + string(c) + "x"} {
			if got := uncell(terminal.Cell(name)); got != name {
				t.Errorf("%q comes back as %q", name, got)
			}
		}
	}
}

func TestReadMLflow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ml.db")
	python(t, `
import sys, warnings, logging; warnings.filterwarnings("ignore")
import mlflow
mlflow.set_tracking_uri("sqlite:///" + sys.argv[1])
mlflow.set_experiment("exp one")
with mlflow.start_run(run_name="bold-run"):
    mlflow.log_params({"lr": 0.1, "n": 3, "opt": "sgd", "flag": True, "none": None, "zip": "007", "tiny": 1e-05})
    for i, v in enumerate([1.0, float("nan"), float("inf"), -float("inf"), 0.25]):
        mlflow.log_metric("loss", v, step=i)
    mlflow.log_metric("loss", 7.0, step=2)
    mlflow.set_tag("team", "a b"); mlflow.set_tag("mlflow.note.content", "a note"); mlflow.set_tag("long", "x" * 300)
try:
    with mlflow.start_run(run_name="bad name!"): raise ValueError
except ValueError: pass
with mlflow.start_run() as gone: pass
mlflow.delete_run(gone.info.run_id)
`, file)
	runs, notes, err := Read(file)
	ok(t, err)
	if len(runs) != 2 || len(notes) != 1 || !strings.Contains(notes[0], "1 runs are left out") {
		t.Fatalf("%+v, %q", runs, notes)
	}
	r := &runs[0]
	if got := shown(r); got != "bold-run done loss@0/0=1 loss@1/0=NaN loss@2/0=+Inf loss@2/0=7 loss@3/0=-Inf loss@4/0=0.25" {
		t.Error(got)
	}
	if got := fmt.Sprintf("%#v", r.Params); got != `[]history.Param{history.Param{Name:"flag", Value:true}, history.Param{Name:"lr", Value:0.1}, history.Param{Name:"n", Value:3}, history.Param{Name:"none", Value:interface {}(nil)}, history.Param{Name:"opt", Value:"sgd"}, history.Param{Name:"tiny", Value:1e-05}, history.Param{Name:"zip", Value:"007"}}` {
		t.Error(got)
	}
	if got := fmt.Sprint(r.Tags, len(r.Notes), " ", r.Notes[1]); got != "[experiment=exp one team=a b] 2 a note" {
		t.Error(got)
	}
	if runs[1].Status != history.Failed || runs[1].Name != "bad name!" || r.Seconds < 0 || r.Started.IsZero() {
		t.Errorf("%+v", runs[1])
	}
}

// A SQLite file that is not MLflow's.
func TestNoStoreOfMLflow(t *testing.T) {
	home := t.TempDir()
	db, err := history.Open(home)
	ok(t, err)
	ok(t, db.Close())
	if _, _, err := Read(filepath.Join(home, "history.db")); err == nil || !strings.Contains(err.Error(), "is a view") {
		t.Error(err)
	}
}

// What a store holds that no MLflow writes is refused before anything is entered, in finite time.
func TestHostileMLflow(t *testing.T) {
	var notes []string
	read := func(change string) ([]history.Foreign, error) {
		path := filepath.Join(t.TempDir(), "ml.db")
		db, err := sql.Open("sqlite3", path)
		ok(t, err)
		_, err = db.Exec(`CREATE TABLE experiments (experiment_id INTEGER, name TEXT);
			CREATE TABLE runs (run_uuid TEXT, name TEXT, status TEXT, lifecycle_stage TEXT, start_time BIGINT, end_time BIGINT, experiment_id INTEGER);
			CREATE TABLE params (run_uuid TEXT, key TEXT, value TEXT); CREATE TABLE tags (run_uuid TEXT, key TEXT, value TEXT);
			CREATE TABLE metrics (run_uuid TEXT, key TEXT, value FLOAT, timestamp BIGINT, step BIGINT, is_nan BOOLEAN);
			INSERT INTO runs VALUES ('u', 'x', 'FINISHED', 'active', 1700000000000, 1700000001000, 0);
			INSERT INTO params VALUES ('u', 'p', '1'); INSERT INTO metrics VALUES ('u', 'm', 0.5, 1700000000000, 9223372036854775807, 0);` + change)
		ok(t, err)
		ok(t, db.Close())
		runs, told, err := Read(path)
		notes = told
		return runs, err
	}
	for change, want := range map[string]string{
		"UPDATE runs SET start_time = 9000000000000000000":   "a time is in the year 285200616",
		"UPDATE runs SET start_time = -9000000000000000000":  "a time is in the year -285196677",
		"UPDATE metrics SET timestamp = 9000000000000000000": "a time is in the year 285200616",
		"UPDATE runs SET start_time = 'x'":                   "the column start_time has a value of another type",
		"UPDATE metrics SET value = NULL":                    "the column value has a value of another type",
		"UPDATE params SET key = NULL":                       "the column key has a value of another type",
		"UPDATE params SET key = ''":                         "a parameter without a name",
		"UPDATE metrics SET key = CAST(x'ff' AS TEXT)":       "the name of a metric is not UTF-8",
		"UPDATE metrics SET key = hex(zeroblob(1000000))":    "the name of a metric has 2000000 bytes",
		"DROP TABLE metrics; CREATE VIEW metrics AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT * FROM c": "metrics is a view",
	} {
		if runs, err := read(change); err == nil || !strings.Contains(err.Error(), want) || exit.CodeOf(err) != exit.Usage {
			t.Errorf("%s: %+v, %v", change, runs, err)
		}
	}
	runs, err := read("UPDATE runs SET end_time = 0; INSERT INTO params VALUES ('u', 'big', '18446744073709551617'), ('u', 'bytes', CAST(x'ff' AS TEXT))")
	ok(t, err)
	r := &runs[0]
	if r.Seconds != 0 || r.Points[0].Step != math.MaxInt64 || fmt.Sprint(r.Params[0].Value) != "18446744073709551617" {
		t.Errorf("%+v", r)
	}
	// What was deleted in MLflow, or goes on, is not read, and that is said.
	others, err := read("INSERT INTO runs SELECT 'v', name, status, 'deleted', start_time, end_time, 0 FROM runs; " +
		"INSERT INTO runs SELECT 'w', name, 'RUNNING', 'active', start_time, NULL, 0 FROM runs WHERE run_uuid = 'u'")
	if err != nil || len(others) != 1 || others[0].Mark != "mlflow:u" || len(notes) != 1 || !strings.Contains(notes[0], "2 runs are left out") {
		t.Errorf("%+v, %q, %v", others, notes, err)
	}
	db, err := history.Open(t.TempDir())
	ok(t, err)
	defer db.Close()
	id, err := db.Enter(r, nil)
	ok(t, err)
	if d, err := db.Get(id); err != nil || d.Params["bytes"] != "\xff" {
		t.Errorf("%+v, %v", d, err)
	}
}

// Numbers of a tensor of one element, in each of the forms in which protocol buffers may have them.
func TestTensorOfEvent(t *testing.T) {
	single, double := math.Float32bits(0.5), math.Float64bits(0.1)
	content := func(n byte, data []byte) []byte { return append([]byte{n<<3 | 2, byte(len(data))}, data...) }
	f32, f64 := binary.LittleEndian.AppendUint32(nil, single), binary.LittleEndian.AppendUint64(nil, double)
	for name, c := range map[string]struct {
		kind byte
		data []byte
		want float64
	}{
		"a float's bytes": {1, content(4, f32), 0.5}, "a packed float": {1, content(5, f32), 0.5}, "a float": {1, append([]byte{5<<3 | 5}, f32...), 0.5},
		"a double's bytes": {2, content(4, f64), 0.1}, "a packed double": {2, content(6, f64), 0.1}, "a double": {2, append([]byte{6<<3 | 1}, f64...), 0.1},
	} {
		if got, scalar := tensor(append([]byte{1 << 3, c.kind}, c.data...)); !scalar || got != c.want {
			t.Errorf("%s: %v, %v; want %v", name, got, scalar, c.want)
		}
	}
}

// A message that is cut off is an error, wherever it is, and fields that are not known are left out.
func TestGarbledEvent(t *testing.T) {
	for _, data := range []string{"\xff", "\x0a", "\x0a\x05x", "\x2a\x02\x0a\x05", "\x2a\x04\x0a\x02\x42\x05", "\x09x", "\x15x", "\x0b"} {
		if n, err := event(&history.Foreign{}, []byte(data)); err == nil {
			t.Errorf("%q: %d values", data, n)
		}
	}
	r := &history.Foreign{}
	if n, err := event(r, []byte("\x2a\x03\x12\x01x\x32\x01y")); n != 0 || err != nil || len(r.Points) != 0 {
		t.Errorf("%d values, %v, %v", n, r.Points, err)
	}
}

// Values that are no scalars are counted over all events of a file.
func TestOtherValuesAreCounted(t *testing.T) {
	var file bytes.Buffer
	w := bufio.NewWriter(&file)
	for _, values := range []int{2, 0, 1} { // that have a name only
		summary := scalar(&records.Point{Name: "loss", Step: 1, Value: 0.5, Time: time.Unix(1, 0)})
		if values > 0 {
			summary = []byte{5<<3 | 2, byte(5 * values)}
			for range values {
				summary = append(summary, 1<<3|2, 3, 1<<3|2, 1, 'h')
			}
		}
		writeRecord(w, summary)
	}
	writeRecord(w, scalar(&records.Point{Name: "loss", Step: 2, Value: 0.25, Time: time.Unix(2, 0)}))
	ok(t, w.Flush())
	runs, notes, err := readEvents("x", "m", file.Bytes())
	ok(t, err)
	if len(runs) != 1 || shown(&runs[0]) != ". done loss@1/0=0.5 loss@2/0=0.25" || len(notes) != 1 || !strings.HasPrefix(notes[0], "x: 3 values are left out") {
		t.Errorf("%q, %q", each.Of(runs, func(r history.Foreign) string { return shown(&r) }), notes)
	}
}

func TestReadEvents(t *testing.T) {
	dir := t.TempDir()
	python(t, `
import sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.plugins.scalar import summary_v2 as scalar
from tensorboard.plugins.histogram import summary_v2 as histogram
import numpy as np
w = EventFileWriter(sys.argv[1] + "/train-7")
for i, v in enumerate([0.5, float("nan"), float("inf")]):
    w.add_event(Event(wall_time=1700000000.25 + i, step=10 * i, summary=Summary(value=[Summary.Value(tag="loss", simple_value=v)])))
w.add_event(Event(wall_time=1700000009, step=-1, summary=scalar.scalar_pb("acc/val", 0.25)))
w.add_event(Event(wall_time=1700000009, step=3, summary=histogram.histogram_pb("weights", np.zeros(3))))
w.close()
`, dir)
	runs, notes, err := Read(dir)
	ok(t, err)
	if len(runs) != 1 || len(notes) != 1 || !strings.Contains(notes[0], "1 values are left out") {
		t.Fatalf("%+v, %q", runs, notes)
	}
	if got := shown(&runs[0]); !strings.HasPrefix(got, "train-7 done loss@0/0=0.5 loss@10/0=NaN loss@20/0=+Inf acc/val") || !strings.HasSuffix(got, "@-1/0=0.25") {
		t.Error(got)
	}
	if r := runs[0]; r.Started.UnixMilli() != 1700000000250 || math.Abs(r.Seconds-8.75) > 1e-6 {
		t.Errorf("%v, %v", r.Started, r.Seconds)
	}
	// Cut off anywhere it is read as far as it goes; changed anywhere it is an error.
	files, _ := filepath.Glob(dir + "/train-7/*")
	content, err := os.ReadFile(files[0])
	ok(t, err)
	for cut := range content {
		if _, _, err := readEvents("x", "m", content[:cut]); err != nil {
			t.Fatalf("cut off at %d: %v", cut, err)
		}
		changed := append([]byte{}, content...)
		changed[cut] ^= 4
		if runs, _, err := readEvents("x", "m", changed); err == nil {
			t.Fatalf("byte %d changed: %+v", cut, runs)
		}
	}
	// Sums that fit, but no event within.
	for _, data := range []string{"\xff", "\x0a", "\x2a\x02\x0a\x05", "\x2a\x04\x0a\x02\x42\x09"} {
		record := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
		record = binary.LittleEndian.AppendUint32(record, masked(record))
		record = append(record, data...)
		record = binary.LittleEndian.AppendUint32(record, masked([]byte(data)))
		if _, _, err := readEvents("x", "m", record); err == nil {
			t.Errorf("%q is an event", data)
		}
	}
}
