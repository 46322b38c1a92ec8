package history

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// MarshalJSON gives the form of "drun metrics --json".
func (p Point) MarshalJSON() ([]byte, error) {
	return marshal(struct {
		Name  string    `json:"name"`
		Step  int64     `json:"step"`
		Rank  int       `json:"rank"`
		Value Float     `json:"value"`
		Time  time.Time `json:"time"`
	}{p.Name, p.Step, p.Rank, Float(p.Value), p.Time})
}

// Points returns the points of a run in the order of recording: of all
// metrics, or of those named. A name that the run has not is a *NotFound
// error that lists the known ones.
func (db *DB) Points(run int64, names ...string) ([]Point, error) {
	return db.points([]stretch{{run, 0, math.MaxInt64}}, "metrics", names)
}

// AttemptPoints returns what one attempt of a run recorded, whether or not a later one
// recorded it again.
func (db *DB) AttemptPoints(run int64, attempt int, names ...string) ([]Point, error) {
	d, err := db.Get(run)
	if err != nil {
		return nil, err
	}
	if attempt < 0 || attempt >= len(d.Attempts) {
		return nil, &NotFound{fmt.Sprintf("run %d has no attempt %d", run, attempt), fmt.Sprintf("it has 0 to %d", len(d.Attempts)-1)}
	}
	s := stretch{run: run, to: math.MaxInt64}
	err = db.read(func(rows *sql.Rows) error {
		var number int
		var points int64
		err := rows.Scan(&number, &points)
		switch number {
		case attempt:
			s.from = points
		case attempt + 1:
			s.to = points
		}
		return err
	}, "SELECT attempt, points FROM attempts WHERE run = ?", run)
	if err != nil {
		return nil, err
	}
	return db.points([]stretch{s}, "(SELECT * FROM metrics UNION ALL SELECT * FROM superseded_metrics)", names)
}

// LineagePoints returns the points of a run after those of the runs that it came from, of each
// up to the checkpoint that the next one was resumed from.
func (db *DB) LineagePoints(run int64, names ...string) ([]Point, error) {
	line := []stretch{{run, 0, math.MaxInt64}}
	for known := map[int64]bool{}; !known[run]; {
		known[run] = true
		err := db.read(func(rows *sql.Rows) error {
			s := stretch{}
			err := rows.Scan(&s.run, &s.to)
			line = append(line, s)
			run = s.run
			return err
		}, "SELECT parent, coalesce(parent_points, 9223372036854775807) FROM runs WHERE id = ? AND parent IS NOT NULL", run)
		if err != nil {
			return nil, err
		}
	}
	slices.Reverse(line)
	return db.points(line, "metrics", names)
}

// stretch is the points of a run by their numbers, after from and up to to.
type stretch struct{ run, from, to int64 }

func (db *DB) points(line []stretch, table string, names []string) ([]Point, error) {
	query, args := "SELECT name, step, rank, value, bits, exact, time FROM "+table+" WHERE run = ? AND seq > ? AND seq <= ?", []any(nil)
	if len(names) > 0 {
		set, err := json.Marshal(names)
		if err != nil {
			return nil, err
		}
		query += " AND name IN (SELECT value FROM json_each(?))"
		args = append(args, string(set))
	}
	points, known := []Point{}, map[string]bool{}
	for _, s := range line {
		err := db.read(func(rows *sql.Rows) error {
			var p Point
			var value sql.NullFloat64
			var bits sql.NullInt64
			err := rows.Scan(&p.Name, &p.Step, &p.Rank, &value, &bits, &p.Exact, timeColumn{&p.Time})
			p.Value = decode(value, bits)
			known[p.Name] = true
			points = append(points, p)
			return err
		}, query+" ORDER BY seq", append([]any{s.run, s.from, s.to}, args...)...)
		if err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		if !known[name] {
			return nil, db.noMetric(line[len(line)-1].run, name)
		}
	}
	return points, nil
}

// noMetric is the error for a name that a run has no points of.
func (db *DB) noMetric(run int64, name string) error {
	known, err := list(db, func(name *string) []any { return []any{name} }, "SELECT name FROM metric_summaries WHERE run = ? ORDER BY name", run)
	if err != nil {
		return err
	}
	near := "it recorded none"
	if len(known) > 0 {
		near = "it has: " + strings.Join(known, ", ")
	}
	return &NotFound{fmt.Sprintf("run %d has no metric %q", run, name), near}
}

// MinDownsample is the smallest number of points that Downsample can keep.
const MinDownsample = 4

// Downsample keeps at most n points of each metric and rank (n at least
// MinDownsample), in their order: it cuts them into n/4 equal buckets and
// keeps of each the first, the last, the smallest and the largest, so that
// spikes survive. NaN counts as the largest.
func Downsample(points []Point, n int) []Point {
	type series struct {
		name string
		rank int
	}
	bySeries := map[series][]int{}
	for i, p := range points {
		key := series{p.Name, p.Rank}
		bySeries[key] = append(bySeries[key], i)
	}
	keep := make([]bool, len(points))
	for _, at := range bySeries {
		buckets := max(n/4, 1)
		if len(at) <= n {
			buckets = len(at)
		}
		for b := range buckets {
			part := at[b*len(at)/buckets : (b+1)*len(at)/buckets]
			low, high := part[0], part[0]
			for _, i := range part {
				if less(points[i].Value, points[low].Value) {
					low = i
				}
				if less(points[high].Value, points[i].Value) {
					high = i
				}
			}
			keep[part[0]], keep[part[len(part)-1]], keep[low], keep[high] = true, true, true, true
		}
	}
	kept := []Point{}
	for i, p := range points {
		if keep[i] {
			kept = append(kept, p)
		}
	}
	return kept
}

func less(a, b float64) bool { return a < b || math.IsNaN(b) && !math.IsNaN(a) }
