package launch

import (
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"drun/collective"
	"drun/engine"
	"drun/engine/board"
	"drun/engine/nodes"
)

// The head's side of the run once all processes have come: see gather.go.

const (
	// giveUpAfter is how long a node may take to end ranks that were killed.
	giveUpAfter = 5 * time.Second
)

// nodeOf gives the agent of a rank; nil: it is ours.
func (a *agent) nodeOf(rank int) *node {
	for _, n := range a.nodes {
		if slices.Contains(n.ranks, rank) {
			return n
		}
	}
	return nil
}

// near tells which ranks share a board with this one.
func (a *agent) near(rank int) [2]int {
	if len(a.nodes) == 0 || a.oneBoard {
		return [2]int{}
	}
	if n := a.nodeOf(rank); n != nil {
		return [2]int{n.ranks[0], n.ranks[0] + len(n.ranks)}
	}
	return [2]int{0, a.o.Nproc}
}

// startMembers tells the other agents to start their ranks, with our memory
// files where they can open them.
func (a *agent) startMembers(shared []*os.File) {
	if near := a.near(0); len(a.nodes) > 0 {
		a.board.Near(near[0], near[1])
	}
	for _, n := range a.nodes {
		s := &nodes.Start{World: a.world, Backend: a.o.Backend, Now: board.Now()}
		if n.Machine != nodes.Machine() {
			n.shift.Store(0) // until its first mirror tells
		}
		if a.oneBoard {
			for _, f := range shared {
				s.Shared = append(s.Shared, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()))
			}
		}
		for _, rank := range n.ranks {
			job := *a.job(rank)
			job.Sources, job.Plugin, job.Dir, job.DataDirs, job.Watched = nil, nil, "", nil, false
			job.NodeAddress, job.Store.Address = "", "" // as the member reaches them
			s.Jobs = append(s.Jobs, job)
		}
		n.link.Send(&nodes.ToMember{Start: s})
	}
}

// hear passes on what another agent says, to its end or the run's. It leaves the
// board to the agent's own goroutine, which alone knows how long there is one.
func (a *agent) hear(n *node) {
	for m := range n.inbox {
		ev := event{from: n, rank: m.Rank}
		ours := slices.Contains(n.ranks, m.Rank)
		switch {
		case m.Msg != nil && ours:
			if ev.msg = m.Msg; m.Msg.Failure != nil {
				m.Msg.Failure.When += n.shift.Load()
			}
		case m.Line != nil && ours:
			a.keeper.line(m.Rank, m.Line.Stderr, m.Line.Text)
			a.keeper.await()
			continue
		case m.Exit != nil && ours:
			ev.exit = m.Exit
		case m.Signal != 0:
			ev.sig = syscall.Signal(m.Signal)
		default:
			ev.said = m
		}
		if !a.put(ev) {
			return
		}
		if ev.msg != nil {
			a.keeper.await()
		}
	}
	a.put(event{from: n, gone: true})
}

// put hands an event to the agent's goroutine; false: the run is over.
func (a *agent) put(ev event) bool {
	select {
	case a.events <- ev:
		return true
	case <-a.over:
		return false
	}
}

// said handles what another agent says of its board.
func (a *agent) said(n *node, m *nodes.ToHead) {
	switch {
	case m.Abort != nil:
		if a.board.AbortAs(m.Abort.By, m.Abort.Cause) {
			a.passOn(n)
		}
	case m.Look != nil:
		a.rounds.stuck = true
		n.ask = max(n.ask, m.Look.Ask)
		a.look()
	case m.Mirror != nil && m.Mirror.Words != nil:
		if n.Machine != nodes.Machine() {
			n.shift.Store(board.Now() - m.Mirror.Words.Now)
		}
		a.board.Adopt(m.Mirror.Words)
		if m.Mirror.Round != 0 {
			n.shown = m.Mirror.Round
			a.look()
		}
	}
}

// lost ends the ranks of an agent that is gone, as far as they have not ended,
// and gives their number.
func (a *agent) lost(n *node) int {
	n.lost = true
	left := slices.DeleteFunc(slices.Clone(n.ranks), func(r int) bool { return a.procs[r].exited })
	how := "the connection ended"
	if n.err != nil && n.err != io.EOF {
		how = n.err.Error()
	}
	for i, rank := range left {
		if i > 0 { // before the report of the first
			a.board.SetRankState(rank, collective.Gone)
		}
	}
	for _, rank := range left {
		a.exited(rank, &nodes.Exit{Text: fmt.Sprintf("its drun (process %d on %s) is gone: %s", n.PID, n.Host, how)})
	}
	return len(left)
}

// passOn tells the other agents why the run ends; not the one who said it.
func (a *agent) passOn(from *node) {
	by, cause, ok := a.board.Cause()
	if !ok {
		return
	}
	for _, n := range a.nodes {
		if n != from {
			n.link.Send(&nodes.ToMember{Abort: &nodes.Abort{By: by, Cause: cause}})
		}
	}
}

// giveUp cuts the connection of agents whose ranks do not end.
func (a *agent) giveUp() {
	if time.Since(a.ended) < giveUpAfter {
		return
	}
	for _, p := range a.procs {
		if p.node != nil && !p.exited {
			go p.node.link.Close()
		}
	}
}

// dismiss tells the other agents how the run ended.
func (a *agent) dismiss(r *Result) {
	end := &nodes.End{ID: r.ID, Name: r.Name, Code: r.Code, Failure: r.Failure, Seconds: r.Seconds}
	for _, n := range a.nodes {
		n.link.Send(&nodes.ToMember{End: end})
	}
	for _, n := range a.nodes {
		n.link.Close()
	}
	if a.server != nil {
		a.server.Close()
	}
}

// refuse is what a process is told that comes too late or does not belong.
func refuse(format string, args ...any) *nodes.ToMember {
	return &nodes.ToMember{Refused: refusal(engine.Errorf(engine.ExitUsage, format, args...))}
}
