package debug

import (
	"reflect"
	"sort"
	"sync"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// placed reports whether the latest instruction of a call has a position of its own. The compiler gives none to constants,
// jumps and the ends of loops and functions: they seem to have that of the instruction that the program has before them, which
// need not have been executed, and may be one of a later statement.
func placed(fr starlark.DebugFrame) bool {
	fn, is := fr.Callable().(*starlark.Function)
	if !is {
		return true
	}
	own := fr.Position() // which also decodes the table
	pc, compiled := framePC.of(reflect.Indirect(reflect.ValueOf(fr))), compiledOf(fn)
	if !pc.CanUint() || !compiled.IsValid() {
		return true
	}
	table, code, at := tableField.of(compiled), codeField.of(compiled).Bytes(), pc.Uint()
	if at == 0 && own == fn.Position() { // which the compiler gives to the first one
		return false
	}
	i := sort.Search(table.Len(), func(i int) bool { return rowPC.of(table.Index(i)).Uint() >= at })
	if i < table.Len() && rowPC.of(table.Index(i)).Uint() == at {
		return true
	}
	return at < uint64(len(code)) && code[at] == advances() // it always follows the one that has the position of its for
}

// compiledOf is what a function was compiled to, which go.starlark.net does not export.
func compiledOf(fn *starlark.Function) reflect.Value {
	return reflect.Indirect(funcodeField.of(reflect.ValueOf(fn).Elem()))
}

// field is a field of one type of struct, which is looked up once.
type field struct {
	name  string
	once  sync.Once
	index []int // nil: there is none
}

func (f *field) of(v reflect.Value) reflect.Value {
	f.once.Do(func() {
		if found, is := v.Type().FieldByName(f.name); is {
			f.index = found.Index
		}
	})
	if f.index == nil {
		return reflect.Value{}
	}
	return v.FieldByIndex(f.index)
}

var framePC, rowPC, tableField, codeField, funcodeField = field{name: "pc"}, field{name: "pc"}, field{name: "lnt"}, field{name: "Code"}, field{name: "funcode"}

// advances is the instruction with which each iteration of a for loop begins: the third one here, after one of two bytes and one
// of one.
var advances = sync.OnceValue(func() byte {
	made, err := starlark.ExecFileOptions(&syntax.FileOptions{}, &starlark.Thread{}, "", "def f(x):\n for y in x: y", nil)
	if err != nil {
		panic(err) // of this program, not of a recipe
	}
	return codeField.of(compiledOf(made["f"].(*starlark.Function))).Bytes()[3]
})
