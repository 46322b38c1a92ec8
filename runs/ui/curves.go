package ui

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"drun/history"
	"drun/internal/exit"
	"drun/internal/try"
)

// curve is a metric of a run, for a chart.
type curve struct {
	Run    int64  `json:"run"`
	Name   string `json:"name"`
	Status string `json:"status"`
	plotted

	Seen  string   `json:"seen,omitempty"`  // identifies this state, for events
	After string   `json:"after,omitempty"` // in an event: the state that it follows; the points from since on are replaced by these
	Since *float64 `json:"since,omitempty"`
}

// plotted is what a chart draws of a run, or of a group of them.
type plotted struct {
	Points    int     `json:"points"`     // points recorded
	NotFinite int     `json:"not_finite"` // points that are not finite
	X         numbers `json:"x"`
	Y         numbers `json:"y"`
	Low       numbers `json:"low,omitempty"` // of several ranks or runs; y is then their mean
	High      numbers `json:"high,omitempty"`
	Smooth    numbers `json:"smooth,omitempty"`
}

// numbers are written as JSON with null for values that are not finite.
type numbers []float64

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

// view is the part of curves that a chart shows, and in what form.
type view struct {
	metric, axis string
	from, to     float64
	points       int
	smooth       float64
	over         *line // of one run: the metric that is the axis, by step; nil: the axis is another
}

// byMetric begins the name of an axis that is a metric.
const byMetric = "metric:"

const (
	defaultPoints = 1000
	mostPoints    = 100_000
)

func viewOf(r *request) (v view, err error) {
	get := func(name, otherwise string) string { return cmp.Or(r.values.Get(name), otherwise) }
	v.metric, v.axis = get("metric", ""), get("x", "step")
	if v.axis != "step" && v.axis != "time" && v.axis != "relative" && !strings.HasPrefix(v.axis, byMetric) {
		return v, exit.Errorf(exit.Usage, "x=%s: want step, time or relative, or a metric as %sNAME", v.axis, byMetric)
	}
	v.points = int(r.number("points", defaultPoints, history.MinDownsample, mostPoints))
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

// curves returns a metric of several runs, in their order; runs without it are skipped.
func (s *Server) curves(db *history.DB, r *request) (any, error) {
	v := try.To(viewOf(r))
	if v.metric == "" {
		return nil, exit.Errorf(exit.Usage, "want a metric, as metric=loss")
	}
	ids := try.To(findRuns(db, r.values))
	by := try.To(grouping(r.values))
	if by != nil {
		return s.bundles(db, ids, by, v)
	}
	return s.read(db, ids, v)
}

// readers is how many runs are read at a time.
const readers = 2

func (s *Server) read(db *history.DB, ids []int64, v view) ([]*curve, error) {
	runs := try.To(db.Select(history.Selection{IDs: ids}))
	byID := map[int64]*history.Summary{}
	for i := range runs {
		byID[runs[i].ID] = &runs[i]
	}
	found := make([]*curve, len(ids))
	var reading errgroup.Group
	reading.SetLimit(readers)
	for i, id := range ids {
		run := byID[id]
		if run == nil {
			continue // it has since been removed
		}
		reading.Go(func() error {
			v, err := s.ofRun(db, v, run.ID)
			return errors.Join(err, s.cache.with(db, s.home, run.ID, v.metric, func(points *series) {
				if points != nil {
					found[i] = v.of(points, run)
				}
			}))
		})
	}
	err := reading.Wait()
	return slices.DeleteFunc(found, func(c *curve) bool { return c == nil }), err
}

// ofRun is the view of a run, for which a metric that is the axis is read.
func (s *Server) ofRun(db *history.DB, v view, run int64) (view, error) {
	metric, is := strings.CutPrefix(v.axis, byMetric)
	if !is {
		return v, nil
	}
	v.over = &line{}
	return v, s.cache.with(db, s.home, run, metric, func(points *series) {
		if points != nil {
			l := points.along("step", time.Time{})
			v.over = &line{x: slices.Clone(l.x), y: slices.Clone(l.y)}
		}
	})
}

// along places a series along the axis of the view.
func (v view) along(s *series, started time.Time) *line {
	if v.over == nil {
		return s.along(v.axis, started)
	}
	l, x := s.along("step", started), []float64(nil)
	common := []int{}
	for i, step := range l.x {
		if k, found := slices.BinarySearch(v.over.x, step); found && !math.IsNaN(v.over.y[k]) && !math.IsInf(v.over.y[k], 0) {
			common, x = append(common, i), append(x, v.over.y[k])
		}
	}
	l = l.choose(common)
	l.x = x
	return l.choose(ordered(x))
}

// of returns what the view shows of a series.
func (v view) of(s *series, run *history.Summary) *curve {
	c := s.head(run)
	l := v.along(s, run.Started)
	c.Seen = s.state(len(s.step), l).String()
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

func (s *series) state(points int, l *line) state { return state{s.reading, points, l.low != nil} }

// head returns a curve without its points.
func (s *series) head(run *history.Summary) *curve {
	return &curve{Run: run.ID, Name: run.Name, Status: string(run.Status), plotted: plotted{Points: len(s.step), NotFinite: s.notFinite}}
}

// state identifies what a chart shows: the first points of a reading, and whether they have a band.
type state struct {
	reading int64
	points  int
	band    bool
}

func (s state) String() string { return fmt.Sprintf("%d.%d.%t", s.reading, s.points, s.band) }

// stateOf parses the name of a state; an invalid name gives a state of no series.
func stateOf(text string) (s state) {
	if _, err := fmt.Sscanf(text, "%d.%d.%t", &s.reading, &s.points, &s.band); err != nil {
		return state{}
	}
	return s
}

// after returns what the view shows of a series after a state: everything from the first place with anything new.
// It is nil if the state is not one of this series, or if that would be too much.
func (v view) after(seen state, s *series, run *history.Summary) *curve {
	if v.over != nil {
		return nil
	}
	l := s.along(v.axis, run.Started)
	if points := seen.points; points < 0 || points >= len(s.step) || seen != s.state(points, l) {
		return nil
	}
	// Points of one step are merged: a new one changes its step, and nothing before it.
	least := slices.Min(s.step[seen.points:])
	started, since := run.Started.UnixMicro(), math.Inf(1)
	for i, step := range s.step {
		if i < seen.points && (step < least || v.axis != "step" && s.rank == nil) {
			continue
		}
		switch v.axis {
		case "step":
			since = min(since, float64(step))
		case "time":
			since = min(since, float64(s.at[i])/1e6)
		default:
			since = min(since, float64(s.at[i]-started)/1e6)
		}
	}
	first, _ := slices.BinarySearch(l.x, since)
	if len(l.x)-first > v.points {
		return nil
	}
	c := s.head(run)
	c.Seen, c.After, c.Since = s.state(len(s.step), l).String(), seen.String(), &since
	c.X, c.Y = l.x[first:], l.y[first:]
	if l.low != nil {
		c.Low, c.High = l.low[first:], l.high[first:]
	}
	if v.smooth > 0 {
		c.Smooth = smoothed(l.y, v.smooth)[first:]
	}
	return c
}
