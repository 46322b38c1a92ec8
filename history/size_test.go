package history

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"drun/history/records"
)

// pointSize records the points of a recipe and gives the bytes of database that each takes.
func pointSize(t testing.TB, runs, batch int, point func(i int) records.Point) float64 {
	n := 400 * batch
	home := t.TempDir()
	db := open(t, home)
	all := make([]*Run, runs)
	for i := range all {
		all[i] = begin(t, db, RunInfo{})
	}
	size := func() int64 {
		_, err := db.sql.Exec("PRAGMA wal_checkpoint(TRUNCATE)")
		ok(t, err)
		info, err := os.Stat(db.path)
		ok(t, err)
		return info.Size()
	}
	before := size()
	for at := 0; at < n; at += batch {
		points := make([]records.Point, batch)
		for i := range points {
			points[i] = point(at + i)
		}
		for _, r := range all {
			ok(t, r.Write(&Batch{Batch: records.Batch{Points: points}}))
		}
	}
	return float64(size()-before) / float64(n*runs)
}

// A point takes at most 24 bytes, however many runs record at once, and however fast they are.
func TestSizeOfAPoint(t *testing.T) {
	if testing.Short() {
		t.Skip("it computes on one goroutine")
	}
	random := rand.New(rand.NewPCG(1, 2))
	start := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	for _, c := range []struct {
		name  string
		every time.Duration // a step
		batch int           // points
	}{{"fast", 50 * time.Microsecond, 100}, {"slow", time.Second, 5}, {"very slow", time.Minute, 5}} {
		for _, runs := range []int{1, 3} {
			steady := pointSize(t, runs, c.batch, func(i int) records.Point {
				at := start.Add(time.Duration(i/5)*c.every + time.Duration(random.IntN(9000))*time.Nanosecond)
				return records.Point{Name: fmt.Sprint("metric", i%5), Step: int64(i / 5), Rank: 0, Value: random.NormFloat64(), Exact: true, Time: at}
			})
			inTurn := pointSize(t, runs, c.batch, func(i int) records.Point {
				return records.Point{Name: fmt.Sprint("metric", i%50), Step: int64(i / 50), Rank: 0, Value: random.NormFloat64(), Exact: true, Time: start.Add(time.Duration(i) * c.every)}
			})
			t.Logf("%s, %d runs: steady steps with 5 metrics %.1f bytes, 50 names in turn %.1f", c.name, runs, steady, inTurn)
			if max(steady, inTurn) > 24 {
				t.Error("that is more than 24")
			}
		}
	}
}
