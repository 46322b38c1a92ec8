package ui

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"drun/history"
	"drun/internal/exit"
)

// How often the history is looked at while a page is open, and how often pages look again though nothing
// was written: the end of an agent that was killed writes nothing.
const (
	lookEvery  = 200 * time.Millisecond
	againAfter = 5 * time.Second
)

// follow tells a page when the history has changed, until the page or the server goes.
func (s *Server) follow(w http.ResponseWriter, r *http.Request) error {
	select {
	case s.events <- struct{}{}:
		defer func() { <-s.events }()
	default:
		return exit.WithHint(&tooMany{fmt.Sprintf("%d pages are open", eventsAtMost)}, "close some")
	}
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	_ = s.watch(r.Context(), func() error {
		_ = control.SetWriteDeadline(time.Now().Add(answerWithin))
		if _, err := fmt.Fprint(w, "event: change\ndata: {}\n\n"); err != nil {
			return err
		}
		return control.Flush()
	})
	return nil
}

// watch calls changed after each change of the history, and now and then without one, until ctx ends or it fails.
func (s *Server) watch(ctx context.Context, changed func() error) error {
	last, taken := history.StampOf(s.home), time.Now()
	told := time.Time{}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		now := history.StampOf(s.home)
		if at := time.Now(); now != last || !last.Settled(taken) || at.Sub(told) > againAfter {
			last, taken, told = now, at, at
			if err := changed(); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
