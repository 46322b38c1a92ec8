package kernel_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"drun/kernel"
	"drun/kernel/dtype"
)

func TestReduce(t *testing.T) {
	for _, s := range [][3]int{{1, 1, 1}, {1, 15, 1}, {3, 17, 1}, {2, 5, 7}, {1, 600, 100}, {5, 4097, 1}, {1, 300001, 1}, {4, 33, 300},
		{0, 3, 2}, {2, 0, 3}, {1, 0, 1}} {
		outer, n, inner := s[0], s[1], s[2]
		x := real32(1, outer*n*inner)
		for op, fold := range map[kernel.ReduceOp]func(a, b float64) float64{
			kernel.Sum: func(a, b float64) float64 { return a + b }, kernel.MaxOver: math.Max, kernel.MinOver: math.Min,
		} {
			if n == 0 && (op == kernel.MaxOver || op == kernel.MinOver) {
				continue // has no value
			}
			t.Run(fmt.Sprint(s, op), func(t *testing.T) {
				want := make([]float64, outer*inner)
				for l := range want {
					v := map[kernel.ReduceOp]float64{kernel.Sum: 0, kernel.MaxOver: math.Inf(-1), kernel.MinOver: math.Inf(1)}[op]
					for i := range n {
						v = fold(v, float64(x[(l/inner*n+i)*inner+l%inner]))
					}
					want[l] = v
				}
				got := written(t, outer*inner, func(out []float32) {
					kernel.Reduce(op, dtype.Float32, outer, n, inner, ptr(out), ptr(x))
				})
				near(t, "reduction", got, want, 1e-5*math.Sqrt(float64(n+1)))
			})
		}
	}
}

func TestReduceSpecial(t *testing.T) {
	nan := float32(math.NaN())
	for at := range 40 {
		x := real32(2, 40)
		x[at] = nan
		for _, op := range []kernel.ReduceOp{kernel.Sum, kernel.MaxOver, kernel.MinOver} {
			out := make([]float32, 1)
			kernel.Reduce(op, dtype.Float32, 1, 40, 1, ptr(out), ptr(x))
			if math.Float32bits(out[0]) != 0x7fc00000 {
				t.Fatalf("op %d with a NaN at %d: %v", op, at, out[0])
			}
		}
		index := make([]int64, 1)
		kernel.ArgReduce(kernel.MaxOver, dtype.Float32, 1, 40, 1, index, ptr(x))
		if index[0] != int64(at) {
			t.Fatalf("argmax with a NaN at %d: %d", at, index[0])
		}
	}
}

func TestReduceInts(t *testing.T) {
	x := []int32{5, -3, 5, math.MaxInt32, 0, 2}
	out := make([]int64, 3)
	kernel.Reduce(kernel.Sum, dtype.Int32, 1, 2, 3, ptr(out), ptr(x))
	if !slices.Equal(out, []int64{5 + math.MaxInt32, -3, 7}) {
		t.Errorf("sum %v", out)
	}
	truth := make([]uint8, 3)
	kernel.Reduce(kernel.All, dtype.Int32, 3, 2, 1, ptr(truth), ptr(x))
	if !slices.Equal(truth, []uint8{1, 1, 0}) {
		t.Errorf("all %v", truth)
	}
	kernel.Reduce(kernel.Any, dtype.Int32, 3, 0, 1, ptr(truth), ptr(x))
	if !slices.Equal(truth, []uint8{0, 0, 0}) {
		t.Errorf("any of nothing %v", truth)
	}
	index := make([]int64, 3)
	kernel.ArgReduce(kernel.MaxOver, dtype.Int32, 1, 2, 3, index, ptr(x))
	if !slices.Equal(index, []int64{1, 1, 0}) {
		t.Errorf("max at %v", index)
	}
	kernel.CumSum(dtype.Int32, 1, 6, 1, ptr(make([]int64, 6)), ptr(x))
	sums := make([]int64, 6)
	kernel.CumSum(dtype.Int32, 1, 3, 2, ptr(sums), ptr(x))
	if !slices.Equal(sums, []int64{5, -3, 10, math.MaxInt32 - 3, 10, math.MaxInt32 - 1}) {
		t.Errorf("cumulative %v", sums)
	}
}

func TestSquareSum(t *testing.T) {
	x := real32(4, 100003)
	want := 0.0
	for _, v := range x {
		want += float64(v) * float64(v)
	}
	got := everywhere(t, func() []float64 { return []float64{kernel.SquareSum(dtype.Float32, len(x), ptr(x))} })
	near(t, "square sum", got, []float64{want}, 1e-5)
}
