package history

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/mattn/go-sqlite3"

	"drun/history/records"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// Points are kept in blocks of up to 32, the rows of metric_blocks; the migration that makes the table explains its
// columns. A block has a pair of columns for each point: the value, an SQLite REAL, so that it is exact and any
// SQLite tool can read it through the view metrics, and an integer that packs everything else. Later batches fill
// up the newest block of a run. Blocks are in the order of recording, not by metric, so that a batch changes one
// place in the file.
//
// Measured with five metrics at each step, and with fifty in turn: a row per point took 68 bytes with names and
// times as text, and 33 with integers, most of it SQLite's overhead for rows and columns; in blocks a point takes
// 14 to 19, and a batch is written in a fifth of the time. A blob per block would be smaller still, but only drun
// could read it, through functions that SQLite calls for each point.
const slots = 32

// numbered is a point with its number in the run, from 1, and its metric's number in the file instead of its name.
type numbered struct {
	seq    int64
	metric int64
	step   int64
	rank   int64
	time   int64 // microseconds since 1970
	value  float64
	exact  bool
}

// blocks are the points of a run, as read and written over a connection.
type blocks struct {
	in  sqldb.Queryer
	run int64
}

// block is a row of metric_blocks.
type block struct {
	start  int64 // number of the point in slot 0, which is never empty
	points []numbered
}

const superseded = true

var blockColumns = func() string {
	var pairs [2][]string
	for k := range slots {
		pairs[0], pairs[1] = append(pairs[0], "p"+strconv.Itoa(k)), append(pairs[1], "v"+strconv.Itoa(k))
	}
	return "seq, metric, metrics, rank, ranks, step, steps, time, bits, " + strings.Join(pairs[0], ", ") + ", " + strings.Join(pairs[1], ", ")
}()

// Indexes of blockColumns.
const (
	firstBase = 1 // index of metric, metrics, rank, ranks, step, steps, time
	bitsAt    = 8
	firstP    = 9
	firstV    = firstP + slots
	columns   = firstV + slots
)

var errDamagedBlock = fmt.Errorf("a row of metric_blocks: %w", sqlite3.Error{Code: sqlite3.ErrCorrupt})

// each calls fn with the blocks that begin after one number and up to another, in order. fn must not keep its
// argument, which is reused.
func (t blocks) each(superseded bool, after, upTo int64, fn func(*block) error) error {
	var row, into [columns]any
	for i := range row {
		into[i] = &row[i]
	}
	b := &block{}
	return sqldb.Each(t.in, func(rows *sql.Rows) (err error) {
		try.Ok(rows.Scan(into[:]...))
		try.Ok(b.decode(&row))
		return fn(b)
	}, "SELECT "+blockColumns+" FROM metric_blocks WHERE run = ? AND superseded = ? AND seq > ? AND seq <= ? ORDER BY seq",
		t.run, superseded, after, upTo)
}

// points calls fn with the points after one number and up to another.
func (t blocks) points(superseded bool, after, upTo int64, fn func(*numbered)) error {
	return t.each(superseded, max(after-slots, 0), upTo, func(b *block) error {
		for i := range b.points {
			if p := &b.points[i]; p.seq > after && p.seq <= upTo {
				fn(p)
			}
		}
		return nil
	})
}

func (b *block) decode(row *[columns]any) error {
	var base [bitsAt]int64
	for i := range base {
		n, ok := row[i].(int64)
		if !ok {
			return errDamagedBlock
		}
		base[i] = n
	}
	b.start, b.points = base[0], b.points[:0]
	metric, metrics, rank, ranks, step, steps, at := base[1], base[2], base[3], base[4], base[5], base[6], base[7]
	if metrics < 1 || ranks < 1 || steps < 1 {
		return errDamagedBlock
	}
	var special map[int]int64
	if text, ok := row[bitsAt].(string); ok {
		if err := json.Unmarshal([]byte(text), &special); err != nil {
			return errDamagedBlock
		}
	}
	for k := range slots {
		if row[firstP+k] == nil {
			continue
		}
		p, ok := row[firstP+k].(int64)
		if !ok || p < 0 {
			return errDamagedBlock
		}
		n := numbered{seq: b.start + int64(k), exact: p&1 == 1}
		p >>= 1
		n.metric, p = metric+p%metrics, p/metrics
		n.rank, p = rank+p%ranks, p/ranks
		n.step, n.time = step+p%steps, at+p/steps
		switch v := row[firstV+k].(type) {
		case float64:
			n.value = v
		case nil:
			n.value = math.NaN()
		default:
			return errDamagedBlock
		}
		if exact, ok := special[k]; ok {
			n.value = math.Float64frombits(uint64(exact))
		}
		b.points = append(b.points, n)
	}
	return nil
}

// span is a range of numbers, both ends included.
type span struct{ low, high int64 }

