package lang_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/starlib/lang"
	"drun/starlib/lang/chunk"
)

// TestRecipes runs the chunks of testdata: top level, then main() if there is one.
func TestRecipes(t *testing.T) {
	eachChunk(t, func(name string, c chunk.Chunk) {
		t.Run(filepath.Base(name)+"/"+c.Name, func(t *testing.T) {
			var faults []chunk.Fault
			if e := runRecipe(c.File, c.Source); e != nil {
				for _, e := range append([]*lang.Error{e}, e.Also...) {
					faults = append(faults, chunk.Fault{Line: int(e.Pos.Line), Msg: e.Pos.String()[len(c.File)+1:] + ": " + e.Msg})
				}
			}
			for _, wrong := range c.Check(faults) {
				t.Error(wrong)
			}
		})
	})
}

// eachChunk calls fn with the chunks of testdata.
func eachChunk(t *testing.T, fn func(name string, c chunk.Chunk)) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.star")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		chunks, err := chunk.Read(name, src)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range chunks {
			fn(name, c)
		}
	}
}

var testNames = starlark.StringDict{
	"eq":     starlark.NewBuiltin("eq", eq),
	"vec":    starlark.NewBuiltin("vec", makeVec),
	"nan":    starlark.Float(nan()),
	"called": starlark.NewBuiltin("called", called),
	"forever": starlark.NewBuiltin("forever", func(*starlark.Thread, *starlark.Builtin, starlark.Tuple, []starlark.Tuple) (starlark.Value, error) {
		return endless{starlark.MakeInt(1)}, nil
	}),
	"zeros": starlark.NewBuiltin("zeros", func(*starlark.Thread, *starlark.Builtin, starlark.Tuple, []starlark.Tuple) (starlark.Value, error) {
		return endless{starlark.MakeInt(0)}, nil
	}),
}

var errStop = errors.New("rank 1 failed")

// endless yields an element forever, in pairs with itself.
type endless struct{ starlark.Int }

func (e endless) Iterate() starlark.Iterator  { return e }
func (e endless) Next(p *starlark.Value) bool { *p = e.Int; return true }
func (e endless) Done()                       {}

func nan() float64 { zero := 0.0; return zero / zero }

func runRecipe(name string, src []byte) *lang.Error {
	thread := &starlark.Thread{Print: func(*starlark.Thread, string) {}}
	lang.Watch(thread)
	return lang.Explain(thread, execute(thread, name, src))
}

func execute(thread *starlark.Thread, name string, src []byte) error {
	return executeIn(thread, lang.Environment(testNames), name, src)
}

func executeIn(thread *starlark.Thread, env starlark.StringDict, name string, src []byte) error {
	file, err := lang.Parse(name, src)
	if err != nil {
		return err
	}
	prog, err := file.Compile(env)
	if err != nil {
		return err
	}
	globals, err := prog.Init(thread, env)
	if err != nil {
		return err
	}
	globals.Freeze()
	if main, ok := globals["main"]; ok {
		_, err = starlark.Call(thread, main, nil, nil)
	}
	return err
}

// eq(got, want) compares how two values print, and their types.
func eq(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var got, want starlark.Value
	if err := starlark.UnpackPositionalArgs(b.Name(), args, kwargs, 2, &got, &want); err != nil {
		return nil, err
	}
	if got.String() != want.String() || got.Type() != want.Type() {
		return nil, fmt.Errorf("got %s, want %s", got, want)
	}
	return starlark.None, nil
}

// called(f) calls f and wraps its error, as a builtin of drun's would.
func called(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	z, err := starlark.Call(thread, args[0], nil, nil)
	if err != nil {
		return nil, fmt.Errorf("called: rank 0: %w", err)
	}
	return z, nil
}

// vec is a minimal value that behaves like a tensor.
type vec []float64

func makeVec(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	v := make(vec, len(args))
	for i, arg := range args {
		x, ok := starlark.AsFloat(arg)
		if !ok {
			return nil, fmt.Errorf("vec: element %d is no number", i)
		}
		v[i] = x
	}
	return v, nil
}

func (v vec) String() string {
	return strings.ReplaceAll(fmt.Sprintf("vec%v", []float64(v)), " ", ", ")
}
func (v vec) Type() string          { return "vec" }
func (v vec) Freeze()               {}
func (v vec) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable: vec") }
func (v vec) Truth() starlark.Bool {
	if len(v) != 1 {
		panic("Truth of a vec without one")
	}
	return v[0] != 0
}

func (v vec) TruthValue() (bool, error) {
	if len(v) != 1 {
		return false, fmt.Errorf("a vec of %d elements as a condition is ambiguous", len(v))
	}
	return v[0] != 0, nil
}

func (v vec) other(y starlark.Value) (vec, error) {
	w, ok := y.(vec)
	if x, number := starlark.AsFloat(y); number {
		w, ok = make(vec, len(v)), true
		for i := range w {
			w[i] = x
		}
	}
	if !ok || len(v) != len(w) {
		return nil, fmt.Errorf("vec of %d and %s do not fit", len(v), y.Type())
	}
	return w, nil
}

func (v vec) CompareElementwise(op syntax.Token, y starlark.Value, reversed bool) (starlark.Value, error) {
	w, err := v.other(y)
	if err != nil {
		return nil, err
	}
	if reversed {
		v, w = w, v
	}
	z := make(vec, len(v))
	for i := range v {
		if ok, _ := starlark.Compare(op, starlark.Float(v[i]), starlark.Float(w[i])); ok {
			z[i] = 1
		}
	}
	return z, nil
}

func (v vec) Binary(op syntax.Token, y starlark.Value, side starlark.Side) (starlark.Value, error) {
	w, err := v.other(y)
	if err != nil || op != syntax.PLUS {
		return nil, err
	}
	z := make(vec, len(v))
	for i := range v {
		z[i] = v[i] + w[i]
	}
	return z, nil
}

var (
	_ lang.Elementwise   = vec{}
	_ lang.Truther       = vec{}
	_ starlark.HasBinary = vec{}
)
