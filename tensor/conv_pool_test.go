package tensor

import (
	"fmt"
	"math"
	"testing"

	"drun/kernel/dtype"
)

// A pooled convolution has the bits of a convolution and a pooling, NaN, infinities and the places of equal maxima included, and
// so have its gradients.
func TestConvolvePooled(t *testing.T) {
	for _, s := range []struct {
		n, c, h, w, f, kernel, padding int
		size, stride, pad              [2]int
	}{
		{3, 1, 28, 28, 32, 3, 1, [2]int{2, 2}, [2]int{2, 2}, [2]int{}},
		{5, 17, 15, 13, 19, 3, 1, [2]int{2, 2}, [2]int{2, 2}, [2]int{}},
		{2, 16, 7, 30, 33, 3, 0, [2]int{2, 2}, [2]int{2, 2}, [2]int{}},
		{2, 16, 9, 9, 16, 2, 1, [2]int{3, 3}, [2]int{2, 1}, [2]int{1, 1}},
		{1, 3, 40, 300, 5, 5, 2, [2]int{2, 2}, [2]int{2, 2}, [2]int{}},
	} {
		for _, dt := range []dtype.Type{dtype.Float32, dtype.Float64} {
			t.Run(fmt.Sprint(s, dt), func(t *testing.T) {
				c := NewContext()
				o := plain([2]int{1, 1}, [2]int{s.padding, s.padding})
				compute := func(fused bool) []string {
					g := NewGenerator(3, 0)
					x, weight := must(g.Randn(c, []int{s.n, s.c, s.h, s.w}, dt)), must(g.Randn(c, []int{s.f, s.c, s.kernel, s.kernel}, dt))
					bias := must(g.Randn(c, []int{s.f}, dt))
					if s.c == 17 {
						set(x, 5, math.NaN())
						set(x, 300, math.Inf(1))
					} else if s.c == 1 {
						set(x, 1, 0)
						set(x, 2, math.Inf(-1))
					}
					for _, p := range []*Tensor{x, weight, bias} {
						check(t, p.SetRequiresGrad(true))
					}
					var y *Tensor
					var err error
					if fused {
						y, err = ConvolvePooled(x, weight, bias, o, s.size, s.stride, s.pad)
						if y == nil {
							t.Fatal("not computed at once")
						}
					} else if y, err = conv2d(x, weight, bias, o.Stride, o.Padding); err == nil {
						y, err = MaxPool2d(y, s.size, s.stride, s.pad)
					}
					check(t, err)
					y, err = Unary(OpRelu, y)
					check(t, err)
					check(t, y.Backward(must(g.Randn(c, y.Shape(), dt)), false))
					return []string{string(y.Bytes()), string(x.Grad().Bytes()), string(weight.Grad().Bytes()), string(bias.Grad().Bytes())}
				}
				want, got := compute(false), compute(true)
				for i, what := range []string{"result", "x's gradient", "weight's gradient", "bias' gradient"} {
					if got[i] != want[i] {
						t.Errorf("%s: other bits than one after the other", what)
					}
				}
			})
		}
	}
}

// set changes an element of a tensor of reals.
func set(t *Tensor, i int, v float64) {
	if t.DType() == dtype.Float32 {
		Elems[float32](t)[i] = float32(v)
	} else {
		Elems[float64](t)[i] = v
	}
}
