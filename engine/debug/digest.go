package debug

import (
	"encoding/binary"
	"fmt"
	"slices"

	"drun/starlib"
	"drun/starlib/codec"
	startensor "drun/starlib/tensor"
	"drun/tensor"

	"github.com/zeebo/xxh3"
	"go.starlark.net/starlark"
)

// Digest covers everything that a value holds, as far as it is data.
func Digest(v starlark.Value) uint64 {
	left := digestedAtMost
	return digest(v, nil, &left)
}

// digestedAtMost limits how many values are covered, since one may be held in many places.
const digestedAtMost = 1_000_000

// digest covers a value within others, of which within has the lists, dicts and functions.
func digest(v starlark.Value, within []starlark.Value, left *int) uint64 {
	sum := xxh3.HashString(v.Type())
	switch v := v.(type) {
	case *startensor.Value:
		t, err := tensor.Contiguous(v.Tensor())
		if err != nil {
			return 0
		}
		return xxh3.HashSeed(t.Content(), xxh3.HashString(fmt.Sprint(t.DType(), t.Shape())))
	case *starlark.List, *starlark.Dict, *starlark.Function:
		if fn, is := v.(*starlark.Function); is {
			sum = mix(sum, xxh3.HashString(fn.Name()+fn.Position().String()))
		}
		if slices.Contains(within, v) {
			return sum
		}
		within = append(within, v)
	case starlark.Sequence:
		if v.Type() == "range" {
			sum = mix(sum, xxh3.HashString(v.String()))
		}
	}
	if _, is := v.(starlib.Stateful); !is {
		if data, err := codec.Encode(v); err == nil {
			return xxh3.Hash(data)
		}
	}
	for name, part := range partsOf(v) { // it holds values that are not plain
		if *left--; *left < 0 {
			break
		}
		sum = mix(mix(sum, xxh3.HashString(name)), digest(part, within, left))
	}
	return sum
}

func mix(a, b uint64) uint64 {
	var buf [16]byte
	binary.LittleEndian.PutUint64(buf[:], a)
	binary.LittleEndian.PutUint64(buf[8:], b)
	return xxh3.Hash(buf[:])
}

// variables covers what the recipe's calls under way hold, as far as it is data: of large tensors some bytes, others after each
// update, and of long lists the first elements.
func (a *Agent) variables() (sum uint64) {
	left := coveredAtMost
	for depth := range a.Thread.CallStackDepth() {
		fr := a.Thread.DebugFrame(depth)
		if fn, ok := fr.Callable().(*starlark.Function); ok {
			for _, n := range locals(fr, fn) {
				sum = a.cover(mix(sum, xxh3.HashString(n.name)), n.value, &left)
			}
		}
	}
	return max(1, sum)
}

const (
	coveredAtMost = 2000     // values
	bytesAtMost   = 64 << 10 // of a tensor
)

func (a *Agent) cover(sum uint64, v starlark.Value, left *int) uint64 {
	if *left--; *left < 0 {
		return sum
	}
	sum = mix(sum, xxh3.HashString(v.Type()))
	switch v := v.(type) {
	case *startensor.Value:
		if t, err := tensor.Contiguous(v.Tensor().Detach()); err == nil && v.Tensor().Gone() == nil {
			data := t.Content()
			if parts := int64(len(data)/bytesAtMost) + 1; parts > 1 {
				from := int(a.Rank.Updates%parts) * bytesAtMost
				data = data[from:min(len(data), from+bytesAtMost)]
			}
			return xxh3.HashSeed(data, sum)
		}
		return sum
	case starlark.NoneType, starlark.Bool, starlark.Int, starlark.Float, starlark.String, starlark.Bytes:
		return mix(sum, xxh3.HashString(v.String()))
	}
	if n := starlark.Len(v); n > coveredAtMost {
		return mix(sum, uint64(n))
	}
	for _, part := range partsOf(v) {
		sum = a.cover(sum, part, left)
	}
	return sum
}
