package debug

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"go.starlark.net/starlark"

	"drun/engine"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/lang"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// stack lists the recipe's calls under way, innermost first.
func (a *Agent) stack() (list []engine.DebugFrame) {
	a.frames = a.frames[:0]
	for depth := range a.Thread.CallStackDepth() {
		fr := a.Thread.DebugFrame(depth)
		pos := fr.Position()
		fn, ok := fr.Callable().(*starlark.Function)
		if !ok || !lang.IsRecipe(pos) {
			continue
		}
		a.frames = append(a.frames, depth)
		f := engine.DebugFrame{Func: fn.Name(), At: fn.Position().String(), File: pos.Filename(), Line: pos.Line, Col: pos.Col}
		if depth == 0 { // it is at the beginning of a statement, or in its midst
			if at := a.placeAt(0); at.line > 0 {
				f.Line = at.line
			}
		}
		list = append(list, f)
	}
	return list
}

// frame gives a frame of stack.
func (a *Agent) frame(i int) (starlark.DebugFrame, *starlark.Function, error) {
	if i < 0 || i >= len(a.frames) || a.frames[i] >= a.Thread.CallStackDepth() {
		return nil, nil, errors.New("there is no such call")
	}
	fr := a.Thread.DebugFrame(a.frames[i])
	fn, ok := fr.Callable().(*starlark.Function)
	if !ok {
		return nil, nil, errors.New("the call is over")
	}
	return fr, fn, nil
}

// named is a variable.
type named struct {
	name  string
	value starlark.Value
}

// locals lists the variables of a call, and those of functions around its function that it uses.
func locals(fr starlark.DebugFrame, fn *starlark.Function) (list []named) {
	for i := range fr.NumLocals() {
		b, v := fr.Local(i)
		if v = content(v); v != nil {
			list = append(list, named{b.Name, v})
		}
	}
	for i := range fn.NumFreeVars() {
		if b, v := fn.FreeVar(i); v != nil {
			list = append(list, named{b.Name, v})
		}
	}
	return list
}

// content is the value of a variable that functions within the function use, too: go.starlark.net keeps it in a cell, a
// struct of one field, which it does not export.
func content(v starlark.Value) starlark.Value {
	if v == nil || v.Type() != "cell" {
		return v
	}
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.Elem().Kind() != reflect.Struct || p.Elem().NumField() != 1 || p.Elem().Type().Field(0).Type != reflect.TypeFor[starlark.Value]() {
		return nil
	}
	return *(*starlark.Value)(unsafe.Pointer(p.Pointer()))
}

// globals lists what a function's file defines.
func globals(fn *starlark.Function) (list []named) {
	dict := fn.Globals()
	for _, name := range dict.Keys() {
		if v := dict[name]; v != nil && starlarkName(name) {
			list = append(list, named{name, v})
		}
	}
	return list
}

func starlarkName(name string) bool { return syntaxName(name) && name != lang.Result }

func syntaxName(name string) bool {
	return name != "if" && strings.IndexFunc(name, func(r rune) bool { return strings.ContainsRune(" <>=!%*+()?", r) }) < 0
}

// parse compiles an expression that changes nothing.
func (a *Agent) parse(src string) (*lang.Expression, error) { return Parse(src, a.Env) }

// Parse compiles an expression for the environment of recipes. It refuses one that may change something.
func Parse(src string, env starlark.StringDict) (*lang.Expression, error) {
	return lang.ParseExpression("expression", src, env, purity{})
}

// evaluationSteps limits how long the evaluation of an expression may take.
const evaluationSteps = 1_000_000

// evaluate evaluates an expression in a frame, at a depth of the thread's stack. The recipe's thread does not notice.
func (a *Agent) evaluate(e *lang.Expression, depth int) (v starlark.Value, err error) {
	fr := a.Thread.DebugFrame(depth)
	fn, ok := fr.Callable().(*starlark.Function)
	if !ok {
		return nil, errors.New("the call is over")
	}
	var own []named
	var dict starlark.StringDict
	lookup := func(name string) starlark.Value {
		if own == nil {
			own = locals(fr, fn)
		}
		for _, n := range own {
			if n.name == name {
				return n.value
			}
		}
		if v := a.Env[name]; v != nil && dict == nil && !slices.ContainsFunc(own, func(n named) bool { return n.name == name }) {
			if v := fn.Globals()[name]; v != nil {
				return v
			}
			return v
		}
		if dict == nil {
			dict = fn.Globals()
		}
		if v := dict[name]; v != nil {
			return v
		}
		if v := a.Env[name]; v != nil {
			return v
		}
		return starlark.Universe[name]
	}
	thread := &starlark.Thread{Name: "debugger", Print: func(*starlark.Thread, string) {}}
	thread.SetMaxExecutionSteps(evaluationSteps)
	defer a.apart()()
	defer func() {
		if p := recover(); p != nil {
			v, err = nil, fmt.Errorf("it cannot be evaluated: %v", p)
		}
	}()
	return e.Value(thread, lookup)
}

// apart keeps what is computed from being part of the recipe's computation, until the function that it returns is called.
func (a *Agent) apart() (end func()) {
	fail := a.Tensors.Fail
	a.Tensors.Fail = nil
	a.evaluates = true
	a.Tensors.BeginNoGrad()
	return func() {
		a.Tensors.EndNoGrad()
		a.Tensors.Fail, a.evaluates = fail, false
	}
}

