package ui

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"sync"

	"drun/history"
	"drun/internal/exit"
)

// curve is a metric of a run for a chart.
type curve struct {
	Run       int64   `json:"run"`
	Name      string  `json:"name"`
	Status    string  `json:"status"`
	Points    int     `json:"points"`     // that were recorded
	NotFinite int     `json:"not_finite"` // of these
	X         numbers `json:"x"`
	Y         numbers `json:"y"`
	Low       numbers `json:"low,omitempty"` // of the ranks, where several logged it; y is then their mean
	High      numbers `json:"high,omitempty"`
	Smooth    numbers `json:"smooth,omitempty"`
}

// numbers are written as JSON with null for what is not finite.
type numbers []float64

// MarshalJSON gives that form.
func (n numbers) MarshalJSON() ([]byte, error) {
	out := append(make([]byte, 0, 10*len(n)), '[')
	for i, v := range n {
		if i > 0 {
			out = append(out, ',')
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			out = append(out, "null"...)
		} else {
			out = strconv.AppendFloat(out, v, 'g', -1, 64)
		}
	}
	return append(out, ']'), nil
}

// view is the part of curves that a chart shows, and how.
type view struct {
	metric, axis string
	from, to     float64
	points       int
	smooth       float64
}

const (
	defaultPoints = 1000
	mostPoints    = 100_000
)

func viewOf(values map[string][]string) (v view, err error) {
	get := func(name, otherwise string) string {
		if len(values[name]) > 0 && values[name][0] != "" {
			return values[name][0]
		}
		return otherwise
	}
	v.metric, v.axis = get("metric", ""), get("x", "step")
	if v.metric == "" {
		return v, exit.Errorf(exit.Usage, "want a metric, as metric=loss")
	}
	if v.axis != "step" && v.axis != "time" && v.axis != "relative" {
		return v, exit.Errorf(exit.Usage, "x=%s: want step, time or relative", v.axis)
	}
	points, err := number(values, "points", defaultPoints, history.MinDownsample, mostPoints)
	if err != nil {
		return v, err
	}
	v.points = int(points)
	for _, f := range []struct {
		name, otherwise string
		to              *float64
	}{{"from", "-Inf", &v.from}, {"to", "Inf", &v.to}, {"smooth", "0", &v.smooth}} {
		if *f.to, err = strconv.ParseFloat(get(f.name, f.otherwise), 64); err != nil || math.IsNaN(*f.to) {
			return v, exit.Errorf(exit.Usage, "%s=%s: want a number", f.name, get(f.name, ""))
		}
	}
	if v.smooth < 0 || v.smooth >= 1 {
		return v, exit.Errorf(exit.Usage, "smooth=%v: want a number from 0 to less than 1", v.smooth)
	}
	return v, nil
}

// curves are a metric of several runs, in their order; runs without it are left out.
func (s *Server) curves(db *history.DB, r *http.Request) (any, error) {
	values, err := parameters(r)
	if err != nil {
		return nil, err
	}
	v, err := viewOf(values)
	if err != nil {
		return nil, err
	}
	ids, err := findRuns(db, values)
	if err != nil {
		return nil, err
	}
	by, err := grouping(values)
	if err != nil {
		return nil, err
	}
	if by != nil {
		return s.bundles(db, ids, by, v)
	}
	return s.read(db, ids, v)
}

// readers is how many runs are read at once.
const readers = 2

func (s *Server) read(db *history.DB, ids []int64, v view) ([]*curve, error) {
	runs, err := db.Select(history.Selection{IDs: ids})
	if err != nil {
		return nil, err
	}
	byID := map[int64]*history.Summary{}
	for i := range runs {
		byID[runs[i].ID] = &runs[i]
	}
	found, errs := make([]*curve, len(ids)), make([]error, len(ids))
	var wait sync.WaitGroup
	places := make(chan int)
	for range readers {
		wait.Go(func() {
			for i := range places {
				run := byID[ids[i]]
				if run == nil {
					continue // removed since
				}
				errs[i] = s.cache.with(db, s.home, run.ID, v.metric, func(points *series) {
					if points != nil {
						found[i] = v.of(points, run)
					}
				})
			}
		})
	}
	for i := range ids {
		places <- i
	}
	close(places)
	wait.Wait()
	list := []*curve{}
	for _, c := range found {
		if c != nil {
			list = append(list, c)
		}
	}
	return list, errors.Join(errs...)
}

// of is what the view shows of a series.
func (v view) of(s *series, run *history.Summary) *curve {
	c := &curve{Run: run.ID, Name: run.Name, Status: string(run.Status), Points: len(s.step), NotFinite: s.notFinite}
	l := s.along(v.axis, run.Started)
	var smooth []float64
	if v.smooth > 0 {
		smooth = smoothed(l.y, v.smooth)
	}
	first, end := l.within(v.from, v.to)
	low, high := l.low, l.high
	if low == nil {
		low, high = l.y, l.y
	}
	kept := history.Extremes(low[first:end], high[first:end], v.points)
	for i := range kept {
		kept[i] += first
	}
	chosen := l.choose(kept)
	c.X, c.Y, c.Low, c.High = chosen.x, chosen.y, chosen.low, chosen.high
	if smooth != nil {
		c.Smooth = (&line{x: smooth}).choose(kept).x
	}
	return c
}
