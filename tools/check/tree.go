package check

// A tree maps small numbers to what is known about them. Copies share everything that neither has changed since, so that
// a copy costs nothing and joining two takes time proportional to their differences: the persistent vector of Clojure
// (Bagwell, Ideal Hash Trees, 2001), with nodes that their owner changes in place.
type tree[V any] struct {
	root   *node[V]
	height int // of root; leaves have 0
	owner  *owner
}

const (
	nodeBits = 4
	nodeSize = 1 << nodeBits
)

// A node belongs to the tree with its owner; others copy it before they change it.
type node[V any] struct {
	owner *owner
	nodes []*node[V] // nil in a leaf
	items []*V       // nil above leaves; nil: nothing is known
}

type owner struct{ _ byte } // not of size 0: each has an address of its own

// get is what is known about i; nil: nothing.
func (t *tree[V]) get(i int) *V {
	if i>>(nodeBits*(t.height+1)) != 0 {
		return nil
	}
	n := t.root
	for h := t.height; n != nil && h > 0; h-- {
		n = n.nodes[i>>(nodeBits*h)&(nodeSize-1)]
	}
	if n == nil {
		return nil
	}
	return n.items[i&(nodeSize-1)]
}

// set makes v what is known about i, which is not negative.
func (t *tree[V]) set(i int, v *V) {
	if t.owner == nil {
		t.owner = &owner{}
	}
	for i>>(nodeBits*(t.height+1)) != 0 {
		t.raise()
	}
	at := &t.root
	for h := t.height; ; h-- {
		*at = t.own(*at, h)
		if h == 0 {
			(*at).items[i&(nodeSize-1)] = v
			return
		}
		at = &(*at).nodes[i>>(nodeBits*h)&(nodeSize-1)]
	}
}

// raise adds a level.
func (t *tree[V]) raise() {
	if t.height++; t.root == nil {
		return
	}
	above := &node[V]{owner: t.owner, nodes: make([]*node[V], nodeSize)}
	above.nodes[0], t.root = t.root, above
}

// own is n or, if others may share it, a copy that belongs to this tree alone.
func (t *tree[V]) own(n *node[V], height int) *node[V] {
	if n != nil && n.owner == t.owner {
		return n
	}
	c := &node[V]{owner: t.owner}
	if height > 0 {
		c.nodes = make([]*node[V], nodeSize)
	} else {
		c.items = make([]*V, nodeSize)
	}
	if n != nil {
		copy(c.nodes, n.nodes)
		copy(c.items, n.items)
	}
	return c
}

// clone returns a copy. Later changes to either do not affect the other.
func (t *tree[V]) clone() tree[V] {
	t.owner = nil
	return *t
}

// merge adds what other knows to t: join combines two different values for a number. It reports whether t changed.
func (t *tree[V]) merge(other *tree[V], join func(a, b *V) *V) (changed bool) {
	for t.height < other.height {
		if t.owner == nil {
			t.owner = &owner{}
		}
		t.raise()
	}
	theirs := other.root
	for h := other.height; h < t.height && theirs != nil; h++ {
		above := &node[V]{nodes: make([]*node[V], nodeSize)}
		above.nodes[0], theirs = theirs, above
	}
	return t.mergeNode(t.root, theirs, t.height, 0, join)
}

func (t *tree[V]) mergeNode(mine, theirs *node[V], height, base int, join func(a, b *V) *V) (changed bool) {
	if mine == theirs || theirs == nil {
		return false
	}
	for i := range nodeSize {
		if height > 0 {
			var m *node[V]
			if mine != nil {
				m = mine.nodes[i]
			}
			if t.mergeNode(m, theirs.nodes[i], height-1, (base+i)<<nodeBits, join) {
				changed = true
			}
			continue
		}
		var a *V
		if mine != nil {
			a = mine.items[i]
		}
		b := theirs.items[i]
		if b == nil || a == b {
			continue
		}
		if a != nil {
			b = join(a, b)
		}
		if b != a {
			t.set(base+i, b)
			changed = true
		}
	}
	return changed
}
