package check

import (
	"maps"

	"go.starlark.net/syntax"
)

// A variable is a name in one activation of a function; first is the identifier
// that binds it first, which the resolver shares among all its uses.
type variable struct {
	frame *frame
	first *syntax.Ident
}

// A state is what is known at one point of the recipe.
type state struct {
	vars map[variable]value
	heap map[*object]*contents
	dead bool // a condition that is known leads elsewhere
}

func newState() *state {
	return &state{vars: make(map[variable]value), heap: make(map[*object]*contents)}
}

func (s *state) clone() *state {
	return &state{vars: maps.Clone(s.vars), heap: maps.Clone(s.heap), dead: s.dead}
}

// merge makes s what holds after either s or other, and reports whether s changed.
func (s *state) merge(other *state) (changed bool) {
	s.dead = s.dead && other.dead
	vars, heap := mergeInto(s.vars, other.vars, join), mergeInto(s.heap, other.heap, joinContents)
	return vars || heap
}

// mergeInto joins each entry of other with that of all, and reports whether all
// changed. An entry that only one of them has is as that one has it.
func mergeInto[K comparable, V interface{ equal(V) bool }](all, other map[K]V, join func(a, b V) V) (changed bool) {
	for k, w := range other {
		v, ok := all[k]
		if ok && v.equal(w) {
			continue
		}
		if ok {
			w = join(v, w)
		}
		if !ok || !w.equal(v) {
			all[k], changed = w, true
		}
	}
	return changed
}

// eitherState is what is known after one of two states; nil is a point that is never
// reached.
func eitherState(a, b *state) *state {
	switch {
	case a == nil:
		return b
	case b != nil:
		a.merge(b)
	}
	return a
}

// shallow is why a value's truth, number, length or count of rounds differs.
func (s *state) shallow(v value) *reason {
	why := v.diff
	for _, o := range v.refs {
		if c := s.heap[o]; c != nil {
			why = either(why, c.diff)
		}
	}
	return why
}

// count is why the number of rounds of a loop over a value differs.
func (s *state) count(v value) *reason {
	why := v.diff
	for _, o := range v.refs {
		if c := s.heap[o]; c != nil && !c.shaped {
			why = either(why, c.diff)
		}
	}
	return why
}

// deep is why anything in a value differs.
func (s *state) deep(values ...value) *reason {
	var why *reason
	seen := make(map[*object]bool)
	for len(values) > 0 {
		v := values[len(values)-1]
		values = values[:len(values)-1]
		why = either(why, v.diff)
		for _, o := range v.refs {
			c := s.heap[o]
			if c == nil || seen[o] || o.kind == function {
				continue
			}
			seen[o] = true
			why = either(why, c.diff)
			values = append(values, c.elem)
			for _, f := range c.fields {
				values = append(values, f)
			}
		}
	}
	return why
}
