package history

import (
	"fmt"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"drun/history/records"
)

// A run whose ranks started three times: the metrics are those of the state that it went on
// from and of what came after, and the rest stays visible.
func TestSupersededPoints(t *testing.T) {
	home := t.TempDir()
	r := begin(t, open(t, home), RunInfo{Recipe: "r.star", WorldSize: 2, Backend: "shm"})
	ok(t, r.BeginAttempt())
	points := func(list ...records.Point) *Batch {
		for i := range list {
			list[i].Time, list[i].Exact = time.Now(), true
		}
		return &Batch{Batch: records.Batch{Points: list}}
	}
	write := func(b *Batch) { t.Helper(); ok(t, r.Write(b)) }
	six := int64(6)
	write(points(records.Point{Name: "lr", Step: 0, Value: 0.5}, records.Point{Name: "loss", Step: 5, Value: 9}, records.Point{Name: "loss", Step: 6, Value: 8})) // 1 to 3, then a checkpoint
	write(points(records.Point{Name: "loss", Step: 7, Value: -100}, records.Point{Name: "late", Step: 7, Value: 1}))                                              // 4 and 5
	write(&Batch{AttemptEnds: []AttemptEnd{{0, Failed, 1, "lost"}}, AttemptBegins: []AttemptBegin{{1, time.Now(), 5}}})
	write(points(records.Point{Name: "lr", Step: 0, Value: 0.5}, records.Point{Name: "lr", Step: 0, Rank: 1, Value: 0.25})) // 6 and 7, before it restores
	write(&Batch{Supersedes: []Supersede{{1, &six, 3, 5}}, Repeats: []Repeat{{0, 5, 5, 7}, {1, 5, 5, 7}}})
	write(points(records.Point{Name: "loss", Step: 7, Value: 7}, records.Point{Name: "loss", Step: 8, Value: 6})) // 8 and 9
	write(&Batch{AttemptEnds: []AttemptEnd{{1, Failed, 1, "lost"}}, AttemptBegins: []AttemptBegin{{2, time.Now(), 9}}, Supersedes: []Supersede{{2, nil, 0, 9}}})
	write(points(records.Point{Name: "loss", Step: 5, Value: 9})) // 10
	ok(t, finish(r, Done, 0, ""))

	db := reader(t, home)
	d, err := db.Get(r.ID)
	ok(t, err)
	if got, want := fmt.Sprint(d.Metrics), fmt.Sprint(map[string]MetricSummary{"loss": {9, 9, 9, 9, 1}}); got != want {
		t.Errorf("metrics at the end = %v, want %v", got, want)
	}
	var from []any
	for _, a := range d.Attempts {
		if a.FromStep == nil {
			from = append(from, nil)
		} else {
			from = append(from, *a.FromStep)
		}
	}
	if want := []any{nil, six, nil}; !reflect.DeepEqual(from, want) {
		t.Errorf("attempts began at %v, want %v", from, want)
	}
	for attempt, want := range []string{
		"[lr:0:0=0.5 loss:5:0=9 loss:6:0=8 loss:7:0=-100 late:7:0=1]",
		"[lr:0:0=0.5 lr:0:1=0.25 loss:7:0=7 loss:8:0=6]",
		"[loss:5:0=9]",
	} {
		list, err := db.AttemptPoints(r.ID, attempt)
		ok(t, err)
		if got := short(list); got != want {
			t.Errorf("attempt %d recorded %s, want %s", attempt, got, want)
		}
	}
	if _, err := db.AttemptPoints(r.ID, 3); err == nil {
		t.Error("an attempt that was not made has points")
	}
}

