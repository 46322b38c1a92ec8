// Package repl is the prompt of `drun repl`. It evaluates a recipe's statements one after the other, in its own process,
// as the only rank, and keeps nothing.
package repl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.starlark.net/starlark"

	"drun/engine/recipe"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/memory"
	"drun/internal/scratch"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/checkpoint"
	"drun/starlib/lang"
	"drun/starlib/universe"
	"drun/tensor"
)

// typed is the prefix of the names of what was typed: input 1.
const typed = "input"

// Options are the settings of `drun repl`.
type Options struct {
	Seed     uint64
	DataDirs []string
	Out      io.Writer // results and what is printed
	Err      io.Writer // errors
}

// A Session is a prompt with what has been defined at it.
type Session struct {
	Globals starlark.StringDict

	out, err io.Writer
	tensors  *tensor.Context
	reads    func(source []byte)
	dir      string
	outputs  *scratch.Dir
	thread   *starlark.Thread    // executes the current statement
	builtins starlark.StringDict // the names predeclared in files
	typed    map[string]string   // what was typed, by the names under which errors show it
	count    int
}

// New starts a session in the working directory. Close ends it.
func New(o Options) (_ *Session, err error) {
	defer try.Caught(&err)
	dir := try.To(os.Getwd())
	files := try.To(starlib.OpenFiles(dir, o.DataDirs...))
	s := &Session{typed: map[string]string{}, out: o.Out, err: o.Err, dir: dir}
	s.outputs = try.To(scratch.Make("repl-"))
	rank := &starlib.Rank{WorldSize: 1, LocalSize: 1, NumNodes: 1, Seed: o.Seed, Stage: starlib.Running, Files: files, Outputs: starlib.NewOutputs(s.outputs.Path, 1)}
	files.Largest = memory.LargestValue()
	u := universe.New(universe.Host{
		Rank: rank, Recorder: nowhere{}, Store: nowhere{}, Backend: "none", Timeout: time.Minute,
		Context: context.Background(), Stop: func() bool { return false },
	})
	s.Globals, s.builtins, s.tensors, s.reads = maps.Clone(u.Env), u.Env, u.Tensors, u.Reads
	s.tensors.Fail = func(err error) {
		if s.thread != nil {
			lang.Cancel(s.thread, err)
		}
	}
	return s, nil
}

// Close removes the files that the session has written.
func (s *Session) Close() { s.outputs.Remove() }

// Read reads the lines of one statement; readline gives each without its end.
func Read(readline func() (string, error)) (string, error) {
	src, err := lang.ReadStatement(typed, func() ([]byte, error) {
		line, err := readline()
		return []byte(line + "\n"), err
	})
	return string(src), err
}

// Execute executes a statement, and prints the value of an expression. interrupted ends it. It reports whether it
// succeeded; errors are printed.
func (s *Session) Execute(src string, interrupted <-chan os.Signal) bool {
	s.count++
	name := fmt.Sprintf("%s %d", typed, s.count)
	s.typed[name] = src
	err := s.execute(interrupted, func(thread *starlark.Thread) error {
		s.reads([]byte(src))
		file, err := lang.Parse(name, []byte(src))
		if err != nil {
			return err
		}
		v, err := file.Run(thread, s.Globals)
		if err == nil && v != nil && v != starlark.None {
			if err = lang.CheckDepth(v); err == nil {
				_, err = fmt.Fprintln(s.out, v)
			}
		}
		return err
	})
	return s.report(err)
}

// Load executes a recipe's top level, and takes over everything that it defines.
func (s *Session) Load(name string) bool {
	err := s.execute(nil, func(thread *starlark.Thread) (err error) {
		defer try.Caught(&err)
		abs := try.To(filepath.Abs(name))
		bundle := try.To(recipe.Read(abs))
		globals, err := s.exec(thread, bundle, bundle.Main)
		for name, v := range globals {
			s.Globals[name] = v
		}
		return err
	})
	return s.report(err)
}

func (s *Session) report(err error) bool {
	if err == nil {
		return true
	}
	text := err.Error()
	if e := (*lang.Error)(nil); errors.As(err, &e) && len(e.Frames) > 1 {
		text = e.Render(s.source)
	}
	fmt.Fprintln(s.err, terminal.Lines(strings.TrimRight(text, "\n")))
	return false
}