// look answers what values there are.
func (a *Agent) look(l *engine.Look, answer *engine.Debugged) (err error) {
	defer try.Caught(&err)
	if l.Of > 0 {
		try.FailIf(l.Of > len(a.parts), "the rank has gone on since")
		answer.Values = a.shown(partsOf(a.parts[l.Of-1]))
		return nil
	}
	fr, fn := try.To2(a.frame(l.Frame))
	switch l.Scope {
	case engine.Locals:
		answer.Values = a.shown(locals(fr, fn))
		return nil
	case engine.Globals:
		answer.Values = a.shown(globals(fn))
		return nil
	}
	v := try.To(a.evaluate(try.To(a.parse(l.Expr)), a.frames[l.Frame]))
	defer a.apart()()
	if l.Count > 0 {
		answer.Numbers = elements(v, l.From, l.Count)
		return nil
	}
	answer.Values = a.shown([]named{{l.Expr, v}})
	answer.Blocks = blocks(v)
	return nil
}

// shownAtMost limits how many parts of a value are shown, textAtMost how long each text is.
const (
	shownAtMost = 1000
	textAtMost  = 2000
)

func (a *Agent) shown(list []named) (out []engine.DebugValue) {
	defer a.apart()()
	for _, n := range list[:min(len(list), shownAtMost)] {
		s := engine.DebugValue{Name: n.name, Type: n.value.Type(), Text: text(n.value), Digest: Digest(n.value)}
		if t, ok := n.value.(*startensor.Value); ok {
			s.Tensor = sum(t.Tensor())
			s.Type = fmt.Sprintf("Tensor %s%v", s.Tensor.DType, s.Tensor.Shape)
		}
		if s.Parts = len(partsOf(n.value)); s.Parts > 0 {
			a.parts = append(a.parts, n.value)
			s.Of = len(a.parts)
		}
		out = append(out, s)
	}
	return out
}

func text(v starlark.Value) string {
	if lang.CheckDepth(v) != nil {
		return "(nested too deeply)"
	}
	s := v.String()
	if len(s) > textAtMost {
		s = strings.ToValidUTF8(s[:textAtMost], "") + "…"
	}
	return s
}

// partsOf lists the values within a value.
func partsOf(v starlark.Value) (list []named) {
	switch v := v.(type) {
	case *startensor.Value:
		if g := v.Tensor().Grad(); g != nil {
			list = append(list, named{"grad", (*startensor.Value)(g)})
		}
	case *starlark.Dict:
		for _, item := range v.Items() {
			list = append(list, named{item[0].String(), item[1]})
		}
	case starlib.Stateful:
		for _, e := range v.State() {
			list = append(list, named{e.Name, e.Value})
		}
	case starlark.Indexable:
		if _, is := v.(starlark.String); is || v.(starlark.Value).Type() == "range" || v.(starlark.Value).Type() == "bytes" {
			return nil
		}
		if _, is := v.(starlark.Sequence); !is {
			return nil
		}
		if _, is := v.(starlib.Stateful); is {
			return nil
		}
		for i := range min(v.Len(), shownAtMost) {
			list = append(list, named{fmt.Sprintf("[%d]", i), v.Index(i)})
		}
	case *starlark.Set:
		for i, x := range slices.Collect(starlark.Elements(v)) {
			list = append(list, named{fmt.Sprintf("{%d}", i), x})
		}
	case starlark.HasAttrs:
		if v.(starlark.Value).Type() == "struct" {
			for _, name := range v.AttrNames() {
				if x, err := v.Attr(name); err == nil && x != nil {
					list = append(list, named{name, x})
				}
			}
		}
	}
	return list
}

// sum sums up a tensor.
func sum(t *tensor.Tensor) *engine.DebugTensor {
	s := &engine.DebugTensor{DType: t.DType().String(), Shape: slices.Clone(t.Shape()), Min: math.NaN(), Max: math.NaN()}
	number := 0
	each(t, func(x float64) {
		switch {
		case math.IsNaN(x):
			s.NaN++
		case math.IsInf(x, 0):
			s.Inf++
			fallthrough
		default:
			if !(s.Min <= x) {
				s.Min = x
			}
			if !(s.Max >= x) {
				s.Max = x
			}
		}
		if number < firstValues {
			s.Values = append(s.Values, x)
		}
		number++
	})
	return s
}

const firstValues = 6

// each calls fn for every element, in order; for a complex one with its real part.
func each(t *tensor.Tensor, fn func(float64)) {
	t = t.Detach()
	err := t.Gone()
	if err == nil && (t.DType() == dtype.Float16 || t.DType() == dtype.BFloat16 || t.DType() == dtype.Complex64) {
		t, err = tensor.Cast(t, dtype.Float32)
	}
	if err == nil {
		t, err = tensor.Contiguous(t)
	}
	if err != nil {
		return
	}
	for i := range t.Len() {
		fn(t.Element(i).Float())
	}
}

// numbers calls fn for every number in a value, as far as its data is reached.
func numbers(v starlark.Value, depth int, fn func(float64)) {
	switch v := v.(type) {
	case starlark.Float:
		fn(float64(v))
	case *startensor.Value:
		each(v.Tensor(), fn)
	default:
		if depth < 10 {
			for _, p := range partsOf(v) {
				numbers(p.value, depth+1, fn)
			}
		}
	}
}

// elements gives some of the numbers in a value.
func elements(v starlark.Value, from, count int) (list []float64) {
	i := 0
	numbers(v, 0, func(x float64) {
		if i >= from && len(list) < count {
			list = append(list, x)
		}
		i++
	})
	return list
}

// Blocks are as many as a comparison of tensors over ranks begins with.
const Blocks = 256

// blocks gives digests of a tensor's elements, in Blocks equal parts.
func blocks(v starlark.Value) (list []uint64) {
	x, ok := v.(*startensor.Value)
	if !ok || x.Tensor().Gone() != nil {
		return nil
	}
	t, err := tensor.Contiguous(x.Tensor().Detach())
	if err != nil {
		return nil
	}
	return digests(t.Bytes(), t.DType().Size(), t.Len())
}
