package ui

import (
	"net/http"

	"drun/runs/report"
)

// ranks answers what the ranks of a run do. It does not count among the requests that read much, since a stopped
// run makes it wait for seconds.
func (s *Server) ranks(w http.ResponseWriter, r *http.Request) error {
	db, id, err := s.find(r)
	if err != nil {
		return err
	}
	doing, err := report.Doing(r.Context(), db, id)
	if err != nil {
		return err
	}
	return answerJSON(w, doing)
}
