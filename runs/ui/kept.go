package ui

import (
	"encoding/json"
	"fmt"
	"slices"

	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/try"
)

// histograms are those that a run kept under one name, by step, thinned out evenly if there are many.
type histograms struct {
	Kept       int         `json:"kept"` // in total
	Histograms []histogram `json:"histograms"`
}

type histogram struct {
	Step   *int64    `json:"step"`
	Edges  []float64 `json:"edges"` // one more than counts; none if no value is finite
	Counts []int64   `json:"counts"`
	NaN    int64     `json:"nan"`
	Inf    int64     `json:"inf"`
}

const (
	defaultHistograms = 200
	mostHistograms    = 2000
)

func histogramsOf(db *history.DB, id int64, r *request) (_ any, err error) {
	defer try.Caught(&err)
	name := r.values.Get("name")
	if name == "" {
		return nil, exit.Errorf(exit.Usage, "want the name of a histogram, as name=weights")
	}
	most := r.number("points", defaultHistograms, 2, mostHistograms)
	if r.err != nil {
		return nil, r.err
	}
	all := try.To(db.Artifacts(id))
	found := slices.DeleteFunc(all, func(a records.Artifact) bool { return a.Kind != "histogram" || a.Name != name })
	if len(found) == 0 {
		return nil, &history.NotFound{What: fmt.Sprintf("run %d has kept no histogram %q", id, name), Near: fmt.Sprintf("drun artifacts %d lists what it has kept", id)}
	}
	answer := &histograms{Kept: len(found), Histograms: []histogram{}}
	n := min(len(found), int(most))
	for i := range n {
		a := &found[i*(len(found)-1)/max(n-1, 1)] // includes the first and the last
		data := try.To(db.Content(a))
		h := histogram{}
		if err := json.Unmarshal(data, &h); err != nil {
			return nil, fmt.Errorf("the histogram %q: %w", name, err)
		}
		h.Step = a.Step
		answer.Histograms = append(answer.Histograms, h)
	}
	return answer, nil
}
