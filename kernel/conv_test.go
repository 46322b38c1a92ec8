package kernel_test

import (
	"math"
	"slices"
	"testing"
	"unsafe"

	"drun/kernel"
	"drun/kernel/dtype"
)

func TestConv(t *testing.T) {
	for _, w := range []kernel.Window{
		{Batch: 2, Channels: 1, Height: 5, Width: 6, Filters: 3, KernelH: 3, KernelW: 3, StrideH: 1, StrideW: 1, PadH: 1, PadW: 1},
		{Batch: 3, Channels: 17, Height: 9, Width: 8, Filters: 5, KernelH: 3, KernelW: 2, StrideH: 2, StrideW: 3, PadH: 0, PadW: 2},
		{Batch: 1, Channels: 4, Height: 7, Width: 7, Filters: 1, KernelH: 1, KernelW: 1, StrideH: 1, StrideW: 1},
		{Batch: 2, Channels: 3, Height: 4, Width: 4, Filters: 2, KernelH: 5, KernelW: 5, StrideH: 1, StrideW: 1, PadH: 3, PadW: 3},
		{Batch: 19, Channels: 3, Height: 20, Width: 30, Filters: 13, KernelH: 3, KernelW: 3, StrideH: 1, StrideW: 1, PadH: 1, PadW: 1},
		{Batch: 2, Channels: 2, Height: 3, Width: 600, Filters: 2, KernelH: 2, KernelW: 5, StrideH: 1, StrideW: 2, PadH: 0, PadW: 2},
		{Batch: 2, Channels: 31, Height: 7, Width: 7, Filters: 33, KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 2, PadH: 1, PadW: 1},
		{Batch: 2, Channels: 3, Height: 8, Width: 9, Filters: 4, KernelH: 1, KernelW: 2, StrideH: 3, StrideW: 4, PadH: 2, PadW: 0},
		{Batch: 2, Channels: 2, Height: 2, Width: 3, Filters: 4, KernelH: 2, KernelW: 3, StrideH: 5, StrideW: 5},
		// Narrow images of many filters: vectors run along these where that has less to compute in vain.
		{Batch: 3, Channels: 30, Height: 7, Width: 14, Filters: 31, KernelH: 3, KernelW: 3, StrideH: 1, StrideW: 1, PadH: 1, PadW: 1},
		{Batch: 5, Channels: 16, Height: 12, Width: 42, Filters: 20, KernelH: 4, KernelW: 4, StrideH: 2, StrideW: 2, PadH: 1, PadW: 1},
		{Batch: 2, Channels: 16, Height: 12, Width: 14, Filters: 9, KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 1, PadH: 1, PadW: 1},
		{Batch: 2, Channels: 47, Height: 40, Width: 19, Filters: 48, KernelH: 3, KernelW: 5, StrideH: 1, StrideW: 3, PadH: 0, PadW: 2},
	} {
		oh, ow := w.Out()
		xs, ks, ys := w.Batch*w.Channels*w.Height*w.Width, w.Filters*w.Channels*w.KernelH*w.KernelW, w.Batch*w.Filters*oh*ow
		x, k, bias, dy := real32(1, xs), real32(2, ks), real32(3, w.Filters), real32(4, ys)
		testConv(t, w, x, k, bias, dy)
		thin(dy)
		testConv(t, w, x, k, bias, dy)
		// Zeros of dy are multiplied by what is not finite, too.
		x[xs/2], x[xs-1] = float32(math.Inf(1)), float32(math.NaN())
		testConv(t, w, x, k, bias, dy)
		x[xs/2], x[xs-1], k[ks/2] = 1, 2, float32(math.Inf(-1))
		testConv(t, w, x, k, bias, dy)
		k[ks/2], dy[0], dy[ys/2], dy[ys-1] = 1, float32(math.Inf(-1)), float32(math.NaN()), float32(math.Inf(1))
		testConv(t, w, x, k, bias, dy)
	}
}

// thin leaves about a fifth of a gradient, as pooling by maxima and relu do, and zeros of both signs.
func thin[E float32 | float64](dy []E) {
	for i, v := range dy {
		if v < 0.8 {
			dy[i] = E(math.Copysign(0, float64(v)))
		}
	}
}

