package run

import (
	"slices"
	"time"

	"drun/collective"
	"drun/engine/board"
	"drun/engine/cluster"
)

// In a round, the coordinator asks all nodes for their ranks' part of the board, and tells each what its own ranks
// need of it: see engine/board/mirror.go. There is one round at a time, and one open request per node, whoever
// wants them.

const (
	// lookEvery is how often nodes check whether ranks wait for so long that boards should be compared, and about
	// how often they then are.
	lookEvery = 100 * time.Millisecond
	// seldom is how often boards are compared in any case, so that if a node is lost, what its ranks did shortly
	// before is known.
	seldom = time.Second
	// roundAtMost is how long a round waits for a node that does not answer.
	roundAtMost = 500 * time.Millisecond
	// mostTraffic limits what rounds send over all links together, in bytes per second.
	mostTraffic = 1 << 20
)

// rounds is the state of the rounds.
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
func (c *coordinator) look() {
	if c.lookTick == nil || c.board == nil {
		return
	}
	r := &c.rounds
	if r.open {
		if late := time.Since(r.began) > roundAtMost; !late && slices.ContainsFunc(c.peers[1:], func(n *peer) bool { return n.wanted == r.number && n.shown < r.number && !n.lost }) {
			return
		}
		c.endRound()
	}
	_, asked := c.board.Asks()
	asked = asked || len(r.next) > 0 || slices.ContainsFunc(c.peers[1:], func(n *peer) bool { return n.ask > n.told })
	r.stuck = r.stuck || c.board.Stuck(lookEvery)
	if since := time.Since(r.began); !asked && (since < r.pause || !r.stuck && since < seldom) {
		return
	}
	c.beginRound(asked)
}

// beginRound asks all nodes that have answered the last request.
func (c *coordinator) beginRound(all bool) {
	r := &c.rounds
	r.number++
	r.began, r.open, r.all, r.stuck, r.complete = time.Now(), true, all, false, true
	r.traffic = c.traffic()
	r.then, r.next = r.next, nil
	r.ask, _ = c.board.Asks()
	for _, n := range c.peers[1:] {
		n.asked = n.ask
		if n.lost || n.shown < n.wanted {
			r.complete = false
			continue
		}
		n.wanted = r.number
		n.Link.Send(&cluster.ToNode{Show: &cluster.Show{Round: r.number, All: all}})
	}
}

// endRound sends each node what its ranks need to know, and everything if it asked.
func (c *coordinator) endRound() {
	r := &c.rounds
	r.open = false
	var circle []board.Wait
	for _, n := range c.peers[1:] {
		r.complete = r.complete && n.shown == r.number
	}
	if r.complete {
		circle = r.circles.Check(c.board)
	}
	for _, n := range c.peers[1:] {
		m := &cluster.Mirror{Circle: circle}
		switch {
		case n.waitsIn(circle) || n.asked > n.told:
			m.Words = c.board.Show(c.othersThan(n), false)
			m.Words.Shorten(circle)
			m.Told, n.told = n.asked, n.asked
		default:
			if ranks := c.news(n); len(ranks) > 0 && len(c.left(n)) > 0 {
				m.Words = c.board.Show(ranks, false)
			}
		}
		if m.Words != nil {
			n.Link.Send(&cluster.ToNode{Mirror: m})
		}
	}
	c.board.Confirm(circle)
	c.board.Tell(r.ask)
	r.pause = max(lookEvery, time.Duration(c.traffic()-r.traffic)*time.Second/mostTraffic)
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

// fresh calls then once the board shows what the ranks of all nodes do now, without nodes that do not answer soon.
func (c *coordinator) fresh(then func()) {
	if c.lookTick == nil || c.board == nil {
		then()
		return
	}
	c.rounds.next = append(c.rounds.next, then)
	c.look()
}

// endRounds ends the rounds and calls what waits for them.
func (c *coordinator) endRounds() {
	r := &c.rounds
	then := append(r.then, r.next...)
	r.then, r.next = nil, nil
	for _, f := range then {
		f()
	}
}

func (c *coordinator) traffic() (sum int64) {
	for _, n := range c.peers[1:] {
		sum += n.Link.Traffic()
	}
	return sum
}

// othersThan are the ranks that are not on that node.
func (c *coordinator) othersThan(n *peer) (ranks []int) {
	for rank := range c.world() {
		if c.peerOf(rank) != n {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// news lists the ranks that a node must be told of: those that have ended, and those that wait for messages from
// its ranks.
func (c *coordinator) news(n *peer) (ranks []int) {
	if n.knows == nil {
		n.knows = map[int]uint64{}
	}
	for _, rank := range c.othersThan(n) {
		wait := c.board.Awaits(rank, n.Ranks)
		if c.board.State(rank) == collective.Returned {
			wait = ended
		}
		if wait != 0 && n.knows[rank] != wait {
			n.knows[rank] = wait
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// ended stands for the wait of a rank that has returned.
const ended = 1<<64 - 1
