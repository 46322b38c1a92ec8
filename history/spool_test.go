package history

import (
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"drun/history/records"
)

// everything is a batch that has something of each kind.
func everything() *Batch {
	huge, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	score, took := records.Float(0.25), 1.5
	when := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	return &Batch{
		Params:      []Param{{"lr", 0.1}, {"n", int64(7)}, {"huge", huge}, {"none", nil}, {"on", true}, {"text", "a é"}, {"api_key", Secret{}}},
		Progress:    []records.Progress{{Label: "epoch", Current: 3, Total: 9, Began: when, Time: when.Add(time.Second)}},
		Snapshots:   []records.Snapshot{{Time: when, Reason: "failed", Ranks: []records.RankState{{Rank: 1, State: "waiting", Recent: []records.PastCall{{Call: "c", Seconds: &took}}}}}},
		Lines:       []LogLine{{0, 1, "stderr", when, "bytes \xff"}},
		Checkpoints: []Checkpoint{{Step: 3, Bytes: 9, Score: &score, Time: when, Points: 2}},
		End:         &End{Failed, 5, "why", 2.5},
		Batch: records.Batch{Plugins: []records.Plugin{{Name: "gloo", Version: "1", Path: "/x", SHA256: "abc"}},
			Ranks:     []records.RankPlace{{Rank: 1, Node: 2, LocalRank: 3, Host: "host", Threads: 4, Kernels: "avx2"}},
			Usage:     []records.Usage{{Attempt: 1, Rank: 2, Time: when, CPU: 3.5, Resident: 0, Peak: 5, Collectives: 6.5, Waiting: 7.5}, {Attempt: 0, Rank: 2, Time: when, CPU: 3.5, Resident: 4, Peak: 5, Collectives: 6.5, Waiting: 7.5}},
			DataFiles: []records.DataFile{{Path: "x.csv", SHA256: "abc", Bytes: 9}, {Path: "x.csv", SHA256: "abd", Bytes: 9}, {Path: "x.csv", SHA256: "abc", Bytes: 9}},
			Copies:    []records.Copies{{Attempt: 1, Rank: 2, Position: "a.star:3:4", Call: "matmul", Uploads: 5, UploadedBytes: 6, Downloads: 7, DownloadedBytes: 8}},
			Tags:      []string{"b", "a"},
			Artifacts: []records.Artifact{{Name: "a", Kind: "text", Data: []byte("x"), Time: when}, {Name: "b", Step: new(int64), Kind: "text", Data: []byte("x"), Time: when}, {Name: "a", Kind: "bytes", Data: []byte("y"), Time: when}},
			Notes:     []records.Note{{Time: when, Text: "note"}},
			Points:    []records.Point{{Name: "x", Step: 1, Rank: 2, Value: math.Float64frombits(0x7ff8000000000123), Exact: false, Time: when}, {Name: "x", Step: 2, Rank: 2, Value: math.Copysign(0, -1), Exact: true, Time: when}, {Name: "x", Step: 3, Rank: 0, Value: math.Inf(-1), Exact: true, Time: when}},
		},
	}
}

// content is all that a history has of a run.
func content(t *testing.T, db *DB, id int64) string {
	t.Helper()
	d, err := db.Get(id)
	ok(t, err)
	points, err := db.Points(id)
	ok(t, err)
	text := fmt.Sprintf("%s %s %v %q %d %v %v %v %v %v %v %v %v %v %v %v", d.Name, d.Status, *d.ExitCode, d.Error, len(d.Sources), d.Params, d.Plugins, d.Ranks, d.Usage, d.DataFiles, d.Copies, d.Tags, d.Notes, d.Metrics, d.Attempts[0].Status, *d.Seconds)
	for _, s := range d.Snapshots {
		for _, k := range s.Ranks {
			for _, c := range k.Recent {
				text += fmt.Sprint(s.Time, s.Reason, k.Rank, k.State, c.Call, *c.Seconds)
			}
		}
	}
	for _, c := range d.Checkpoints {
		text += fmt.Sprint(c.Step, c.Bytes, *c.Score, c.Time)
	}
	for _, p := range points {
		text += fmt.Sprintf(" %s %d %d %x %v %v", p.Name, p.Step, p.Rank, math.Float64bits(p.Value), p.Exact, p.Time)
	}
	counted, err := allRows(db.sql, fmt.Sprint("SELECT step, points FROM checkpoints WHERE run = ", id))
	ok(t, err)
	text += fmt.Sprint(counted)
	kept, err := db.Artifacts(id)
	ok(t, err)
	for _, a := range kept {
		data, err := db.Content(&a)
		ok(t, err)
		text += fmt.Sprintf(" %s %d %s %d %s", a.Name, stepOf(&a), a.Kind, a.Bytes, data)
	}
	_, err = db.Logs(id, LogFilter{}, func(l LogLine) error {
		text += fmt.Sprintf(" %d %s %v %q", l.Rank, l.Stream, l.Time, l.Text)
		return nil
	})
	ok(t, err)
	return text
}

func TestSpooledBatchesKeepEverything(t *testing.T) {
	b := everything()
	b.Number = 3
	data, err := encodeBatch(b)
	ok(t, err)
	got, err := decodeBatch(data[frameSize:])
	ok(t, err)
	for i := range b.Points { // NaN is not equal to itself
		if math.Float64bits(b.Points[i].Value) != math.Float64bits(got.Points[i].Value) {
			t.Errorf("%v came back as %v", b.Points[i], got.Points[i])
		}
		b.Points[i].Value, got.Points[i].Value = 0, 0
	}
	if !reflect.DeepEqual(b, got) {
		t.Errorf("got %+v\nwant %+v", got, b)
	}
}

