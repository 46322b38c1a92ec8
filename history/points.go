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
	known, err := list(db, func(name *string) []any { return []any{name} }, "SELECT name FROM metric_summaries WHERE run = ? ORDER BY name", run)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			near := "it recorded none"
			if len(known) > 0 {
				near = "it has: " + strings.Join(known, ", ")
			}
			return nil, &NotFound{fmt.Sprintf("run %d has no metric %q", run, name), near}
		}
	}
	query, args := "SELECT name, step, rank, value, bits, exact, time FROM metrics WHERE run = ?", []any{run}
	if len(names) > 0 {
		set, err := json.Marshal(names)
		if err != nil {
			return nil, err
		}
		query += " AND name IN (SELECT value FROM json_each(?))"
		args = append(args, string(set))
	}
	points := []Point{}
	err = db.read(func(rows *sql.Rows) error {
		var p Point
		var value sql.NullFloat64
		var bits sql.NullInt64
		err := rows.Scan(&p.Name, &p.Step, &p.Rank, &value, &bits, &p.Exact, column{&p.Time})
		p.Value = decode(value, bits)
		points = append(points, p)
		return err
	}, query+" ORDER BY seq", args...)
	return points, err
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
