package disttest

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"

	"drun/collective"
	"drun/kernel/dtype"
)

// A sum is a reduction of one element from each of three ranks, with its expected result.
type sum struct {
	dtype dtype.Type
	op    dtype.ReduceOp
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

func of[T any](dt dtype.Type, op dtype.ReduceOp, a, b, c, want T) sum {
	return sum{dtype: dt, op: op, in: [3][]byte{bytesOf(a), bytesOf(b), bytesOf(c)}, want: bytesOf(want)}
}

// ofIntegers makes reductions of a type's extremes. Sums and products wrap around, the average does not.
func ofIntegers[T int64 | int32 | int8 | uint8](dt dtype.Type, lowest, highest T) []sum {
	var third T // of lowest + highest + highest
	if lowest == 0 {
		third = highest/3*2 + highest%3*2/3
	} else {
		third = (highest - 1) / 3
	}
	return []sum{
		of(dt, dtype.Avg, highest, highest, highest, highest),
		of(dt, dtype.Avg, lowest, lowest, lowest, lowest),
		of(dt, dtype.Avg, lowest, highest, highest, third),
		of(dt, dtype.Avg, highest, highest-1, highest-2, highest-1),
		of(dt, dtype.Avg, highest, highest, highest-1, highest-1), // a third less than highest, truncated
		of(dt, dtype.Avg, lowest, lowest+1, lowest+2, lowest+1),
		of(dt, dtype.Sum, highest, 1, 0, lowest),
		of(dt, dtype.Sum, highest, 1, highest, highest+lowest),
		of(dt, dtype.Product, highest, highest, 1, 1),
		of(dt, dtype.Product, highest, 2, 1, highest+highest),
		of(dt, dtype.Min, highest, lowest, 1, lowest),
		of(dt, dtype.Max, lowest, highest, 1, highest),
		of(dt, dtype.BXor, lowest, highest, lowest, highest),
		of(dt, dtype.BAnd, highest, 5, 6, 4),
		of(dt, dtype.BOr, lowest, 5, 6, lowest|7),
	}
}

// ofFloats makes reductions that test rounding, NaN, infinity and the signs of zero.
func ofFloats[T any](dt dtype.Type, float func(float64) T, highest, lowest float64) []sum {
	var all []sum
	add := func(op dtype.ReduceOp, a, b, c, want float64) *sum {
		all = append(all, of(dt, op, float(a), float(b), float(c), float(want)))
		return &all[len(all)-1]
	}
	nan, inf, zero := math.NaN(), math.Inf(1), math.Copysign(0, -1)
	for _, op := range []dtype.ReduceOp{dtype.Sum, dtype.Avg, dtype.Product, dtype.Min, dtype.Max} {
		add(op, nan, 1, 2, nan)
		add(op, 1, nan, 2, nan)
		add(op, 1, 2, nan, nan)
	}
	add(dtype.Sum, inf, -inf, 1, nan)
	add(dtype.Avg, -inf, 1, inf, nan)
	add(dtype.Product, 0, inf, 1, nan)
	add(dtype.Min, inf, -inf, 1, -inf)
	add(dtype.Max, inf, -inf, 1, inf)
	add(dtype.Sum, zero, zero, zero, zero)
	add(dtype.Avg, zero, zero, zero, zero)
	add(dtype.Sum, zero, 0, zero, 0)
	add(dtype.Product, zero, 1, 1, zero)
	add(dtype.Min, zero, zero, 1, zero)
	add(dtype.Max, zero, zero, -1, zero)
	// Of equal values the last rank's is taken.
	add(dtype.Min, zero, 0, 0, 0).zeros = true
	add(dtype.Min, 0, 0, zero, zero).zeros = true
	add(dtype.Max, 0, 0, zero, zero).zeros = true
	// Subnormal results are not flushed to zero.
	add(dtype.Sum, lowest, lowest, 0, 2*lowest)
	add(dtype.Avg, 3*lowest, 0, 0, lowest)
	add(dtype.Max, lowest, 0, 0, lowest)
	if highest < 1e6 { // float16, whose sums are float32's
		add(dtype.Sum, highest, highest, -highest, highest)
		add(dtype.Avg, highest, highest, highest, highest)
	} else {
		add(dtype.Sum, highest, highest, highest, inf)
		add(dtype.Avg, highest, highest, highest, inf)
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
	ofIntegers[int64](dtype.Int64, math.MinInt64, math.MaxInt64),
	ofIntegers[int32](dtype.Int32, math.MinInt32, math.MaxInt32),
	ofIntegers[int8](dtype.Int8, math.MinInt8, math.MaxInt8),
	ofIntegers[uint8](dtype.Uint8, 0, math.MaxUint8),
	[]sum{
		of[int8](dtype.Int8, dtype.Avg, 100, 100, 100, 100),
		of[int8](dtype.Int8, dtype.Avg, -1, 0, -1, 0), // truncated toward zero
		of[int8](dtype.Int8, dtype.Sum, 100, 100, 0, -56),
		of[uint8](dtype.Uint8, dtype.Sum, 200, 100, 0, 44),
		of[uint8](dtype.Bool, dtype.BXor, 1, 1, 1, 1),
		of[uint8](dtype.Bool, dtype.BXor, 1, 0, 1, 0),
		of[uint8](dtype.Bool, dtype.BOr, 0, 0, 1, 1),
		of[uint8](dtype.Bool, dtype.BAnd, 1, 1, 0, 0),
		of[complex64](dtype.Complex64, dtype.Sum, complex(math.MaxFloat32, 1), complex(math.MaxFloat32, 2), 0,
			complex(float32(math.Inf(1)), 3)), // part by part
		of[complex64](dtype.Complex64, dtype.Avg, complex(1, -3), complex(2, -3), 3, complex(2, -2)),
	},
	ofFloats(dtype.Float64, func(v float64) float64 { return v }, math.MaxFloat64, math.SmallestNonzeroFloat64),
	ofFloats(dtype.Float32, func(v float64) float32 { return float32(v) }, math.MaxFloat32, math.SmallestNonzeroFloat32),
	ofFloats(dtype.Float16, float16, 65504, 0x1p-24),
	ofFloats(dtype.BFloat16, bfloat16, 0x1.FEp127, 0x1p-133),
	[]sum{
		// In their own type 2048 + 1 and 256 + 1 would be 2048 and 256.
		of(dtype.Float16, dtype.Sum, float16(2048), float16(1), float16(1), float16(2050)),
		of(dtype.BFloat16, dtype.Sum, bfloat16(256), bfloat16(1), bfloat16(1), bfloat16(258)),
		of(dtype.Float16, dtype.Product, float16(256), float16(256), float16(0x1p-8), float16(256)),
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
func isNaN(dt dtype.Type, b []byte) bool {
	infinity := map[dtype.Type]uint64{dtype.Float64: 0x7FF << 52, dtype.Float32: 0xFF << 23,
		dtype.Float16: 0x1F << 10, dtype.BFloat16: 0xFF << 7}[dt]
	return infinity != 0 && bits(b)&(1<<(8*len(b)-1)-1) > infinity
}

func isZero(b []byte) bool { return bits(b)<<(65-8*len(b)) == 0 }

func bits(b []byte) (v uint64) {
	for i, x := range b {
		v |= uint64(x) << (8 * i)
	}
	return v
}