func (s span) with(n int64) span { return span{min(s.low, n), max(s.high, n)} }

// count is how many numbers the span contains; 0: 2^64.
func (s span) count() uint64 { return uint64(s.high) - uint64(s.low) + 1 }

// bounds are the ranges of a block's points.
type bounds struct{ metric, rank, step, time span }

func boundsOf(p *numbered) bounds {
	return bounds{span{p.metric, p.metric}, span{p.rank, p.rank}, span{p.step, p.step}, span{p.time, p.time}}
}

func (b bounds) with(p *numbered) bounds {
	return bounds{b.metric.with(p.metric), b.rank.with(p.rank), b.step.with(p.step), b.time.with(p.time)}
}

// fit reports whether points within the bounds can be packed into positive integers.
func (b bounds) fit() bool {
	product := uint64(2)
	for _, s := range []span{b.metric, b.rank, b.step, b.time} {
		high, low := bits.Mul64(product, s.count())
		if high != 0 || low == 0 || low > 1<<63 {
			return false
		}
		product = low
	}
	return true
}

// pack makes the columns of the first block of points, and returns how many points it holds.
func pack(points []numbered) (row [columns]any, n int) {
	start, b := points[0].seq, boundsOf(&points[0])
	for n = 1; n < len(points) && points[n].seq-start < slots; n++ {
		wider := b.with(&points[n])
		if !wider.fit() {
			break
		}
		b = wider
	}
	metrics, ranks, steps := b.metric.count(), b.rank.count(), b.step.count()
	row[0] = start
	for i, v := range []int64{b.metric.low, int64(metrics), b.rank.low, int64(ranks), b.step.low, int64(steps), b.time.low} {
		row[firstBase+i] = v
	}
	var special map[int]int64
	for i := range points[:n] {
		p := &points[i]
		k := int(p.seq - start)
		packed := uint64(p.time) - uint64(b.time.low)
		packed = packed*steps + uint64(p.step) - uint64(b.step.low)
		packed = packed*ranks + uint64(p.rank-b.rank.low)
		packed = packed*metrics + uint64(p.metric-b.metric.low)
		packed <<= 1
		if p.exact {
			packed |= 1
		}
		value, exact := encode(p.value)
		if exact != nil {
			if special == nil {
				special = map[int]int64{}
			}
			special[k] = exact.(int64)
		}
		row[firstP+k], row[firstV+k] = int64(packed), value
	}
	if special != nil {
		text, _ := json.Marshal(special) // numbers only: it cannot fail
		row[bitsAt] = string(text)
	}
	return row, n
}

// put writes points, which must be in order, as blocks.
func (t blocks) put(tx *sql.Tx, superseded bool, points []numbered) (err error) {
	defer try.Caught(&err)
	if len(points) == 0 {
		return nil
	}
	insert := try.To(tx.Prepare("INSERT OR REPLACE INTO metric_blocks (run, superseded, " + blockColumns + ") VALUES (" +
		strings.TrimSuffix(strings.Repeat("?,", columns+2), ",") + ")"))
	defer insert.Close()
	args := make([]any, columns+2)
	args[0], args[1] = t.run, superseded
	for len(points) > 0 {
		row, n := pack(points)
		copy(args[2:], row[:])
		try.To(insert.Exec(args...))
		points = points[n:]
	}
	return nil
}

// next is the number of the run's next point; last is the block with the newest point that is not superseded.
func (t blocks) next() (next int64, last *block, err error) {
	defer try.Caught(&err)
	for _, kind := range []bool{superseded, !superseded} {
		var newest sql.NullInt64
		try.Ok(sqldb.Each(t.in, func(rows *sql.Rows) error { return rows.Scan(&newest) },
			"SELECT max(seq) FROM metric_blocks WHERE run = ? AND superseded = ?", t.run, kind))
		if !newest.Valid {
			continue
		}
		// Superseded points come in any order, so an earlier block may have a later point.
		try.Ok(t.each(kind, newest.Int64-slots, newest.Int64, func(b *block) error {
			next = max(next, b.points[len(b.points)-1].seq)
			last = b
			return nil
		}))
		if kind {
			last = nil
		}
	}
	return next + 1, last, nil
}

// append adds points whose numbers follow those of the run.
func (t blocks) append(tx *sql.Tx, last *block, points []numbered) error {
	if last != nil && len(points) > 0 && points[0].seq-last.start < slots {
		points = append(last.points, points...)
	}
	return t.put(tx, !superseded, points)
}

// window limits the memory for moving points.
const window = 1 << 16

