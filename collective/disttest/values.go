package disttest

import (
	"encoding/binary"
	"math/big"
	"math/rand/v2"
	"slices"

	"drun/collective"
	"drun/kernel/dtype"
)

// random fills n elements. Floats have fractions, so that sums depend on
// their order; half precisions and complex numbers hold small integers, whose
// sums are exact.
func random(rng *rand.Rand, dt dtype.Type, n int) []byte {
	b := make([]byte, n*dt.Size())
	buffer := collective.Buffer{DType: dt, Data: b}
	switch dt {
	case dtype.Float32:
		s := collective.Slice[float32](buffer)
		for i := range s {
			s[i] = float32(int32(rng.Uint32()>>8)-1<<23) / (1 << 22)
		}
	case dtype.Float64:
		for i, s := 0, collective.Slice[float64](buffer); i < len(s); i++ {
			s[i] = rng.Float64()*4 - 2
		}
	case dtype.Complex64:
		for i, s := 0, collective.Slice[complex64](buffer); i < len(s); i++ {
			s[i] = complex(float32(rng.IntN(9)-4), float32(rng.IntN(9)-4))
		}
	case dtype.Float16, dtype.BFloat16:
		for i := range n {
			binary.LittleEndian.PutUint16(b[2*i:], uint16(halves[dt][rng.Uint32()%8]))
		}
	case dtype.Bool:
		for i := range b {
			b[i] = byte(rng.IntN(2))
		}
	default: // whole words, for the suite spends most of its time here
		for rest := b; len(rest) > 0; rest = rest[min(8, len(rest)):] {
			var word [8]byte
			binary.LittleEndian.PutUint64(word[:], rng.Uint64())
			copy(rest, word[:])
		}
	}
	return b
}

// powers fills n floats with 1, -1, 2 and -2.
func powers(rng *rand.Rand, dt dtype.Type, n int) []byte {
	values := [...]float64{1, -1, 2, -2}
	b := make([]byte, n*dt.Size())
	buffer := collective.Buffer{DType: dt, Data: b}
	for i := range n {
		if v := values[rng.IntN(len(values))]; dt == dtype.Float32 {
			collective.Slice[float32](buffer)[i] = float32(v)
		} else {
			collective.Slice[float64](buffer)[i] = v
		}
	}
	return b
}

// halves are the bits of the integers from 0 on, as far as half precisions hold them exactly.
var halves = map[dtype.Type][]half{dtype.Float16: encoded(float16), dtype.BFloat16: encoded(bfloat16)}

func encoded(encode func(float64) half) (all []half) {
	for v := range 257 {
		all = append(all, encode(float64(v)))
	}
	return all
}

// integers is the model for integers: their average is that of the exact sum, truncated toward zero.
func integers[T int64 | int32 | int8 | uint8](out collective.Buffer, inputs [][]byte, op dtype.ReduceOp) {
	if op != dtype.Avg {
		fold(out, inputs, integer[T](op), nil, op)
		return
	}
	dst := collective.Slice[T](out)
	if out.DType.Size() < 8 { // the sum fits
		sums := make([]int64, len(dst))
		for _, in := range inputs {
			for i, v := range collective.Slice[T](collective.Buffer{DType: out.DType, Data: in}) {
				sums[i] += int64(v)
			}
		}
		for i, sum := range sums {
			dst[i] = T(sum / int64(len(inputs)))
		}
		return
	}
	for i := range dst {
		sum := new(big.Int)
		for _, in := range inputs {
			sum.Add(sum, big.NewInt(int64(collective.Slice[T](collective.Buffer{DType: out.DType, Data: in})[i])))
		}
		dst[i] = T(sum.Quo(sum, big.NewInt(int64(len(inputs)))).Int64())
	}
}

// reduce is the model of a reduction: it combines the ranks' values in rank order.
func reduce(inputs [][]byte, dt dtype.Type, op dtype.ReduceOp) []byte {
	out := collective.Buffer{DType: dt, Data: make([]byte, len(inputs[0]))}
	switch dt {
	case dtype.Float32:
		fold(out, inputs, number[float32](op), func(v float32) float32 { return v / float32(len(inputs)) }, op)
	case dtype.Float64:
		fold(out, inputs, number[float64](op), func(v float64) float64 { return v / float64(len(inputs)) }, op)
	case dtype.Int64:
		integers[int64](out, inputs, op)
	case dtype.Int32:
		integers[int32](out, inputs, op)
	case dtype.Int8:
		integers[int8](out, inputs, op)
	case dtype.Uint8:
		integers[uint8](out, inputs, op)
	case dtype.Bool:
		out.DType = dtype.Uint8
		fold(out, inputs, integer[uint8](op), nil, op)
	case dtype.Complex64:
		fold(out, inputs, func(a, b complex64) complex64 { return a + b },
			func(v complex64) complex64 { n := float32(len(inputs)); return complex(real(v)/n, imag(v)/n) }, op)
	default:
		f := number[int](op)
		for i := 0; i < len(out.Data); i += 2 {
			at := func(b []byte) int { return slices.Index(halves[dt], half(binary.LittleEndian.Uint16(b[i:]))) }
			v := at(inputs[0])
			for _, in := range inputs[1:] {
				v = f(v, at(in))
			}
			binary.LittleEndian.PutUint16(out.Data[i:], uint16(halves[dt][v]))
		}
	}
	return out.Data
}

func fold[T collective.Element](out collective.Buffer, inputs [][]byte, f func(a, b T) T, mean func(T) T, op dtype.ReduceOp) {
	dst := collective.Slice[T](out)
	for k, in := range inputs {
		for i, v := range collective.Slice[T](collective.Buffer{DType: out.DType, Data: in}) {
			if k > 0 {
				v = f(dst[i], v)
			}
			dst[i] = v
		}
	}
	if op == dtype.Avg {
		for i, v := range dst {
			dst[i] = mean(v)
		}
	}
}

func number[T float32 | float64 | int64 | int32 | int8 | uint8 | int](op dtype.ReduceOp) func(a, b T) T {
	switch op {
	case dtype.Product:
		return func(a, b T) T { return a * b }
	case dtype.Min:
		return func(a, b T) T { return min(a, b) }
	case dtype.Max:
		return func(a, b T) T { return max(a, b) }
	}
	return func(a, b T) T { return a + b }
}

func integer[T int64 | int32 | int8 | uint8](op dtype.ReduceOp) func(a, b T) T {
	switch op {
	case dtype.BAnd:
		return func(a, b T) T { return a & b }
	case dtype.BOr:
		return func(a, b T) T { return a | b }
	case dtype.BXor:
		return func(a, b T) T { return a ^ b }
	}
	return number[T](op)
}

// modelled reports whether the model of the reduction is exact: for half precisions, only if the result is again a
// small integer.
func modelled(dt dtype.Type, op dtype.ReduceOp) bool {
	if dt == dtype.Float16 || dt == dtype.BFloat16 {
		return op == dtype.Sum || op == dtype.Min || op == dtype.Max
	}
	return op.Valid(dt)
}
