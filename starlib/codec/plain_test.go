package codec

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"
)

var names = starlark.StringDict{
	"struct": starlark.NewBuiltin("struct", starlarkstruct.Make),
	"inf":    starlark.Float(math.Inf(1)),
	"nzero":  starlark.Float(math.Copysign(0, -1)),
}

func eval(t *testing.T, src string) starlark.Value {
	t.Helper()
	v, err := starlark.EvalOptions(&syntax.FileOptions{Set: true}, new(starlark.Thread), "x.star", src, names)
	if err != nil {
		t.Fatalf("%s: %v", src, err)
	}
	return v
}

func TestValuesKeepTypeAndValue(t *testing.T) {
	for _, src := range []string{
		`None`, `True`, `False`, `0`, `-1`, `1 << 62`, `1 << 63`, `-(1 << 63)`, `-(1 << 64)`, `1 << 200`, `-(1 << 200)`,
		`0.0`, `nzero`, `1.0`, `1e-310`, `1e308`, `inf`, `-inf`, `""`, `"héllo"`, `b"\xff\x00"`, `"é"[:1]`,
		`[]`, `[1, 2.0, "3"]`, `()`, `(1,)`, `((1, 2), [3])`, `{}`, `{"b": 1, "a": [2]}`, `{1: 2, (3, 4): 5, 1.5: 6}`,
		`set([3, 1, 2])`, `set()`, `struct(x = 1, y = [2.5, None])`, `[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]`,
	} {
		want := eval(t, src)
		data, err := Encode(want)
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		got, err := new(Decoder).Decode(data)
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		if got.Type() != want.Type() || got.String() != want.String() {
			t.Errorf("%s: got %s %v", src, got.Type(), got)
		}
	}
}

func TestNaNKeepsItsBits(t *testing.T) {
	nan := math.Float64frombits(0x7ff8_0000_dead_beef)
	data, err := Encode(starlark.Float(nan))
	if err != nil {
		t.Fatal(err)
	}
	got, err := new(Decoder).Decode(data)
	if err != nil || math.Float64bits(float64(got.(starlark.Float))) != math.Float64bits(nan) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestWhatIsNotPlainIsRefused(t *testing.T) {
	loop := eval(t, `[1, {"a": (2, [])}]`).(*starlark.List)
	inner, _, err := loop.Index(1).(*starlark.Dict).Get(starlark.String("a"))
	if err != nil {
		t.Fatal(err)
	}
	ok(t, inner.(starlark.Tuple)[1].(*starlark.List).Append(loop))
	dict := starlark.NewDict(1)
	ok(t, dict.SetKey(starlark.String("self"), dict))
	deep := starlark.Value(starlark.None)
	for range 300 {
		deep = starlark.NewList([]starlark.Value{deep})
	}
	shared := eval(t, `[1]`) // held twice, which is no circle
	for want, v := range map[string]starlark.Value{
		`the value contains itself: value[1]["a"][1][0] is value`: loop,
		`the value contains itself: value[0]["self"] is value[0]`: starlark.NewList([]starlark.Value{dict}),
		`the value is nested deeper than 200 levels: value` +
			strings.Repeat("[0]", 12) + "…" + strings.Repeat("[0]", 12): deep,
		"a function cannot be sent or saved: only None, bool":            eval(t, `lambda: 1`),
		`value[1]["k"].x[0]: a function cannot be`:                       eval(t, `[1, {"k": struct(x = ((lambda: 1),))}]`),
		`value[("a", 1)]: a builtin_function_or_method cannot be`:        eval(t, `{("a", 1): struct}`),
		`value["` + strings.Repeat("x", 35) + `…]: a function cannot be`: eval(t, `{"x" * 1000: lambda: 1}`),
		`value[1][0]: a module cannot be`:                                starlark.Tuple{shared, starlark.NewList([]starlark.Value{&starlarkstruct.Module{Name: "m"}}), shared},
	} {
		if _, err := Encode(v); err == nil || !strings.HasPrefix(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}

func TestLargeValues(t *testing.T) {
	const size = 64 << 20
	text := strings.Repeat("x", size)
	for _, v := range []starlark.Value{starlark.String(text), starlark.Bytes(text), starlark.NewList([]starlark.Value{starlark.String(text[:size/2]), starlark.Bytes(text[size/2:])})} {
		var before, encoded, decoded runtime.MemStats
		runtime.ReadMemStats(&before)
		data, err := Append(nil, v, size+1000)
		ok(t, err)
		runtime.ReadMemStats(&encoded)
		_, err = new(Decoder).Decode(data)
		ok(t, err)
		runtime.ReadMemStats(&decoded)
		if took := encoded.TotalAlloc - before.TotalAlloc; took > size*11/10 {
			t.Errorf("the bytes of %s of %d bytes took %d", v.Type(), size, took)
		}
		if took := decoded.TotalAlloc - encoded.TotalAlloc; took > size*11/10 {
			t.Errorf("the %s of %d bytes took %d", v.Type(), size, took)
		}
		_, err = Append(nil, v, size-1)
		runtime.ReadMemStats(&encoded)
		if took := encoded.TotalAlloc - decoded.TotalAlloc; took > 1<<20 || !errors.As(err, new(*TooLargeError)) {
			t.Errorf("the error %v took %d bytes", err, took)
		}
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, src := range []string{`{"a": [1, 2.5, (None, set([1]))]}`, `struct(x = 1)`, `1 << 100`} {
		v, err := starlark.EvalOptions(&syntax.FileOptions{Set: true}, new(starlark.Thread), "x.star", src, names)
		if err != nil {
			f.Fatal(err)
		}
		data, err := Encode(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := new(Decoder).Decode(data)
		if err != nil {
			return
		}
		again, err := Encode(v)
		if err != nil {
			return // deeper than Encode allows
		}
		w, err := new(Decoder).Decode(again)
		if err != nil || w.String() != v.String() {
			t.Fatalf("%v became %v, %v", v, w, err)
		}
	})
}
