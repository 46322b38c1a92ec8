package history

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"math/big"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/sqldb"
)

func open(t testing.TB, home string) *DB {
	t.Helper()
	db, err := Open(home)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func reader(t testing.TB, home string) *DB {
	t.Helper()
	db, err := OpenReadOnly(home)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func begin(t testing.TB, db *DB, info RunInfo) *Run {
	t.Helper()
	if info.Recipe == "" {
		info.Recipe, info.WorldSize, info.Backend = "hello.star", 2, "shm"
	}
	r, err := db.Begin(info)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// finish writes the end of a run.
func finish(r *Run, status Status, code int, text string) error {
	return r.Write(&Batch{End: &End{status, code, text, 1.5}})
}

func TestARunInFull(t *testing.T) {
	home := t.TempDir() + "/a b?c#d%20é"
	db := open(t, home)
	r := begin(t, db, RunInfo{Recipe: "digits.star", WorldSize: 4, Backend: "shm", Seed: -7, Threads: 2, Deterministic: true,
		Given: records.Given{Version: "v1", Command: []string{"drun", "run", "digits.star"}}})
	huge, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	ok(t, r.Write(&Batch{Params: []Param{{"lr", 0.1}, {"whole", 1.0}, {"batch", 64}, {"huge", huge}, {"act", "re\"lu"},
		{"bias", true}, {"none", nil}, {"top", math.Inf(1)}, {"nan", math.NaN()}, {"big", 1e21}}}))
	ok(t, r.AddSources([]records.Source{records.NewSource("digits.star", "recipe", []byte("def main(): pass")), records.NewSource("lib.star", "load", []byte("x = 1")),
		records.NewSource("empty.star", "load", nil)}))
	ok(t, r.BeginAttempt())
	ok(t, r.Write(&Batch{Batch: records.Batch{Points: []records.Point{{Name: "acc", Step: 0, Rank: 0, Value: 0.5, Exact: true, Time: time.Now()}, {Name: "acc", Step: 1, Rank: 0, Value: 0.25, Exact: true, Time: time.Now()}}}}))
	ok(t, r.Write(&Batch{Batch: records.Batch{Points: []records.Point{{Name: "acc", Step: 2, Rank: 0, Value: 0.75, Exact: true, Time: time.Now()}}}}))
	ok(t, r.Tag("b", "a", "b"))
	ok(t, r.Write(&Batch{Batch: records.Batch{Notes: []records.Note{{Time: time.Now(), Text: "went well"}}}}))
	score := records.Float(0.75)
	ok(t, r.Write(&Batch{Checkpoints: []Checkpoint{{7, 1000, &score, time.Now(), 3}}}))
	ok(t, r.Write(&Batch{AttemptEnds: []AttemptEnd{{0, Failed, 1.5, "broke"}}, AttemptBegins: []AttemptBegin{{1, time.Now(), 3}}}))
	ok(t, finish(r, Done, 0, ""))

	ro := reader(t, home)
	d, err := ro.Get(r.ID)
	ok(t, err)
	if d.Name != r.Name || d.UID != r.UID || d.Status != Done || d.WorldSize != 4 || d.Seed != -7 || d.Threads != 2 ||
		!*d.Deterministic || !strings.HasPrefix(*d.GoVersion, runtime.Version()+" ") || d.Version != "v1" || !reflect.DeepEqual(d.Command, []string{"drun", "run", "digits.star"}) ||
		*d.ExitCode != 0 || *d.Seconds < 0 || *d.Seconds > 60 || time.Since(d.Started) > time.Minute {
		t.Errorf("run = %+v", d)
	}
	if !math.IsNaN(d.Params["nan"].(float64)) {
		t.Errorf("nan came back as %v", d.Params["nan"])
	}
	delete(d.Params, "nan")
	want := Params{"lr": 0.1, "whole": 1.0, "batch": int64(64), "huge": huge, "act": "re\"lu", "bias": true,
		"none": nil, "top": math.Inf(1), "big": 1e21}
	if !reflect.DeepEqual(d.Params, want) {
		t.Errorf("params = %#v, want %#v", d.Params, want)
	}
	text, err := json.Marshal(d.Params)
	if want := `{"act":"re\"lu","batch":64,"bias":true,"big":1e+21,"huge":123456789012345678901234567890,` +
		`"lr":0.1,"none":null,"top":"Infinity","whole":1.0}`; err != nil || string(text) != want {
		t.Errorf("params as JSON = %s, %v, want %s", text, err, want)
	}
	if m := d.Metrics["acc"]; m != (MetricSummary{0.5, 0.75, 0.25, 0.75, 3}) {
		t.Errorf("acc = %+v", m)
	}
	if len(d.Attempts) != 2 || d.Attempts[0].Status != Failed || *d.Attempts[0].Seconds != 1.5 || d.Attempts[0].Error != "broke" ||
		d.Attempts[1].Status != Done || *d.Attempts[1].Seconds < -0.001 || *d.Attempts[1].Seconds > 60 {
		t.Errorf("attempts = %+v", d.Attempts)
	}
	if len(d.Sources) != 3 || d.Sources[0].Path != "digits.star" || d.Sources[0].Role != "recipe" {
		t.Fatalf("sources = %+v", d.Sources)
	}
	source, err := ro.Query(context.Background(), "SELECT content FROM sources WHERE sha256 = '"+d.Sources[0].SHA256+"'")
	if err != nil || string(source.Rows[0][0].([]byte)) != "def main(): pass" {
		t.Errorf("source = %v, %v", source, err)
	}
	if !reflect.DeepEqual(d.Tags, []string{"a", "b"}) || len(d.Notes) != 1 || d.Notes[0].Text != "went well" {
		t.Errorf("tags = %v, notes = %v", d.Tags, d.Notes)
	}
	if len(d.Checkpoints) != 1 || d.Checkpoints[0].Step != 7 || d.Checkpoints[0].Bytes != 1000 || *d.Checkpoints[0].Score != 0.75 {
		t.Errorf("checkpoints = %+v", d.Checkpoints)
	}
}

func TestValuesKeepTheirBits(t *testing.T) {
	home := t.TempDir()
	db := open(t, home)
	r := begin(t, db, RunInfo{})
	values := []float64{0.1, math.Copysign(0, -1), 0, math.NaN(), math.Inf(1), math.Inf(-1), 5e-324, math.MaxFloat64,
		-3, 1 << 53, 1<<53 + 2, math.Pi, math.Float64frombits(0xfff8000000000123)}
	var points []records.Point
	for i, v := range values {
		points = append(points, records.Point{Name: "v", Step: int64(i), Rank: 1, Value: v, Exact: i%2 == 0, Time: time.Now()})
	}
	ok(t, r.Write(&Batch{Batch: records.Batch{Points: points}}))
	got, err := reader(t, home).Points(r.ID, "v")
	ok(t, err)
	if len(got) != len(values) {
		t.Fatalf("%d points, want %d", len(got), len(values))
	}
	for i, p := range got {
		if math.Float64bits(p.Value) != math.Float64bits(values[i]) {
			t.Errorf("%v came back as %v (%x, want %x)", values[i], p.Value, math.Float64bits(p.Value), math.Float64bits(values[i]))
		}
		if p.Step != int64(i) || p.Rank != 1 || p.Exact != (i%2 == 0) || time.Since(p.Time) > time.Minute {
			t.Errorf("point %d = %+v", i, p)
		}
	}
	text, err := json.Marshal(got[3:6])
	ok(t, err)
	for _, want := range []string{`"value":"NaN"`, `"value":"Infinity"`, `"value":"-Infinity"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
	// Plain SQL can compare bit for bit.
	table, err := reader(t, home).Query(context.Background(),
		"SELECT count(*) FROM metrics a JOIN metrics b ON a.seq = b.seq AND a.value IS b.value AND a.bits IS b.bits")
	if err != nil || table.Rows[0][0] != int64(len(values)) {
		t.Errorf("self-comparison = %v, %v", table, err)
	}
}

func TestSummaryLeavesNaNOut(t *testing.T) {
	home := t.TempDir()
	r := begin(t, open(t, home), RunInfo{})
	nan := math.NaN()
	// One batch each, then all of it again in one batch: merging in SQL and in
	// Go must agree.
	series := []float64{nan, 2, nan, 1, 3, nan}
	var all []records.Point
	for _, v := range series {
		ok(t, r.Write(&Batch{Batch: records.Batch{Points: []records.Point{{Name: "one", Value: v}}}}))
		all = append(all, records.Point{Name: "all", Value: v})
	}
	ok(t, r.Write(&Batch{Batch: records.Batch{Points: all}}))
	ok(t, r.Write(&Batch{Batch: records.Batch{Points: []records.Point{{Name: "nan", Value: nan}}}}))
	list, err := reader(t, home).List(1)
	ok(t, err)
	for _, name := range []string{"one", "all"} {
		m := list[0].Metrics[name]
		if !math.IsNaN(float64(m.First)) || !math.IsNaN(float64(m.Last)) || m.Min != 1 || m.Max != 3 || m.Count != 6 {
			t.Errorf("%s = %+v", name, m)
		}
	}
	if m := list[0].Metrics["nan"]; !math.IsNaN(float64(m.Min)) || m.Count != 1 {
		t.Errorf("nan = %+v", m)
	}
}

func TestNames(t *testing.T) {
	db := open(t, t.TempDir())
	begin(t, db, RunInfo{Name: "mine"})
	for name, want := range map[string]string{"mine": "taken by run 1", "last": "reserved", "7": "must begin", "a@3": "must begin",
		"-x": "must begin", strings.Repeat("x", 101): "at most 100"} {
		_, err := db.Begin(RunInfo{Name: name})
		var named *NameError
		if !errors.As(err, &named) || !strings.Contains(err.Error(), want) {
			t.Errorf("name %q: %v, want %q", name, err, want)
		}
	}
	list, err := db.List(0)
	if err != nil || len(list) != 1 {
		t.Errorf("refused names left %d runs, %v", len(list), err)
	}
	seen := map[string]bool{}
	for range 50 {
		r := begin(t, db, RunInfo{})
		if seen[r.Name] || CheckName(r.Name) != nil {
			t.Errorf("made-up name %q", r.Name)
		}
		seen[r.Name] = true
	}
}

func TestFind(t *testing.T) {
	home := t.TempDir()
	db := open(t, home)
	_, err := db.Find("last")
	if err == nil || !strings.Contains(err.Error(), "history is empty") {
		t.Errorf("last of nothing: %v", err)
	}
	begin(t, db, RunInfo{Name: "calm-otter"})
	begin(t, db, RunInfo{Name: "wild-goose"})
	for ref, want := range map[string]int64{"1": 1, "calm-otter": 1, "wild-goose": 2, "last": 2, "2": 2} {
		if id, err := db.Find(ref); id != want || err != nil {
			t.Errorf("Find(%q) = %d, %v, want %d", ref, id, err, want)
		}
	}
	for ref, near := range map[string]string{"calm-oter": "nearest: 1 calm-otter", "goose": "nearest: 2 wild-goose", "3": "the newest: 2 wild-goose, 1 calm-otter", "": "the newest", "zzzzzz": "the newest"} {
		_, err := db.Find(ref)
		var missing *NotFound
		if !errors.As(err, &missing) || !strings.Contains(missing.Near, near) || missing.ExitCode() != exit.Usage {
			t.Errorf("Find(%q): %v (%+v)", ref, err, missing)
		}
	}
	if _, err := db.Points(1, "loss"); err == nil || !strings.Contains(err.Error(), `no metric "loss"`) {
		t.Errorf("unknown metric: %v", err)
	}
}

func TestDiscardLeavesNoTrace(t *testing.T) {
	home := t.TempDir()
	db := open(t, home)
	begin(t, db, RunInfo{})
	r := begin(t, db, RunInfo{})
	ok(t, r.Write(&Batch{Params: []Param{{"lr", 1}}}))
	ok(t, r.AddSources([]records.Source{records.NewSource("a.star", "recipe", []byte("x"))}))
	ok(t, r.Write(&Batch{Lines: []LogLine{{Stream: "stdout", Text: "hi"}}}))
	ok(t, r.Write(&Batch{Batch: records.Batch{Points: []records.Point{{Name: "m"}}}}))
	ok(t, r.Discard())
	for _, table := range []string{"params", "sources", "run_sources", "logs", "metrics", "metric_summaries"} {
		result, err := reader(t, home).Query(context.Background(), "SELECT count(*) FROM "+table)
		if err != nil || result.Rows[0][0] != int64(0) {
			t.Errorf("%s holds %v, %v", table, result, err)
		}
	}
	if next := begin(t, db, RunInfo{}); next.ID != r.ID {
		t.Errorf("next id is %d, want %d again", next.ID, r.ID)
	}
}

func TestDownsampleKeepsSpikes(t *testing.T) {
	var points []records.Point
	for i := range 1000 {
		v := math.Sin(float64(i) / 50)
		switch i {
		case 333:
			v = 100
		case 335: // a spike is not hidden by a NaN in its place
			v = math.NaN()
		case 666:
			v = -100
		case 777:
			v = math.NaN()
		}
		points = append(points, records.Point{Name: "m", Step: int64(i), Value: v}, records.Point{Name: "m", Rank: 1, Step: int64(i)})
	}
	kept := Downsample(points, 40)
	count, steps := map[int]int{}, map[int64]bool{}
	for i, p := range kept {
		count[p.Rank]++
		if p.Rank == 0 {
			steps[p.Step] = true
		}
		if i > 0 && p.Step < kept[i-1].Step {
			t.Fatal("order lost")
		}
	}
	if count[0] > 40 || count[0] < 20 || count[1] > 40 {
		t.Errorf("kept %v points a rank", count)
	}
	for _, step := range []int64{0, 333, 335, 666, 777, 999} {
		if !steps[step] {
			t.Errorf("step %d is gone", step)
		}
	}
	if few := Downsample(points[:8], 4); len(few) != 8 {
		t.Errorf("4 points a rank became %d in all", len(few))
	}
}

func TestLogsFilterAndFollow(t *testing.T) {
	home := t.TempDir()
	r := begin(t, open(t, home), RunInfo{})
	line := func(rank int, text string) LogLine {
		return LogLine{Rank: rank, Stream: "stdout", Time: time.Now(), Text: text}
	}
	ok(t, r.Write(&Batch{Lines: []LogLine{line(0, "loss 1"), line(1, "loss 2"), line(-1, "starting")}}))
	ro := reader(t, home)
	texts := func(f LogFilter) (list []string) {
		_, err := ro.Logs(r.ID, f, func(l LogLine) error { list = append(list, l.Text); return nil })
		ok(t, err)
		return list
	}
	one := 1
	for want, f := range map[string]LogFilter{"loss 1,loss 2,starting": {}, "loss 2": {Rank: &one},
		"loss 1,loss 2": {Grep: regexp.MustCompile("^loss")}, "": {Rank: &one, Grep: regexp.MustCompile("start")}} {
		if got := strings.Join(texts(f), ","); got != want {
			t.Errorf("%+v gave %q, want %q", f, got, want)
		}
	}
	got := make(chan string, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- ro.Follow(context.Background(), []int64{r.ID}, LogFilter{}, func(_ int64, l LogLine) error { got <- l.Text; return nil })
	}()
	for range 3 {
		<-got
	}
	ok(t, r.Write(&Batch{Lines: []LogLine{line(0, "later")}}))
	select {
	case text := <-got:
		if text != "later" {
			t.Errorf("followed %q", text)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the new line did not come")
	}
	ok(t, r.Write(&Batch{Lines: []LogLine{line(0, "the end")}}))
	ok(t, finish(r, Done, 0, ""))
	select {
	case err := <-ended:
		if text := <-got; err != nil || text != "the end" {
			t.Errorf("ended with %v after %q", err, text)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("following did not end with the run")
	}
}

func TestQueryOnlyReads(t *testing.T) {
	home := t.TempDir()
	begin(t, open(t, home), RunInfo{Name: "here"})
	other := t.TempDir() + "/other.db"
	defer func(n int) { most = n }(most)
	most = 4 << 20
	for _, query := range []string{"DELETE FROM runs", "CREATE TABLE x (y)", "ATTACH '" + other + "' AS o",
		"VACUUM INTO '" + other + "'", "PRAGMA query_only = 0; DELETE FROM runs", "PRAGMA journal_mode = DELETE", "PRAGMA Journal_Mode(delete)", "PRAGMA wal_checkpoint",
		"PRAGMA user_version = 4", "PRAGMA temp_store_directory = '/tmp'", "SELEC 1", "SELECT * FROM nosuch", "", " -- nothing", ";",
		"PRAGMA writable_schema = 1", "PRAGMA mmap_size = 1", "PRAGMA temp_store = 2", "PRAGMA locking_mode = EXCLUSIVE", "PRAGMA optimize", "BEGIN IMMEDIATE", "SAVEPOINT x",
		"CREATE TEMP TABLE t (a)", "SELECT 1; SELECT 2", "SELECT ';' /* ; */; -- ;\n SELECT 2", "SELECT ?", "SELECT :x", "SELECT load_extension('x')", "SELECT readfile('/etc/hosts')",
		"SELECT writefile('x', 'y')", "SELECT edit('x')", "DETACH main", "REINDEX", "ANALYZE", "EXPLAIN DELETE FROM runs", "SELECT zeroblob(2000000)",
		"WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT x FROM c"} {
		ro := reader(t, home)
		_, err := ro.Query(context.Background(), query)
		if err == nil || !strings.HasPrefix(err.Error(), "sql: ") || exit.CodeOf(err) != exit.Usage || strings.Contains(err.Error(), "not enough args") {
			t.Errorf("%q: %v", query, err)
		}
	}
	for _, query := range []string{"PRAGMA user_version", "PRAGMA table_info(runs)", "PRAGMA integrity_check(1)", "SELECT name FROM pragma_table_info('runs')",
		"SELECT ';', \"name\" AS [a;b] FROM runs; -- the end;", "/* ; */ SELECT value FROM json_each('[1]')", "EXPLAIN SELECT 1", "VALUES (1)", "SELECT group_concat(name) OVER () FROM runs",
		"WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x < 9) SELECT * FROM c", "SELECT count(*) FROM metrics", "SELECT 'it''s; so'"} {
		if table, err := reader(t, home).Query(context.Background(), query); err != nil || len(table.Rows) == 0 {
			t.Errorf("%q: %v", query, err)
		}
	}
	table, err := reader(t, home).Query(context.Background(), "SELECT name, 1.0 AS z, 1 AS z, NULL AS a, x'ff' AS b, 'q' AS c FROM runs")
	ok(t, err)
	text, err := json.Marshal(table)
	if want := `[{"name":"here","z":1,"z_2":1,"a":null,"b":"/w==","c":"q"}]`; err != nil || string(text) != want {
		t.Errorf("JSON = %s, %v, want %s", text, err, want)
	}
}

// A history of drun as it was before the inputs of a run were kept opens, and its
// runs are as they were.
func TestPreviousSchema(t *testing.T) {
	home := t.TempDir()
	previous := file(home)
	old := fstest.MapFS{}
	names, err := fs.Glob(previous.Migrations, "000[1-4]_*.sql")
	ok(t, err)
	for _, name := range names {
		text, err := fs.ReadFile(previous.Migrations, name)
		ok(t, err)
		old[name] = &fstest.MapFile{Data: text}
	}
	previous.Migrations = old
	made, err := sqldb.Open(previous)
	ok(t, err)
	_, err = made.Exec(`INSERT INTO runs (id, uid, name, recipe, status, world_size, backend, seed, threads, started, seconds, exit_code, version, host, pid, dir, command, batch)
		VALUES (7, 'u', 'old', 'a.star', 'done', 2, 'shm', 3, 4, '2026-01-02T03:04:05.000000Z', 1.5, 0, 'v1', 'h', 1, '/', '["drun"]', 9);
		INSERT INTO metrics VALUES (7, 1, 'acc', 0, 0, 0.5, NULL, 1, '2026-01-02T03:04:05.000000Z');
		INSERT INTO metric_summaries VALUES (7, 'acc', 0.5, 0.5, 0.5, 0.5, 1)`)
	ok(t, err)
	ok(t, made.Close())

	d, err := reader(t, home).Get(7) // which updates the file
	ok(t, err)
	if d.Deterministic != nil || d.GoVersion != nil || len(d.Ranks) != 0 || len(d.DataFiles) != 0 || d.Name != "old" || d.Threads != 4 || d.Metrics["acc"].Last != 0.5 {
		t.Errorf("the old run is %+v", d)
	}
	text, err := json.Marshal(d)
	if want := `"deterministic":null,"ranks":[],"data_files":[],`; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("as JSON it is %s, %v; want %s", text, err, want)
	}
	r := begin(t, open(t, home), RunInfo{Recipe: "a.star"})
	ok(t, r.Write(everything()))
	d, err = reader(t, home).Get(r.ID)
	ok(t, err)
	if r.ID != 8 || *d.Deterministic || len(d.Ranks) != 1 || len(d.DataFiles) != 2 || d.DataFiles[1] != (records.DataFile{Path: "x.csv", SHA256: "abd", Bytes: 9}) {
		t.Errorf("a new run is %+v", d)
	}
}

func TestBackendsAreNamedOnce(t *testing.T) {
	d := &Detail{}
	d.Backend, d.Plugins = "gloo", []records.Plugin{{Name: "gloo"}, {Name: "mpi"}}
	if got := strings.Join(d.Backends(), " "); got != "gloo mpi" {
		t.Errorf("the backends are %s", got)
	}
}
