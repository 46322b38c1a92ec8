package ui

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"time"

	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/runs/report"
	"drun/starlib/checkpoint"
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

func histogramsOf(db *history.DB, id int64, r *request) (any, error) {
	name := r.values.Get("name")
	if name == "" {
		return nil, exit.Errorf(exit.Usage, "want the name of a histogram, as name=weights")
	}
	most := r.number("points", defaultHistograms, 2, mostHistograms)
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

// safetensors sends the tensors of a checkpoint as a file.
func (s *Server) safetensors(w http.ResponseWriter, r *request) error {
	rank := r.number("rank", 0, 0, 1<<31)
	db, id := try.To2(s.find(r))
	store := try.To(s.checkpoints())
	list := try.To(report.Checkpoints(db, store, fmt.Sprintf("%d@%s", id, r.PathValue("step"))))
	try.Ok(list[0].Gone(s.home))
	tensors := try.To(report.Tensors(store, list[0], int(rank), r.values.Has("rank")))
	var file bytes.Buffer // buffered, so that an error sends no partial file
	try.To(checkpoint.Export(&file, ".safetensors", tensors))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(downloadWithin))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(file.Len()))
	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="run-%d-step-%d.safetensors"`, id, list[0].Step))
	_, _ = w.Write(file.Bytes())
	return nil
}

// artifact sends what a run has kept: a PNG image to be shown, everything else as a file to be saved.
func (s *Server) artifact(w http.ResponseWriter, r *request) error {
	db, id := try.To2(s.find(r))
	all := try.To(db.Artifacts(id))
	i := slices.IndexFunc(all, func(a records.Artifact) bool { return a.SHA256 == r.PathValue("sha256") })
	if i < 0 {
		return &history.NotFound{What: fmt.Sprintf("run %d has kept nothing with the SHA-256 %.64s", id, r.PathValue("sha256")), Near: fmt.Sprintf("drun artifacts %d lists them", id)}
	}
	data := try.To(db.Content(&all[i]))
	if http.DetectContentType(data) == "image/png" {
		w.Header().Set("Content-Type", "image/png")
	} else {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", cmp.Or(mime.FormatMediaType("attachment", map[string]string{"filename": all[i].Name}), "attachment"))
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data)
	return nil
}

// downloadWithin limits how long a client may take to receive a checkpoint.
const downloadWithin = 30 * time.Minute
