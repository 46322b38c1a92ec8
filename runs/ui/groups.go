package ui

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"slices"
	"time"

	"drun/history"
	"drun/history/query"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/try"
)

// group holds the runs that share a value of an expression.
type group struct {
	Value any     `json:"value"` // null: the runs have no value
	IDs   []int64 `json:"ids"`
	Cells []cell  `json:"cells,omitempty"` // one per column
}

// cell is what the runs of a group have in a column: their common value or, for numbers, the mean, the smallest and
// the largest. NaN and missing values are ignored.
type cell struct {
	Same any            `json:"same,omitempty"`
	Mean *records.Float `json:"mean,omitempty"`
	Min  *records.Float `json:"min,omitempty"`
	Max  *records.Float `json:"max,omitempty"`
}

// grouping parses the request parameter group; nil if there is none.
func grouping(values map[string][]string) (*query.Expr, error) {
	if len(values["group"]) == 0 || values["group"][0] == "" {
		return nil, nil
	}
	list := try.To(query.ParseList("group", values["group"][0]))
	if len(list) != 1 {
		return nil, exit.Errorf(exit.Usage, "group: want one expression, not %d with commas between them", len(list))
	}
	return list[0], nil
}

// groups divides runs by the value of an expression. The groups and their runs keep the order of ids.
func groups(db *history.DB, ids []int64, by *query.Expr, columns []*query.Expr) (_ []*group, err error) {
	defer try.Caught(&err)
	id := try.To(query.ParseList("columns", "id"))
	table := try.To(query.Table(db, ids, append(append(id, by), columns...)))
	all, byText, rows := []*group{}, map[string]*group{}, map[*group][][]any{}
	for _, row := range table.Rows {
		text := try.To(json.Marshal(row[1]))
		g := byText[string(text)]
		if g == nil {
			g = &group{Value: row[1]}
			byText[string(text)], all = g, append(all, g)
		}
		g.IDs, rows[g] = append(g.IDs, row[0].(*big.Int).Int64()), append(rows[g], row[2:])
	}
	for g, rows := range rows {
		for i := range columns {
			g.Cells = append(g.Cells, summarise(rows, i))
		}
	}
	return all, nil
}

// summarise computes the cell of a column, over the rows that have a value.
func summarise(rows [][]any, column int) (c cell) {
	var only any // the value of all rows so far, if they agree
	first, same := []byte(nil), true
	sum, n, low, high := 0.0, 0, math.Inf(1), math.Inf(-1)
	numbers := true
	for _, row := range rows {
		if row[column] == nil {
			continue
		}
		text := try.To(json.Marshal(row[column]))
		if first == nil {
			only, first = row[column], text
		}
		same = same && bytes.Equal(first, text)
		v := math.NaN()
		switch x := row[column].(type) {
		case *big.Int:
			v, _ = x.Float64()
		case records.Float:
			v = float64(x)
		default:
			numbers = false
		}
		if v == v {
			sum, n, low, high = sum+v, n+1, min(low, v), max(high, v)
		}
	}
	switch {
	case same:
		c.Same = only
	case numbers && n > 0:
		mean := records.Float(sum / float64(n))
		c.Mean, c.Min, c.Max = &mean, (*records.Float)(&low), (*records.Float)(&high)
	}
	return c
}

// bundle is a metric of all runs of a group, for a chart: the mean over runs, each counted once, in a band from the
// smallest to the largest value.
type bundle struct {
	Group any     `json:"group"`
	Runs  []int64 `json:"runs"`
	plotted

	from, width float64 // of the intervals; width 0: the bins are those of the points
	n, smoothed []float64
}

// bundles returns a metric of groups of runs; groups without it are skipped.
func (s *Server) bundles(db *history.DB, ids []int64, by *query.Expr, v view) (_ []*bundle, err error) {
	defer try.Caught(&err)
	all := try.To(groups(db, ids, by, nil))
	runs := try.To(db.Select(history.Selection{IDs: ids}))
	started := map[int64]time.Time{}
	for _, r := range runs {
		started[r.ID] = r.Started
	}
	list := []*bundle{}
	for _, g := range all {
		b := &bundle{Group: g.Value}
		var lay layout
		each := func(fn func(run int64, s *series, l *line)) error {
			for _, id := range g.IDs {
				v, err := s.ofRun(db, v, id)
				err = errors.Join(err, s.cache.with(db, s.home, id, v.metric, func(points *series) {
					if points != nil {
						fn(id, points, v.along(points, started[id]))
					}
				}))
				if err != nil {
					return err
				}
			}
			return nil
		}
		try.Ok(each(func(run int64, s *series, l *line) {
			b.Runs, b.Points, b.NotFinite = append(b.Runs, run), b.Points+len(s.step), b.NotFinite+s.notFinite
			lay.add(l, v)
		}))
		if len(b.Runs) == 0 {
			continue
		}
		b.begin(&lay, v)
		try.Ok(each(func(_ int64, _ *series, l *line) { b.add(l, v) }))
		b.end(v)
		list = append(list, b)
	}
	return list, nil
}

