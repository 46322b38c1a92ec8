package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"drun/history"
	"drun/internal/terminal"
)

// live is a line below the lines of drun logs --follow that shows the progress of the running runs. Only a terminal
// has it.
type live struct {
	mu    sync.Mutex // held while writing
	out   io.Writer  // nil: not a terminal
	shown bool
	stop  chan struct{}
	ended sync.WaitGroup
}

// liveEvery is how often the line is redrawn; the history is updated as often.
const liveEvery = 500 * time.Millisecond

func newLive(cmd *cobra.Command, db *history.DB, ids []int64) *live {
	l := &live{stop: make(chan struct{})}
	if wantsJSON(cmd) || !terminal.Is(cmd.OutOrStdout()) {
		return l
	}
	l.out = cmd.OutOrStdout()
	l.ended.Go(func() {
		for {
			select {
			case <-l.stop:
				return
			case <-time.After(liveEvery):
				l.draw(liveText(db, ids, terminal.Width(l.out)-1))
			}
		}
	})
	return l
}

func (l *live) draw(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clear()
	if text != "" {
		fmt.Fprint(l.out, text)
		l.shown = true
	}
}

// clear removes the line. mu is held.
func (l *live) clear() {
	if l.shown {
		fmt.Fprint(l.out, "\r\x1b[K")
		l.shown = false
	}
}

func (l *live) close() {
	close(l.stop)
	l.ended.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clear()
}

// liveText describes the running runs' progress and latest metrics, in at most that many columns. It is empty if
// the history cannot be read at the moment.
func liveText(db *history.DB, ids []int64, columns int) string {
	runs, err := db.Select(history.Selection{IDs: ids, Metrics: history.Names{All: true}})
	if err != nil {
		return ""
	}
	var parts []string
	for _, r := range runs {
		if r.Status != history.Running {
			continue
		}
		text := duration(r.Seconds)
		if p, err := db.Progress(r.ID); err == nil && p != nil {
			text = progressText(p)
		}
		if len(ids) > 1 {
			text = fmt.Sprintf("run %d %s", r.ID, text)
		}
		if last := lastMetrics(r.Metrics, max(0, columns/len(ids)-len(text))); last != "" {
			text += "  " + last
		}
		parts = append(parts, text)
	}
	return shorten(terminal.Escape(strings.Join(parts, "; ")), columns)
}
