package launch

import (
	"slices"
	"time"

	"drun/collective"
	"drun/engine/board"
	"drun/engine/nodes"
)

// In rounds, the head has all agents show their ranks' part of the board, and tells
// each what its own ranks need of it: see engine/board/mirror.go. There is one round
// at a time, and one question to a node until it has answered, whoever wants them.

const (
	// lookEvery is how often agents look whether ranks wait for so long that boards
	// should be compared, and about how often they then are.
	lookEvery = 100 * time.Millisecond
	// seldom is how often they are in any case: of a node that is lost it is known
	// what its ranks did not long before.
	seldom = time.Second
	// roundAtMost is how long a round waits for a node that does not answer.
	roundAtMost = 500 * time.Millisecond
	// mostTraffic bounds what rounds say on all links together, in bytes a second.
	mostTraffic = 1 << 20
)

// rounds is where the head is with them.
type rounds struct {
	number   uint64
	began    time.Time
	open     bool     // nodes are still to answer
	all      bool     // it shows all journals: a report is to be made
	then     []func() // to do when it has ended
	next     []func() // when the next one has
	ask      uint32   // of the head's own board: answered when it has ended
	stuck    bool     // ranks wait, somewhere
	traffic  int64    // on all links before it
	patrol   board.Patrol
	pause    time.Duration // until the next may begin
	complete bool          // all nodes took part in it
}

// look goes on with the round, or begins one if it is time to.
func (a *agent) look() {
	if a.lookAround == nil || a.board == nil {
		return
	}
	r := &a.rounds
	if r.open {
		if late := time.Since(r.began) > roundAtMost; !late && slices.ContainsFunc(a.nodes, func(n *node) bool { return n.wanted == r.number && n.shown < r.number && !n.lost }) {
			return
		}
		a.endRound()
	}
	_, asked := a.board.Asks()
	asked = asked || len(r.next) > 0 || slices.ContainsFunc(a.nodes, func(n *node) bool { return n.ask > n.told })
	r.stuck = r.stuck || a.board.Stuck(lookEvery)
	if since := time.Since(r.began); !asked && (since < r.pause || !r.stuck && since < seldom) {
		return
	}
	a.beginRound(asked)
}

// beginRound asks all nodes that have answered the last time.
func (a *agent) beginRound(all bool) {
	r := &a.rounds
	r.number++
	r.began, r.open, r.all, r.stuck, r.complete = time.Now(), true, all, false, true
	r.traffic = a.traffic()
	r.then, r.next = r.next, nil
	r.ask, _ = a.board.Asks()
	for _, n := range a.nodes {
		n.asked = n.ask
		if n.lost || n.shown < n.wanted {
			r.complete = false
			continue
		}
		n.wanted = r.number
		n.link.Send(&nodes.ToMember{Show: &nodes.Show{Round: r.number, All: all}})
	}
}

// endRound tells each node what its ranks need to know, and those that asked all.
func (a *agent) endRound() {
	r := &a.rounds
	r.open = false
	var circle []board.Wait
	for _, n := range a.nodes {
		r.complete = r.complete && n.shown == r.number
	}
	if r.complete {
		circle = r.patrol.Look(a.board)
	}
	for _, n := range a.nodes {
		m := &nodes.Mirror{Circle: circle}
		switch {
		case circle != nil || n.asked > n.told:
			m.Words = a.board.Show(a.others(n), false)
			m.Told, n.told = n.asked, n.asked
		default:
			if ranks := a.news(n); len(ranks) > 0 {
				m.Words = a.board.Show(ranks, false)
			}
		}
		if m.Words != nil {
			n.link.Send(&nodes.ToMember{Mirror: m})
		}
	}
	a.board.Confirm(circle)
	a.board.Tell(r.ask)
	r.pause = max(lookEvery, time.Duration(a.traffic()-r.traffic)*time.Second/mostTraffic)
	then := r.then
	r.then = nil
	for _, f := range then {
		f()
	}
}

// fresh calls then once the board has what the ranks of all nodes do now, as far as
// their agents answer soon.
func (a *agent) fresh(then func()) {
	if a.lookAround == nil || a.board == nil {
		then()
		return
	}
	a.rounds.next = append(a.rounds.next, then)
	a.look()
}

// settled ends the rounds, and does what waits for them.
func (a *agent) settled() {
	r := &a.rounds
	then := append(r.then, r.next...)
	r.then, r.next = nil, nil
	for _, f := range then {
		f()
	}
}

func (a *agent) traffic() (sum int64) {
	for _, n := range a.nodes {
		sum += n.link.Traffic()
	}
	return sum
}

// others are the ranks that are not on that node.
func (a *agent) others(n *node) (ranks []int) {
	for rank := range a.world {
		if !slices.Contains(n.ranks, rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// news lists the ranks of which a node has to be told: those that have ended, and
// those that wait for messages of its ranks.
func (a *agent) news(n *node) (ranks []int) {
	if n.knows == nil {
		n.knows = map[int]uint64{}
	}
	for _, rank := range a.others(n) {
		mark := a.board.Awaits(rank, n.ranks)
		if a.board.State(rank) == collective.Returned {
			mark = ended
		}
		if mark != 0 && n.knows[rank] != mark {
			n.knows[rank] = mark
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// ended stands for the mark of a rank that has returned.
const ended = 1<<64 - 1
