package run

import (
	"fmt"
	"slices"

	"drun/engine"
	"drun/engine/board"
	"drun/engine/cluster"
	"drun/engine/recipe"
	"drun/internal/exit"
)

// leaving has, for each rank that has left a group or main, what it has exchanged with the others.
type leaving map[int][]board.Messages

// party identifies ranks that leave together: several groups, of different ranks, may have the same number.
type party struct {
	group uint32
	first int
}

// leave notes that a rank has returned from main, or left a group. Once all have, they may go on, if each message
// was received.
func (c *coordinator) leave(rank int, m *engine.Leave) {
	ranks := m.Ranks
	if ranks == nil {
		for r := range c.ranks {
			ranks = append(ranks, r)
		}
	}
	if len(ranks) == 0 || !c.ended.IsZero() {
		return // they have been told to end
	}
	which := party{m.Group, slices.Min(ranks)}
	if c.leavers == nil {
		c.leavers = map[party]leaving{}
	}
	if c.leavers[which] == nil {
		c.leavers[which] = leaving{}
	}
	c.leavers[which][rank] = m.Messages
	if len(c.leavers[which]) < len(ranks) {
		return
	}
	lost := board.Unreceived(c.leavers[which])
	delete(c.leavers, which)
	if len(lost) > 0 && !c.stop.asked && c.Replay == nil {
		c.fail(unreceived(c.bundle, lost))
		return
	}
	for _, rank := range ranks {
		c.ranks[rank].peer.Link.Send(&cluster.ToNode{Rank: rank, Msg: &engine.ToWorker{Parted: true}})
	}
}

// unreceived is the failure of the first rank whose messages nobody received.
func unreceived(bundle *recipe.Bundle, lost []board.Lost) *engine.Failure {
	first, what := lost[0], ""
	if n := len(lost) - 1; n > 0 {
		what = fmt.Sprintf("; the same happened with %d other senders, receivers or tags", n)
	}
	f := &engine.Failure{Rank: first.From, Code: exit.Mismatch, When: board.Now(), Lasts: true,
		Hint: "each dist.send and isend needs a recv, irecv or recv_any on the other rank, with the same tag and group"}
	f.Message, f.Traceback = bundle.Fault(first.At.File, first.At.Line, first.At.Col, first.String()+what)
	return f
}