// After the restart of a run, before its last end.
func TestSupersededSummaries(t *testing.T) {
	home := t.TempDir()
	r := begin(t, open(t, home), RunInfo{Recipe: "r.star", WorldSize: 1, Backend: "shm"})
	ok(t, r.BeginAttempt())
	now := time.Now()
	ok(t, r.Write(&Batch{Batch: records.Batch{Points: []records.Point{{Name: "a", Step: 0, Rank: 0, Value: 3, Exact: true, Time: now}, {Name: "b", Step: 0, Rank: 0, Value: 1, Exact: true, Time: now}, {Name: "a", Step: 1, Rank: 0, Value: 2, Exact: true, Time: now}, {Name: "a", Step: 2, Rank: 0, Value: -7, Exact: true, Time: now}, {Name: "a", Step: 3, Rank: 0, Value: 50, Exact: true, Time: now}}}}))
	step := int64(1)
	ok(t, r.Write(&Batch{AttemptBegins: []AttemptBegin{{1, now, 5}}, Supersedes: []Supersede{{1, &step, 3, 5}}}))
	db := reader(t, home)
	d, err := db.Get(r.ID)
	ok(t, err)
	if want := (map[string]MetricSummary{"a": {3, 2, 2, 3, 2}, "b": {1, 1, 1, 1, 1}}); !reflect.DeepEqual(d.Metrics, want) {
		t.Errorf("metrics = %v, want %v", d.Metrics, want)
	}
	list, err := db.Points(r.ID)
	ok(t, err)
	if got, want := short(list), "[a:0:0=3 b:0:0=1 a:1:0=2]"; got != want {
		t.Errorf("points = %s, want %s", got, want)
	}
	ok(t, r.Write(&Batch{Batch: records.Batch{Points: []records.Point{{Name: "a", Step: 2, Rank: 0, Value: -7, Exact: true, Time: now}}}}))
	list, err = db.Points(r.ID)
	ok(t, err)
	if got, want := short(list), "[a:0:0=3 b:0:0=1 a:1:0=2 a:2:0=-7]"; got != want {
		t.Errorf("points = %s, want %s", got, want)
	}
}

func short(points []records.Point) string {
	out := []string{}
	for _, p := range points {
		out = append(out, fmt.Sprintf("%s:%d:%d=%v", p.Name, p.Step, p.Rank, p.Value))
	}
	return fmt.Sprint(out)
}

// A run whose agent was killed while it forked can be taken up at once: the forked process lets go of the lock a moment later.
func TestReopenAfterAKillDuringAFork(t *testing.T) {
	db := open(t, t.TempDir())
	r := begin(t, db, RunInfo{})
	if _, _, err := db.Reopen(r.ID, RunInfo{}); err == nil || !strings.Contains(err.Error(), "is running") {
		t.Fatal(err)
	}
	killed := exec.Command("true")
	ok(t, killed.Run())
	ok(t, db.exec("UPDATE runs SET pid = ? WHERE id = ?", killed.Process.Pid, r.ID))
	time.AfterFunc(200*time.Millisecond, func() { r.lock.Close() })
	if _, past, err := db.Reopen(r.ID, RunInfo{}); err != nil {
		t.Error(err)
	} else if past == nil {
		t.Error("nothing of it is known")
	}
}

// A run that a sweep ended early and that goes on stays a cell of the sweep, and is no longer one that was ended early.
func TestReopenedCell(t *testing.T) {
	db := open(t, t.TempDir())
	r := begin(t, db, RunInfo{Sweep: &records.Sweep{Name: "s", Cells: 3}})
	ok(t, finish(r, Interrupted, 4, ""))
	ok(t, db.EndEarly(r.ID, "worse"))
	if d, err := db.Get(r.ID); err != nil || d.Status != StoppedEarly {
		t.Fatal(d, err)
	}
	next, _, err := db.Reopen(r.ID, RunInfo{})
	ok(t, err)
	ok(t, finish(next, Interrupted, 4, ""))
	d, err := db.Get(r.ID)
	ok(t, err)
	if d.Status != Interrupted || d.Sweep == nil || d.Sweep.Name != "s" || d.Sweep.Cells != 3 {
		t.Errorf("%s, %+v", d.Status, d.Sweep)
	}
}
