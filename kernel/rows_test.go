package kernel_test

import (
	"math"
	"slices"
	"testing"

	"drun/kernel"
	"drun/kernel/dtype"
)

var rowShapes = [][2]int{{1, 1}, {3, 2}, {7, 10}, {5, 65}, {100, 128}, {2, 1000}}

// softmax is the reference for one row, in float64.
func softmax(x []float32) []float64 {
	top, sum, y := math.Inf(-1), 0.0, make([]float64, len(x))
	for _, v := range x {
		top = math.Max(top, float64(v))
	}
	for i, v := range x {
		y[i] = math.Exp(float64(v) - top)
		sum += y[i]
	}
	for i := range y {
		y[i] /= sum
	}
	return y
}

func TestSoftmax(t *testing.T) {
	for _, s := range rowShapes {
		rows, n := s[0], s[1]
		x, dy := real32(1, rows*n), real32(2, rows*n)
		if n > 2 {
			x[1] = float32(math.Inf(-1)) // a masked element
		}
		for _, logarithm := range []bool{false, true} {
			want, wantGrad := make([]float64, rows*n), make([]float64, rows*n)
			for r := range rows {
				y, d := softmax(x[r*n:][:n]), dy[r*n:][:n]
				dot, sum := 0.0, 0.0
				for i := range y {
					dot += y[i] * float64(d[i])
					sum += float64(d[i])
				}
				for i := range y {
					want[r*n+i], wantGrad[r*n+i] = y[i], y[i]*(float64(d[i])-dot)
					if logarithm {
						want[r*n+i], wantGrad[r*n+i] = math.Log(y[i]), float64(d[i])-y[i]*sum
					}
				}
			}
			y := written(t, rows*n, func(out []float32) { kernel.Softmax(dtype.Float32, logarithm, rows, n, ptr(out), ptr(x)) })
			near(t, "softmax", y, want, 3e-6)
			dx := written(t, rows*n, func(out []float32) {
				kernel.SoftmaxGrad(dtype.Float32, logarithm, rows, n, ptr(out), ptr(dy), ptr(y))
			})
			near(t, "softmax gradient", dx, wantGrad, 1e-5)
		}
	}
	masked, out := []float32{float32(math.Inf(-1)), float32(math.Inf(-1))}, make([]float32, 2)
	if kernel.Softmax(dtype.Float32, false, 1, 2, ptr(out), ptr(masked)); out[0] == out[0] {
		t.Errorf("a row of -inf gave %v, want NaN", out)
	}
}

func TestCrossEntropy(t *testing.T) {
	for _, s := range rowShapes {
		rows, n := s[0], s[1]
		x, target := real32(3, rows*n), make([]int64, rows)
		want, wantGrad := make([]float64, rows), make([]float64, rows*n)
		for r := range rows {
			target[r] = int64(r*7%(n+1)) - 1 // -1: ignored
			if target[r] < 0 {
				continue
			}
			y := softmax(x[r*n:][:n])
			want[r] = -math.Log(y[target[r]])
			for i := range y {
				wantGrad[r*n+i] = 0.25 * y[i]
			}
			wantGrad[r*n+int(target[r])] -= 0.25
		}
		lse := make([]float32, rows)
		loss := written(t, rows, func(out []float32) {
			kernel.CrossEntropy(dtype.Float32, rows, n, ptr(out), ptr(lse), ptr(x), target)
		})
		near(t, "loss", loss, want, 3e-6)
		one := []float32{0.5}
		dx := written(t, rows*n, func(out []float32) {
			kernel.CrossEntropyGrad(dtype.Float32, rows, n, ptr(out), ptr(one), 0, 0.5, ptr(x), ptr(lse), target)
		})
		near(t, "loss gradient", dx, wantGrad, 3e-6)
	}
}

// Narrow rows are computed many at once: with the bits of the same rows made wide by elements that count nothing.
func TestNarrowCrossEntropy(t *testing.T) {
	const wide = 21
	odd := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), -200, float32(math.Copysign(0, -1))}
	for n := 1; n <= 16; n++ {
		for _, rows := range []int{1, 3, 16, 37} {
			x, padded := real32(uint64(n), rows*n), make([]float32, rows*wide)
			target, dloss := make([]int64, rows), real32(5, rows)
			for r := range rows {
				target[r] = int64(r*5%(n+1)) - 1
				if r%7 == 3 {
					x[r*n+r%n] = odd[r/7%len(odd)]
				}
				for i := range wide {
					padded[r*wide+i] = float32(math.Inf(-1))
				}
				copy(padded[r*wide:], x[r*n:][:n])
			}
			computed := func(x []float32, n int) []float32 {
				return everywhere(t, func() []float32 {
					out, dx := make([]float32, 2*rows), make([]float32, rows*n)
					kernel.CrossEntropy(dtype.Float32, rows, n, ptr(out), ptr(out[rows:]), ptr(x), target)
					kernel.CrossEntropyGrad(dtype.Float32, rows, n, ptr(dx), ptr(dloss), 1, 0.25, ptr(x), ptr(out[rows:]), target)
					return append(out, dx...)
				})
			}
			got, want := computed(x, n), computed(padded, wide)
			narrow := append([]float32(nil), want[:2*rows]...)
			for r := range rows {
				narrow = append(narrow, want[2*rows+r*wide:][:n]...)
			}
			if bytesOf(got) != bytesOf(narrow) {
				t.Errorf("%d rows of %d differ from the same rows made wide", rows, n)
			}
		}
	}
}