type layout struct {
	x       []float64 // of the first line, in the visible part
	unlike  bool      // lines have different bins
	from    float64
	to      float64
	longest int
}

func (v view) visible(l *line) (first, end int) {
	first, _ = slices.BinarySearch(l.x, v.from)
	end, _ = slices.BinarySearch(l.x, math.Nextafter(v.to, math.Inf(1)))
	return first, max(first, end)
}

func (y *layout) add(l *line, v view) {
	first, end := v.visible(l)
	if first == end {
		return
	}
	x := l.x[first:end]
	if y.x == nil {
		y.x, y.from, y.to = x, x[0], x[len(x)-1]
	}
	y.unlike = y.unlike || !slices.Equal(x, y.x)
	y.from, y.to, y.longest = min(y.from, x[0]), max(y.to, x[len(x)-1]), max(y.longest, len(x))
}

// begin determines the bins: those of the points if all lines share them and they are not too many, otherwise
// intervals of equal length.
func (b *bundle) begin(y *layout, v view) {
	if !y.unlike && y.longest <= v.points {
		b.X = y.x
	} else {
		n := min(y.longest, v.points)
		b.from, b.width = y.from, (y.to-y.from)/float64(n)
		for i := range n {
			b.X = append(b.X, b.from+(float64(i)+0.5)*b.width)
		}
	}
	zero := func() []float64 { return make([]float64, len(b.X)) }
	b.Y, b.n, b.smoothed = zero(), zero(), zero()
	b.Low, b.High = slices.Repeat(numbers{math.Inf(1)}, len(b.X)), slices.Repeat(numbers{math.Inf(-1)}, len(b.X))
	if v.smooth > 0 {
		b.Smooth = zero()
	}
}

func (b *bundle) add(l *line, v view) {
	var smooth []float64
	if v.smooth > 0 {
		smooth = smoothed(l.y, v.smooth)
	}
	first, end := v.visible(l)
	bin := func(i int) int {
		if b.width == 0 {
			return min(i-first, len(b.X)-1)
		}
		return min(int((l.x[i]-b.from)/b.width), len(b.X)-1)
	}
	spread := func(k int, y float64) {
		if !math.IsNaN(y) && !math.IsInf(y, 0) {
			b.Low[k], b.High[k] = min(b.Low[k], y), max(b.High[k], y)
		}
	}
	b.mean(l.y[first:end], bin, first, func(k int, y float64) {
		b.Y[k], b.n[k] = b.Y[k]+y, b.n[k]+1
		spread(k, y)
	})
	if smooth != nil {
		b.mean(smooth[first:end], bin, first, func(k int, y float64) { b.Smooth[k], b.smoothed[k] = b.Smooth[k]+y, b.smoothed[k]+1 })
	}
	low, high := l.low, l.high
	if low == nil {
		low, high = l.y, l.y
	}
	for i := first; i < end; i++ {
		spread(bin(i), low[i])
		spread(bin(i), high[i])
	}
}

// mean calls add with a run's mean at each bin. Between the intervals in which the run has points, the mean is on
// the straight line between them.
func (b *bundle) mean(ys []float64, bin func(int) int, first int, add func(bin int, y float64)) {
	last, before := -1, 0.0 // the latest bin with a value, and the value
	for i := 0; i < len(ys); {
		k, own, count := bin(first+i), 0.0, 0.0
		for ; i < len(ys) && bin(first+i) == k; i++ {
			if !math.IsNaN(ys[i]) && !math.IsInf(ys[i], 0) {
				own, count = own+ys[i], count+1
			}
		}
		if count == 0 {
			continue
		}
		own /= count
		if b.width > 0 && last >= 0 {
			for j := last + 1; j < k; j++ {
				fraction := float64(j-last) / float64(k-last)
				add(j, before*(1-fraction)+own*fraction)
			}
		}
		add(k, own)
		last, before = k, own
	}
}

// end divides the sums; bins without a value become NaN, a gap.
func (b *bundle) end(v view) {
	for i := range b.X {
		b.Y[i] /= b.n[i]
		if v.smooth > 0 {
			b.Smooth[i] /= b.smoothed[i]
		}
	}
}
