package ui

import (
	"bytes"
	"cmp"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"time"

	"drun/history"
	"drun/history/records"
	"drun/runs/report"
	"drun/starlib/checkpoint"
)

// safetensors sends the tensors of a checkpoint as a file.
func (s *Server) safetensors(w http.ResponseWriter, r *request) error {
	rank := r.number("rank", 0, 0, 1<<31)
	if r.err != nil {
		return r.err
	}
	db, id, err := s.find(r)
	if err != nil {
		return err
	}
	store, err := s.checkpoints()
	if err != nil {
		return err
	}
	list, err := report.Checkpoints(db, store, fmt.Sprintf("%d@%s", id, r.PathValue("step")))
	if err != nil {
		return err
	}
	if err := list[0].Gone(s.home); err != nil {
		return err
	}
	tensors, err := report.Tensors(store, list[0], int(rank), r.values.Has("rank"))
	if err != nil {
		return err
	}
	var file bytes.Buffer // buffered, so that an error sends no partial file
	if _, err := checkpoint.Export(&file, ".safetensors", tensors); err != nil {
		return err
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(downloadWithin))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(file.Len()))
	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="run-%d-step-%d.safetensors"`, id, list[0].Step))
	_, _ = w.Write(file.Bytes())
	return nil
}

// artifact sends what a run has kept: a PNG image to be shown, everything else as a file to be saved.
func (s *Server) artifact(w http.ResponseWriter, r *request) error {
	db, id, err := s.find(r)
	if err != nil {
		return err
	}
	all, err := db.Artifacts(id)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(a records.Artifact) bool { return a.SHA256 == r.PathValue("sha256") })
	if i < 0 {
		return &history.NotFound{What: fmt.Sprintf("run %d has kept nothing with the SHA-256 %.64s", id, r.PathValue("sha256")), Near: fmt.Sprintf("drun artifacts %d lists them", id)}
	}
	data, err := db.Content(&all[i])
	if err != nil {
		return err
	}
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
