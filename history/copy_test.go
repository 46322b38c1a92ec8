package history

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"drun/history/records"
	"drun/internal/sqldb"
)

// bring enters all that one history lacks of a run of another.
func bring(t *testing.T, from, to *DB, uid string) (id int64) {
	t.Helper()
	have, err := to.Extent(uid)
	ok(t, err)
	source := from.SourceOf(uid)
	for more := true; more; {
		d, err := source.Since(have)
		ok(t, err)
		id, _ = send(t, from, to, d)
		have, more = have.After(d), d.More
	}
	return id
}

// send enters a Delta as it arrives: through its encoding, with the contents that are missing.
func send(t *testing.T, from, to *DB, d *Delta) (int64, error) {
	t.Helper()
	d.Contents = map[string][]byte{}
	for _, a := range d.Batch.Artifacts {
		data, err := from.Content(&a)
		ok(t, err)
		d.Contents[a.SHA256] = data
	}
	data, err := spoolEncoder.Marshal(d)
	ok(t, err)
	var arrived Delta
	ok(t, spoolDecoder.Unmarshal(data, &arrived))
	id, _, err := to.Merge(&arrived, Arrival{Lease: time.Minute})
	if err != nil && !errors.As(err, new(*Moved)) && !errors.As(err, new(*Diverged)) {
		t.Fatal(err)
	}
	return id, err
}

// all is everything that a history has of a run, without numbers that are its own.
func all(t *testing.T, db *DB, id int64) string {
	t.Helper()
	text := &strings.Builder{}
	row, err := rowsIn[copiedRun](db.sql, "runs WHERE id = ?", id)
	ok(t, err)
	fmt.Fprintln(text, sqldb.JSON(row))
	for _, query := range []string{"points", "metric_summaries", "logs", "attempts", "tags", "notes", "plugins", "ranks", "data_files", "updates", "step_marks", "rank_usage", "artifacts", "params", "run_sources", "progress", "mlflow_tags", "mlflow_inputs"} {
		columns, order := columnsBut(t, db, query, "run"), "1"
		if query == "logs" || query == "notes" {
			columns, order = "time, text", "id"
		}
		rows, err := allRows(db.sql, fmt.Sprintf("SELECT %s FROM %s WHERE run = %d ORDER BY %s", columns, query, id, order))
		ok(t, err)
		if order == "1" {
			slices.Sort(rows)
		}
		fmt.Fprintln(text, query, rows)
	}
	snapshots, err := db.snapshots(id)
	ok(t, err)
	fmt.Fprintln(text, sqldb.JSON(snapshots))
	return text.String()
}

func columnsBut(t *testing.T, db *DB, table, without string) string {
	t.Helper()
	names, err := listColumn[string](db, "SELECT name FROM pragma_table_info(?) WHERE name <> ?", table, without)
	ok(t, err)
	return "`" + strings.Join(names, "`, `") + "`"
}

