package tensor

import (
	"slices"
	"sync"
	"unsafe"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/starlib"
	"drun/tensor"
)

// A result that goes straight from one builtin into the next, as that of layer(x) in layer(x).backward(), has no
// remaining references: its memory can be reused at once, while Go's collector would find it much later. Only the
// interpreter knows who holds a value, and does not tell; but it counts its instructions.
//
// Let v be what a call, instruction s, returned, and an argument of the call that is instruction s + d, with m values
// above it on the interpreter's stack (what is given after it, two for a name and its value), m ≤ 1. The m values were put
// there after v, by an instruction each, so d ≥ m + 1. Where d = m + 1 there was no other instruction: v still is
// where it was returned to, nothing has read it there, and the call has taken it away. To keep v would take one more:
// a store, or a call or an operator that is given v and may return it as well (dict.setdefault). No instruction
// of the compiler's reads v on the stack and leaves it there but DUP and DUP2, which CJMP, ATTR or INDEX follow
// and no call. Elements of a sequence (*args) are on the stack as one value, whatever their number; package lang
// has that pass an operator. So a v out of a sequence was put into it (1), passed the operator (1), and was given to the call (1): d ≥ 3.
//
// A method's receiver takes one instruction more: ATTR, which makes the bound method in v's place. The m values come
// after it, m ≤ 3: d ≥ m + 2, and where it is equal nothing else was done with v. *args and **kwargs as
// arguments would be three instructions after it, whatever their number (the operator, what it passes, and passing), and a v that
// was kept one before it: d ≥ 6. getattr(v, "name") is like ATTR; no other builtin gives a bound method of what it is given.
//
// A result that a statement drops, as a.matmul(b) alone on a line, has no references either, but counting does not prove
// it: that POP comes after it takes one instruction, as the store of x = a.matmul(b) does, and all that follows is the
// same. package lang could pass such statements' values to an operator, two instructions for each call that is a statement
// (opt.step()), for results that recipes hardly ever drop. So they are left to the collector.
//
// Both calls must be the interpreter's, since a builtin that calls another needs no instruction to keep a value: the frame at
// the bottom is the callee's own, and the one before it a function's of a recipe. Operators have no frame, and take no part.
//
// Only builtins that keep no reference to their arguments and results take part (Passing): operations and layers,
// whose graph records which tensors it needs until the backward pass. Nothing is freed if the result may share the
// memory. If all this were wrong for one of them, a tensor without memory would be used: an error, never a wrong number.

// returned is what a thread's latest such call has returned.
type returned struct {
	value uintptr // the address of a large tensor that nothing else views, not kept alive by this; or 0
	at    uint64  // the instruction count
}

const passing = "what drun's builtins pass on"

// How many values may lie above an argument, and above a receiver's bound method.
const (
	aboveArgument = 1
	aboveMethod   = 3
)

// Passed is called after builtins that keep no reference to their arguments and results. It frees the memory of an
// argument that nobody else has, and records the result.
func Passed(p starlib.Passing) {
	out, _ := p.Out.(*Value)
	sole := out != nil && tensor.Sole(out.Tensor())
	if !sole && !givenSole(p) || !byInterpreter(p) || !countsInstructions() {
		return
	}
	last, _ := p.Thread.Local(passing).(*returned)
	if last == nil {
		last = new(returned)
		p.Thread.SetLocal(passing, last)
	}
	steps := p.Thread.ExecutionSteps()
	v := straight(p, last.value, steps-last.at)
	if v != nil && !shown(p.Out, v) {
		tensor.Release(v.Tensor())
	}
	*last = returned{}
	if sole && (v == out || !given(p, out)) && out.Tensor().Context().Watch == nil {
		*last = returned{address(out), steps}
	}
}

