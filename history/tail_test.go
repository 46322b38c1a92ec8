package history

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"drun/history/records"
)

func TestTail(t *testing.T) {
	home := t.TempDir()
	db, err := Open(home)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r, err := db.Begin(RunInfo{Recipe: "r.star", WorldSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := OpenReadOnly(home)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var got []string
	var at Cursor
	read := func() {
		t.Helper()
		var err error
		at, err = reader.Tail(r.ID, at, Names{Some: []string{"loss"}}, func() { got = nil },
			func(p *records.Point) { got = append(got, fmt.Sprint(p.Step, "=", p.Value)) })
		if err != nil {
			t.Fatal(err)
		}
		all, err := reader.Points(r.ID)
		if err != nil {
			t.Fatal(err)
		}
		want := []string(nil)
		for _, p := range all {
			if p.Name == "loss" {
				want = append(want, fmt.Sprint(p.Step, "=", p.Value))
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	if err := r.BeginAttempt(); err != nil {
		t.Fatal(err)
	}
	read()
	write := func(b *Batch) {
		t.Helper()
		if err := r.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	points := func(from, to int64, plus float64) *Batch {
		b := &Batch{}
		for step := from; step < to; step++ {
			b.Points = append(b.Points, records.Point{Name: "loss", Step: step, Value: float64(step) + plus, Time: now},
				records.Point{Name: "acc", Step: step, Time: now})
		}
		return b
	}
	for step := int64(0); step < 100; step += 7 { // so that batches fill blocks up in every way
		write(points(step, step+7, 0))
		read()
		read()
	}
	from := int64(3)
	write(&Batch{AttemptBegins: []AttemptBegin{{Attempt: 1, Started: now, Points: 210}},
		Supersedes: []Supersede{{Attempt: 1, FromStep: &from, After: 8, Before: 210}}})
	read()
	if len(got) != 4 {
		t.Errorf("%v are left of what was superseded", got)
	}
	write(points(4, 9, 0.5))
	read()
	time.Sleep(60 * time.Millisecond)
	stamp, taken := StampOf(home), time.Now()
	if !stamp.Settled(taken) {
		t.Error("the files are not at rest")
	}
	if write(points(9, 10, 0)); StampOf(home) == stamp {
		t.Error("a write has not changed the stamp")
	}
	if stamp := StampOf(home); stamp.Settled(stamp.latest) {
		t.Error("a stamp at the moment of a write is settled")
	}
}
