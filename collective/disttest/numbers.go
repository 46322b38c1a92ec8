package disttest

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"

	"drun/collective"
	"drun/kernel/element"
)

// A sum is a reduction of one element from each of three ranks, with its expected result.
type sum struct {
	dtype element.Type
	op    element.ReduceOp
	in    [3][]byte
	want  []byte
	// Zeros of both signs are equal: which of them is the minimum or maximum depends on the order.
	zeros bool
}

func (s sum) String() string {
	return fmt.Sprintf("%v of the %vs %x %x %x", s.op, s.dtype, s.in[0], s.in[1], s.in[2])
}

// half holds the bits of a float16 or bfloat16.
type half uint16

func bytesOf[T any](v T) []byte {
	return bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v)))
}

func of[T any](dtype element.Type, op element.ReduceOp, a, b, c, want T) sum {
	return sum{dtype: dtype, op: op, in: [3][]byte{bytesOf(a), bytesOf(b), bytesOf(c)}, want: bytesOf(want)}
}

// ofIntegers adds reductions of a type's extremes. Sums and products wrap around, the average does not.
func ofIntegers[T int64 | int32 | int8 | uint8](dtype element.Type, lowest, highest T) []sum {
	var third T // of lowest + highest + highest
	if lowest == 0 {
		third = highest/3*2 + highest%3*2/3
	} else {
		third = (highest - 1) / 3
	}
	return []sum{
		of(dtype, element.Avg, highest, highest, highest, highest),
		of(dtype, element.Avg, lowest, lowest, lowest, lowest),
		of(dtype, element.Avg, lowest, highest, highest, third),
		of(dtype, element.Avg, highest, highest-1, highest-2, highest-1),
		of(dtype, element.Avg, highest, highest, highest-1, highest-1), // a third less than highest, truncated
		of(dtype, element.Avg, lowest, lowest+1, lowest+2, lowest+1),
		of(dtype, element.Sum, highest, 1, 0, lowest),
		of(dtype, element.Sum, highest, 1, highest, highest+lowest),
		of(dtype, element.Product, highest, highest, 1, 1),
		of(dtype, element.Product, highest, 2, 1, highest+highest),
		of(dtype, element.Min, highest, lowest, 1, lowest),
		of(dtype, element.Max, lowest, highest, 1, highest),
		of(dtype, element.BXor, lowest, highest, lowest, highest),
		of(dtype, element.BAnd, highest, 5, 6, 4),
		of(dtype, element.BOr, lowest, 5, 6, lowest|7),
	}
}

// ofFloats adds reductions that test rounding, NaN, infinity and the signs of zero.
func ofFloats[T any](dtype element.Type, float func(float64) T, highest, lowest float64) []sum {
	var all []sum
	add := func(op element.ReduceOp, a, b, c, want float64) *sum {
		all = append(all, of(dtype, op, float(a), float(b), float(c), float(want)))
		return &all[len(all)-1]
	}
	nan, inf, zero := math.NaN(), math.Inf(1), math.Copysign(0, -1)
	for _, op := range []element.ReduceOp{element.Sum, element.Avg, element.Product, element.Min, element.Max} {
		add(op, nan, 1, 2, nan)
		add(op, 1, nan, 2, nan)
		add(op, 1, 2, nan, nan)
	}
	add(element.Sum, inf, -inf, 1, nan)
	add(element.Avg, -inf, 1, inf, nan)
	add(element.Product, 0, inf, 1, nan)
	add(element.Min, inf, -inf, 1, -inf)
	add(element.Max, inf, -inf, 1, inf)
	add(element.Sum, zero, zero, zero, zero)
	add(element.Avg, zero, zero, zero, zero)
	add(element.Sum, zero, 0, zero, 0)
	add(element.Product, zero, 1, 1, zero)
	add(element.Min, zero, zero, 1, zero)
	add(element.Max, zero, zero, -1, zero)
	// Of equal values the last rank's is taken.
	add(element.Min, zero, 0, 0, 0).zeros = true
	add(element.Min, 0, 0, zero, zero).zeros = true
	add(element.Max, 0, 0, zero, zero).zeros = true
	// Subnormal results are not flushed to zero.
	add(element.Sum, lowest, lowest, 0, 2*lowest)
	add(element.Avg, 3*lowest, 0, 0, lowest)
	add(element.Max, lowest, 0, 0, lowest)
	if highest < 1e6 { // float16, whose sums are float32's
		add(element.Sum, highest, highest, -highest, highest)
		add(element.Avg, highest, highest, highest, highest)
	} else {
		add(element.Sum, highest, highest, highest, inf)
		add(element.Avg, highest, highest, highest, inf)
	}
	return all
}

// float16 and bfloat16 encode numbers that are exact in these types.
func float16(v float64) half  { return narrow(v, 10, 15) }
func bfloat16(v float64) half { return half(math.Float32bits(float32(v)) >> 16) }

