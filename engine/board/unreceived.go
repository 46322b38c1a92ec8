package board

import (
	"cmp"
	"fmt"
	"slices"

	"drun/collective"
)

// ManyTags stands for all tags beyond those that are counted separately.
const ManyTags = -1

// Messages that a recipe sent and never received are found by counting: each rank counts what it has sent to and
// received from each other rank, and once all have returned from main, or have left a group, the counts are
// compared.

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

// way identifies a stream of messages.
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
