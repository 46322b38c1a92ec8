package history

import (
	"cmp"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"drun/history/records"
	"drun/internal/each"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// Points returns the points of a run in the order of recording: of all metrics, or of those named. If the run lacks
// a name, the error is a *NotFound that lists the known ones.
func (db *DB) Points(run int64, names ...string) ([]records.Point, error) {
	return db.points([]stretch{{run, 0, math.MaxInt64}}, names)
}

// AttemptPoints returns what one attempt of a run recorded, whether or not a later one recorded it again.
func (db *DB) AttemptPoints(run int64, attempt int, names ...string) (_ []records.Point, err error) {
	defer try.Caught(&err)
	d := try.To(db.Get(run))
	if attempt < 0 || attempt >= len(d.Attempts) {
		return nil, &NotFound{fmt.Sprintf("run %d has no attempt %d", run, attempt), fmt.Sprintf("it has 0 to %d", len(d.Attempts)-1)}
	}
	s := stretch{run: run, to: math.MaxInt64}
	try.Ok(db.read(func(rows *sql.Rows) error {
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
	}, "SELECT attempt, points FROM attempts WHERE run = ?", run))
	type at struct {
		seq int64
		records.Point
	}
	var both []at
	for _, kind := range []bool{!superseded, superseded} {
		try.Ok(db.eachPoint(s, kind, names, func(seq int64, p *records.Point) { both = append(both, at{seq, *p}) }))
	}
	slices.SortFunc(both, func(a, b at) int { return cmp.Compare(a.seq, b.seq) })
	points := each.Of(both, func(p at) records.Point { return p.Point })
	return points, db.checkNames(run, points, names)
}

// LineagePoints returns the points of a run after those of the runs it came from, of each up to the checkpoint that
// the next was resumed from.
func (db *DB) LineagePoints(run int64, names ...string) (_ []records.Point, err error) {
	defer try.Caught(&err)
	line := []stretch{{run, 0, math.MaxInt64}}
	for known := map[int64]bool{}; !known[run]; {
		known[run] = true
		try.Ok(db.read(func(rows *sql.Rows) error {
			s := stretch{}
			err := rows.Scan(&s.run, &s.to)
			line = append(line, s)
			run = s.run
			return err
		}, "SELECT parent, coalesce(parent_points, 9223372036854775807) FROM runs WHERE id = ? AND parent IN (SELECT id FROM runs WHERE "+db.visible()+")", run))
	}
	slices.Reverse(line)
	return db.points(line, names)
}

// stretch is a range of a run's points by number: after from, up to and including to.
type stretch struct{ run, from, to int64 }

func (db *DB) points(line []stretch, names []string) ([]records.Point, error) {
	points := []records.Point{}
	for _, s := range line {
		if err := db.eachPoint(s, !superseded, names, func(_ int64, p *records.Point) { points = append(points, *p) }); err != nil {
			return nil, err
		}
	}
	return points, db.checkNames(line[len(line)-1].run, points, names)
}

// eachPoint calls fn with the points of a stretch, of all metrics or of those named.
func (db *DB) eachPoint(s stretch, superseded bool, names []string, fn func(seq int64, p *records.Point)) error {
	if len(names) == 0 {
		names = nil
	}
	err := blocks{db.sql, s.run}.named(superseded, s.from, s.to, names, func(seq int64, p *records.Point) {
		if p != nil {
			fn(seq, p)
		}
	})
	return sqldb.Wrap(db.path, err)
}

// named calls fn with the points after one number and up to another, with nil for those of metrics that are not
// among the names; nil: all are. fn must not keep the point.
func (t blocks) named(superseded bool, after, upTo int64, names []string, fn func(seq int64, p *records.Point)) (err error) {
	defer try.Caught(&err)
	query, args := "SELECT id, name FROM metric_names", []any(nil)
	if names != nil {
		query += " WHERE name IN (SELECT value FROM json_each(?))"
		args = append(args, sqldb.JSON(names))
	}
	wanted := try.To(sqldb.Map[int64, string](t.in, query, args...))
	var p records.Point
	return t.points(superseded, after, upTo, func(n *numbered) {
		name, ok := wanted[n.metric]
		if !ok {
			fn(n.seq, nil)
			return
		}
		p = records.Point{Name: name, Step: n.step, Rank: int(n.rank), Value: n.value, Exact: n.exact, Time: time.UnixMicro(n.time).UTC()}
		fn(n.seq, &p)
	})
}

// checkNames reports the first name that no point has.
func (db *DB) checkNames(run int64, points []records.Point, names []string) error {
	if len(names) == 0 {
		return nil
	}
	known := map[string]bool{}
	for i := range points {
		known[points[i].Name] = true
	}
	for _, name := range names {
		if !known[name] {
			return db.noMetric(run, name)
		}
	}
	return nil
}

func (db *DB) noMetric(run int64, name string) (err error) {
	defer try.Caught(&err)
	known := try.To(listColumn[string](db, "SELECT name FROM metric_summaries WHERE run = ? ORDER BY name", run))
	near := "it recorded none"
	if len(known) > 0 {
		near = "it has: " + strings.Join(known, ", ")
	}
	return &NotFound{fmt.Sprintf("run %d has no metric %q", run, name), near}
}

// MinDownsample is the smallest number of points that Downsample can keep.
const MinDownsample = 4

// Downsample keeps at most n points of each metric and rank (n at least MinDownsample), in order. It cuts them into
// n/4 equal buckets and keeps of each the first, the last, the smallest and the largest, so that spikes survive. If
// some are NaN, it cuts them into n/5 and also keeps each bucket's first NaN.
func Downsample(points []records.Point, n int) []records.Point {
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
		values := each.Of(at, func(k int) float64 { return points[k].Value })
		for _, i := range Extremes(values, values, n) {
			keep[at[i]] = true
		}
	}
	kept := []records.Point{}
	for i, p := range points {
		if keep[i] {
			kept = append(kept, p)
		}
	}
	return kept
}

