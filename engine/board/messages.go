package board

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"drun/collective"
)

// mostTags is how many tags of a rank's messages in a group are counted separately.
const mostTags = 1 << 16

// tagged identifies the messages with another rank of a group under a tag.
type tagged struct{ peer, tag int }

// counted counts a recipe's messages with the other ranks of a group. A backend may finish a send long before its
// receiver looks for it, so only both counts together tell that a message was lost.
type counted struct{ sent, received map[tagged]*Count }

// exchange counts a message of the recipe once, by its second part.
func (g *guard) exchange(in *map[tagged]*Count, peer, tag int, at collective.Position) {
	if tag < collective.Body || tag >= 2*collective.Body {
		return // its first part, or a message of drun's own
	}
	key := tagged{peer, tag - collective.Body}
	n := (*in)[key]
	if n == nil {
		if *in == nil {
			*in = map[tagged]*Count{}
		}
		if len(*in) >= mostTags {
			key.tag = ManyTags
			n = (*in)[key]
		}
		if n == nil {
			n = &Count{Peer: g.ranks[peer], Tag: key.tag}
			(*in)[key] = n
		}
	}
	n.N++
	n.Last = at
}

// Exchanged returns the counts of a group's messages, which the board then forgets; nil if there were none.
func (b *Board) Exchanged(group uint32) *Messages {
	for _, g := range b.guards {
		if g.group == group {
			return g.takeExchanged()
		}
	}
	return nil
}

// AllExchanged returns the counts of all groups, likewise.
func (b *Board) AllExchanged() (all []Messages) {
	b.settle()
	for _, g := range b.guards {
		if m := g.takeExchanged(); m != nil {
			all = append(all, *m)
		}
	}
	return all
}

func (g *guard) takeExchanged() *Messages {
	g.settle()
	m := &Messages{Group: g.group, Sent: inOrder(g.counted.sent), Received: inOrder(g.counted.received)}
	g.counted = counted{}
	if m.Sent == nil && m.Received == nil {
		return nil
	}
	return m
}

func inOrder(counts map[tagged]*Count) (list []Count) {
	for _, n := range counts {
		list = append(list, *n)
	}
	slices.SortFunc(list, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Tag, b.Tag))
	})
	return list
}

// ManyTags stands for all tags beyond those that are counted separately.
const ManyTags = -1

// Messages that a recipe sent and never received are found by counting: each rank counts what it has sent to and
// received from each other rank, and once all have returned from main, or have left a group, the counts are compared.

// Count is how many messages a rank has exchanged with another, in one direction and under one tag.
type Count struct {
	_    struct{} `cbor:",toarray"` // no field names: a recipe may use many tags
	Peer int      // in the world
	Tag  int      // or ManyTags
	N    uint64
	Last collective.Position // where the last of them was sent
}

// Messages counts the messages that a rank has exchanged in a group.
type Messages struct {
	Group          uint32
	Sent, Received []Count // ordered by peer and tag
}

// Lost are messages from a rank to another that were sent and never received.
type Lost struct {
	Group    uint32
	From, To int
	Tag      int // or ManyTags
	N        uint64
	At       collective.Position // where the last of them was sent
}

type way struct {
	group    uint32
	from, to int
	tag      int
}

// Unreceived compares what each rank has sent with what the others have received. The result is ordered by group,
// sender, receiver and tag.
func Unreceived(ranks map[int][]Messages) []Lost {
	many := map[way]bool{} // streams whose tags are not told apart
	each := func(visit func(f way, n *Count, sent bool)) {
		for rank, groups := range ranks {
			for _, g := range groups {
				for i := range g.Sent {
					n := &g.Sent[i]
					visit(way{g.Group, rank, n.Peer, n.Tag}, n, true)
				}
				for i := range g.Received {
					n := &g.Received[i]
					visit(way{g.Group, n.Peer, rank, n.Tag}, n, false)
				}
			}
		}
	}
	each(func(f way, n *Count, _ bool) {
		if n.Tag == ManyTags {
			many[f] = true
		}
	})
	left := map[way]*Lost{}
	each(func(f way, n *Count, sent bool) {
		all := f
		all.tag = ManyTags
		if many[all] {
			f = all
		}
		l := left[f]
		if l == nil {
			l = &Lost{Group: f.group, From: f.from, To: f.to, Tag: f.tag}
			left[f] = l
		}
		if !sent {
			l.N -= n.N
			return
		}
		l.N += n.N
		if l.At == (collective.Position{}) || n.Tag == ManyTags {
			l.At = n.Last
		}
	})
	var lost []Lost
	for _, l := range left {
		if l.N != 0 {
			lost = append(lost, *l)
		}
	}
	slices.SortFunc(lost, func(a, b Lost) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Tag, b.Tag))
	})
	return lost
}

// String says who did not receive what, for the line that sent it.
func (l Lost) String() string {
	tag, group := fmt.Sprintf("with tag %d", l.Tag), ""
	if l.Tag == ManyTags {
		tag = "with one of many tags"
	}
	if l.Group != 0 {
		group = fmt.Sprintf(" on group %d", l.Group)
	}
	if l.N == 1 {
		return fmt.Sprintf("rank %d never received this message from rank %d %s%s", l.To, l.From, tag, group)
	}
	return fmt.Sprintf("rank %d never received %d messages from rank %d %s%s, of which this is the last", l.To, l.N, l.From, tag, group)
}

// DrainMessages takes in the messages sent to this rank, which has returned from main or is leaving a
// group, until it is stopped, so that their senders do not wait. Messages that nobody received are found by
// comparing counts, not by whether they fitted into a buffer.
func (b *Board) DrainMessages() (stop func()) {
	over, taken := make(chan struct{}), make(chan struct{})
	b.draining.Store(true)
	go func() {
		defer close(taken)
		const least, most = 100 * time.Microsecond, 10 * time.Millisecond
		for pause := least; ; pause = min(2*pause, most) {
			if b.takeArrived() {
				b.taken.Add(1)
				pause = least / 2
			}
			select {
			case <-over:
				return
			case <-time.After(pause):
			}
		}
	}()
	return func() {
		close(over)
		<-taken
		b.draining.Store(false)
	}
}

// takeArrived takes in the messages that have arrived, without waiting, and reports whether there were any.
func (b *Board) takeArrived() (some bool) {
	for _, g := range b.guards {
		if t, ok := g.comm.(collective.Taker); ok && t.TakeMessages() {
			some = true
		}
	}
	return some
}