// supersede marks the points in a range of numbers that chosen selects as superseded, and corrects their metrics'
// summaries.
func (t blocks) supersede(tx *sql.Tx, after, upTo int64, chosen func(*numbered) bool) (err error) {
	defer try.Caught(&err)
	metrics := map[int64]bool{}
	for from := max(after-slots, 0); from < upTo; from += window {
		var gone []numbered
		var left []block // the remaining points of blocks that lose some
		try.Ok(t.each(!superseded, from, min(from+window, upTo), func(b *block) error {
			n := len(gone)
			kept := block{start: b.start}
			for _, p := range b.points {
				if p.seq > after && p.seq <= upTo && chosen(&p) {
					gone = append(gone, p)
					metrics[p.metric] = true
				} else {
					kept.points = append(kept.points, p)
				}
			}
			if len(gone) > n {
				left = append(left, kept)
			}
			return nil
		}))
		for _, b := range left {
			try.To(tx.Exec("DELETE FROM metric_blocks WHERE run = ? AND superseded = 0 AND seq = ?", t.run, b.start))
			try.Ok(t.put(tx, !superseded, b.points))
		}
		try.Ok(t.put(tx, superseded, gone))
	}
	if len(metrics) == 0 {
		return nil
	}
	return t.summarise(tx, metrics)
}

func (t blocks) summarise(tx *sql.Tx, metrics map[int64]bool) (err error) {
	defer try.Caught(&err)
	byStep := try.To(t.byStep())
	summaries := map[int64]*summary{}
	try.Ok(t.points(!superseded, 0, math.MaxInt64, func(p *numbered) {
		if metrics[p.metric] {
			add(summaries, p, byStep)
		}
	}))
	for metric := range metrics {
		try.To(tx.Exec("DELETE FROM run_metrics WHERE run = ? AND metric = ?", t.run, metric))
	}
	return t.merge(tx, summaries, byStep)
}

// byStep reports whether the last value of the run's metrics is that of the highest step, as for a run that another tool logs,
// not the one recorded last.
func (t blocks) byStep() (is bool, err error) {
	err = sqldb.Each(t.in, func(rows *sql.Rows) error { return rows.Scan(&is) }, "SELECT pid = 0 FROM runs WHERE id = ?", t.run)
	return is, err
}

// summary sums up points of a metric. First and Last are values of the lowest rank that recorded any: in which order ranks record is
// chance. step and time are those of the last value.
type summary struct {
	MetricSummary
	rank, step, time int64
}

func add(summaries map[int64]*summary, p *numbered, byStep bool) {
	v := records.Float(p.value)
	s := summaries[p.metric]
	if s == nil {
		summaries[p.metric] = &summary{MetricSummary{First: v, Last: v, Min: v, Max: v, Count: 1}, p.rank, p.step, p.time}
		return
	}
	s.add(p.value)
	switch {
	case p.rank > s.rank, p.rank == s.rank && byStep && cmp.Or(cmp.Compare(p.step, s.step), cmp.Compare(p.time, s.time), cmp.Compare(v, s.Last)) < 0:
		return
	case p.rank < s.rank:
		s.First = v
	}
	s.Last, s.rank, s.step, s.time = v, p.rank, p.step, p.time
}

// merge adds later values to the run's summaries.
func (t blocks) merge(tx *sql.Tx, summaries map[int64]*summary, byStep bool) (err error) {
	defer try.Caught(&err)
	column := func(v records.Float) any { value, _ := encode(float64(v)); return value }
	later := "TRUE"
	if byStep {
		later = "(excluded.last_step, excluded.last_time, coalesce(excluded.last, -9e999)) >= (last_step, last_time, coalesce(last, -9e999))"
	}
	lower := "coalesce(excluded.rank < rank, FALSE)"
	last := lower + " OR coalesce(excluded.rank = rank, TRUE) AND " + later // an older drun did not note the rank
	merge := try.To(tx.Prepare(`INSERT INTO run_metrics (run, metric, first, last, min, max, count, last_step, last_time, rank) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET first = iif(` + lower + `, excluded.first, first), last = iif(` + last + `, excluded.last, last),
		last_step = iif(` + last + `, excluded.last_step, last_step), last_time = iif(` + last + `, excluded.last_time, last_time),
		count = count + excluded.count, rank = min(rank, excluded.rank),
		min = min(coalesce(min, excluded.min), coalesce(excluded.min, min)),
		max = max(coalesce(max, excluded.max), coalesce(excluded.max, max))`))
	defer merge.Close()
	for metric, s := range summaries {
		try.To(merge.Exec(t.run, metric, column(s.First), column(s.Last), column(s.Min), column(s.Max), s.Count, s.step, s.time, s.rank))
	}
	return nil
}

// metricNumber is the number of a metric in the file; a new one gets one.
func metricNumber(tx *sql.Tx, name string) (id int64, err error) {
	err = tx.QueryRow("SELECT id FROM metric_names WHERE name = ?", name).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		err = tx.QueryRow("INSERT INTO metric_names (name) VALUES (?) RETURNING id", name).Scan(&id)
	}
	return id, err
}
