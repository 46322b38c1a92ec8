package check

// A variable is a name in one activation of a function.
type variable struct{ id int }

// A state is what is known at one point of the recipe.
type state struct {
	vars pages[value]    // by the numbers of variables
	heap pages[contents] // by the numbers of objects
	dead bool            // a condition with a known value excludes this point
}

func (s *state) clone() *state {
	return &state{vars: s.vars.clone(), heap: s.heap.clone(), dead: s.dead}
}

// merge makes s the state after either s or other, and reports whether s changed. What only one of them knows
// is taken over.
func (s *state) merge(other *state) (changed bool) {
	s.dead = s.dead && other.dead
	vars := s.vars.merge(&other.vars, func(a, b *value) bool { return a.equal(*b) }, func(a, b *value) *value {
		v := join(*a, *b)
		return &v
	})
	return s.heap.merge(&other.heap, (*contents).equal, joinContents) || vars
}

// eitherState returns the state after one of two states; a nil state is a point that is never reached.
func eitherState(a, b *state) *state {
	switch {
	case a == nil:
		return b
	case b != nil:
		a.merge(b)
	}
	return a
}

// shallow returns why a value's truth, number, length or number of iterations differs.
func (s *state) shallow(v value) *reason {
	why := v.diff
	for _, o := range v.refs {
		if c := s.heap.get(o.id); c != nil {
			why = either(why, c.diff)
		}
	}
	return why
}

// count returns why the number of iterations over a value differs.
func (s *state) count(v value) *reason {
	why := v.diff
	for _, o := range v.refs {
		if c := s.heap.get(o.id); c != nil && !c.shaped {
			why = either(why, c.diff)
		}
	}
	return why
}

// deep returns why anything in a value differs.
func (s *state) deep(values ...value) *reason {
	var why *reason
	seen := make(map[*object]bool)
	for len(values) > 0 {
		v := values[len(values)-1]
		values = values[:len(values)-1]
		why = either(why, v.diff)
		for _, o := range v.refs {
			c := s.heap.get(o.id)
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
