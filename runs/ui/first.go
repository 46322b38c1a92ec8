package ui

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"drun/history"
	"drun/history/records"
	"drun/internal/try"
)

// divergence is the first point at which two runs differ; without a metric they do not.
type divergence struct {
	Metric string        `json:"metric"`
	Step   int64         `json:"step"`
	Rank   int32         `json:"rank"`
	A      records.Float `json:"a"`
	B      records.Float `json:"b"`
}

// firstDifference finds it in the metrics that both runs have.
func (s *Server) firstDifference(db *history.DB, r *request) (any, error) {
	a, b := try.To(db.Find(r.PathValue("run"))), try.To(db.Find(r.values.Get("with")))
	runs := try.To(db.Select(history.Selection{IDs: []int64{a, b}, Metrics: history.Names{All: true}}))
	first := &divergence{Step: math.MaxInt64}
	if len(runs) < 2 { // a run and itself
		return &divergence{}, nil
	}
	for _, metric := range slices.Sorted(maps.Keys(runs[0].Metrics)) {
		if _, both := runs[1].Metrics[metric]; !both {
			continue
		}
		x, y := try.To(s.points(db, a, metric)), try.To(s.points(db, b, metric))
		for i := range min(len(x), len(y)) {
			if x[i] == y[i] || x[i].A != x[i].A && y[i].A != y[i].A {
				continue
			}
			if x[i].Step == y[i].Step && x[i].Rank == y[i].Rank && x[i].Step < first.Step {
				*first = divergence{metric, x[i].Step, x[i].Rank, x[i].A, y[i].A}
			}
			break
		}
	}
	if first.Metric == "" {
		first.Step = 0
	}
	return first, nil
}

// points are the points of a metric by step and rank, each with its value as A.
func (s *Server) points(db *history.DB, run int64, metric string) (all []divergence, err error) {
	err = s.cache.with(db, s.home, run, metric, func(points *series) {
		if points == nil {
			return
		}
		for i, step := range points.step {
			p := divergence{Step: step, A: records.Float(points.value[i])}
			if points.rank != nil {
				p.Rank = points.rank[i]
			}
			all = append(all, p)
		}
	})
	slices.SortStableFunc(all, func(a, b divergence) int { return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Rank, b.Rank)) })
	return all, err
}
