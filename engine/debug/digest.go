package debug

import (
	"encoding/binary"
	"fmt"

	"drun/starlib"
	"drun/starlib/codec"
	startensor "drun/starlib/tensor"
	"drun/tensor"

	"github.com/zeebo/xxh3"
	"go.starlark.net/starlark"
)

// Digest covers everything that a value holds, as far as it is data.
func Digest(v starlark.Value) uint64 {
	switch v := v.(type) {
	case *startensor.Value:
		t, err := tensor.Contiguous(v.Tensor())
		if err != nil {
			return 0
		}
		return xxh3.HashSeed(t.Content(), xxh3.HashString(fmt.Sprint(t.DType(), t.Shape())))
	case starlib.Stateful:
		sum := xxh3.HashString(v.(starlark.Value).Type())
		for _, e := range v.State() {
			sum = mix(mix(sum, xxh3.HashString(e.Name)), Digest(e.Value))
		}
		return sum
	case *starlark.List: // these may hold values that are not plain
		return digestOfItems(v)
	case starlark.Tuple:
		return digestOfItems(v)
	}
	if data, err := codec.Encode(v); err == nil {
		return xxh3.Hash(data)
	}
	sum := xxh3.HashString(v.Type())
	if has, is := v.(starlark.HasAttrs); is {
		for _, name := range []string{"x", "y"} { // of a dataset
			if x, err := has.Attr(name); err == nil && x != nil && v.Type() == "Dataset" {
				sum = mix(sum, Digest(x))
			}
		}
	}
	return sum
}

// digestOfItems limits the depth of a value that contains itself, as Encode does.
func digestOfItems(v starlark.Indexable) uint64 {
	if data, err := codec.Encode(v); err == nil {
		return xxh3.Hash(data)
	}
	sum := xxh3.HashString(v.Type())
	for i := range v.Len() {
		switch x := v.Index(i).(type) {
		case *starlark.List, starlark.Tuple:
			sum = mix(sum, xxh3.HashString(x.Type()))
		default:
			sum = mix(sum, Digest(x))
		}
	}
	return sum
}

func mix(a, b uint64) uint64 {
	var buf [16]byte
	binary.LittleEndian.PutUint64(buf[:], a)
	binary.LittleEndian.PutUint64(buf[8:], b)
	return xxh3.Hash(buf[:])
}

// digests covers elements of that size in Blocks parts of equally many.
func digests(data []byte, size, n int) (list []uint64) {
	per := BlockSize(n)
	for from := 0; from < n; from += per {
		list = append(list, xxh3.Hash(data[from*size:min(n, from+per)*size]))
	}
	return list
}

// BlockSize is how many of n elements each of the Blocks covers.
func BlockSize(n int) int { return max(1, (n+Blocks-1)/Blocks) }
