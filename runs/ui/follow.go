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
func (s *Server) follow(w http.ResponseWriter, r *request) error {
	return s.stream(w, func(send func(event, data string) error) error {
		return s.watch(r.Context(), againAfter, func(written bool) error { return send("change", fmt.Sprintf(`{"written":%t}`, written)) })
	})
}

// stream keeps a request open, on which fn sends events until the page or the server ends.
func (s *Server) stream(w http.ResponseWriter, fn func(send func(event, data string) error) error) error {
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

// watch calls look at once, after each change of the history, and when quiet has passed without one, until ctx ends or
// look fails. What takes long is done less often.
func (s *Server) watch(ctx context.Context, quiet time.Duration, look func(written bool) error) error {
	last, taken := history.StampOf(s.home), time.Now()
	looked := time.Time{}
	for {
		wait := lookEvery
		now, at := history.StampOf(s.home), time.Now()
		if written := now != last || !last.Settled(taken); written || at.Sub(looked) >= quiet {
			last, taken, looked = now, at, at
			if err := look(written); err != nil {
				return err
			}
			wait = min(againAfter, max(newsEvery, 20*time.Since(at)))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
