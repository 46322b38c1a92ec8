// Package recipe reads a recipe and every file it loads, once, before any rank starts, so that all ranks run the
// same bytes and the history keeps exactly these. The agent reads the bundle; a worker compiles it.
package recipe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/lang"
	"drun/starlib/testing"
	"drun/starlib/universe"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Bundle is a recipe with all its files.
type Bundle struct {
	Name    string  // as the user named it; the prefix of every position
	Dir     string  // the recipe's folder, absolute
	Main    string  // the recipe's path beneath Dir
	Project Project // only if a file is loaded from the project's root
	Sources []records.Source
	Doc     string
}

// Display is the name under which positions show the file at path beneath Dir.
func Display(recipe, file string) string {
	return filepath.Join(filepath.Dir(recipe), filepath.FromSlash(file))
}

// Read reads the recipe and, in the order of their load statements, the files it loads. It checks their syntax; names
// are checked by Check.
func Read(name string) (*Bundle, error) {
	b, faults := ReadAll(name, nil)
	if len(faults) > 0 {
		return nil, faults[0]
	}
	return b, nil
}

// ReadAll is like Read, but goes on after an error in one file; it returns what it could read, and all errors. open, if not
// nil, replaces the disk for the files, by absolute path, that an editor has open.
func ReadAll(name string, open func(path string) ([]byte, bool)) (*Bundle, []error) {
	b, root, err := openWith(name, open)
	if err != nil {
		return nil, []error{err}
	}
	from := &folders{recipe: root, dir: b.Dir, open: open}
	defer from.close()
	return b, b.add(from, b.Main, nil)
}

func openWith(name string, open func(path string) ([]byte, bool)) (*Bundle, *os.Root, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil, nil, exit.Errorf(exit.Usage, "%s: %w", name, err)
	}
	b := &Bundle{Name: filepath.Clean(name), Dir: filepath.Dir(abs), Main: filepath.Base(abs)}
	root, err := os.OpenRoot(b.Dir)
	if open != nil {
		if _, ok := open(abs); ok { // its folder may not exist either
			return b, root, nil
		}
	}
	if err != nil {
		return nil, nil, unreadable(name, err)
	}
	info, err := root.Stat(b.Main)
	switch {
	case err != nil:
		err = unreadable(name, err)
	case info.IsDir():
		err = exit.WithHint(exit.Errorf(exit.Usage, "%s is a folder", name), "name a recipe in it, a .star file")
	default:
		return b, root, nil
	}
	root.Close()
	return nil, nil, err
}

// add reads one file and what it loads; loading is the chain of files that led to it.
func (b *Bundle) add(from *folders, file string, loading []string) (faults []error) {
	for i, outer := range loading {
		if outer == file {
			return []error{fmt.Errorf("files load each other in a cycle: %s", strings.Join(append(loading[i:len(loading):len(loading)], file), " -> "))}
		}
	}
	if b.Source(file) != nil {
		return nil
	}
	content, err := from.read(b.Project, file)
	if err != nil {
		if len(loading) == 0 {
			return []error{unreadable(b.Name, err)}
		}
		return []error{err}
	}
	parsed, err := lang.Parse(Display(b.Name, file), content)
	if err != nil {
		return []error{err}
	}
	role := "load"
	if len(loading) == 0 {
		b.Doc, role = parsed.Doc, "recipe"
	}
	b.Sources = append(b.Sources, records.NewSource(file, role, content))
	for _, load := range parsed.Loads {
		fromRoot := strings.HasPrefix(load.Module, "//")
		if fromRoot {
			if b.Project, err = from.find(); err != nil {
				faults = append(faults, unloadable(load, err))
				continue
			}
		}
		target, err := b.Project.Resolve(file, load.Module)
		if err != nil {
			faults = append(faults, unloadable(load, err))
			continue
		}
		for _, err := range b.add(from, target, append(loading[:len(loading):len(loading)], file)) {
			if fromRoot && errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("no such file in the project, whose root is %s", from.name)
			}
			faults = append(faults, unloadable(load, err))
		}
	}
	return faults
}

// unloadable gives an error of a loaded file a position: its own, or that of the load.
func unloadable(load lang.Load, err error) error {
	if located := (*lang.Error)(nil); errors.As(err, &located) {
		return err
	}
	return &lang.Error{Pos: load.Pos, Msg: fmt.Sprintf("cannot load %q: %s", load.Module, reason(err))}
}

// Check compiles every file for the environment that ranks will have, including the extra modules: unknown names
// are reported before anything starts.
func (b *Bundle) Check(extra ...string) (err error) {
	defer try.Caught(&err)
	env := universe.Names()
	if HaveTests(b.Sources) {
		extra = append(extra, "testing")
	}
	for _, name := range extra {
		env[name] = starlark.None
	}
	for _, s := range b.Sources {
		parsed := try.To(lang.Parse(Display(b.Name, s.Path), s.Content))
		try.To(parsed.Compile(env))
	}
	return nil
}

// Source finds a file of the bundle by its path beneath Dir; nil if absent.
func (b *Bundle) Source(file string) *records.Source {
	for i := range b.Sources {
		if b.Sources[i].Path == file {
			return &b.Sources[i]
		}
	}
	return nil
}

// Shown finds a file of the bundle by the name that positions show; nil if absent.
func (b *Bundle) Shown(name string) *records.Source {
	for i := range b.Sources {
		if Display(b.Name, b.Sources[i].Path) == name {
			return &b.Sources[i]
		}
	}
	return nil
}

// Text is the content of a file, by the name that positions show, for tracebacks.
func (b *Bundle) Text(name string) []byte {
	if s := b.Shown(name); s != nil {
		return s.Content
	}
	return nil
}

