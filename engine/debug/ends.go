package debug

import (
	"reflect"
	"slices"
	"sync"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// ends reports whether a call is at an instruction with which a loop or a function ends. These have no position of their own: they
// are shown at that of some statement before them, which need not have been executed.
func ends(fr starlark.DebugFrame) bool {
	fn, is := fr.Callable().(*starlark.Function)
	if !is {
		return false
	}
	code, pc := codeOf(fn), reflect.Indirect(reflect.ValueOf(fr)).FieldByName("pc")
	return pc.CanUint() && pc.Uint() < uint64(len(code)) && slices.Contains(endings(), code[pc.Uint()])
}

// codeOf is what a function was compiled to, which go.starlark.net does not export.
func codeOf(fn *starlark.Function) []byte {
	if compiled := reflect.ValueOf(fn).Elem().FieldByName("funcode"); compiled.IsValid() {
		return compiled.Elem().FieldByName("Code").Bytes()
	}
	return nil
}

// endings are those instructions: the last ones of a function that ends with a loop, the first of them a jump with an address.
var endings = sync.OnceValue(func() []byte {
	made, err := starlark.ExecFileOptions(&syntax.FileOptions{}, &starlark.Thread{}, "", "def f(x):\n for y in x: y", nil)
	if err != nil {
		return nil
	}
	code := codeOf(made["f"].(*starlark.Function))
	if len(code) < 8 {
		return nil
	}
	return append(code[len(code)-3:], code[len(code)-8])
})
