package launch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"drun/collective"
	"drun/engine"
	"drun/engine/board"
	"drun/history"
)

// show prints who waits where, since when, and what the ranks did before; the
// history keeps it.
func (a *agent) show(reason string) {
	s := a.board.Snapshot()
	a.note(s)
	a.keepSnapshot(s, reason)
}

func (a *agent) note(s *board.Snapshot) {
	for line := range strings.Lines(s.String()) {
		a.console.note(strings.TrimRight(line, "\n"))
	}
}

func (a *agent) keepSnapshot(s *board.Snapshot, reason string) {
	a.keeper.add(len(s.Ranks), 0, func(b *history.Batch) { b.Snapshots = append(b.Snapshots, stored(s, reason)) })
}

// stalledAfter is when somebody at a terminal is told that ranks wait, and for
// which; again after twice the time, and so on.
const stalledAfter = 10 * time.Second

// stall is the watch for ranks that wait long.
type stall struct {
	told time.Duration // of the longest wait when the user was told
}

// look tells whether it is time to tell the user: some rank has been waiting for
// long, or for twice as long as when he was told.
func (s *stall) look(rows []collective.Row) bool {
	longest := time.Duration(0)
	for _, r := range rows {
		if r.State == collective.Waiting {
			longest = max(longest, r.For)
		}
	}
	switch {
	case longest < s.told: // another wait
		s.told = 0
		return false
	case longest < max(stalledAfter, 2*s.told):
		return false
	}
	s.told = longest
	return true
}

// stalled is called now and then when somebody watches.
func (a *agent) stalled() {
	if a.board == nil || !a.ended.IsZero() || !a.stall.look(a.board.Rows()) {
		return
	}
	a.console.note(fmt.Sprintf("ranks have been waiting for %s:", a.stall.told.Round(time.Second)))
	a.fresh(func() { a.note(a.board.Snapshot()) })
}

// Standing tells what the ranks did when the run failed, as far as the failure's
// message does not: their latest calls where the ranks disagreed or one did not
// come, and where they were when one was lost.
func (r *Result) Standing() string {
	if r.Snapshot == nil {
		return ""
	}
	switch r.Code {
	case engine.ExitMismatch, engine.ExitTimeout:
		return r.Snapshot.Calls()
	case engine.ExitRankLost:
		return r.Snapshot.String()
	}
	return ""
}

// stored is a snapshot as the history keeps it.
func stored(s *board.Snapshot, reason string) history.Snapshot {
	out := history.Snapshot{Time: s.At, Reason: reason}
	for _, r := range s.Ranks {
		state := r.State.String()
		if r.Note != "" && r.State == collective.Running {
			state = r.Note
		}
		k := history.RankState{Rank: r.Rank, State: state, Position: place(r.Pos), Seconds: r.For.Seconds()}
		if r.Call.Kind != collective.NoKind {
			k.Call, k.Number, k.Group = r.Call.String(), r.Call.Seq, r.Call.Group
		}
		for _, c := range r.Recent {
			p := history.PastCall{Call: c.Description.String(), Number: c.Seq, Group: c.Group, Position: place(c.Pos), Ago: c.Began.Seconds(), Async: c.Async}
			if c.Ended {
				took := c.Took.Seconds()
				p.Seconds = &took
			}
			k.Recent = append(k.Recent, p)
		}
		out.Ranks = append(out.Ranks, k)
	}
	slices.SortFunc(out.Ranks, func(x, y history.RankState) int { return x.Rank - y.Rank })
	return out
}

func place(p collective.Position) string {
	if p.File == "" {
		return ""
	}
	return p.String()
}