// Layer and RMS norm, the gradients against central differences of the forward in double.
func TestLayerNorm(t *testing.T) {
	const eps = 1e-5
	for _, s := range rowShapes[1:] {
		rows, n := s[0], s[1]
		x, gamma, beta, dy := real64(1, rows*n), real64(2, n), real64(3, n), real64(4, rows*n)
		for _, rms := range []bool{false, true} {
			mean, rstd := make([]float64, rows), make([]float64, rows)
			meanPtr := ptr(mean)
			if rms {
				meanPtr = nil
			}
			forward := func(x, gamma, beta []float64) []float64 {
				y := make([]float64, rows*n)
				kernel.LayerNorm(dtype.Float64, rows, n, eps, ptr(y), meanPtr, ptr(rstd), ptr(x), ptr(gamma), ptr(beta))
				return y
			}
			want := make([]float64, rows*n)
			for r := range rows {
				m, v := 0.0, 0.0
				for _, e := range x[r*n:][:n] {
					m += e / float64(n)
				}
				if rms {
					m = 0
				}
				for _, e := range x[r*n:][:n] {
					v += (e - m) * (e - m) / float64(n)
				}
				for i := range n {
					want[r*n+i] = (x[r*n+i]-m)/math.Sqrt(v+eps)*gamma[i] + beta[i]
				}
			}
			near(t, "norm", everywhere(t, func() []float64 { return forward(x, gamma, beta) }), want, 1e-12)

			grads := everywhere(t, func() []float64 {
				g := make([]float64, rows*n+2*n)
				kernel.LayerNormGrad(dtype.Float64, rows, n, false, ptr(g), ptr(g[rows*n:]), ptr(g[rows*n+n:]), ptr(dy), ptr(x), ptr(gamma), meanPtr, ptr(rstd))
				return g
			})
			// Along one random direction in x, gamma and beta together.
			direction, slope := real64(5, rows*n+2*n), 0.0
			for i, d := range direction {
				slope += d * grads[i]
			}
			loss := func(h float64) (sum float64) {
				p := append(append(append([]float64{}, x...), gamma...), beta...)
				for i := range p {
					p[i] += h * direction[i]
				}
				for i, y := range forward(p[:rows*n], p[rows*n:rows*n+n], p[rows*n+n:]) {
					sum += y * dy[i]
				}
				return sum
			}
			// n = 2 has curvature of order 1/eps where both elements nearly agree.
			if n > 2 {
				near(t, "norm gradient", []float64{slope}, []float64{(loss(1e-6) - loss(-1e-6)) / 2e-6}, 1e-4)
			}
		}
	}
}

func TestIndexing(t *testing.T) {
	const rows, n = 5, 70
	in, indices := real32(1, rows*n), []int64{3, 0, 3, 4, 3}
	out := make([]float32, len(indices)*n)
	kernel.Take(dtype.Float32, 1, rows, n, ptr(out), ptr(in), indices)
	for i, at := range indices {
		near(t, "take", out[i*n:][:n], in[at*n:][:n], 0)
	}
	sums := everywhere(t, func() []float32 {
		sums := make([]float32, rows*n)
		kernel.AddRows(dtype.Float32, n, ptr(sums), ptr(out), indices)
		return sums
	})
	near(t, "add rows", sums[3*n:4*n], func() []float32 {
		want := make([]float32, n)
		for i := range want {
			want[i] = in[3*n+i] + in[3*n+i] + in[3*n+i]
		}
		return want
	}(), 0)

	// [2, 3, 2] from [2, 4, 2]
	a, index := []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, []int64{3, 0, 0, 0, 1, 2, 0, 1, 2, 3, 3, 3}
	got := make([]int32, 12)
	kernel.Gather(dtype.Int32, 2, 3, 4, 2, ptr(got), ptr(a), index)
	back := make([]int32, 16)
	kernel.ScatterAdd(dtype.Int32, 2, 3, 4, 2, ptr(back), ptr(got), index)
	if !slices.Equal(got, []int32{6, 1, 0, 1, 2, 5, 8, 11, 12, 15, 14, 15}) {
		t.Errorf("gather %v", got)
	}
	want := make([]int32, 16)
	for p := range 2 {
		for i := range 3 {
			for j := range 2 {
				at := (p*3+i)*2 + j
				want[(p*4+int(index[at]))*2+j] += got[at]
			}
		}
	}
	if !slices.Equal(back, want) {
		t.Errorf("scatter add %v, want %v", back, want)
	}
}

// Every NaN that a kernel of rows gives is the same one, whatever came in.
func TestRowsNaN(t *testing.T) {
	for _, bits := range []uint32{0x7fc00000, 0xffc00000, 0x7fc12345, 0xff800001} {
		for _, where := range []int{0, 5, 20} {
			x := real32(9, 2*21)
			x[where] = math.Float32frombits(bits)
			for _, got := range everywhere(t, func() []float32 {
				y := make([]float32, 4+2*42)
				kernel.CrossEntropy(dtype.Float32, 2, 21, ptr(y), ptr(y[2:]), ptr(x), []int64{int64(where), 1})
				kernel.CrossEntropyGrad(dtype.Float32, 2, 21, ptr(y[4:]), ptr([]float32{1}), 0, 1, ptr(x), ptr(y[2:]), []int64{3, 1})
				kernel.Softmax(dtype.Float32, false, 2, 21, ptr(y[46:]), ptr(x))
				return y
			}) {
				if b := math.Float32bits(got); got != got && b != 0x7fc00000 {
					t.Fatalf("NaN %x at %d became %x", bits, where, b)
				}
			}
			y := make([]float32, 4)
			kernel.CrossEntropy(dtype.Float32, 2, 21, ptr(y), ptr(y[2:]), ptr(x), []int64{int64(where), 1})
			if y[0] == y[0] || y[2] == y[2] || y[1] != y[1] {
				t.Fatalf("a NaN at %d gave the losses %v", where, y)
			}
		}
	}
}