// Extremes chooses at most n indexes (n at least MinDownsample), in order, as Downsample does. The values at an
// index range from low to high, which have the same length.
func Extremes(low, high []float64, n int) []int {
	count := len(low)
	high = high[:count]
	buckets, nans := max(n/4, 1), false
	if count <= n {
		buckets = count
	} else if n > MinDownsample {
		if nans = slices.ContainsFunc(low, math.IsNaN) || slices.ContainsFunc(high, math.IsNaN); nans {
			buckets = n / 5
		}
	}
	kept := make([]int, 0, min(5*buckets, count))
	for b := range buckets {
		first, last := b*count/buckets, (b+1)*count/buckets-1
		lowest, highest, nan := first, first, first
		for i := last; i >= first && nans; i-- {
			if math.IsNaN(low[i]) || math.IsNaN(high[i]) {
				nan = i
			}
		}
		least, most := low[first], high[first]
		for i := first + 1; i <= last; i++ { // few comparisons per index: a chart looks at millions
			if v := low[i]; v < least || least != least && v == v {
				lowest, least = i, v
			}
			if v := high[i]; v > most || most != most && v == v {
				highest, most = i, v
			}
		}
		some := [...]int{first, lowest, highest, last, nan}
		slices.Sort(some[:])
		kept = append(kept, slices.Compact(some[:])...)
	}
	return kept
}

func (r *Run) putPoints(tx *sql.Tx, b *Batch) (err error) {
	defer try.Caught(&err)
	if len(b.Points) == 0 {
		return nil
	}
	t := blocks{tx, r.ID}
	seq, last := try.To2(t.next())
	byStep := try.To(t.byStep())
	points, summaries, numbers := make([]numbered, len(b.Points)), map[int64]*summary{}, map[string]int64{}
	for i := range b.Points {
		p := &b.Points[i]
		metric, known := numbers[p.Name]
		if !known {
			metric = try.To(metricNumber(tx, p.Name))
			numbers[p.Name] = metric
		}
		points[i] = numbered{seq + int64(i), metric, p.Step, int64(p.Rank), p.Time.UnixMicro(), p.Value, p.Exact}
		add(summaries, &points[i], byStep)
	}
	try.Ok(t.append(tx, last, points))
	return t.merge(tx, summaries, byStep)
}

// encode gives the columns value and bits. SQLite stores NaN as NULL and may store -0.0 as an integer, so for these
// bits is set too.
func encode(v float64) (value, bits any) {
	switch {
	case math.IsNaN(v):
		return nil, int64(math.Float64bits(v))
	case v == 0 && math.Signbit(v):
		return v, int64(math.Float64bits(v))
	}
	return v, nil
}

// XY is a point of a curve.
type XY struct{ X, Y float64 }

// Columns reduces a curve to one value per column, for a chart of width columns (at least 2) that reaches from the
// smallest to the largest X shown. Each pair of columns shows the smallest and the largest value of its points, in
// their order, so that no spike is lost. Columns between points that lie further apart interpolate the line. NaN:
// there is no value, or it is not finite.
func Columns(points []XY, width int, from, to float64) []float64 {
	type extreme struct{ low, high XY }
	buckets := make([]*extreme, width/2)
	holes := make([]bool, len(buckets)) // buckets with non-finite values, which break the line
	scale := 0.0
	if to > from {
		scale = float64(len(buckets)) / (to - from)
	}
	for _, p := range points {
		if p.X < from || p.X > to {
			continue
		}
		b := min(int((p.X-from)*scale), len(buckets)-1)
		if math.IsNaN(p.Y) || math.IsInf(p.Y, 0) {
			holes[b] = true
			continue
		}
		switch e := buckets[b]; {
		case e == nil:
			buckets[b] = &extreme{p, p}
		case p.Y < e.low.Y:
			e.low = p
		case p.Y > e.high.Y:
			e.high = p
		}
	}
	columns := make([]float64, 2*len(buckets))
	last := -1 // latest bucket with points; -1: none, or a hole follows it
	for b, e := range buckets {
		columns[2*b], columns[2*b+1] = math.NaN(), math.NaN()
		if e == nil {
			if holes[b] {
				last = -1
			}
			continue
		}
		first, second := e.low, e.high
		if second.X < first.X {
			first, second = second, first
		}
		columns[2*b], columns[2*b+1] = first.Y, second.Y
		if last >= 0 {
			begin, end := columns[2*last+1], columns[2*b]
			for c := 2*last + 2; c < 2*b; c++ {
				part := float64(c-2*last-1) / float64(2*b-2*last-1)
				columns[c] = begin*(1-part) + end*part
			}
		}
		last = b
	}
	return columns
}
