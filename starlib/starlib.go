// Package starlib is the wrapper through which everything a recipe can call is declared: one Def per builtin, with
// its signature as a user would write it. The wrapper checks arguments against that signature, knows the recipe
// position of the call, and turns a panic into an error. The packages below it (dist, tensor, nn, …) declare the
// modules; engine/worker gives them to a recipe, and `drun doc` prints them.
package starlib

import (
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"drun/internal/memory"
	"drun/internal/try"
	"drun/starlib/lang"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Stage is the stage that a rank's recipe is in.
type Stage uint8

const (
	// Loading is while top-level statements run; what they make is frozen afterwards.
	Loading Stage = iota
	// Running is while main() runs.
	Running
)

// Rank is one rank's instance of a recipe. Modules are built for a Rank, so that no state of a recipe lives in
// package variables.
type Rank struct {
	Rank, WorldSize      int
	LocalRank, LocalSize int
	NodeRank, NumNodes   int
	Peers                []int // the ranks of its node, in the order of their local ranks; nil if there is only one node
	Seed                 uint64
	Threads              int // threads that compute for it; 0: its share of the machine's
	Stage                Stage
	Files                *Files
	Outputs              *Outputs
	// Updates counts the updates of the rank's parameters: the steps of its optimizers. In a recipe without an
	// optimizer they are the steps that it logs.
	Updates int64
	// Optimizer is set once the recipe has made an optimizer.
	Optimizer bool
	// Divides lists the ranks among which its latest loader divides the samples; nil: it does not divide them.
	Divides []int
	// OnUpdate, if set, is called after each step of an optimizer, and, with before set, before its first one. params has the
	// parameters, in a fixed order.
	OnUpdate func(thread *starlark.Thread, params []Memory, of *Replica, before bool) error
	// OnLog, if set, is called for each run.log, before it records, with the step of its first metric.
	OnLog func(thread *starlark.Thread, step int64) error
	// OnBatch, if set, is called when a loader is asked for a batch.
	OnBatch func() error
	// Global, if set, returns the value of a top-level name in a file of the recipe; nil if there is none.
	Global func(file, name string) starlark.Value
	// Explain, if set, says where in the recipe an error of a function arose, and what it is. ended means that the thread
	// has been stopped, so that this rank cannot continue.
	Explain func(thread *starlark.Thread, err error) (where, what string, ended bool)
	// Library has the builtins that are written in Starlark.
	Library Library
	// At, if set, is called with the thread at each call of a module's builtin.
	At func(*starlark.Thread)
}

// Memory is a part of a rank's memory, Len bytes, which may be a device's: Bytes gives some of it, to be read at once.
type Memory interface {
	Len() int
	Bytes(from, to int) []byte
}

// Replica identifies an optimizer that every rank has, and whose parameters should stay equal on all ranks.
type Replica struct {
	At    syntax.Position // where the recipe made it
	Calls string          // the calls that led there
	Nth   int             // which of those that the same calls made
	Steps int64           // in this process
	State func() []Memory // what the optimizer knows of the parameters, such as averages; nil: before its first step, and where ranks divide it
}

// Parallel returns how many extra threads may work for the rank, such as those that read ahead.
func (r *Rank) Parallel() int {
	if r.Threads > 0 {
		return r.Threads
	}
	return max(1, runtime.NumCPU()/max(r.LocalSize, 1))
}

// Def declares one builtin.
type Def struct {
	// Sig is the signature, for example
	//
	//	all_reduce(t: Tensor | number, op: string = "sum", *, group = None) -> Tensor
	//
	// A parameter's type is optional. Types have Starlark's own names, or are number (int or float), float (accepts
	// an int too), callable, iterable or any. A default is a Starlark literal. `*args` and `**kwargs` are allowed,
	// and parameters after `*` are passed by name only.
	Sig string
	// Doc says what the builtin does, with shapes, units and errors.
	Doc string
	// TopLevel allows calls outside main().
	TopLevel bool
	// Fn does the work. Its error needs no prefix: the wrapper names the builtin.
	Fn func(*Call) (starlark.Value, error)

	once sync.Once
	sig  *signature
	err  error
}

// Name returns the builtin's name, from its signature.
func (d *Def) Name() string {
	name, _, _ := strings.Cut(d.Sig, "(")
	return name
}

func (d *Def) signature() (*signature, error) {
	d.once.Do(func() { d.sig, d.err = parseSignature(d.Sig) })
	return d.sig, d.err
}

// A Module is a named group of builtins and constants.
type Module struct {
	Name   string
	Doc    string
	Defs   []*Def
	Types  []*Methods          // the values that its builtins return, for the reference
	Values starlark.StringDict // attributes that are not builtins, such as run.id
	Call   *Def                // the builtin that a call of the module itself calls; may be nil
	// More, if set, returns further builtins. It is called when a name is not among the others, or all are wanted.
	More func() []*Def
}

// All returns all of the module's builtins.
func (m *Module) All() []*Def { return all(m.Defs, m.More) }

func all(defs []*Def, more func() []*Def) []*Def {
	if more == nil {
		return defs
	}
	return slices.Concat(defs, more())
}

func (m *Module) Build(r *Rank) starlark.Value {
	members := make(starlark.StringDict, len(m.Defs)+len(m.Values))
	maps.Copy(members, m.Values)
	for _, d := range m.Defs {
		members[d.Name()] = d.builtin(m.Name+"."+d.Name(), r)
	}
	v := &moduleValue{Opaque: "module", name: m.Name, members: members, methods: m.Types}
	if m.More != nil {
		v.more = func() {
			for _, d := range m.More() {
				members[d.Name()] = d.builtin(m.Name+"."+d.Name(), r)
			}
		}
	}
	if m.Call != nil {
		return &callableModule{v, m.Call.builtin(m.Name, r)}
	}
	return v
}

// Builtin makes a single builtin's value, for names that belong to no module.
func (d *Def) Builtin(r *Rank) starlark.Value { return d.builtin(d.Name(), r) }

// Methods declares the methods of a type of value.
type Methods struct {
	Type string
	Doc  string
	Defs []*Def
	// Attrs documents the type's other attributes, name to meaning.
	Attrs [][2]string
	// More is as a Module's.
	More func() []*Def

	once  sync.Once
	late  sync.Once
	bound map[string]*starlark.Builtin
	names []string

	further  map[string]*starlark.Builtin // those of More
	allNames []string
}

// Attr returns recv's method of this name; nil, nil if there is none, as starlark.HasAttrs wants.
func (m *Methods) Attr(recv starlark.Value, name string) (starlark.Value, error) {
	m.load()
	b := m.bound[name]
	if b == nil && m.More != nil {
		m.loadMore()
		b = m.further[name]
	}
	if b == nil {
		return nil, nil
	}
	return b.BindReceiver(recv), nil
}

// All returns all methods.
func (m *Methods) All() []*Def { return all(m.Defs, m.More) }

func (m *Methods) loadMore() {
	m.late.Do(func() {
		m.further = map[string]*starlark.Builtin{}
		names := m.names
		for _, d := range m.More() {
			m.further[d.Name()] = d.builtin(m.Type+"."+d.Name(), nil)
			names = append(names, d.Name())
		}
		m.allNames = slices.Sorted(slices.Values(names))
	})
}

// AttrNames lists the methods and documented attributes in order.
func (m *Methods) AttrNames() []string {
	m.load()
	if m.More == nil {
		return m.names
	}
	m.loadMore()
	return m.allNames
}

func (m *Methods) load() {
	m.once.Do(func() {
		m.bound = make(map[string]*starlark.Builtin, len(m.Defs))
		for _, d := range m.Defs {
			m.bound[d.Name()] = d.builtin(m.Type+"."+d.Name(), nil)
			m.names = append(m.names, d.Name())
		}
		for _, a := range m.Attrs {
			m.names = append(m.names, a[0])
		}
		slices.Sort(m.names)
	})
}

// builtin wraps the definition as a Starlark function. r may be nil for methods: an existing value may be used anywhere.
func (d *Def) builtin(name string, r *Rank) *starlark.Builtin {
	return starlark.NewBuiltin(name, func(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		return d.call(name, r, b.Receiver(), thread, args, kwargs)
	})
}

// maker is a value, a tensor, that tells a debugger by what builtin it was made.
type maker interface {
	Made(by string, recv starlark.Value, args ...starlark.Value)
}

var calls = sync.Pool{New: func() any { return new(Call) }}

func (d *Def) call(name string, r *Rank, recv starlark.Value, thread *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (result starlark.Value, err error) {
	sig, err := d.signature()
	if err != nil {
		return nil, err
	}
	if r != nil && r.Stage == Loading && !d.TopLevel {
		return nil, fmt.Errorf("%s cannot be called at top level: the top level is for constants, functions, run.params and load; call it in main()", name)
	}
	if r != nil && r.At != nil {
		r.At(thread)
	}
	c := calls.Get().(*Call)
	c.Name, c.Recv, c.Thread, c.rank = name, recv, thread, r
	defer func() {
		if p := recover(); p != nil {
			result, err = nil, Panicked(name, p)
		}
		c.reset()
		calls.Put(c)
	}()
	if err := c.bind(sig, args, kwargs); err != nil {
		return nil, &callError{name, layered(name, d, args, err)}
	}
	result, err = d.Fn(c)
	if err != nil {
		return nil, Failed(name, err)
	}
	if made, ok := result.(maker); ok {
		made.Made(name, recv, args...)
	}
	if result == nil {
		result = starlark.None
	}
	return result, nil
}

// Failed returns the error of a call of the named builtin that failed with err.
func Failed(name string, err error) error {
	if _, nested := err.(*starlark.EvalError); nested {
		return err // raised in a function of the recipe that the builtin called
	}
	return &callError{name, err}
}

// Panicked returns the error of a call that ended with a panic.
func Panicked(name string, p any) error {
	if err, is := try.Failure(p); is {
		return Failed(name, err)
	}
	if p, is := p.(interface {
		error
		Misuse()
	}); is { // a mistake in the recipe, found where no error could be returned
		return &callError{name, p}
	}
	if err := memory.Overflow(p); err != nil {
		return &callError{name, err}
	}
	return &PanicError{Builtin: name, Value: p, Stack: debug.Stack()}
}

// callError prefixes an error with the builtin that failed, such as Tensor.view, without repeating it if the operation's own error begins with view.
type callError struct {
	builtin string
	err     error
}

func (e *callError) Error() string {
	own := e.builtin[strings.LastIndexByte(e.builtin, '.')+1:] + ": "
	return e.builtin + ": " + strings.TrimPrefix(e.err.Error(), own)
}

func (e *callError) Unwrap() error { return e.err }

// PanicError is a bug in one of drun's builtins: it is reported like any other
// error, and the Go stack is kept for the log.
type PanicError struct {
	Builtin string
	Value   any
	Stack   []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("internal error: %v (a bug in drun, not in the recipe: please report it)", e.Value)
}

// Position returns where the innermost call from a recipe's file is.
func Position(thread *starlark.Thread) syntax.Position {
	for depth := range thread.CallStackDepth() {
		if pos := thread.DebugFrame(depth).Position(); lang.IsRecipe(pos) {
			return pos
		}
	}
	return syntax.Position{}
}
