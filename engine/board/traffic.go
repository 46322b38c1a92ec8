package board

import (
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"drun/collective"
	"drun/collective/sharedmem"
)

// Whether a message is under way is counted, not guessed from elapsed time: a backend may finish a send once the
// bytes have left, long before the receiver's process gets a core to see them. Each rank counts, for each other
// rank and tag, the sends it has started and the sends and receives that have ended. A rank that waits for a
// message writes on the board how many such calls of its own have ended; the rank at the other end compares that
// with its own count.

// traffic counts the messages between this rank and another of its group. Tags share a fixed number of counts to
// bound memory. So a message that nobody receives may hide a deadlock in another tag, which the time limit then
// ends, but no false deadlock is reported.
type traffic struct {
	started, sent, received [64]uint32 // sends started, sends ended, receives ended
}

// share gives a tag's place in the counts; neighbouring tags have different places.
func share(tag int) int { return int(uint32(tag) * 0x9e3779b1 >> 26) }

// trafficWith gives the counts for a rank of the group.
func (g *guard) trafficWith(peer int) *traffic {
	if g.traffic == nil {
		g.traffic = make([]*traffic, len(g.ranks))
	}
	if g.traffic[peer] == nil {
		g.traffic[peer] = new(traffic)
	}
	return g.traffic[peer]
}

// started counts a send or receive that the backend has accepted.
func (g *guard) started(w *guardedWork) {
	if w.kind == collective.Send {
		g.trafficWith(w.peer).started[share(w.tag)]++
		g.flowTo(w.peer).started.Add(tallyOf(1, g.group, w.tag))
	}
	if w.async {
		if len(g.messages) == cap(g.messages) {
			g.settle()
			g.messages = slices.Grow(g.messages, len(g.messages)+1)
		}
		g.messages = append(g.messages, w)
	}
}

// count counts a send or receive that has ended, once.
func (w *guardedWork) count() {
	if w.counted {
		return
	}
	w.counted = true
	peer := w.peer
	if peer == collective.AnySource {
		if peer = w.Source(); peer < 0 || peer >= len(w.g.ranks) {
			return // it failed
		}
	}
	if w.kind == collective.Send {
		w.g.trafficWith(peer).sent[share(w.tag)]++
		w.g.flowTo(peer).sent.Add(tallyOf(1, w.g.group, w.tag))
	} else {
		w.g.trafficWith(peer).received[share(w.tag)]++
		w.g.flowTo(peer).received.Add(tallyOf(1, w.g.group, w.tag))
		w.g.exchange(&w.g.received, peer, w.tag, collective.Position{})
	}
}

// settle counts the asynchronous sends and receives that have ended.
func (g *guard) settle() {
	g.messages = slices.DeleteFunc(g.messages, func(w *guardedWork) bool {
		done := w.inner.Done()
		if done {
			w.count()
		}
		return done
	})
}

func (b *Board) settle() {
	for _, g := range b.guards {
		g.settle()
	}
}

// ended counts the calls like w, to or from a rank of the group, that have ended.
func (g *guard) ended(w *guardedWork, peer int) uint32 {
	if w.kind == collective.Send {
		return g.trafficWith(peer).sent[share(w.tag)]
	}
	return g.trafficWith(peer).received[share(w.tag)]
}

// ended is where a rank that waits for a message writes how many calls of that kind with the other rank have ended.
func (b *Board) ended(rank, other int) *atomic.Uint32 {
	return sharedmem.At[atomic.Uint32](b.mem, b.endedAt+4*(rank*b.world+other))
}

// flow counts, on the board, the messages between two ranks in all groups and under all tags: messages of a rank
// that has returned may still be under way.
type flow struct{ started, sent, received tally }

// tally counts messages in its lower half and sums identifiers of their kind in the upper one. If two tallies
// differ by messages of one kind, the difference tells which kind.
type tally struct{ atomic.Uint64 }

func tallyOf(n, group uint32, tag int) uint64 {
	return uint64(n*(uint32(tag)*0x9e3779b1^group*0x85ebca6b))<<32 | uint64(n)
}

func (b *Board) flow(rank, other int) *flow {
	return sharedmem.At[flow](b.mem, b.flowsAt+int(unsafe.Sizeof(flow{}))*(rank*b.world+other))
}

func (g *guard) flowTo(peer int) *flow {
	if spoke := &g.board.needsOf(g.board.rank).spoke; spoke.Load() == 0 {
		spoke.Store(1)
	}
	return g.board.flow(g.board.rank, g.ranks[peer])
}

// flowGrace is how long to keep waiting for a message from or to a rank that has returned: that rank may have done
// its part before this one sees it, and still takes what is sent to it.
func (g *guard) flowGrace(w *guardedWork, rank int) time.Duration {
	if w.kind == collective.Send {
		return lastGrace
	}
	theirs, ours := g.board.flow(rank, g.board.rank), g.board.flow(g.board.rank, rank)
	open := theirs.started.Load() - ours.received.Load()
	switch n := uint32(open); {
	case int32(n) <= 0:
		return 0
	case open == tallyOf(n, g.group, w.tag):
		return lastGrace
	case n > 1: // one of them may be for this wait
		return severalGrace
	}
	return 0 // it is for another wait
}

// messageOf encodes a send or receive in a word: its direction, group and tag. A collective is 0.
func messageOf(kind collective.Kind, group uint32, tag int) uint64 {
	if !kind.PointToPoint() {
		return 0
	}
	return uint64(kind)<<56 | uint64(group)&(1<<24-1)<<32 | uint64(uint32(tag))
}

// answers reports whether this call is the other end of the message that rank peer of the group waits for.
func (w *guardedWork) answers(message uint64, peer int) bool {
	other := collective.Send
	if w.kind == collective.Send {
		other = collective.Recv
	}
	return w.seq == 0 && messageOf(other, w.g.group, w.tag) == message && (w.peer == peer || w.peer < 0)
}

// underWay reports whether this rank has already called the other end of the message that rank peer of the group
// waits for, given how many such messages have ended there. While this rank leaves, it takes in all that is sent to it.
func (g *guard) underWay(message uint64, ended uint32, peer int) bool {
	if peer < 0 {
		return false
	}
	tag := int(int32(uint32(message)))
	t := g.trafficWith(peer)
	switch message {
	case messageOf(collective.Recv, g.group, tag):
		return int32(t.started[share(tag)]-ended) > 0
	case messageOf(collective.Send, g.group, tag):
		return g.board.draining.Load() || int32(t.received[share(tag)]-ended) > 0 || slices.ContainsFunc(g.messages, func(w *guardedWork) bool { return w.answers(message, peer) })
	}
	return false
}

// move writes which ranks wait for messages that are under way from or to this rank. g is the guard whose call
// waits, or nil if the wait is not a call.
func (b *Board) move(g *guard) {
	b.settle()
	own := b.needsOf(b.rank)
	own.moving.clear()
	for r := range b.world {
		n := b.needsOf(r)
		message := n.message.Load()
		if n.mark.Load() == 0 || message == 0 || !n.ranks.has(b.rank) {
			continue
		}
		for _, other := range b.guards {
			peer := slices.Index(other.ranks, r)
			if other.underWay(message, b.ended(r, b.rank).Load(), peer) || other == g && g.waiting.answers(message, peer) {
				own.moving.add(r)
			}
		}
	}
}
