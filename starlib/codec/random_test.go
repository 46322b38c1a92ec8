package codec

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"drun/kernel/dtype"
	"drun/tensor"

	startensor "drun/starlib/tensor"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// maker makes random values.
type maker struct {
	*rand.Rand
	tensors *tensor.Context
}

// value makes a value of any kind, at most depth levels deep.
func (m maker) value(depth int) starlark.Value {
	kind := m.IntN(14)
	if depth == 0 {
		kind = m.IntN(8)
	}
	switch kind {
	case 0:
		return starlark.None
	case 1:
		return starlark.Bool(m.IntN(2) == 0)
	case 2, 3:
		return m.key()
	case 4:
		return starlark.Float(math.Float64frombits(m.Uint64())) // NaNs of any payload among them
	case 5:
		special := []uint64{0, 1 << 63, 0x7ff0_0000_0000_0000, 0xfff0_0000_0000_0000, 0x7ff8_0000_0000_0001, 0xfff4_0000_dead_beef, 1}
		return starlark.Float(math.Float64frombits(special[m.IntN(len(special))]))
	case 6:
		return starlark.Bytes(m.text())
	case 7:
		return m.tensor()
	case 8:
		return starlark.NewList(m.values(depth))
	case 9:
		return starlark.Tuple(m.values(depth))
	case 10:
		set := starlark.NewSet(0)
		for range m.IntN(6) {
			_ = set.Insert(m.key())
		}
		return set
	case 11, 12:
		dict := starlark.NewDict(0)
		for range m.IntN(6) {
			_ = dict.SetKey(m.key(), m.value(depth-1))
		}
		return dict
	}
	fields := starlark.StringDict{}
	for range m.IntN(5) {
		fields[fmt.Sprintf("f%d", m.IntN(100))] = m.value(depth - 1)
	}
	return starlarkstruct.FromStringDict(starlarkstruct.Default, fields)
}

func (m maker) values(depth int) []starlark.Value {
	list := make([]starlark.Value, m.IntN(6))
	for i := range list {
		list[i] = m.value(depth - 1)
	}
	return list
}

// key makes a value that can be a dict's key: an integer of any size, a string, a tuple of these.
func (m maker) key() starlark.Value {
	switch m.IntN(6) {
	case 0:
		return starlark.MakeInt64(int64(m.Uint64()) >> m.IntN(64))
	case 1: // about the edges of what encodings hold
		n := new(big.Int).Lsh(big.NewInt(1), uint([]int{7, 8, 15, 16, 31, 32, 63, 64, 65, 200, 4096}[m.IntN(11)]))
		n.Add(n, big.NewInt(int64(m.IntN(3)-1)))
		if m.IntN(2) == 0 {
			n.Neg(n)
		}
		return starlark.MakeBigInt(n)
	case 2, 3:
		return starlark.String(m.text())
	case 4:
		return starlark.Tuple{m.key(), starlark.String(m.text())}
	}
	return starlark.MakeInt(m.IntN(100))
}

// text makes a string, which may be invalid UTF-8.
func (m maker) text() string {
	b := make([]byte, m.IntN(1+m.IntN(70)))
	for i := range b {
		b[i] = byte(m.Uint32())
		if m.IntN(3) > 0 {
			b[i] %= 128
		}
	}
	return string(b)
}

func (m maker) tensor() starlark.Value {
	names := []string{"float32", "float64", "int64", "int32", "int8", "uint8", "bool", "float16", "bfloat16", "complex64"}
	dt, err := dtype.Parse(names[m.IntN(len(names))])
	if err != nil {
		panic(err)
	}
	shape := make([]int, m.IntN(4))
	n := 1
	for i := range shape {
		shape[i] = m.IntN(4)
		n *= shape[i]
	}
	raw := make([]byte, n*dt.Size())
	for i := range raw {
		raw[i] = byte(m.Uint32())
		if dt.String() == "bool" {
			raw[i] %= 2
		}
	}
	t, err := tensor.FromBytes(m.tensors, raw, shape, dt)
	if err != nil {
		panic(err)
	}
	return (*startensor.Value)(t)
}