// testConv compares a convolution and its gradients with sums in float64.
func testConv(t *testing.T, w kernel.Window, x, k, bias, dy []float32) {
	t.Helper()
	oh, ow := w.Out()
	y, dx, dk, db := make([]float64, len(dy)), make([]float64, len(x)), make([]float64, len(k)), make([]float64, w.Filters)
	for b := range w.Batch {
		for f := range w.Filters {
			for oy := range oh {
				for ox := range ow {
					o := ((b*w.Filters+f)*oh+oy)*ow + ox
					y[o] += float64(bias[f])
					db[f] += float64(dy[o])
					for c := range w.Channels {
						for i := range w.KernelH {
							for j := range w.KernelW {
								iy, ix := oy*w.StrideH+i-w.PadH, ox*w.StrideW+j-w.PadW
								ki := ((f*w.Channels+c)*w.KernelH+i)*w.KernelW + j
								if iy < 0 || ix < 0 || iy >= w.Height || ix >= w.Width {
									y[o] += 0 * float64(k[ki]) // padding is multiplied like any other zero
									dk[ki] += 0 * float64(dy[o])
									continue
								}
								xi := ((b*w.Channels+c)*w.Height+iy)*w.Width + ix
								y[o] += float64(x[xi]) * float64(k[ki])
								dx[xi] += float64(dy[o]) * float64(k[ki])
								dk[ki] += float64(dy[o]) * float64(x[xi])
							}
						}
					}
				}
			}
		}
	}
	for ki, v := range k { // beyond the output's edges are zeros, too
		c, i, j := ki/w.KernelW/w.KernelH%w.Channels, ki/w.KernelW%w.KernelH, ki%w.KernelW
		for xi := 0; v-v != 0 && xi < len(x); xi++ {
			oy, ox := xi/w.Width%w.Height+w.PadH-i, xi%w.Width+w.PadW-j
			if xi/w.Width/w.Height%w.Channels == c && oy%w.StrideH == 0 && ox%w.StrideW == 0 && (oy < 0 || ox < 0 || oy/w.StrideH >= oh || ox/w.StrideW >= ow) {
				dx[xi] += 0 * float64(v)
			}
		}
	}
	near(t, "convolution", written(t, len(y), func(out []float32) {
		_ = kernel.Conv2d(dtype.Float32, w, ptr(out), ptr(x), ptr(k), ptr(bias))
	}), y, 3e-5)
	near(t, "input gradient", written(t, len(x), func(out []float32) {
		_ = kernel.Conv2dGradInput(dtype.Float32, w, ptr(out), ptr(dy), ptr(k))
	}), dx, 3e-5)
	near(t, "weight gradient", written(t, len(k)+w.Filters, func(out []float32) {
		_ = kernel.Conv2dGradWeight(dtype.Float32, w, ptr(out), ptr(out[len(k):]), ptr(dy), ptr(x))
	}), append(dk, db...), 1e-4)
}

