// Package std is the part of recipes' builtins that is written in Starlark: functions of one to a few lines, made of other
// builtins. Gradients, the shapes that `drun check` infers, and every type of number come from what they are made of.
//
// A function's docstring begins with the builtin's signature, as in starlib.Def.Sig, and goes on with its documentation.
// Arguments are checked against the signature and passed by position, defaults filled in; a method's receiver comes first.
// Names that begin with _ are the file's own. A folder holds what belongs to one module or type.
//
// Nothing is read before a recipe uses a name that no Def in Go has, or all names are listed, so starting a rank costs nothing.
package std

import (
	"embed"
	"fmt"
	"path"
	"strings"
	"sync"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/lang"
)

//go:embed */*.star
var files embed.FS

// A source is a file with the functions that it declares.
type source struct {
	name string // methods/elementwise.star
	text []byte
	once sync.Once
	prog *starlark.Program
	err  error
}

// A folder has the builtins of one module or type.
type folder struct {
	once sync.Once
	defs []*starlib.Def
	in   map[string]*source // by the name of a function
}

var folders = map[string]*folder{"methods": {}, "tensor": {}, "linalg": {}, "functional": {}, "nn": {}, "random": {}}

// Defs returns the builtins that a folder declares. They are the same for all ranks of a process.
func Defs(dir string) []*starlib.Def {
	f := folders[dir]
	f.once.Do(func() { f.read(dir) })
	return f.defs
}

func (f *folder) read(dir string) {
	f.in = map[string]*source{}
	for _, entry := range try.To(files.ReadDir(dir)) {
		name := path.Join(dir, entry.Name())
		s := &source{name: name, text: try.To(files.ReadFile(name))}
		for _, part := range strings.Split("\n"+string(s.text), "\ndef ")[1:] {
			function, _, _ := strings.Cut(part, "(")
			_, doc, documented := strings.Cut(part, `"""`)
			if strings.HasPrefix(function, "_") || !documented {
				continue
			}
			doc, _, _ = strings.Cut(doc, `"""`)
			sig, text, _ := strings.Cut(doc, "\n")
			f.in[function] = s
			f.defs = append(f.defs, &starlib.Def{Sig: sig, Doc: strings.TrimSpace(strings.ReplaceAll(text, "\n    ", "\n")), TopLevel: dir != "nn",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					v, err := c.Compose(try.To(c.Library().Function(dir, function)))
					if m, ok := v.(interface{ Describe(kind, detail string) }); ok && dir == "nn" {
						m.Describe(function, c.Given())
					}
					return v, err
				}})
		}
	}
}

// program returns the compiled file.
func (s *source) program(env starlark.StringDict) (*starlark.Program, error) {
	s.once.Do(func() {
		file, err := lang.Parse(lang.Std+s.name, s.text)
		if err == nil {
			s.prog, err = file.Compile(env)
		}
		s.err = err
	})
	return s.prog, s.err
}

// A Library has one rank's instance of the functions.
type Library struct {
	env     starlark.StringDict
	mu      sync.Mutex
	globals map[*source]starlark.StringDict
}

// New makes a library whose functions find the names of env, a recipe's environment.
func New(env starlark.StringDict) *Library {
	return &Library{env: env, globals: map[*source]starlark.StringDict{}}
}

// Function returns a function of a folder.
func (l *Library) Function(dir, name string) (_ starlark.Callable, err error) {
	defer try.Caught(&err)
	Defs(dir) // a builtin in Go may be the first to ask
	s := folders[dir].in[name]
	try.FailIf(s == nil, "%s has no function %s", dir, name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.globals[s] == nil {
		program := try.To(s.program(l.env))
		globals := try.To(program.Init(&starlark.Thread{Name: s.name}, l.env))
		globals.Freeze()
		l.globals[s] = globals
	}
	fn, ok := l.globals[s][name].(starlark.Callable)
	if !ok {
		return nil, fmt.Errorf("%s has no function %s", s.name, name)
	}
	return fn, nil
}
