package ui

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"drun/history"
	"drun/internal/exit"
)

// How often the history is checked while a page is open, and how often pages check again even if nothing was
// written: the end of an agent that was killed writes nothing.
const (
	lookEvery  = 200 * time.Millisecond
	againAfter = 5 * time.Second
)

// follow tells a page when the history has changed, until the page or the server ends.
func (s *Server) follow(w http.ResponseWriter, r *http.Request) error {
	return s.stream(w, r, func(send func(event, data string) error) error {
		return s.watch(r.Context(), func(written bool) error { return send("change", fmt.Sprintf(`{"written":%t}`, written)) })
	})
}

// stream keeps a request open, on which fn sends events until the page or the server ends.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, fn func(send func(event, data string) error) error) error {
	select {
	case s.events <- struct{}{}:
		defer func() { <-s.events }()
	default:
		return exit.WithHint(&tooMany{fmt.Sprintf("%d pages are open", eventsAtMost)}, "close some")
	}
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	send := func(event, data string) error {
		_ = control.SetWriteDeadline(time.Now().Add(answerWithin))
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data); err != nil {
			return err
		}
		return control.Flush()
	}
	_ = fn(send) // the page sees the stream end, and asks why
	return nil
}

// watch calls changed after each change of the history, and occasionally without one, until ctx ends or changed
// fails.
func (s *Server) watch(ctx context.Context, changed func(written bool) error) error {
	last, taken := history.StampOf(s.home), time.Now()
	told := time.Time{}
	for {
		wait := lookEvery
		now, at := history.StampOf(s.home), time.Now()
		if written := now != last || !last.Settled(taken); written || at.Sub(told) > againAfter {
			last, taken, told = now, at, at
			if err := changed(written); err != nil {
				return err
			}
			wait = newsEvery
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