// straight is the argument that is the value at this address, if it was passed on as soon as possible, instructions
// instructions after it was returned.
func straight(p starlib.Passing, value uintptr, instructions uint64) *Value {
	above := len(p.Args) + 2*len(p.Kwargs)
	if v := soleValue(p.Recv); v != nil && address(v) == value {
		if above <= aboveMethod && instructions == uint64(above)+2 {
			return v
		}
		return nil
	}
	for i, a := range p.Args {
		above := above - i - 1
		if v := soleValue(a); v != nil && address(v) == value && above <= aboveArgument && instructions == uint64(above)+1 {
			return v
		}
	}
	return nil
}

func address(v *Value) uintptr { return uintptr(unsafe.Pointer(v)) }

// soleValue is v as a large tensor that nothing else views; nil for any other value.
func soleValue(v starlark.Value) *Value {
	if t, ok := v.(*Value); ok && tensor.Sole(t.Tensor()) {
		return t
	}
	return nil
}

func givenSole(p starlib.Passing) bool {
	if soleValue(p.Recv) != nil {
		return true
	}
	for _, a := range p.Args {
		if soleValue(a) != nil {
			return true
		}
	}
	return false
}

// given reports whether v is among the call's arguments.
func given(p starlib.Passing, v *Value) bool {
	same := func(a starlark.Value) bool { t, ok := a.(*Value); return ok && t == v }
	return same(p.Recv) || slices.ContainsFunc(p.Args, same) || slices.ContainsFunc(p.Kwargs, func(kv starlark.Tuple) bool { return same(kv[1]) })
}

// shown reports whether a result may share v's memory.
func shown(out starlark.Value, v *Value) bool {
	switch out := out.(type) {
	case *Value:
		return tensor.SharesStorage(out.Tensor(), v.Tensor())
	case starlark.NoneType, starlark.Bool, starlark.Int, starlark.Float:
		return false
	}
	return true
}

// byInterpreter reports whether a function of the recipe called the builtin.
func byInterpreter(p starlib.Passing) bool {
	if p.Thread.CallStackDepth() < 2 || p.Thread.DebugFrame(0).Callable() != p.Callee {
		return false
	}
	_, ok := p.Thread.DebugFrame(1).Callable().(*starlark.Function)
	return ok
}

// countsInstructions reports whether the interpreter counts as assumed here. If its authors change what is counted, nothing
// is freed.
var countsInstructions = sync.OnceValue(func() bool {
	const source = `
take(make())
take(make(), 1)
take(1, make())
take(make(), name = 1)
make().take()
make().take(1)
make().take(name = 1)
x = make()
take(x)
def f(y): take(y)
f(make())
take(keep(make()))
keep(make()).take()
take(make() or 1)
`
	want := []uint64{1, 2, 1, 3, 2, 3, 4, 4, 4, 2, 3, 3}
	var made uint64
	var got []uint64
	take := starlark.NewBuiltin("take", func(thread *starlark.Thread, _ *starlark.Builtin, _ starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		got = append(got, thread.ExecutionSteps()-made)
		return starlark.None, nil
	})
	env := starlark.StringDict{
		"take": take,
		"make": starlark.NewBuiltin("make", func(thread *starlark.Thread, _ *starlark.Builtin, _ starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
			made = thread.ExecutionSteps()
			return &probe{take}, nil
		}),
		"keep": starlark.NewBuiltin("keep", func(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
			return args[0], nil
		}),
	}
	_, err := starlark.ExecFileOptions(&syntax.FileOptions{}, new(starlark.Thread), "count", source, env)
	return err == nil && slices.Equal(got, want)
})

// probe is a value with the method take.
type probe struct{ take *starlark.Builtin }

func (p *probe) String() string                           { return "probe" }
func (p *probe) Type() string                             { return "probe" }
func (p *probe) Freeze()                                  {}
func (p *probe) Truth() starlark.Bool                     { return true }
func (p *probe) Hash() (uint32, error)                    { return 0, nil }
func (p *probe) Attr(name string) (starlark.Value, error) { return p.take.BindReceiver(p), nil }
func (p *probe) AttrNames() []string                      { return nil }

// Passing declares that these builtins keep no reference to their arguments and results.
func Passing(defs []*starlib.Def) []*starlib.Def {
	for _, d := range defs {
		d.After = Passed
	}
	return defs
}
