package ui

import (
	"context"
	"net/http"

	"drun/history"
)

// Visitor is who makes a request, and what that person may do.
type Visitor struct {
	Projects []string // whose runs are shown; nil: all
	Write    bool     // name, tag, annotate and stop runs, and save views
	// May says why runs of a project may not be changed; nil: all may. Did is told of a change; nil: nobody is.
	May func(project string) error
	Did func(run *history.Detail, what string)
}

type visitorKey struct{}

func (s *Server) withVisitor(r *http.Request, v Visitor) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), visitorKey{}, &v))
}

func visitorOf(r *http.Request) *Visitor {
	if v, is := r.Context().Value(visitorKey{}).(*Visitor); is {
		return v
	}
	return &Visitor{Projects: []string{}}
}

// For answers the requests of visitors whom another server has let in.
func (s *Server) For(visitor func(*http.Request) Visitor) http.Handler {
	pages := s.pagesFor()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers(w)
		pages.ServeHTTP(w, s.withVisitor(r, visitor(r)))
	})
}
