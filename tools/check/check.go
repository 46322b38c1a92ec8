// Package check finds faults in a recipe without running it: unknown names and
// attributes, calls whose arguments do not fit, and collectives that only some
// ranks would reach. `drun check` calls it with a recipe and the files it loads.
//
// Faults are found by an abstract interpretation. It takes every branch, follows calls with what is known about their
// arguments, and tracks for each value whether it may differ between ranks: the rank itself, received messages,
// batches, the clock, and all that is computed or chosen from these. Where a branch or loop depends on such a value,
// the sequences of collectives on its paths are compared. What a collective returns to all ranks is the same again.
// Shapes of tensors are inferred as far as the source determines them (shape.go). Whatever is unknown is assumed to
// be correct: a missed fault is better than a false alarm.
package check

import (
	"cmp"
	"slices"
	"strings"

	"drun/starlib/lang"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Severity of a finding: an Error would make the recipe fail; a Warning may mean a hang or unintended behaviour.
type Severity string

// The severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// A Finding is a fault at a position in a recipe.
type Finding struct {
	File     string   `json:"file"`
	Line     int      `json:"line"`
	Col      int      `json:"col"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
	// Certain is set if every run that lasts long enough reaches it, whatever the parameters.
	Certain bool `json:"-"`
}

// A File is a file of a recipe.
type File struct {
	Path string // beneath the recipe's folder
	*lang.File
}

// A Position is a position in a file.
type Position struct {
	File      string
	Line, Col int
}

// Inspect examines a recipe: its files, the recipe itself first. resolve gives the path of a module that the file from
// loads. Findings are sorted by position. The map has the shapes of names that stand for tensors of known shape: "(32, 128)
// float32", with ? for an unknown size.
func Inspect(ref *Reference, files []File, resolve func(from, module string) (string, error)) ([]Finding, map[Position]string) {
	ref.mu.Lock()
	defer ref.mu.Unlock()
	found := &findings{warned: map[string]bool{}}
	sources, shapes := make(map[string]*source, len(files)), map[Position]string{}
	for _, f := range files {
		sources[f.Path] = newSource(ref, f, found)
	}
	for path, s := range sources {
		for _, l := range s.file.Loads {
			if target, err := resolve(path, l.Module); err == nil {
				s.loads[l.Pos] = sources[target]
			}
		}
	}
	if len(files) > 0 {
		m := newMachine(ref, sources, found)
		m.run(sources[files[0].Path])
		for id, s := range m.shapes {
			if s != nil {
				shapes[Position{id.NamePos.Filename(), int(id.NamePos.Line), int(id.NamePos.Col)}] = s.String()
			}
		}
	}
	return Sort(found.list), shapes
}

// Sort orders findings by file, line and column, and drops repetitions.
func Sort(list []Finding) []Finding {
	last := map[bool]int{false: 1}
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), a.Line-b.Line, a.Col-b.Col, cmp.Compare(a.Message, b.Message), last[a.Certain]-last[b.Certain])
	})
	return slices.CompactFunc(list, func(a, b Finding) bool {
		b.Certain = a.Certain
		return a == b
	})
}

// FromError converts a language error to findings.
func FromError(e *lang.Error) []Finding {
	var f findings
	for _, fault := range append([]*lang.Error{e}, e.Also...) {
		f.add(fault.Pos, Error, fault.Msg)
	}
	return f.list
}

// A source is a file in the form that the machine needs.
type source struct {
	file      File
	lines     []string
	loads     map[syntax.Position]*source
	sound     bool // all names are known
	frame     *frame
	functions map[*resolve.Function]*object
	began     bool
}

func newSource(ref *Reference, f File, found *findings) *source {
	s := &source{file: f, lines: strings.Split(string(f.Source), "\n"), loads: map[syntax.Position]*source{},
		functions: map[*resolve.Function]*object{}, sound: true}
	if _, err := f.Compile(ref.env); err != nil {
		s.sound = false
		found.list = append(found.list, FromError(lang.Explain(nil, err))...)
	}
	// Unknown names are already reported; the others get resolved.
	_ = resolve.File(f.Syntax, ref.env.Has, starlark.Universe.Has)
	s.frame = &frame{file: s}
	return s
}

func (s *source) globals() []string {
	var names []string
	if module, ok := s.file.Syntax.Module.(*resolve.Module); ok {
		for _, b := range module.Globals {
			if b.First != nil {
				names = append(names, b.First.Name)
			}
		}
	}
	return names
}
