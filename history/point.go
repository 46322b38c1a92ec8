package history

import (
	"database/sql"
	"math"

	"drun/internal/try"
)

func (r *Run) putPoints(tx *sql.Tx, b *Batch) (err error) {
	defer try.Caught(&err)
	if len(b.Points) == 0 {
		return nil
	}
	t := blocks{tx, r.ID}
	seq, last := try.To2(t.next())
	numbers := try.To(newMetricNumbers(tx))
	defer numbers.close()
	points, summaries := make([]numbered, len(b.Points)), map[int64]*MetricSummary{}
	for i := range b.Points {
		p := &b.Points[i]
		metric := try.To(numbers.of(p.Name))
		points[i] = numbered{seq + int64(i), metric, p.Step, int64(p.Rank), p.Time.UnixMicro(), p.Value, p.Exact}
		add(summaries, metric, p.Value)
	}
	try.Ok(t.append(tx, last, points))
	return t.merge(tx, summaries)
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
