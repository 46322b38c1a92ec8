package check

import "drun/starlib"

// memory is what is known about variables and objects at the point that the machine has reached.
type memory struct {
	types map[string]*starlib.Methods

	st     *state // nil: this point is never reached
	frame  *frame
	writes []map[any]bool // what was written since each watch began
	steps  int            // steps of the interpretation so far
	vars   int            // number of variables

	objects map[site]*object
	frames  map[site]*frame
	reasons map[reason]*reason
	graphs  map[graph]*graph
}

func newMemory(types map[string]*starlib.Methods) *memory {
	return &memory{types: types, st: &state{}, objects: map[site]*object{}, frames: map[site]*frame{}, reasons: map[reason]*reason{}, graphs: map[graph]*graph{}}
}

func (m *memory) step(n int) {
	if m.steps += n; m.steps > maxSteps {
		panic(exhausted{})
	}
}

// branch copies the state for one of several branches.
func (m *memory) branch() *state {
	m.step(4)
	return m.st.clone()
}

func (m *memory) touch(what any) {
	if n := len(m.writes); n > 0 {
		m.writes[n-1][what] = true
	}
}

// reason returns the one reason with this content.
func (m *memory) reason(r reason) *reason {
	if known := m.reasons[r]; known != nil {
		return known
	}
	known := r
	known.id = len(m.reasons) + 1
	m.reasons[r] = &known
	return &known
}

// taint marks what was written in branches that only some ranks take as differing between ranks; before is the state before the branches.
func (m *memory) taint(written map[any]bool, before *state, why *reason) {
	if m.st == nil {
		return
	}
	m.step(len(written))
	for what := range written {
		switch what := what.(type) {
		case *variable:
			if v := m.st.vars.get(what.id); v != nil {
				w := differing(*v, why)
				m.st.vars.set(what.id, &w)
			}
		case *object:
			old, now := before.heap.get(what.id), m.st.heap.get(what.id)
			if old == nil || now == nil || old.equal(now) {
				continue
			}
			c := now.clone()
			if !c.elem.equal(old.elem) || len(c.fields) != len(old.fields) {
				c.diff = either(c.diff, why)
			}
			if !c.elem.equal(old.elem) {
				c.elem = differing(c.elem, why)
			}
			for k, v := range c.fields {
				if w, ok := old.fields[k]; !ok || !v.equal(w) {
					c.fields[k] = differing(v, why)
				}
			}
			m.st.heap.set(what.id, c)
		}
		m.touch(what)
	}
}

// unknown returns a value about which nothing is known except why it differs.
func (m *memory) unknown(node any, why *reason) value {
	if why == nil {
		return same
	}
	return m.made(node, "", why)
}
