package board

import (
	"cmp"
	"slices"

	"drun/collective"
)

// mostTags is for how many tags a rank's messages in a group are counted separately.
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