// different returns the path of the first part in which two values differ in type or in a bit.
func different(a, b starlark.Value) string {
	if a.Type() != b.Type() {
		return fmt.Sprintf(": %s became %s", a.Type(), b.Type())
	}
	switch x := a.(type) {
	case starlark.Float:
		if math.Float64bits(float64(x)) != math.Float64bits(float64(b.(starlark.Float))) {
			return fmt.Sprintf(": %x became %x", float64(x), float64(b.(starlark.Float)))
		}
		return ""
	case *startensor.Value:
		s, t := x.Tensor(), b.(*startensor.Value).Tensor()
		if s.DType() != t.DType() || !slices.Equal(s.Shape(), t.Shape()) || !bytes.Equal(s.Bytes(), t.Bytes()) {
			return fmt.Sprintf(": %v became %v", a, b)
		}
		return ""
	case *starlark.List, starlark.Tuple, *starlark.Dict, *starlarkstruct.Struct:
		from, to := parts(a), parts(b)
		if len(from) != len(to) {
			return fmt.Sprintf(": %d parts became %d", len(from), len(to))
		}
		for i := range from {
			if from[i].name != to[i].name {
				return fmt.Sprintf(": %s became %s", from[i].name, to[i].name)
			}
			if d := different(from[i].value, to[i].value); d != "" {
				return from[i].name + d
			}
		}
		if x, ok := a.(*starlark.Dict); ok { // the names of keys may be cut
			keys := b.(*starlark.Dict).Keys()
			for i, k := range x.Keys() {
				if d := different(k, keys[i]); d != "" {
					return d
				}
			}
		}
		return ""
	case *starlark.Set: // in the order in which they were put in
		return different(starlark.Tuple(slices.Collect(starlark.Elements(x))), starlark.Tuple(slices.Collect(starlark.Elements(b.(*starlark.Set)))))
	}
	if a.String() != b.String() {
		return fmt.Sprintf(": %v became %v", a, b)
	}
	return ""
}

// roundTrip encodes and decodes a value.
func roundTrip(t *testing.T, m maker, v starlark.Value) {
	t.Helper()
	data, err := Encode(v)
	if err != nil {
		t.Fatalf("%v: %v", v, err)
	}
	got, err := (&Decoder{Tensors: m.tensors}).Decode(data)
	if err != nil {
		t.Fatalf("%v: %v", v, err)
	}
	if d := different(v, got); d != "" {
		t.Fatalf("value%s\nof %v", d, v)
	}
}

// Random values survive encoding to the bit. Frozen ones do too, and their copies are not frozen.
func TestRandomValues(t *testing.T) {
	seed := rand.Uint64() >> 32
	if s := os.Getenv("DRUN_TEST_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		ok(t, err)
	}
	t.Logf("DRUN_TEST_SEED=%d", seed)
	m := maker{rand.New(rand.NewPCG(seed, 0)), tensor.NewContext()}
	for i := range 5000 {
		v := m.value(1 + m.IntN(6))
		if i%5 == 0 {
			v.Freeze()
		}
		roundTrip(t, m, v)
	}
	frozen := eval(t, `[[1]]`)
	frozen.Freeze()
	data, err := Encode(frozen)
	ok(t, err)
	got, err := new(Decoder).Decode(data)
	ok(t, err)
	ok(t, got.(*starlark.List).Append(starlark.None))
	ok(t, got.(*starlark.List).Index(0).(*starlark.List).Append(starlark.None))

	deep := starlark.Value(starlark.MakeInt(1))
	for i := range maxDepth {
		if deep = starlark.NewList([]starlark.Value{deep}); i%2 == 0 {
			deep = starlark.NewList([]starlark.Value{starlark.None, deep}).Index(1)
		}
	}
	roundTrip(t, m, deep)
}

// FuzzValues makes values from the fuzzer's seeds.
func FuzzValues(f *testing.F) {
	f.Add(uint64(1), uint64(2), 3)
	f.Fuzz(func(t *testing.T, a, b uint64, depth int) {
		m := maker{rand.New(rand.NewPCG(a, b)), tensor.NewContext()}
		roundTrip(t, m, m.value(max(0, min(depth, 8))))
	})
}
