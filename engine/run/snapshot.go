package run

import (
	"context"
	"drun/internal/exit"
	"errors"
	"fmt"
	"strings"
	"time"

	"drun/collective"
	"drun/engine/board"
	"drun/engine/console"
)

// show prints which rank waits where and since when, and the ranks' latest calls; the history keeps it.
func (c *coordinator) show(reason string) {
	s := c.board.Snapshot()
	printSnapshot(c.console, s)
	c.record.Snapshot(s, reason)
}

// doing asks the coordinator's goroutine, which alone knows whether the board is open, what the ranks do now; nil:
// there are none.
func (e events) doing(ctx context.Context) (*board.Snapshot, error) {
	answer := make(chan *board.Snapshot, 1)
	select {
	case e.queue <- event{asked: answer}:
	case <-e.over:
		return nil, errOver
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case s := <-answer:
		return s, nil
	case <-e.over:
		return nil, errOver
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var errOver = errors.New("the run is over")

func printSnapshot(to *console.Console, s *board.Snapshot) {
	for line := range strings.Lines(s.String()) {
		to.Note(strings.TrimRight(line, "\n"))
	}
}

// stalledAfter is when somebody at a terminal is told that ranks wait and for which; they are told again after
// twice the time, and so on.
const stalledAfter = 10 * time.Second

type stall struct {
	told time.Duration // the longest wait when the user was last told
}

// look reports whether to tell the user: some rank has waited for long, or for twice as long as when they were last
// told.
func (s *stall) look(rows []collective.Row) bool {
	longest := time.Duration(0)
	for _, r := range rows {
		if r.State == collective.Waiting {
			longest = max(longest, r.For)
		}
	}
	switch {
	case longest < s.told: // this is another wait
		s.told = 0
		return false
	case longest < max(stalledAfter, 2*s.told):
		return false
	}
	s.told = longest
	return true
}

// stalled is called periodically while somebody watches.
func (c *coordinator) stalled() {
	if c.board == nil || !c.ended.IsZero() || !c.stall.look(c.board.Rows()) {
		return
	}
	c.console.Note(fmt.Sprintf("ranks have been waiting for %s:", c.stall.told.Round(time.Second)))
	c.fresh(func() { printSnapshot(c.console, c.board.Snapshot()) })
}

// Standing tells what the ranks were doing when the run failed, if the failure's message does not: their latest
// calls if the ranks disagreed or one did not come, and where they were if one was lost.
func (r *Result) Standing() string {
	if r.Snapshot == nil {
		return ""
	}
	switch r.Code {
	case exit.Mismatch, exit.Timeout:
		return r.Snapshot.Calls()
	case exit.RankLost:
		return r.Snapshot.String()
	}
	return ""
}