// source returns the text of what was typed, for the lines of a traceback; files are not quoted.
func (s *Session) source(name string) []byte {
	return []byte(s.typed[name])
}

var errInterrupted = errors.New("interrupted")

func (s *Session) execute(interrupted <-chan os.Signal, do func(*starlark.Thread) error) error {
	thread := &starlark.Thread{Name: "prompt", Print: func(_ *starlark.Thread, text string) { fmt.Fprintln(s.out, text) }}
	lang.Watch(thread)
	defer lang.Bound(thread, func(e *lang.Error) {
		s.report(e)
		s.Close()
		os.Exit(int(exit.Recipe))
	})()
	thread.Load = s.load
	s.thread = thread
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-interrupted:
			lang.Cancel(thread, errInterrupted)
		case <-done:
		}
	}()
	return do(thread)
}

// load carries out a load statement at the prompt: the file is read each time, so that changes take effect.
func (s *Session) load(thread *starlark.Thread, module string) (starlark.StringDict, error) {
	main := filepath.Join(s.dir, typed)
	bundle, faults := recipe.ReadAll(main, func(path string) ([]byte, bool) {
		return []byte(fmt.Sprintf("load(%q, %q)\n", module, "x")), path == main
	})
	if len(faults) > 0 {
		return nil, faults[0]
	}
	target, err := bundle.Project.Resolve(bundle.Main, module)
	if err != nil {
		return nil, err
	}
	return s.exec(thread, bundle, target)
}

// exec executes a file of a bundle, and those that it loads.
func (s *Session) exec(thread *starlark.Thread, bundle *recipe.Bundle, file string) (starlark.StringDict, error) {
	l := &recipe.Loader{Bundle: bundle, Env: s.builtins}
	defer func() { thread.Load = s.load }()
	thread.Load = l.Load
	globals, err := l.Exec(thread, file)
	if err != nil {
		return nil, lang.Explain(thread, err)
	}
	return globals, nil
}

// nowhere discards the records of a prompt, and refuses checkpoints.
type nowhere struct{}

func (nowhere) Log(records.Point)                                   {}
func (nowhere) Tag([]string)                                        {}
func (nowhere) Note(records.Note)                                   {}
func (nowhere) Artifact(records.Artifact)                           {}
func (nowhere) Progress(records.Progress)                           {}
func (nowhere) Say(string)                                          {}
func (nowhere) Save(int64, *float64, bool, []checkpoint.Item) error { return errNone }
func (nowhere) Restore(string) (*checkpoint.Restored, error)        { return nil, nil }

var errNone = errors.New("a prompt keeps no checkpoints")

// Complete offers completions of what precedes the cursor: tensor.ze, x.sh.
func (s *Session) Complete(text string, pos int) (head string, words []string, tail string) {
	runes := []rune(text)
	pos = min(pos, len(runes))
	start := pos
	for start > 0 && (runes[start-1] == '.' || runes[start-1] == '_' || runes[start-1] >= '0' && runes[start-1] <= '9' ||
		runes[start-1] >= 'a' && runes[start-1] <= 'z' || runes[start-1] >= 'A' && runes[start-1] <= 'Z') {
		start--
	}
	path := strings.Split(string(runes[start:pos]), ".")
	prefix := strings.Join(path[:len(path)-1], ".")
	var names []string
	if prefix == "" {
		names = append(s.Globals.Keys(), starlark.Universe.Keys()...)
	} else {
		v := s.Globals[path[0]]
		for _, name := range path[1 : len(path)-1] {
			if has, ok := v.(starlark.HasAttrs); ok {
				v, _ = has.Attr(name)
			}
		}
		if has, ok := v.(starlark.HasAttrs); ok {
			names = has.AttrNames()
		}
		prefix += "."
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if strings.HasPrefix(name, path[len(path)-1]) && (name[0] == '_' || name[0] >= 'A') && !strings.ContainsAny(name, " <>=!%*+.") {
			words = append(words, prefix+name)
		}
	}
	return string(runes[:start]), words, string(runes[pos:])
}
