package fft_test

import (
	"slices"
	"testing"

	"drun/kernel"
	"drun/kernel/dtype"
	"drun/tensor"
	"drun/tensor/fft"
)

// A transform that a processor computes wrongly is found, and does not change the result, whatever its method.
func TestAudit(t *testing.T) {
	defer kernel.SetAudit(nil)
	for _, n := range []int{60, 74} { // small factors, and a large one
		transform := func() []float64 {
			c := tensor.NewContext()
			values := make([]float64, n)
			for i := range values {
				values[i] = float64(i*i%17) - 8
			}
			x, err := tensor.FromFloats(c, values, []int{n}, dtype.Float64)
			if err != nil {
				t.Fatal(err)
			}
			re, im, err := fft.Fourier{Op: "fft", Norm: "backward"}.FFT(x, nil, nil, []int{0})
			if err != nil {
				t.Fatal(err)
			}
			both, err := tensor.Cat([]*tensor.Tensor{re, im}, 0)
			if err != nil {
				t.Fatal(err)
			}
			return slices.Clone(tensor.Elems[float64](both))
		}
		kernel.SetAudit(nil)
		want := transform()
		computed, found := 0, []*kernel.Wrong{}
		kernel.SetAudit(&kernel.Audit{Rate: 1, Found: func(w *kernel.Wrong) { found = append(found, w) }, Disturb: func(op string, _ bool, result []byte) {
			if op == "Fourier transform" {
				if computed++; computed == 1 {
					result[len(result)/2] ^= 1
				}
			}
		}})
		if got := transform(); !slices.Equal(got, want) || computed != 3 || len(found) != 1 || found[0].Op != "Fourier transform" {
			t.Errorf("of %d numbers: computed %d times, found %v, the same bits: %t", n, computed, found, slices.Equal(got, want))
		}
	}
}
