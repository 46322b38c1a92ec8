package check

import (
	"cmp"
	"slices"
	"strings"

	"drun/starlib"

	"go.starlark.net/resolve"
	"go.starlark.net/syntax"
)

// NoMain is the message of the finding that a recipe has no function main.
const NoMain = "there is no function main(): a recipe defines main(), which drun calls on every rank"

// run interprets a recipe: top levels, main, then the functions that were not called.
func (m *machine) run(main *source) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(exhausted); !ok {
				panic(p)
			}
		}
	}()
	m.topLevel(main)
	m.frame = main.frame
	m.calls.callMain(main)
	m.doubt++
	for {
		next := m.calls.uncalled()
		if next == nil {
			m.builtins.apart()
			return
		}
		m.frame, m.act, m.calls.running, m.calls.stack = next.frame, &activation{}, nil, nil
		before := m.branch()
		if m.deaf = 0; next.frame.fn != nil { // the variables of its enclosing function may have changed by then
			m.deaf = 1
		}
		m.calls.enter(next, &call{node: nil, pos: next.pos, text: next.name, spread: true})
		m.st = before
	}
}

// uncalled returns the first function that has not been interpreted yet.
func (cs *calls) uncalled() *object {
	var list []*object
	for _, file := range cs.files {
		for fn, o := range file.functions {
			if !cs.seen[fn] {
				list = append(list, o)
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	return slices.MinFunc(list, func(a, b *object) int {
		p, q := a.pos, b.pos
		return cmp.Or(cmp.Compare(p.Filename(), q.Filename()), cmp.Compare(p.Line, q.Line), cmp.Compare(p.Col, q.Col))
	})
}

// topLevel interprets the statements of a file, once.
func (m *machine) topLevel(file *source) {
	if file.began {
		return
	}
	file.began = true
	frame, act, loading := m.frame, m.act, m.loading
	m.frame, m.act, m.loading = file.frame, &activation{}, true
	before := m.st
	m.block(file.file.Syntax.Stmts)
	if m.st = eitherState(m.st, m.act.after); m.st == nil {
		m.st = before
	}
	m.frame, m.act, m.loading = frame, act, loading
}

func (m *memory) global(file *source, name string) (value, bool) {
	module, _ := file.file.Syntax.Module.(*resolve.Module)
	if module == nil {
		return same, false
	}
	for _, b := range module.Globals {
		if b.First != nil && b.First.Name == name {
			if v := m.st.vars.get(m.named(file.frame, b.First).id); v != nil {
				return *v, true
			}
			return same, true
		}
	}
	return same, false
}

func (cs *calls) callMain(main *source) {
	entry, ok := cs.global(main, "main")
	o := entry.only()
	switch {
	case !ok:
		tests := slices.ContainsFunc(main.globals(), func(name string) bool { return strings.HasPrefix(name, "test_") })
		if main.sound && !tests {
			name := main.file.Name
			cs.fault(syntax.MakePosition(&name, 1, 1), NoMain)
		}
		return
	case o == nil || o.kind != function:
		return
	}
	if err := starlib.FunctionFits(o.fn, 0, nil, false); err != nil {
		cs.fault(o.pos, "main is called without arguments: %v", err)
	}
	cs.enter(o, &call{pos: o.pos, text: "main"})
}