// A run that goes on arrives elsewhere as it is, whatever it records, and however often it is copied.
func TestCopyOfARun(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			from, to := open(t, t.TempDir()), open(t, t.TempDir())
			begin(t, to, RunInfo{Name: "taken"})
			r := begin(t, from, RunInfo{Name: "taken"})
			ok(t, r.AddSources([]records.Source{records.NewSource("a.star", "recipe", []byte("x"))}))
			ok(t, r.BeginAttempt())
			ok(t, r.Write(copiable()))
			ok(t, from.exec("INSERT INTO mlflow_tags VALUES (?, 'mlflow.user', 'ada')", r.ID))
			ok(t, from.exec("INSERT INTO mlflow_inputs VALUES (?, 'set', 'd', NULL, '{}')", r.ID))
			when, attempt, points, seq := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), 0, int64(3), 0
			for step := range 30 {
				b := &Batch{}
				now := when.Add(time.Duration(step) * time.Second)
				if random.IntN(8) == 0 {
					now = when // a clock that was set back
				}
				for i := range random.IntN(60) {
					b.Points = append(b.Points, records.Point{Name: fmt.Sprint("m", random.IntN(4)), Step: int64(step), Rank: i % 3, Value: random.Float64(), Exact: i%2 == 0, Time: now})
				}
				points += int64(len(b.Points))
				switch random.IntN(10) {
				case 0:
					attempt++
					after := random.Int64N(points + 1)
					b.AttemptEnds = []AttemptEnd{{Attempt: attempt - 1, Status: Failed, Seconds: 1}}
					ok(t, r.Write(&Batch{AttemptBegins: []AttemptBegin{{Attempt: attempt, Started: now, Points: points - int64(len(b.Points))}}, Supersedes: []Supersede{{Attempt: attempt, After: min(after, points-int64(len(b.Points))), Before: points - int64(len(b.Points))}}}))
				case 1:
					b.Artifacts = []records.Artifact{{Name: "a", Kind: []string{"text", "bytes", "image"}[random.IntN(3)], Data: fmt.Append(nil, step), Time: now}}
				case 2:
					b.Updates = []records.Updates{{Attempt: attempt, Rank: 2, First: int64(1 + step*10), Digests: []byte("12345678")}}
				case 3:
					b.Usage = []records.Usage{{Attempt: attempt, Rank: 1, Time: now.Add(time.Duration(random.IntN(1000))), CPU: 1, Peak: 2}}
				case 4:
					seq += random.IntN(2)
					b.Marks = []records.Mark{{Attempt: attempt, Seq: seq, Name: "m0", Step: int64(step), Updates: 3, Count: 1 + int64(step)}}
				case 5:
					b.Snapshots = []records.Snapshot{{Time: now, Reason: "SIGQUIT", Ranks: []records.RankState{{Rank: 1, State: fmt.Sprint(step), Recent: []records.PastCall{{Call: "c"}}}}}}
				case 6:
					b.Lines = []LogLine{{Rank: 1, Stream: "stdout", Time: now, Text: fmt.Sprint("line", step)}, {Rank: -1, Stream: "stderr", Time: now, Text: "\xff"}}
				case 7:
					b.Tags, b.Notes = []string{fmt.Sprint("t", step)}, []records.Note{{Time: now, Text: fmt.Sprint(step)}}
				case 8:
					b.Progress = []records.Progress{{Label: "epoch", Current: int64(step), Began: when, Time: now}}
				case 9:
					size := 1 + random.IntN(3)
					b.WorldSize = size
				}
				if step == 29 {
					b.End = &End{Status: Done, Seconds: 9}
				}
				ok(t, r.Write(b))
				if step == 29 || random.IntN(4) == 0 {
					id := bring(t, from, to, r.UID)
					if a, b := all(t, from, r.ID), all(t, to, id); a != b {
						t.Fatalf("step %d: %s", step, differing(a, b))
					}
					found, err := to.Find("taken-2")
					ok(t, err)
					if found != id {
						t.Errorf("it is run %d, not %d", found, id)
					}
				}
			}
		})
	}
}

// differing are the first lines that differ.
func differing(here, there string) string {
	a, b := strings.Split(here, "\n"), strings.Split(there, "\n")
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return fmt.Sprintf("here\n%s\nthere\n%s", a[i], strings.Join(b[i:i+1], ""))
		}
	}
	return "more is there"
}

// copiable is everything without what is not copied, or is not allowed.
func copiable() *Batch {
	b := everything()
	b.End, b.Checkpoints = nil, nil
	return b
}

// A delta that comes twice, too late or too early changes nothing, and the receiver says what it has.
func TestCopyOutOfOrder(t *testing.T) {
	from, to := open(t, t.TempDir()), open(t, t.TempDir())
	r := begin(t, from, RunInfo{})
	ok(t, r.BeginAttempt())
	var deltas []*Delta
	have, source := Extent{UID: r.UID}, from.SourceOf(r.UID)
	for i := range 3 {
		b := &Batch{Batch: records.Batch{Points: []records.Point{{Name: "x", Value: float64(i), Time: time.Unix(1, 0)}}}}
		if i == 1 {
			b.Lines = []LogLine{{Stream: "stdout", Time: time.Unix(1, 0), Text: "line"}}
		}
		ok(t, r.Write(b))
		d, err := source.Since(have)
		ok(t, err)
		deltas, have = append(deltas, d), have.After(d)
	}
	moved := (*Moved)(nil)
	if _, err := send(t, from, to, deltas[2]); !errors.As(err, &moved) || moved.Points != 0 {
		t.Errorf("one that comes too early: %v", err)
	}
	for _, i := range []int{0, 0, 1, 0, 1, 2, 2} {
		_, err := send(t, from, to, deltas[i])
		if err != nil && !errors.As(err, &moved) {
			t.Error(err)
		}
	}
	id, err := to.Find("last")
	ok(t, err)
	if a, b := all(t, from, r.ID), all(t, to, id); a != b {
		t.Error(differing(a, b))
	}
}

