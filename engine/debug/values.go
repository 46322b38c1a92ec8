package debug

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"drun/engine"
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
			f.Line = cmp.Or(a.placeAt(0).line, f.Line)
		}
		list = append(list, f)
	}
	return list
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

// globals lists what a function's file defines, without the operators that it uses.
func globals(fn *starlark.Function) (list []named) {
	dict := fn.Globals()
	for _, name := range dict.Keys() {
		if v := dict[name]; v != nil && name != "if" && !strings.ContainsAny(name, " <>=!%*+()?") {
			list = append(list, named{name, v})
		}
	}
	return list
}

// Parse compiles an expression for the environment of recipes. It refuses one that may change something.
func Parse(src string, env starlark.StringDict) (*lang.Expression, error) {
	return lang.ParseExpression("expression", src, env, purity{})
}

// evaluationSteps limits how long the evaluation of an expression may take.
const evaluationSteps = 1_000_000

// evaluate evaluates an expression in a frame, at a depth of the thread's stack. The recipe's thread does not notice.
func (a *Agent) evaluate(e *lang.Expression, depth int) (v starlark.Value, err error) {
	fr := a.Thread.DebugFrame(depth)
	fn := fr.Callable().(*starlark.Function)
	own := locals(fr, fn)
	lookup := func(name string) starlark.Value {
		if i := slices.IndexFunc(own, func(n named) bool { return n.name == name }); i >= 0 {
			return own[i].value
		}
		return cmp.Or(fn.Globals()[name], a.Env[name], starlark.Universe[name])
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

// look answers what values there are, or why there are none.
func (a *Agent) look(l *engine.Look) (_ []engine.DebugValue, problem string) {
	defer func() {
		if p := recover(); p != nil { // the recipe goes on, whatever its values are like
			problem = fmt.Sprintf("it cannot be shown: %v", p)
		}
	}()
	if l.Of > len(a.parts) || l.Frame < 0 || l.Frame >= len(a.frames) && l.Of == 0 {
		return nil, "the rank has gone on since"
	}
	var list []named
	if l.Of > 0 {
		for name, part := range partsOf(a.parts[l.Of-1]) {
			if list = append(list, named{name, part}); len(list) == shownAtMost {
				break
			}
		}
		return a.shown(list), ""
	}
	fr := a.Thread.DebugFrame(a.frames[l.Frame])
	fn := fr.Callable().(*starlark.Function)
	switch l.Scope {
	case engine.Locals:
		return a.shown(locals(fr, fn)), ""
	case engine.Globals:
		return a.shown(globals(fn)), ""
	}
	e, err := Parse(l.Expr, a.Env)
	var v starlark.Value
	if err == nil {
		v, err = a.evaluate(e, a.frames[l.Frame])
	}
	if err != nil {
		return nil, err.Error()
	}
	return a.shown([]named{{l.Expr, v}}), ""
}

// shownAtMost limits how many parts of a value are shown, textAtMost how long each text is.
const (
	shownAtMost = 1000
	textAtMost  = 2000
)

func (a *Agent) shown(list []named) (out []engine.DebugValue) {
	defer a.apart()()
	for _, n := range list[:min(len(list), shownAtMost)] {
		s := engine.DebugValue{Name: n.name, Type: n.value.Type(), Digest: Digest(n.value)}
		if t, ok := n.value.(*startensor.Value); ok {
			s.Shape = slices.Clone(t.Tensor().Shape())
			s.Type = fmt.Sprintf("Tensor %v%v", t.Tensor().DType(), s.Shape)
			s.Text = fmt.Sprintf("%s %s, digest %016x", s.Type, summary(t.Tensor()), s.Digest)
		} else {
			s.Text = text(n.value)
		}
		for range partsOf(n.value) { // it has some
			a.parts = append(a.parts, n.value)
			s.Of = len(a.parts)
			break
		}
		out = append(out, s)
	}
	return out
}

// text is a value in a line.
func text(v starlark.Value) string {
	if lang.CheckDepth(v) != nil {
		return "(nested too deeply)"
	}
	s, _, more := strings.Cut(v.String(), "\n")
	if len(s) > textAtMost {
		s, more = strings.ToValidUTF8(s[:textAtMost], ""), true
	}
	if more {
		s += " …"
	}
	return s
}

// partsOf gives the values within a value, and their names.
func partsOf(v starlark.Value) iter.Seq2[string, starlark.Value] {
	return func(yield func(string, starlark.Value) bool) {
		switch v := v.(type) {
		case *startensor.Value:
			if g := v.Tensor().Grad(); g != nil {
				yield("grad", (*startensor.Value)(g))
			}
		case *starlark.Dict:
			for key, part := range v.Entries() {
				if !yield(key.String(), part) {
					return
				}
			}
		case starlib.Stateful:
			for _, e := range v.State() {
				if !yield(e.Name, e.Value) {
					return
				}
			}
		case *starlark.List, starlark.Tuple:
			for i := range starlark.Len(v) {
				if !yield(fmt.Sprintf("[%d]", i), v.(starlark.Indexable).Index(i)) {
					return
				}
			}
		case *starlark.Function: // what it uses of the functions around it
			for i := range v.NumFreeVars() {
				if b, part := v.FreeVar(i); part != nil && !yield(b.Name, part) {
					return
				}
			}
		case *starlark.Set:
			i := 0
			for part := range starlark.Elements(v) {
				if !yield(fmt.Sprintf("{%d}", i), part) {
					return
				}
				i++
			}
		case starlark.HasAttrs:
			names := []string{"x", "y"}
			if s, is := v.(*starlarkstruct.Struct); is {
				names = s.AttrNames()
			} else if v.Type() != "Dataset" {
				return
			}
			for _, name := range names {
				if part, err := v.Attr(name); err == nil && part != nil && !yield(name, part) {
					return
				}
			}
		}
	}
}

// summary is what a person sees of a tensor: its first elements, the smallest and the largest, and what is not finite. Of complex
// numbers, it is about the real parts.
func summary(t *tensor.Tensor) string {
	t = t.Detach()
	err := t.Gone()
	if err == nil && (t.DType() == dtype.Float16 || t.DType() == dtype.BFloat16 || t.DType() == dtype.Complex64) {
		t, err = tensor.Cast(t, dtype.Float32)
	}
	if err == nil {
		t, err = tensor.Contiguous(t)
	}
	if err != nil {
		return "(" + err.Error() + ")"
	}
	least, most := math.Inf(1), math.Inf(-1)
	nan, inf := 0, 0
	var first []string
	for i := range t.Len() {
		x := t.Element(i).Float()
		switch {
		case i < firstElements:
			first = append(first, strconv.FormatFloat(x, 'g', 6, 64))
		case i == firstElements:
			first = append(first, "…")
		}
		switch {
		case math.IsNaN(x):
			nan++
			continue
		case math.IsInf(x, 0):
			inf++
		}
		least, most = min(least, x), max(most, x)
	}
	text := "[" + strings.Join(first, " ") + "]"
	if nan < t.Len() {
		text += fmt.Sprintf(", min %.6g, max %.6g", least, most)
	}
	if nan > 0 {
		text += fmt.Sprintf(", %d NaN", nan)
	}
	if inf > 0 {
		text += fmt.Sprintf(", %d infinite", inf)
	}
	return text
}

const firstElements = 6

// finite reports whether all numbers in a value are finite, as far as its data is reached.
func finite(v starlark.Value, depth int) bool {
	switch v := v.(type) {
	case starlark.Float:
		return !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0)
	case *startensor.Value:
		nan, inf := tensor.Finite(v.Tensor())
		return !nan && !inf
	}
	for _, part := range partsOf(v) {
		if depth < 10 && !finite(part, depth+1) {
			return false
		}
	}
	return true
}
