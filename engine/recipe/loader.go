package recipe

import (
	"fmt"

	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/lang"

	"go.starlark.net/starlark"
)

// A Loader executes each file of a recipe once.
type Loader struct {
	Bundle  *Bundle
	Env     starlark.StringDict
	Prepare func(*lang.File) // called before a file is compiled; may be nil

	loaded map[string]*module // by path
}

type module struct {
	globals starlark.StringDict
	err     error
}

// Load executes a load statement, as a thread's Load; name is relative to the file that contains it.
func (l *Loader) Load(thread *starlark.Thread, name string) (starlark.StringDict, error) {
	from := starlib.Position(thread).Filename()
	s := l.Bundle.Shown(from)
	if s == nil {
		return nil, fmt.Errorf("load from an unknown file %s", from)
	}
	file, err := l.Bundle.Project.Resolve(s.Path, name)
	if err != nil {
		return nil, err
	}
	return l.Exec(thread, file)
}

// Global is the value of a name at the top level of a file that has been executed, given by the name that positions show.
func (l *Loader) Global(file, name string) starlark.Value {
	if s := l.Bundle.Shown(file); s != nil && l.loaded[s.Path] != nil {
		return l.loaded[s.Path].globals[name]
	}
	return nil
}

// Exec executes a file's top level, unless it has been executed, and freezes its globals.
func (l *Loader) Exec(thread *starlark.Thread, file string) (starlark.StringDict, error) {
	m := l.loaded[file]
	if m == nil {
		if l.loaded == nil {
			l.loaded = map[string]*module{}
		}
		m = &module{}
		l.loaded[file] = m
		m.globals, m.err = l.exec(thread, file)
	}
	return m.globals, m.err
}

func (l *Loader) exec(thread *starlark.Thread, file string) (_ starlark.StringDict, err error) {
	defer try.Caught(&err)
	parsed := try.To(lang.Parse(Display(l.Bundle.Name, file), l.Bundle.Source(file).Content))
	if l.Prepare != nil {
		l.Prepare(parsed)
	}
	program := try.To(parsed.Compile(l.Env))
	globals := try.To(program.Init(thread, l.Env))
	globals.Freeze()
	return globals, nil
}
