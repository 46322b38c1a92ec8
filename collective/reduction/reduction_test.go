package reduction

import (
	"fmt"
	"math"
	"testing"
	"unsafe"

	"drun/collective"
	"drun/kernel/dtype"
)

// The number of ranks is no element: an average over more ranks than int8 and uint8 count to has
// the values of Go's division of the sum.
func TestAverageOfManyRanks(t *testing.T) {
	for _, ranks := range []int{1, 3, 127, 128, 129, 255, 256, 257, 384, 1000} {
		average(t, dtype.Int8, ranks, []int8{0, 1, -1, 100, 127, -127, -128})
		average(t, dtype.Uint8, ranks, []uint8{0, 1, 100, 127, 128, 200, 255})
		average(t, dtype.Int32, ranks, []int32{0, 1, -1, 1000, -1000, 1<<31 - 1, -1 << 31})
		average(t, dtype.Int64, ranks, []int64{0, 1, -1, 1000, -1000, 1<<63 - 1, -1 << 63})
	}
}

func average[T int8 | uint8 | int32 | int64](t *testing.T, dt dtype.Type, ranks int, sum []T) {
	t.Helper()
	buffer := func(v []T) collective.Buffer {
		return collective.Buffer{DType: dt, Data: unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*dt.Size())}
	}
	// One rank has it all, so that the sum is known whatever the order.
	sources := make([][]byte, ranks)
	for i := range sources {
		sources[i] = buffer(make([]T, len(sum))).Data
	}
	sources[ranks/2] = buffer(sum).Data
	combined := make([]T, len(sum))
	Combine(buffer(combined), sources, dtype.Avg)
	want := make([]T, len(sum))
	for i, v := range sum {
		want[i] = T(int64(v) / int64(ranks))
	}
	if fmt.Sprint(combined) != fmt.Sprint(want) {
		t.Errorf("%v over %d ranks: %v, want %v", sum, ranks, combined, want)
	}
}

// A few elements are added in Go, many by the kernel: both give the same bits.
func TestFewAndManyGiveTheSameBits(t *testing.T) {
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 0, 1e38, -1e38, 1e-45, 0.1, -0.3, 1e308, 5e-324}
	const n = 4 * few
	sources32, sources64 := make([][]byte, 3), make([][]byte, 3)
	for k := range 3 {
		a, b := make([]float32, n), make([]float64, n)
		for i := range n {
			b[i] = odd[(i*(k+1)+k*i/len(odd))%len(odd)]
			a[i] = float32(b[i])
			if a[i] != a[i] && k == 1 {
				a[i] = math.Float32frombits(0xFFC12345) // another NaN
			}
		}
		sources32[k], sources64[k] = collective.Of(a).Data, collective.Of(b).Data
	}
	for _, c := range []struct {
		dtype   dtype.Type
		sources [][]byte
	}{{dtype.Float32, sources32}, {dtype.Float64, sources64}} {
		var r Reducer
		many, size := make([]byte, len(c.sources[0])), c.dtype.Size()
		r.Combine(collective.Buffer{DType: c.dtype, Data: many}, c.sources, dtype.Sum)
		for i := range n {
			one, parts := make([]byte, size), make([][]byte, 3)
			for k := range parts {
				parts[k] = c.sources[k][i*size:][:size]
			}
			r.Combine(collective.Buffer{DType: c.dtype, Data: one}, parts, dtype.Sum)
			if string(one) != string(many[i*size:][:size]) {
				t.Errorf("%v, element %d: %x alone, %x among many", c.dtype, i, one, many[i*size:][:size])
			}
		}
	}
}