// What is written from the spool is what would have been written, once, however
// often and by whomever it is tried.
func TestSpool(t *testing.T) {
	for _, by := range []string{"the run", "the next process", "a reader of a run marked lost", "twice"} {
		t.Run(by, func(t *testing.T) {
			want, got := t.TempDir(), t.TempDir()
			make := func(home string) *Run {
				r := begin(t, open(t, home), RunInfo{Name: "x"})
				ok(t, r.BeginAttempt())
				ok(t, r.Write(&Batch{Batch: records.Batch{Points: []records.Point{{Name: "x", Exact: true, Time: time.Unix(1, 0)}}}}))
				return r
			}
			direct, r := make(want), make(got)
			first := &Batch{Batch: records.Batch{Points: []records.Point{{Name: "x", Step: 9, Value: 9, Time: time.Unix(2, 0)}}}}
			second := everything()
			ok(t, direct.Write(&Batch{Batch: records.Batch{Points: first.Points}}))
			ok(t, direct.Write(everything()))

			ok(t, r.Spool(first))
			ok(t, r.Spool(second))
			path := r.Spooled()
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info, err)
			}
			if by == "twice" { // a write under way came through though it was spooled
				ok(t, r.Write(first))
			}
			switch by {
			case "a reader of a run marked lost": // by a process that had looked for spools just before the agent left
				r.Leave()
				_, err := r.db.sql.Exec("UPDATE runs SET status = 'lost'")
				ok(t, err)
				reader(t, got)
			case "the next process":
				data, err := os.ReadFile(path)
				ok(t, err)
				file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
				ok(t, err)
				_, err = file.Write(data[:20]) // torn
				ok(t, err)
				file.Close()
				open(t, got)
				if d, err := reader(t, got).Get(r.ID); err != nil || d.Status != Running || d.Metrics["x"].Count != 1 {
					t.Errorf("the spool of a run whose agent lives was written: %+v, %v", d, err)
				}
				r.Leave()
				reader(t, got)
			default:
				for more := true; more; {
					var err error
					more, err = r.Unspool()
					ok(t, err)
				}
			}
			if a, b := content(t, reader(t, want), 1), content(t, reader(t, got), 1); a != b {
				t.Errorf("got %s\nwant %s", b, a)
			}
			if left, _ := filepath.Glob(filepath.Join(got, "spool", "*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// Who reads while the history is locked is told which runs it lacks records of.
func TestReadersKnowWhatWaits(t *testing.T) {
	home := t.TempDir()
	db := open(t, home)
	r := begin(t, db, RunInfo{})
	ok(t, r.Spool(everything()))
	if d := reader(t, home); len(d.Waiting) > 0 {
		t.Errorf("a run that is on: %v", d.Waiting)
	}
	r.Leave()
	tx, err := db.sql.Begin() // takes the lock
	ok(t, err)
	if d := reader(t, home); !slices.Equal(d.Waiting, []int64{r.ID}) {
		t.Errorf("got %v", d.Waiting)
	}
	ok(t, tx.Rollback())
	if d := reader(t, home); len(d.Waiting) > 0 {
		t.Errorf("unlocked: %v", d.Waiting)
	}
}

// The disk is full, and the run's end is recorded all the same.
func TestFullDiskHasRoomForTheEnd(t *testing.T) {
	home := smallDisk(t, "1m")
	db := open(t, home)
	r := begin(t, db, RunInfo{})
	ok(t, r.BeginAttempt())
	_, err := fill(t, r)
	storage(t, err, "disk is full")
	ok(t, os.WriteFile(filepath.Join(home, "more"), nil, 0o600))
	junk, err := os.OpenFile(filepath.Join(home, "more"), os.O_WRONLY, 0)
	ok(t, err)
	for err == nil {
		_, err = junk.Write(make([]byte, 4096))
	}
	junk.Close()
	for err = nil; err == nil; { // what is left where records that failed have been
		err = r.Write(&Batch{Lines: []LogLine{{Stream: "stdout", Time: time.Now(), Text: "x"}}})
	}
	storage(t, err, "history.db could not grow: the disk is full")
	written := err.Error()
	for err = nil; err == nil; { // what is appended instead while another process has the history locked fails alike
		err = r.Spool(&Batch{Lines: []LogLine{{Stream: "stdout", Time: time.Now(), Text: "x"}}})
	}
	if storage(t, err, "disk is full"); err.Error() != written {
		t.Errorf("the spool says %q, the history %q", err, written)
	}
	ok(t, r.queue.file.Truncate(0)) // as its last batch is not to be written later
	ok(t, finish(r, Failed, 7, "the disk is full"))
	if d, err := reader(t, home).Get(r.ID); err != nil || d.Status != Failed || *d.ExitCode != 7 || d.Attempts[0].Status != Failed {
		t.Errorf("%+v, %v", d, err)
	}
}

// An older drun kept one progress, and named the fields of marks otherwise.
func TestSpoolOfAnOlderDrun(t *testing.T) {
	body, err := spoolEncoder.Marshal(map[string]any{"Number": 3, "Tags": []string{"a"}, "Progress": map[string]any{"label": "epoch", "current": 7},
		"Marks": []any{map[string]any{"Attempt": 1, "Seq": 2, "Name": "loss", "Step": 3, "Updates": 4, "StepBy": 5, "UpdatesBy": 6, "Count": 7}}})
	ok(t, err)
	b, err := decodeBatch(body)
	ok(t, err)
	if want := (records.Mark{Attempt: 1, Seq: 2, Name: "loss", Step: 3, Updates: 4, StepBy: 5, UpdatesBy: 6, Count: 7}); b.Number != 3 || !slices.Equal(b.Tags, []string{"a"}) || !slices.Equal(b.Marks, []records.Mark{want}) {
		t.Errorf("got %+v", b)
	}
}
