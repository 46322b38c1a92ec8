package history

import (
	"database/sql"
	"math"
	"time"
)

// Point is one recorded value of a metric.
type Point struct {
	Name  string
	Step  int64
	Rank  int
	Value float64 // NaN, infinities and -0.0 keep their bits
	Exact bool    // false: a timing, left out when runs are compared
	Time  time.Time
}

func (r *Run) putPoints(tx *sql.Tx, b *Batch) error {
	if len(b.Points) == 0 {
		return nil
	}
	var seq int64
	if err := tx.QueryRow("SELECT max(coalesce((SELECT max(seq) FROM metrics WHERE run = ?1), 0), coalesce((SELECT max(seq) FROM superseded_metrics WHERE run = ?1), 0))", r.ID).Scan(&seq); err != nil {
		return err
	}
	err := execute(tx, "INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", b.Points, func(p *Point) []any {
		seq++
		value, bits := encode(p.Value)
		return []any{r.ID, seq, p.Name, p.Step, p.Rank, value, bits, p.Exact, formatTime(p.Time)}
	})
	if err != nil {
		return err
	}
	summaries := map[string]*MetricSummary{}
	for _, p := range b.Points {
		if s := summaries[p.Name]; s != nil {
			s.add(p.Value)
		} else {
			v := Float(p.Value)
			summaries[p.Name] = &MetricSummary{First: v, Last: v, Min: v, Max: v, Count: 1}
		}
	}
	for name, s := range summaries {
		if err := mergeSummary(tx, r.ID, name, s); err != nil {
			return err
		}
	}
	return nil
}

func mergeSummary(tx *sql.Tx, run int64, name string, s *MetricSummary) error {
	column := func(v Float) any { value, _ := encode(float64(v)); return value }
	_, err := tx.Exec(`INSERT INTO metric_summaries VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET last = excluded.last, count = count + excluded.count,
		min = min(coalesce(min, excluded.min), coalesce(excluded.min, min)),
		max = max(coalesce(max, excluded.max), coalesce(excluded.max, max))`,
		run, name, column(s.First), column(s.Last), column(s.Min), column(s.Max), s.Count)
	return err
}

// encode gives the columns value and bits. SQLite stores NaN as NULL and may
// store -0.0 as an integer, so these two bring their bits along.
func encode(v float64) (value, bits any) {
	switch {
	case math.IsNaN(v):
		return nil, int64(math.Float64bits(v))
	case v == 0 && math.Signbit(v):
		return v, int64(math.Float64bits(v))
	}
	return v, nil
}

func decode(value sql.NullFloat64, bits sql.NullInt64) float64 {
	switch {
	case bits.Valid:
		return math.Float64frombits(uint64(bits.Int64))
	case !value.Valid:
		return math.NaN()
	}
	return value.Float64
}

// LogLine is one line that a rank, or the agent (rank -1), printed.
type LogLine struct {
	ID     int64     `json:"-"` // order of recording; set by reading
	Rank   int       `json:"rank"`
	Stream string    `json:"stream"` // "stdout" or "stderr"
	Time   time.Time `json:"time"`
	Text   string    `json:"text"` // without its end of line
}

func (r *Run) putLines(tx *sql.Tx, b *Batch) error {
	return execute(tx, "INSERT INTO logs (run, rank, stream, time, text) VALUES (?, ?, ?, ?, ?)", b.Lines,
		func(l *LogLine) []any { return []any{r.ID, l.Rank, l.Stream, formatTime(l.Time), l.Text} })
}