// A run that went on in two places is not entered from both, and one that is older changes nothing.
func TestCopyOfAnotherCourse(t *testing.T) {
	a, b, to := open(t, t.TempDir()), open(t, t.TempDir()), open(t, t.TempDir())
	r := begin(t, a, RunInfo{})
	ok(t, r.BeginAttempt())
	ok(t, r.Write(&Batch{Batch: records.Batch{Points: []records.Point{{Name: "x", Time: time.Unix(1, 0)}}}}))
	bring(t, a, b, r.UID)
	ok(t, r.Write(&Batch{End: &End{Status: Failed}}))
	bring(t, a, to, r.UID)
	before := all(t, to, 1)
	bring(t, b, to, r.UID)
	if after := all(t, to, 1); after != before {
		t.Errorf("an older copy has changed it:\n%s\nbefore:\n%s", after, before)
	}
	ok(t, b.exec("UPDATE runs SET status = 'lost'"))
	goOn := func(db *DB) {
		again, _, err := db.Reopen(1, RunInfo{Recipe: "x", WorldSize: 1, Backend: "shm"})
		ok(t, err)
		ok(t, again.Write(&Batch{Batch: records.Batch{Points: []records.Point{{Name: "x", Value: 2, Time: time.Unix(2, 0)}}}}))
		ok(t, again.Write(&Batch{End: &End{Status: Done}}))
	}
	goOn(a)
	goOn(b)
	bring(t, a, to, r.UID)
	before = all(t, to, 1)
	have, err := to.Extent(r.UID)
	ok(t, err)
	d, err := b.SourceOf(r.UID).Since(have)
	ok(t, err)
	if _, err := send(t, b, to, d); !errors.As(err, new(*Diverged)) {
		t.Errorf("another course: %v", err)
	}
	if after := all(t, to, 1); after != before {
		t.Error("it was changed")
	}
}

// The parent is found by its uid, in whatever order the runs arrive.
func TestCopyOfAChild(t *testing.T) {
	from := open(t, t.TempDir())
	parent := begin(t, from, RunInfo{Name: "parent"})
	ok(t, parent.Write(&Batch{End: &End{Status: Done}}))
	child := begin(t, from, RunInfo{Name: "child", Parent: &Parent{ID: parent.ID, Step: 3}})
	ok(t, child.Write(&Batch{End: &End{Status: Done}}))
	for _, order := range [][]string{{parent.UID, child.UID}, {child.UID, parent.UID}} {
		to := open(t, t.TempDir())
		for _, uid := range order {
			bring(t, from, to, uid)
		}
		id, err := to.Find("child")
		ok(t, err)
		d, err := to.Get(id)
		ok(t, err)
		if d.Parent == nil || d.Parent.Name != "parent" || d.Parent.Step != 3 {
			t.Errorf("its parent is %+v", d.Parent)
		}
	}
}

// A column of runs goes along, or belongs to one history.
func TestEveryColumnIsCopied(t *testing.T) {
	db := open(t, t.TempDir())
	copied := columnsOf(reflect.TypeFor[copiedRun]())
	own := []string{"id", "uid", "name", "parent", "batch", "trashed", "project_name", "owner", "leased", "clock", "parent_uid"}
	names, err := listColumn[string](db, "SELECT name FROM pragma_table_info('runs')")
	ok(t, err)
	for _, name := range names {
		if !slices.ContainsFunc(copied, func(c column) bool { return c.name == name }) && !slices.Contains(own, name) {
			t.Errorf("runs.%s is lost when a run is copied", name)
		}
	}
	attempts, err := listColumn[string](db, "SELECT name FROM pragma_table_info('attempts') WHERE name <> 'run'")
	ok(t, err)
	if n := len(columnsOf(reflect.TypeFor[copiedAttempt]())); n != len(attempts) {
		t.Errorf("%d of %v are copied", n, attempts)
	}
	tables, _, err := tables(db.sql, "run")
	ok(t, err)
	// Replays stay where they were made.
	known := strings.Fields("artifacts attempts checkpoints data_files device_copies follows jobs logs metric_blocks mlflow_inputs mlflow_links mlflow_model_points mlflow_tags notes params plugins progress rank_usage ranks replays run_metrics run_sources snapshots step_marks tags updates")
	if !slices.Equal(tables, known) {
		t.Errorf("tables with runs are %v: copy.go and this test know %v", tables, known)
	}
}

