package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"drun/history"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/report"
)

func newLogs() *cobra.Command {
	var rank int
	var grep string
	var follow bool
	cmd := &cobra.Command{
		Use:        "logs RUN…",
		SuggestFor: []string{"log", "output"},
		Short:      "Print what the ranks of runs printed",
		Long: `Print what the ranks of a run printed. With more than one rank each line begins
with its rank, "[0] "; lines of drun itself begin with "[drun] ". The lines of several
runs come in the order of their time, and each begins with its run, "7[0] ". On a terminal,
control characters are made visible, as \x1b; a pipe or file gets them as they
were printed. With --follow a terminal also shows how far the runs are, in a line below.
--json prints a list of {"rank", "stream", "time", "text"}, of several runs with "run";
with --follow as well, one such object per line.`,
		Example: `  drun logs last --rank 1 --grep 'epoch (10|20)'
  drun logs 7 8 9 --follow`,
		RunE: func(cmd *cobra.Command, args []string) error {
			filter := history.LogFilter{}
			if cmd.Flags().Changed("rank") {
				filter.Rank = &rank
			}
			if grep != "" {
				re, err := regexp.Compile(grep)
				if err != nil {
					return usage("the syntax is RE2's, as in Go", "--grep: %v", err)
				}
				filter.Grep = re
			}
			return withRuns(cmd, args, func(db *history.DB, ids []int64) error {
				return printLogs(cmd, db, ids, filter, follow)
			})
		},
	}
	cmd.Flags().IntVar(&rank, "rank", 0, "only lines of rank `N` (-1: drun's own)")
	cmd.Flags().StringVar(&grep, "grep", "", "only lines that match the regular expression `RE`")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "keep printing new lines until the run has ended")
	return cmd
}

type loggedLine struct {
	Run int64 `json:"run,omitempty"` // 0: there is only one
	history.LogLine
}

func printLogs(cmd *cobra.Command, db *history.DB, ids []int64, filter history.LogFilter, follow bool) error {
	runs := try.To(db.Select(history.Selection{IDs: ids}))
	ranks, most := map[int64]int{}, 0
	for _, r := range runs {
		ranks[r.ID], most = r.WorldSize, max(most, r.WorldSize)
	}
	if filter.Rank != nil && (*filter.Rank < -1 || *filter.Rank >= most) {
		whose := "the run's"
		if len(ids) > 1 {
			whose = "the runs'"
		}
		return usage("", "--rank %d: %s ranks are 0 to %d", *filter.Rank, whose, most-1)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	defer out.Flush()
	show := func(text string) string { return text } // a pipe gets the bytes unchanged
	if terminal.Is(cmd.OutOrStdout()) {
		show = terminal.Line
	}
	several := len(ids) > 1
	printLine := func(l loggedLine) error {
		if wantsJSON(cmd) {
			return report.JSON(out, l, "")
		}
		before := prefix(l.Rank, ranks[ids[0]])
		if several {
			before = strconv.FormatInt(l.Run, 10) + prefix(l.Rank, max(ranks[l.Run], 2))
		}
		_, err := fmt.Fprintln(out, before+show(l.Text))
		return err
	}
	tell := func(run int64, l history.LogLine) loggedLine {
		if several {
			return loggedLine{run, l}
		}
		return loggedLine{0, l}
	}
	if follow {
		watching, stop := context.WithCancel(cmd.Context())
		defer stop()
		go func() {
			for watching.Err() == nil {
				followAgain(cmd, db)
				select {
				case <-watching.Done():
				case <-time.After(followEvery):
				}
			}
		}()
		live := newLive(cmd, db, ids)
		defer live.close()
		return db.Follow(cmd.Context(), ids, filter, func(run int64, l history.LogLine) error {
			live.mu.Lock()
			defer live.mu.Unlock()
			live.clear()
			if err := printLine(tell(run, l)); err != nil {
				return err
			}
			return out.Flush() // the reader waits for this line
		})
	}
	if !several && !wantsJSON(cmd) {
		_, err := db.Logs(ids[0], filter, func(l history.LogLine) error { return printLine(tell(ids[0], l)) })
		return err
	}
	lines := []loggedLine{}
	for _, id := range ids {
		try.To(db.Logs(id, filter, func(l history.LogLine) error { lines = append(lines, tell(id, l)); return nil }))
	}
	if several {
		slices.SortStableFunc(lines, func(a, b loggedLine) int { return a.Time.Compare(b.Time) })
	}
	if wantsJSON(cmd) {
		return printJSON(out, lines)
	}
	for _, l := range lines {
		try.Ok(printLine(l))
	}
	return nil
}

func prefix(rank, worldSize int) string {
	switch {
	case rank < 0:
		return "[drun] "
	case worldSize > 1:
		return fmt.Sprintf("[%d] ", rank)
	}
	return ""
}

// live is a line below the lines of drun logs --follow that shows the progress of the running runs. Only a terminal
// has it.
type live struct {
	mu    sync.Mutex // held while writing
	out   io.Writer  // nil: not a terminal
	ids   []int64
	shown bool
	stop  chan struct{}
	ended sync.WaitGroup
}

// liveEvery is how often the line is redrawn; the history is updated as often.
const liveEvery = 500 * time.Millisecond

func newLive(cmd *cobra.Command, db *history.DB, ids []int64) *live {
	if wantsJSON(cmd) {
		return startLive(nil, nil, nil)
	}
	return startLive(cmd.OutOrStdout(), func() *history.DB { return db }, ids)
}

// newLiveSweep is the line of a sweep's running cells, which add names.
func newLiveSweep(out io.Writer, home string) *live {
	return startLive(out, sync.OnceValue(func() *history.DB { // the first cell has made it
		db, err := history.OpenReadOnly(home)
		if err != nil {
			return nil
		}
		return db
	}), nil)
}

func startLive(out io.Writer, open func() *history.DB, ids []int64) *live {
	l := &live{ids: ids, stop: make(chan struct{})}
	if out == nil || !terminal.Is(out) {
		return l
	}
	l.out = out
	l.ended.Go(func() {
		for {
			select {
			case <-l.stop:
				return
			case <-time.After(liveEvery):
			}
			l.mu.Lock()
			ids := slices.Clone(l.ids)
			l.mu.Unlock()
			if len(ids) == 0 {
				continue
			}
			if db := open(); db != nil {
				l.draw(liveText(db, ids, terminal.Width(l.out)-1))
			}
		}
	})
	return l
}

// add shows one more run.
func (l *live) add(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = append(l.ids, id)
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
