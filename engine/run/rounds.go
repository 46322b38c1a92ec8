package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"drun/collective"
	"drun/engine/board"
	"drun/engine/cluster"
	"drun/engine/console"
	"drun/engine/node"
	"drun/internal/exit"
)

// In a round, the coordinator asks all nodes for their ranks' part of the board, and tells each what its own ranks
// need of it: see engine/board/mirror.go. There is one round at a time, and one open request per node, whoever
// wants them.

const (
	// seldom is how often boards are compared in any case, so that if a node is lost, what its ranks did shortly
	// before is known.
	seldom = time.Second
	// roundAtMost is how long a round waits for a node that does not answer.
	roundAtMost = 500 * time.Millisecond
	// mostTraffic limits what rounds send over all links together, in bytes per second.
	mostTraffic = 1 << 20
)

type rounds struct {
	number   uint64
	began    time.Time
	open     bool     // some nodes have not answered yet
	all      bool     // it asks for all journals: a report is to be made
	then     []func() // to call when it has ended
	next     []func() // to call when the next one has ended
	ask      uint32   // the request on the coordinator's own board, answered when it has ended
	stuck    bool     // ranks wait, on some node
	traffic  int64    // on all links before it
	circles  board.CircleWatch
	pause    time.Duration // until the next may begin
	complete bool          // all nodes took part in it
}

// look continues the round, or begins one if it is time.
func (a *attempt) look() {
	if a.lookTick == nil || a.board == nil {
		return
	}
	r := &a.rounds
	if r.open {
		if late := time.Since(r.began) > roundAtMost; !late && slices.ContainsFunc(a.peers[1:], func(p *peer) bool { return p.wanted == r.number && p.shown < r.number && !p.lost }) {
			return
		}
		a.endRound()
	}
	_, asked := a.board.Asks()
	asked = asked || len(r.next) > 0 || slices.ContainsFunc(a.peers[1:], func(p *peer) bool { return p.ask > p.told })
	r.stuck = r.stuck || a.board.Stuck(node.LookEvery)
	if since := time.Since(r.began); !asked && (since < r.pause || !r.stuck && since < seldom) {
		return
	}
	a.beginRound(asked)
}

// beginRound asks all nodes that have answered the last request.
func (a *attempt) beginRound(all bool) {
	r := &a.rounds
	r.number++
	r.began, r.open, r.all, r.stuck, r.complete = time.Now(), true, all, false, true
	r.traffic = a.traffic()
	r.then, r.next = r.next, nil
	r.ask, _ = a.board.Asks()
	for _, p := range a.peers[1:] {
		p.asked = p.ask
		if p.lost || p.shown < p.wanted {
			r.complete = false
			continue
		}
		p.wanted = r.number
		p.Link.Send(&cluster.ToNode{Show: &cluster.Show{Round: r.number, All: all}})
	}
}

// endRound sends each node what its ranks need to know, and everything if it asked.
func (a *attempt) endRound() {
	r := &a.rounds
	r.open = false
	var circle []board.Wait
	for _, p := range a.peers[1:] {
		r.complete = r.complete && p.shown == r.number
	}
	if r.complete {
		circle = r.circles.Check(a.board)
	}
	for _, p := range a.peers[1:] {
		m := &cluster.Mirror{Circle: circle}
		switch {
		case p.waitsIn(circle) || p.asked > p.told:
			m.Words = a.board.Show(a.othersThan(p), false)
			m.Words.Shorten(circle)
			m.Told, p.told = p.asked, p.asked
		default:
			if ranks := a.news(p); len(ranks) > 0 && len(a.left(p)) > 0 {
				m.Words = a.board.Show(ranks, false)
			}
		}
		if m.Words != nil {
			p.Link.Send(&cluster.ToNode{Mirror: m})
		}
	}
	a.board.Confirm(circle)
	a.board.Tell(r.ask)
	r.pause = max(node.LookEvery, time.Duration(a.traffic()-r.traffic)*time.Second/mostTraffic)
	then := r.then
	r.then = nil
	for _, f := range then {
		f()
	}
}

// waitsIn reports whether a rank of the node is in the circle; other nodes learn how the circle ends.
func (p *peer) waitsIn(circle []board.Wait) bool {
	return slices.ContainsFunc(circle, func(w board.Wait) bool { return slices.Contains(p.Ranks, w.Rank) })
}

// fresh calls then once the board shows what the ranks of all nodes are doing now; it does not wait long for a node.
func (a *attempt) fresh(then func()) {
	if a.lookTick == nil || a.board == nil {
		then()
		return
	}
	a.rounds.next = append(a.rounds.next, then)
	a.look()
}

func (a *attempt) endRounds() {
	r := &a.rounds
	then := append(r.then, r.next...)
	r.then, r.next = nil, nil
	for _, f := range then {
		f()
	}
}

func (n *nodes) traffic() (sum int64) {
	for _, p := range n.peers[1:] {
		sum += p.Link.Traffic()
	}
	return sum
}

func (n *nodes) othersThan(p *peer) (ranks []int) {
	for rank := range n.world() {
		if n.peerOf(rank) != p {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// news lists the ranks that a node must be told of: those that have ended, and those that wait for messages from
// its ranks.
func (a *attempt) news(p *peer) (ranks []int) {
	if p.knows == nil {
		p.knows = map[int]uint64{}
	}
	for _, rank := range a.othersThan(p) {
		wait := a.board.Awaits(rank, p.Ranks)
		if a.board.State(rank) == collective.Returned {
			wait = ended
		}
		if wait != 0 && p.knows[rank] != wait {
			p.knows[rank] = wait
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// ended stands for the wait of a rank that has returned.
const ended = 1<<64 - 1

// show prints which rank waits where and since when, and the ranks' latest calls; the history keeps it.
func (c *coordinator) show(reason string) {
	s := c.board.Snapshot()
	printSnapshot(c.console, s)
	c.record.Snapshot(s, reason)
}

// doing asks the coordinator's goroutine, which alone knows whether the board is open, what the ranks are doing; nil:
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

// stalledAfter is how long ranks wait before a user at a terminal is told; they are told again after twice the time, and
// so on.
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

// RanksAtFailure tells what the ranks were doing when the run failed, if the failure's message does not: their latest
// calls if the ranks disagreed or one did not come, and where they were if one was lost.
func (r *Result) RanksAtFailure() string {
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