// What no drun has made is refused as a whole.
func TestCopyOfNonsense(t *testing.T) {
	from, to := open(t, t.TempDir()), open(t, t.TempDir())
	r := begin(t, from, RunInfo{})
	ok(t, r.BeginAttempt())
	ok(t, r.Write(copiable()))
	for what, spoil := range map[string]func(*Delta){
		"uid":      func(d *Delta) { d.UID = "../../x" },
		"name":     func(d *Delta) { d.Name = "7" },
		"status":   func(d *Delta) { d.Row.Status = "fine" },
		"ranks":    func(d *Delta) { d.Row.WorldSize = 1 << 40 },
		"command":  func(d *Delta) { d.Row.Command = "{" },
		"time":     func(d *Delta) { d.Row.Started = time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC) },
		"attempts": func(d *Delta) { d.Attempts[0].Attempt = 9 },
		"points":   func(d *Delta) { d.Series.Step = d.Series.Step[1:] },
		"names":    func(d *Delta) { d.Series.Name[0] = 99 },
		"metric":   func(d *Delta) { d.Series.Names[0] = strings.Repeat("x", 10_000) },
		"content":  func(d *Delta) { d.Contents[d.Batch.Artifacts[0].SHA256] = []byte("?") },
		"missing":  func(d *Delta) { d.Contents = nil },
		"end":      func(d *Delta) { d.Batch.End = &End{Status: Done} },
		"stream":   func(d *Delta) { d.Batch.Lines[0].Stream = "x" },
		"marks":    func(d *Delta) { d.Batch.Marks = []records.Mark{{Count: 1 << 50}} },
		"source":   func(d *Delta) { d.Sources = []records.Source{{SHA256: "x"}} },
		"project":  func(d *Delta) { d.Project = "a\nb" },
		"ranges":   func(d *Delta) { d.Superseded = []Range{{3, 1}} },
	} {
		d, err := from.SourceOf(r.UID).Since(Extent{UID: r.UID})
		ok(t, err)
		d.Contents = map[string][]byte{}
		for _, a := range d.Batch.Artifacts {
			d.Contents[a.SHA256], err = from.Content(&a)
			ok(t, err)
		}
		spoil(d)
		if _, _, err := to.Merge(d, Arrival{}); !errors.As(err, new(*Misshapen)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if list, err := to.List(0); err != nil || len(list) > 0 {
		t.Errorf("there are %v, %v", list, err)
	}
}

// A run whose lease has ended is lost; one that goes on elsewhere cannot be stopped here.
func TestLease(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(fmt.Sprint(ahead), func(t *testing.T) { testLease(t, ahead) })
	}
}

// testLease has a run on a machine whose clock is ahead.
func testLease(t *testing.T, ahead time.Duration) {
	from, to := open(t, t.TempDir()), open(t, t.TempDir())
	r := begin(t, from, RunInfo{Started: time.Now().Add(ahead)})
	ok(t, r.BeginAttempt())
	d, err := from.SourceOf(r.UID).Since(Extent{UID: r.UID})
	ok(t, err)
	d.Now = d.Now.Add(ahead)
	_, err = send(t, from, to, d)
	ok(t, err)
	status := func() *Detail {
		s, err := to.Get(1)
		ok(t, err)
		return s
	}
	if s := status(); s.Status != Running || *s.Seconds > 60 {
		t.Errorf("it is %s, since %v s", s.Status, *s.Seconds)
	}
	if _, err := to.Agent(t.Context(), 1); !errors.As(err, new(*SilentError)) {
		t.Errorf("it can be stopped here: %v", err)
	}
	ok(t, to.exec("UPDATE runs SET leased = '2026-01-01T00:00:00.000000Z'"))
	if s := status(); s.Status != Lost {
		t.Errorf("it is %s", s.Status)
	}
	ok(t, to.markLost())
	bring(t, from, to, r.UID)
	if s := status(); s.Status != Running {
		t.Errorf("it is %s once it was heard of again", s.Status)
	}
}

// A run that has ended counts as running elsewhere until all of it is there, and a part alone is not taken for the whole.
func TestCopyInParts(t *testing.T) {
	from, to := open(t, t.TempDir()), open(t, t.TempDir())
	r := begin(t, from, RunInfo{})
	ok(t, r.BeginAttempt())
	b := &Batch{End: &End{Status: Done, Seconds: 3}}
	for i := range mostPoints + 10 {
		b.Points = append(b.Points, records.Point{Name: "x", Step: int64(i), Time: time.Unix(1, 0)})
	}
	ok(t, r.Write(b))
	source, have := from.SourceOf(r.UID), Extent{UID: r.UID}
	for _, want := range []Status{Running, Done} {
		d, err := source.Since(have)
		ok(t, err)
		_, err = send(t, from, to, d)
		ok(t, err)
		have = have.After(d)
		got, err := to.Get(1)
		ok(t, err)
		e, err := to.Extent(r.UID)
		ok(t, err)
		if got.Status != want || (e.Batch == 1) != (want == Done) {
			t.Errorf("it is %s, with batch %d", got.Status, e.Batch)
		}
	}
}
