package history

import (
	"fmt"
	"testing"
	"time"

	"drun/history/records"
)

func BenchmarkShortRun(b *testing.B) {
	home := b.TempDir()
	for b.Loop() {
		db, err := Open(home)
		ok(b, err)
		r := begin(b, db, RunInfo{})
		ok(b, r.Write(&Batch{Params: []Param{{"lr", 0.1}}}))
		ok(b, r.AddSources([]records.Source{records.NewSource("hello.star", "recipe", []byte("x"))}))
		ok(b, r.BeginAttempt())
		ok(b, r.Write(&Batch{Lines: []LogLine{{Stream: "stdout", Time: time.Now(), Text: "hi"}}}))
		ok(b, finish(r, Done, 0, ""))
		ok(b, db.Close())
	}
}

func BenchmarkNewHome(b *testing.B) {
	dir := b.TempDir()
	for n := 0; b.Loop(); n++ {
		db, err := Open(fmt.Sprint(dir, "/", n))
		ok(b, err)
		ok(b, db.Close())
	}
}

func BenchmarkList1000Runs(b *testing.B) {
	db := open(b, b.TempDir())
	for range 1000 {
		r := begin(b, db, RunInfo{})
		ok(b, r.Write(&Batch{Params: []Param{{"lr", 0.1}, {"batch", 64}}}))
		ok(b, r.Write(&Batch{Batch: records.Batch{Points: []records.Point{{Name: "acc", Value: 0.5}, {Name: "loss", Value: 0.5}}}}))
		ok(b, finish(r, Done, 0, ""))
	}
	for b.Loop() {
		if list, err := db.List(0); err != nil || len(list) != 1000 {
			b.Fatal(err)
		}
	}
}

func BenchmarkMetrics(b *testing.B) {
	r := begin(b, open(b, b.TempDir()), RunInfo{})
	batch := make([]records.Point, 1000)
	for i := range batch {
		batch[i] = records.Point{Name: []string{"loss", "acc"}[i%2], Step: int64(i), Rank: 0, Value: float64(i) * 0.37, Exact: true, Time: time.Now()}
	}
	for b.Loop() {
		if err := r.Write(&Batch{Batch: records.Batch{Points: batch}}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "rows/s")
}
