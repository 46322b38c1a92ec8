package recipe

import (
	"cmp"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"

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
func (l *Loader) Load(thread *starlark.Thread, name string) (_ starlark.StringDict, err error) {
	defer try.Caught(&err)
	from := starlib.Position(thread).Filename()
	s := l.Bundle.Shown(from)
	try.FailIf(s == nil, "load from an unknown file %s", from)
	file := try.To(l.Bundle.Project.Resolve(s.Path, name))
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
	source := l.Bundle.Source(file)
	try.FailIf(source == nil, "cannot load %q: the captured recipe has no such file", file)
	parsed := try.To(lang.Parse(Display(l.Bundle.Name, file), source.Content))
	if l.Prepare != nil {
		l.Prepare(parsed)
	}
	program := try.To(parsed.Compile(l.Env))
	globals := try.To(program.Init(thread, l.Env))
	globals.Freeze()
	return globals, nil
}

// Project is the path of a recipe's folder beneath its project's root, with slashes: "" for the root itself.
type Project string

// Resolve gives the path, relative to the recipe's folder, of a module that the file from loads. A module named
// from the project's root, such as //lib/util.star, may have a path that leads up: ../lib/util.star.
func (p Project) Resolve(from, module string) (string, error) {
	named, fromRoot := strings.CutPrefix(module, "//")
	switch {
	case strings.Contains(module, "\\"), strings.Contains(module, "\x00"):
		return "", errors.New("a path has slashes, not backslashes")
	case fromRoot && (named == "" || path.IsAbs(named)):
		return "", errors.New("name a module of the project from its root, as in //lib/util.star")
	case module == "" || !fromRoot && path.IsAbs(module):
		return "", errors.New("name a module relative to the file that loads it, or from the project's root, as in //lib/util.star")
	}
	if !fromRoot && !strings.HasPrefix(from, "../") {
		target := path.Join(path.Dir(from), module)
		if target == ".." || strings.HasPrefix(target, "../") {
			return "", errors.New("it is outside the recipe's folder: name a module of the project from its root, as in //lib/util.star")
		}
		return target, nil
	}
	target := path.Clean(named)
	if !fromRoot {
		target = path.Join(string(p), path.Dir(from), module)
	}
	if target == ".." || strings.HasPrefix(target, "../") {
		return "", errors.New("it is outside the project")
	}
	return p.beneath(target), nil
}

// beneath gives the path from the recipe's folder to a file, given its path from the root.
func (p Project) beneath(target string) string {
	own, there := strings.Split(string(p), "/"), strings.Split(target, "/")
	if p == "" {
		own = nil
	}
	for len(own) > 0 && len(there) > 1 && own[0] == there[0] {
		own, there = own[1:], there[1:]
	}
	return strings.Repeat("../", len(own)) + strings.Join(there, "/")
}

type folders struct {
	recipe  *os.Root
	dir     string                           // of the recipe
	project *os.Root                         // nil: not looked for yet
	name    string                           // of the project's root
	open    func(path string) ([]byte, bool) // returns the files that are not to be read from the disk; may be nil
}

func (f *folders) close() {
	if f.recipe != nil {
		f.recipe.Close()
	}
	if f.project != nil {
		f.project.Close()
	}
}

// find opens the project's root: the nearest folder, from the recipe's upwards, that contains drun.toml; if none
// does, the nearest with .drun, which a run makes wherever it is started.
func (f *folders) find() (_ Project, err error) {
	defer try.Caught(&err)
	if f.project == nil {
		if f.name = cmp.Or(marked(f.dir, "drun.toml"), marked(f.dir, ".drun")); f.name == "" {
			return "", errors.New("the recipe is not in a project: an empty file drun.toml marks the project's root, as .drun does")
		}
		f.project = try.To(os.OpenRoot(f.name))
	}
	beneath := try.To(filepath.Rel(f.name, f.dir))
	if beneath == "." {
		beneath = ""
	}
	return Project(filepath.ToSlash(beneath)), nil
}

// marked is the nearest folder, from dir upwards, that contains name; "" if none does.
func marked(dir, name string) string {
	for {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
		dir = filepath.Dir(dir)
	}
}

// read reads a file, given its path relative to the recipe's folder.
func (f *folders) read(p Project, file string) ([]byte, error) {
	if f.open != nil {
		if content, ok := f.open(filepath.Join(f.dir, filepath.FromSlash(file))); ok {
			return content, nil
		}
	}
	root, of := f.recipe, "the recipe's folder"
	if strings.HasPrefix(file, "../") {
		root, of, file = f.project, "the project", path.Join(string(p), file)
	}
	if root == nil {
		return nil, os.ErrNotExist
	}
	content, err := readFile(root, file)
	if starlib.Cause(err) == starlib.ErrEscapes {
		err = errors.New("it leads out of " + of)
	}
	return content, err
}
