package shm

import (
	"math"
	"testing"

	"drun/collective"
	"drun/kernel/dtype"
)

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
		var r reducer
		many, size := make([]byte, len(c.sources[0])), c.dtype.Size()
		r.combine(many, c.sources, c.dtype, dtype.Sum)
		for i := range n {
			one, parts := make([]byte, size), make([][]byte, 3)
			for k := range parts {
				parts[k] = c.sources[k][i*size:][:size]
			}
			r.combine(one, parts, c.dtype, dtype.Sum)
			if string(one) != string(many[i*size:][:size]) {
				t.Errorf("%v, element %d: %x alone, %x among many", c.dtype, i, one, many[i*size:][:size])
			}
		}
	}
}
