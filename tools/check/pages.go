package check

import "slices"

// Pages map small numbers to what is known about them. Copies share the pages that neither has changed since, so that
// a copy costs little and joining two takes time proportional to their differences.
type pages[V any] struct {
	list  []*page[V] // nil: nothing is known about any of its numbers
	owner *owner
}

const pageSize = 32

// A page belongs to the pages that have the same owner. Others copy it before they change it.
type page[V any] struct {
	owner *owner
	items [pageSize]*V // nil: nothing is known
}

type owner struct{ _ byte } // not of size 0, so that each has its own address

// get returns what is known about i; nil: nothing.
func (t *pages[V]) get(i int) *V {
	if p := i / pageSize; p < len(t.list) && t.list[p] != nil {
		return t.list[p].items[i%pageSize]
	}
	return nil
}

// set sets what is known about i, which is not negative, to v.
func (t *pages[V]) set(i int, v *V) {
	if t.owner == nil {
		t.owner = &owner{}
		t.list = slices.Clone(t.list)
	}
	at := i / pageSize
	if n := at + 1 - len(t.list); n > 0 {
		t.list = append(t.list, make([]*page[V], n)...)
	}
	if p := t.list[at]; p == nil || p.owner != t.owner {
		own := &page[V]{owner: t.owner}
		if p != nil {
			own.items = p.items
		}
		t.list[at] = own
	}
	t.list[at].items[i%pageSize] = v
}

// clone returns a copy. Later changes to either do not affect the other.
func (t *pages[V]) clone() pages[V] {
	t.owner = nil
	return *t
}

// merge adds what other knows to t: join combines two values for a number that are not equal. It reports whether t changed.
func (t *pages[V]) merge(other *pages[V], equal func(a, b *V) bool, join func(a, b *V) *V) (changed bool) {
	for p, theirs := range other.list {
		if theirs == nil || p < len(t.list) && t.list[p] == theirs {
			continue
		}
		for k, b := range theirs.items {
			a := t.get(p*pageSize + k)
			if b == nil || a == b {
				continue
			}
			if a != nil {
				if equal(a, b) {
					continue
				} else if b = join(a, b); equal(a, b) {
					continue
				}
			}
			t.set(p*pageSize+k, b)
			changed = true
		}
	}
	return changed
}