func TestPool(t *testing.T) {
	for _, w := range []kernel.Window{
		{Batch: 2, Channels: 3, Height: 28, Width: 28, KernelH: 2, KernelW: 2, StrideH: 2, StrideW: 2},
		{Batch: 1, Channels: 2, Height: 7, Width: 9, KernelH: 2, KernelW: 2, StrideH: 2, StrideW: 2},
		{Batch: 1, Channels: 2, Height: 7, Width: 9, KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 1, PadH: 1, PadW: 1},
	} {
		oh, ow := w.Out()
		planes, size, pixels := w.Batch*w.Channels, oh*ow, w.Height*w.Width
		x, dy := real32(1, planes*pixels), real32(2, planes*size)
		x[3], x[pixels-1] = float32(math.NaN()), float32(math.Inf(-1))
		top, mean, back, backMean := make([]float64, planes*size), make([]float64, planes*size), make([]float64, len(x)), make([]float64, len(x))
		for o := range top {
			best, sum, at := math.Inf(-1), 0.0, -1
			p, oy, ox := o/size, o%size/ow, o%ow
			for i := range w.KernelH {
				for j := range w.KernelW {
					iy, ix := oy*w.StrideH+i-w.PadH, ox*w.StrideW+j-w.PadW
					if iy < 0 || ix < 0 || iy >= w.Height || ix >= w.Width {
						continue
					}
					v := float64(x[p*pixels+iy*w.Width+ix])
					sum += v
					backMean[p*pixels+iy*w.Width+ix] += float64(dy[o]) / float64(w.KernelH*w.KernelW)
					if v > best || v != v || at < 0 {
						best, at = v, p*pixels+iy*w.Width+ix
					}
				}
			}
			top[o], mean[o] = best, sum/float64(w.KernelH*w.KernelW)
			back[at] += float64(dy[o])
		}
		indices := make([]int32, len(top))
		near(t, "max pool", written(t, len(top), func(out []float32) {
			kernel.MaxPool2d(dtype.Float32, w, ptr(out), indices, ptr(x))
		}), top, 0)
		call := func(run func(out unsafe.Pointer), n int) []float32 {
			return written(t, n, func(out []float32) { run(ptr(out)) })
		}
		near(t, "max pool gradient", call(func(out unsafe.Pointer) { kernel.MaxPool2dGrad(dtype.Float32, w, out, ptr(dy), indices) }, len(x)), back, 1e-6)
		near(t, "average pool", call(func(out unsafe.Pointer) { kernel.AvgPool2d(dtype.Float32, w, out, ptr(x)) }, len(top)), mean, 1e-6)
		near(t, "average pool gradient", call(func(out unsafe.Pointer) { kernel.AvgPool2dGrad(dtype.Float32, w, out, ptr(dy)) }, len(x)), backMean, 1e-6)
	}
}

// The gradient of a window in which all is -inf goes to the first cell of the window that is in the image, as PyTorch's does.
func TestMaxPoolOfMinusInf(t *testing.T) {
	for _, w := range []kernel.Window{
		{KernelH: 2, KernelW: 2, StrideH: 2, StrideW: 2}, {KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 2, PadH: 1, PadW: 1},
		{KernelH: 2, KernelW: 2, StrideH: 2, StrideW: 2, PadH: 1, PadW: 1}, {KernelH: 3, KernelW: 2, StrideH: 1, StrideW: 3, PadW: 1},
	} {
		w.Batch, w.Channels, w.Height, w.Width = 1, 2, 6, 8
		height, width := w.Out()
		x := slices.Repeat([]float32{float32(math.Inf(-1))}, 2*6*8)
		var want []int32
		for range 2 {
			for i := range height {
				for j := range width {
					want = append(want, int32(max(i*w.StrideH-w.PadH, 0)*w.Width+max(j*w.StrideW-w.PadW, 0)))
				}
			}
		}
		got := written(t, len(want), func(indices []int32) {
			kernel.MaxPool2d(dtype.Float32, w, ptr(make([]float32, len(want))), indices, ptr(x))
		})
		if !slices.Equal(got, want) {
			t.Errorf("%+v: got %v, want %v", w, got, want)
		}
	}
}

// Where windows overlap, infinities of both signs add up to the one NaN that there is.
func TestPoolingGradientsOfInfinities(t *testing.T) {
	w := kernel.Window{Batch: 1, Channels: 1, Height: 1, Width: 3, KernelH: 1, KernelW: 2, StrideH: 1, StrideW: 1}
	dy := []float32{float32(math.Inf(1)), float32(math.Inf(-1))}
	got := everywhere(t, func() []float32 {
		dx := make([]float32, 6)
		kernel.MaxPool2dGrad(dtype.Float32, w, ptr(dx), ptr(dy), []int32{1, 1})
		kernel.AvgPool2dGrad(dtype.Float32, w, ptr(dx[3:]), ptr(dy))
		return dx
	})
	for _, i := range []int{1, 4} {
		if bits := math.Float32bits(got[i]); bits != 0x7fc00000 {
			t.Errorf("the gradient has bits %x", bits)
		}
	}
}
