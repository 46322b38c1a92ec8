package kernel_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"drun/kernel"
	"drun/kernel/dtype"
)

// audited runs the same computations with an audit of every call and without, and returns what the audit said.
func audited(t *testing.T, disturb func(op string, result []byte)) (seen map[string]int, wrong *kernel.Wrong) {
	t.Helper()
	seen = map[string]int{}
	a := &kernel.Audit{Rate: 1, Disturb: func(op string, result []byte) {
		if seen[op]++; disturb != nil {
			disturb(op, result)
		}
	}}
	const m, n, k = 7, 33, 20
	w := kernel.Window{Batch: 2, Channels: 3, Height: 9, Width: 9, Filters: 5, KernelH: 3, KernelW: 3, StrideH: 1, StrideW: 1, PadH: 1, PadW: 1}
	pool := kernel.Window{Batch: 2, Channels: 5, Height: 9, Width: 9, KernelH: 3, KernelW: 3, StrideH: 3, StrideW: 3}
	x, y := real32(1, 4000), real32(2, 4000)
	half := make([]uint16, 4000)
	kernel.Cast(dtype.BFloat16, dtype.Float32, []int{len(half)}, kernel.View{Data: ptr(half), Strides: []int{1}}, row(x))
	compute := func() (all [][]float32, err error) {
		out := func() []float32 { all = append(all, real32(3, 2000)); return all[len(all)-1] }
		at := make([]int32, 2*5*3*3)
		for _, call := range []func() error{
			func() error { // two products with gaps between their rows
				return kernel.Gemm(dtype.Float32, 2, m, n, k, kernel.Matrix{Data: ptr(out()), Stride: n + 5, Batch: 600}, kernel.Matrix{Data: ptr(x), Stride: k, Batch: m * k}, kernel.Matrix{Data: ptr(y), Stride: n}, true, nil)
			},
			func() error { // interleaved, as the gates of a recurrent layer
				return kernel.Gemm(dtype.Float32, 4, m, 5, k, kernel.Matrix{Data: ptr(out()), Stride: 20, Batch: 5}, kernel.Matrix{Data: ptr(x), Stride: k, Batch: m * k}, kernel.Matrix{Data: ptr(y), Stride: 5}, false, nil)
			},
			func() error {
				return kernel.GemmHalf(1, m, n, k, dtype.Float32, kernel.Matrix{Data: ptr(out()), Stride: n}, dtype.BFloat16, kernel.Matrix{Data: ptr(half), Stride: k}, dtype.Float32, kernel.Matrix{Data: ptr(y), Stride: n}, false, nil)
			},
			func() error { return kernel.Conv2d(dtype.Float32, w, ptr(out()), ptr(x), ptr(y), ptr(y)) },
			func() error { return kernel.Conv2dMaxPool(dtype.Float32, w, pool, ptr(out()), at, ptr(x), ptr(y), nil) },
			func() error { return kernel.Conv2dGradInput(dtype.Float32, w, ptr(out()), ptr(x), ptr(y)) },
			func() error { return kernel.ConvTranspose2d(dtype.Float32, w, ptr(out()), ptr(x), ptr(y), nil) },
			func() error { return kernel.Conv2dGradWeight(dtype.Float32, w, ptr(out()), ptr(out()), ptr(x), ptr(y)) },
			func() error { return kernel.Conv2dGradWeight(dtype.Float32, w, nil, ptr(out()), ptr(x), ptr(y)) },
		} {
			if err := call(); err != nil {
				return all, err
			}
		}
		return all, nil
	}
	want, err := compute()
	if err != nil {
		t.Fatal(err)
	}
	kernel.SetAudit(a)
	defer kernel.SetAudit(nil)
	got, err := compute()
	if err != nil && !errors.As(err, &wrong) {
		t.Fatal(err)
	}
	if wrong == nil && !slices.EqualFunc(got, want, func(a, b []float32) bool { return bytesOf(a) == bytesOf(b) }) {
		t.Error("an audit changes results")
	}
	return seen, wrong
}

func TestAudit(t *testing.T) {
	if seen, wrong := audited(t, nil); wrong != nil || seen["product"] != 6 || seen["convolution"] != 2+4+2 || seen["convolution's gradient"] != 2+4+2 {
		t.Errorf("without a fault: %v, %v", wrong, seen)
	}
	for _, c := range []struct {
		op  string
		nth int // of the computations of the operation, the one that is disturbed
	}{{"product", 1}, {"product", 4}, {"convolution", 2}, {"convolution's gradient", 3}} {
		n := 0
		_, wrong := audited(t, func(op string, result []byte) {
			if op == c.op {
				if n++; n == c.nth {
					result[rand.IntN(len(result)/4)*4+2] ^= 1
				}
			}
		})
		if wrong == nil || wrong.Op != c.op || !strings.Contains(wrong.Third, "agrees with the") {
			t.Errorf("%+v: %v", c, wrong)
		}
	}
	for _, share := range []float64{0, 0.25} { // the chance that a fault is in a call that is computed twice
		x, found := real32(1, 64), 0
		kernel.SetAudit(&kernel.Audit{Rate: share, Disturb: func(_ string, result []byte) { result[rand.IntN(len(result))] ^= byte(1 + rand.IntN(255)) }})
		for range 2000 {
			y := make([]float32, 64)
			if kernel.Gemm(dtype.Float32, 1, 8, 8, 8, kernel.Matrix{Data: ptr(y), Stride: 8}, kernel.Matrix{Data: ptr(x), Stride: 8}, kernel.Matrix{Data: ptr(x), Stride: 8}, false, nil) != nil {
				found++
			}
		}
		kernel.SetAudit(nil)
		if low, high := int(2000*share)-100, int(2000*share)+100; share == 0 && found > 0 || share > 0 && (found < low || found > high) { // 5 standard deviations
			t.Errorf("at a rate of %v, %d of 2000 faults were found", share, found)
		}
	}
}