// Lines lists the lines of the statements of the file that positions show under this name; nil: there is none. marks says whether
// it is compiled with Marks.
func (b *Bundle) Lines(name string, marks bool) *lang.Lines {
	if s := b.Shown(name); s != nil {
		if parsed, err := lang.Parse(name, s.Content); err == nil {
			return parsed.Lines(marks)
		}
	}
	return nil
}

// Fault formats an error at a position in the files as shown, like a rank's: a one-line message, and an excerpt
// with the source line.
func (b *Bundle) Fault(file string, line, col int32, msg string) (message, excerpt string) {
	e := &lang.Error{Pos: syntax.MakePosition(&file, line, col), Msg: msg}
	message, excerpt, _ = strings.Cut(strings.TrimRight(e.Render(b.Text), "\n"), "\n")
	return message, excerpt
}

// maxFile limits how much of a file is read; lang reports larger ones with a position.
const maxFile = 16 << 20

func readFile(root *os.Root, file string) ([]byte, error) {
	f, err := starlib.OpenRegular(root, filepath.FromSlash(file))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile))
}

func unreadable(name string, err error) error {
	hint := ""
	if errors.Is(err, fs.ErrNotExist) && !strings.HasSuffix(name, ".star") {
		if _, err := os.Stat(name + ".star"); err == nil {
			hint = "did you mean " + name + ".star?"
		}
	}
	return exit.WithHint(exit.Errorf(exit.Usage, "cannot read the recipe %s: %s", name, reason(err)), hint)
}

// reason is the bare cause of a file system error.
func reason(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "no such file"
	case errors.Is(err, syscall.ELOOP):
		return "too many symbolic links"
	}
	return starlib.Cause(err).Error()
}

// Names reports whether the recipe, or a file that it loads, uses that name as an attribute: run.should_stop has
// should_stop.
func (b *Bundle) Names(attribute string) bool {
	found := false
	for _, s := range b.Sources {
		parsed, err := lang.Parse(s.Path, s.Content)
		if err != nil {
			return true // assume that it does
		}
		syntax.Walk(parsed.Syntax, func(n syntax.Node) bool {
			if dot, ok := n.(*syntax.DotExpr); ok && dot.Name.Name == attribute {
				found = true
			}
			return !found
		})
	}
	return found
}

// groupMakers are the builtins of dist that make groups with a backend of their own.
var groupMakers = []string{"new_group", "init_parallelism", "init_device_mesh", "split_group", "new_subgroups_by_enumeration"}

// NamesBackends reports whether the recipe may choose backends itself, for groups or for all ranks.
func (b *Bundle) NamesBackends() bool {
	says := func(text string) bool {
		return slices.ContainsFunc(b.Sources, func(s records.Source) bool { return bytes.Contains(s.Content, []byte(text)) })
	}
	return says("init_process_group") || says("backend") && slices.ContainsFunc(groupMakers, b.Names)
}

// Operation names what the recipe does at a position in its files as shown: the function it calls, or an operator;
// "" if nothing.
func (b *Bundle) Operation(position string) string {
	for _, s := range b.Sources {
		parsed, err := lang.Parse(Display(b.Name, s.Path), s.Content)
		if err != nil {
			continue
		}
		sites, err := lang.Sites(parsed)
		if err != nil {
			continue
		}
		for _, site := range sites {
			if site.Pos.String() == position {
				return site.Op
			}
		}
	}
	return ""
}

// A Test is a function test_* at the top level of a recipe.
type Test struct {
	Name string
	Line int
}

// Tests lists the tests in the recipe's own file, in file order.
func (b *Bundle) Tests() (list []Test, err error) {
	defer try.Caught(&err)
	parsed := try.To(lang.Parse(Display(b.Name, b.Main), b.Source(b.Main).Content))
	for _, stmt := range parsed.Syntax.Stmts {
		if def, ok := stmt.(*syntax.DefStmt); ok && strings.HasPrefix(def.Name.Name, testing.Prefix) {
			list = append(list, Test{def.Name.Name, int(def.Name.NamePos.Line)})
		}
	}
	return list, nil
}

var (
	firstTest = []byte("def " + testing.Prefix)
	laterTest = []byte("\ndef " + testing.Prefix)
)

// HaveTests reports whether any of a recipe's files has functions test_*. If so, all of them can use module testing.
func HaveTests(sources []records.Source) bool {
	return slices.ContainsFunc(sources, func(s records.Source) bool {
		return bytes.HasPrefix(s.Content, firstTest) || bytes.Contains(s.Content, laterTest)
	})
}

// Calls lists where the recipe, or a file that it loads, calls a module's function with that name: the calls that give
// an argument by name, if there are such, otherwise all.
func (b *Bundle) Calls(function, argument string) (positions []string) {
	var all []string
	for _, s := range b.Sources {
		parsed, err := lang.Parse(Display(b.Name, s.Path), s.Content)
		if err != nil {
			continue // it did not run either
		}
		syntax.Walk(parsed.Syntax, func(n syntax.Node) bool {
			call, is := n.(*syntax.CallExpr)
			if !is {
				return true
			}
			if dot, is := call.Fn.(*syntax.DotExpr); is && dot.Name.Name == function {
				all = append(all, call.Lparen.String())
				for _, arg := range call.Args {
					if given, is := arg.(*syntax.BinaryExpr); is && given.Op == syntax.EQ && given.X.(*syntax.Ident).Name == argument {
						positions = append(positions, call.Lparen.String())
					}
				}
			}
			return true
		})
	}
	if len(positions) == 0 {
		return all
	}
	return positions
}