func narrow(v float64, bits, bias int) half {
	sign := half(math.Float64bits(v) >> 63 << 15)
	fraction, exponent := math.Frexp(math.Abs(v))
	switch {
	case v != v:
		return 0x7E00
	case math.IsInf(v, 0):
		return sign | 0x7C00
	case v == 0:
		return sign
	case exponent < 2-bias: // denormal
		return sign | half(math.Ldexp(fraction, exponent+bias-1+bits))
	}
	return sign | half((exponent+bias-1)<<bits) + half(math.Ldexp(2*fraction-1, bits))
}

var sums = slices.Concat(
	ofIntegers[int64](element.Int64, math.MinInt64, math.MaxInt64),
	ofIntegers[int32](element.Int32, math.MinInt32, math.MaxInt32),
	ofIntegers[int8](element.Int8, math.MinInt8, math.MaxInt8),
	ofIntegers[uint8](element.Uint8, 0, math.MaxUint8),
	[]sum{
		of[int8](element.Int8, element.Avg, 100, 100, 100, 100),
		of[int8](element.Int8, element.Avg, -1, 0, -1, 0), // truncated toward zero
		of[int8](element.Int8, element.Sum, 100, 100, 0, -56),
		of[uint8](element.Uint8, element.Sum, 200, 100, 0, 44),
		of[uint8](element.Bool, element.BXor, 1, 1, 1, 1),
		of[uint8](element.Bool, element.BXor, 1, 0, 1, 0),
		of[uint8](element.Bool, element.BOr, 0, 0, 1, 1),
		of[uint8](element.Bool, element.BAnd, 1, 1, 0, 0),
		of[complex64](element.Complex64, element.Sum, complex(math.MaxFloat32, 1), complex(math.MaxFloat32, 2), 0,
			complex(float32(math.Inf(1)), 3)), // part by part
		of[complex64](element.Complex64, element.Avg, complex(1, -3), complex(2, -3), 3, complex(2, -2)),
	},
	ofFloats(element.Float64, func(v float64) float64 { return v }, math.MaxFloat64, math.SmallestNonzeroFloat64),
	ofFloats(element.Float32, func(v float64) float32 { return float32(v) }, math.MaxFloat32, math.SmallestNonzeroFloat32),
	ofFloats(element.Float16, float16, 65504, 0x1p-24),
	ofFloats(element.BFloat16, bfloat16, 0x1.FEp127, 0x1p-133),
	[]sum{
		// In their own type 2048 + 1 and 256 + 1 would be 2048 and 256.
		of(element.Float16, element.Sum, float16(2048), float16(1), float16(1), float16(2050)),
		of(element.BFloat16, element.Sum, bfloat16(256), bfloat16(1), bfloat16(1), bfloat16(258)),
		of(element.Float16, element.Product, float16(256), float16(256), float16(0x1p-8), float16(256)),
	},
)

// numbers tries values that round, wrap around or are NaN, among many others, and also by all_reduce alone.
func (s suite) numbers(t *testing.T, rank int, comm collective.Comm) {
	for _, tr := range sums {
		for _, kind := range []collective.Kind{collective.AllReduce, collective.Reduce, collective.ReduceScatter} {
			for _, n := range []int{1, 40} {
				if n == 1 && kind != collective.AllReduce {
					continue
				}
				sent, received := n, n
				switch {
				case kind == collective.ReduceScatter:
					sent = 3 * n
				case kind == collective.Reduce && rank != 2:
					received = 0
				}
				call := collective.Call{Kind: kind, Reduce: tr.op, Root: 2,
					Send: collective.Buffer{DType: tr.dtype, Data: bytes.Repeat(tr.in[rank], sent)},
					Recv: collective.Buffer{DType: tr.dtype, Data: make([]byte, received*len(tr.want))}}
				if kind != collective.Reduce {
					call.Root = 0
				}
				if err := Do(comm, call); err != nil {
					t.Errorf("%v of %d, %v: %v", kind, n, tr, err)
					return
				}
				for got := range slices.Chunk(call.Recv.Data, len(tr.want)) {
					if !s.equal(tr, got) {
						t.Errorf("%v of %d, %v: %x, want %x", kind, n, tr, got, tr.want)
						break
					}
				}
			}
		}
	}
}

func (s suite) equal(tr sum, got []byte) bool {
	if bytes.Equal(got, tr.want) || isNaN(tr.dtype, tr.want) && isNaN(tr.dtype, got) {
		return true
	}
	return s.exact && tr.zeros && isZero(tr.want) && isZero(got)
}

// isNaN reports whether b is a NaN, with any payload: an engine on a GPU has its own.
func isNaN(dtype element.Type, b []byte) bool {
	infinity := map[element.Type]uint64{element.Float64: 0x7FF << 52, element.Float32: 0xFF << 23,
		element.Float16: 0x1F << 10, element.BFloat16: 0xFF << 7}[dtype]
	return infinity != 0 && bits(b)&(1<<(8*len(b)-1)-1) > infinity
}

func isZero(b []byte) bool { return bits(b)<<(65-8*len(b)) == 0 }

func bits(b []byte) (v uint64) {
	for i, x := range b {
		v |= uint64(x) << (8 * i)
	}
	return v
}
