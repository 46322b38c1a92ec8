package tensor

import (
	"math"
	"strings"
	"testing"

	"drun/kernel/dtype"
)

func TestString(t *testing.T) {
	c := NewContext()
	grad := floats(c, dtype.Float32, []int{1}, 1)
	grad.requiresGrad = true
	for _, tc := range []struct {
		t    *Tensor
		want string
	}{
		{floats(c, dtype.Float32, []int{2, 2}, 1, 2, 3, 4), "tensor([[1., 2.],\n        [3., 4.]])"},
		{floats(c, dtype.Float32, []int{3}, 1.5, -2, math.NaN()), "tensor([ 1.5000, -2.0000,     nan])"},
		{floats(c, dtype.Float32, []int{2}, math.Inf(1), math.Inf(-1)), "tensor([ inf, -inf])"},
		{floats(c, dtype.Float32, []int{2}, 1e-6, 1), "tensor([1.0000e-06, 1.0000e+00])"},
		{floats(c, dtype.Float64, nil, 2.5), "tensor(2.5000, dtype=float64)"},
		{ints(c, []int{2}, 10, -1), "tensor([10, -1])"},
		{must(Zeros(c, []int{2}, dtype.Bool)), "tensor([False, False])"},
		{must(Zeros(c, []int{2}, dtype.Uint8)), "tensor([0, 0], dtype=uint8)"},
		{must(Zeros(c, []int{0}, dtype.Float32)), "tensor([])"},
		{grad, "tensor([1.], requires_grad=True)"},
		{must(Mul(grad, grad)), "tensor([1.], grad_fn=mul)"},
		{must(Arange(c, Int(0), Int(2000), Int(1), dtype.Int64)), "tensor([   0,    1,    2, ..., 1997, 1998, 1999])"},
		{must(Full(c, []int{2}, Float(0.1), dtype.Float16)), "tensor([0.1000, 0.1000], dtype=float16)"},
		{must(Arange(c, Int(0), Int(1200), Int(1), dtype.Int64)), "tensor([   0,    1,    2, ..., 1197, 1198, 1199])"},
		{must(View(must(Arange(c, Int(0), Int(1200), Int(1), dtype.Int64)), []int{2, 3, 200})),
			"tensor([[[   0,    1,    2, ...,  197,  198,  199],\n         [ 200,  201,  202, ...,  397,  398,  399],\n         [ 400,  401,  402, ...,  597,  598,  599]],\n\n" +
				"        [[ 600,  601,  602, ...,  797,  798,  799],\n         [ 800,  801,  802, ...,  997,  998,  999],\n         [1000, 1001, 1002, ..., 1197, 1198, 1199]]])"},
		{must(Zeros(c, []int{8, 300}, dtype.Float32)), "tensor([" + strings.Repeat("[0., 0., 0., ..., 0., 0., 0.],\n        ", 3) + "...,\n        " +
			strings.TrimSuffix(strings.Repeat("[0., 0., 0., ..., 0., 0., 0.],\n        ", 3), ",\n        ") + "])"},
		{must(Transpose(must(Zeros(c, []int{2, 3}, dtype.Bool)), 0, 1)), "tensor([[False, False],\n        [False, False],\n        [False, False]])"},
		{must(Zeros(c, []int{0, 3}, dtype.Float32)), "tensor([], size=(0, 3))"},
		{must(Zeros(c, []int{2, 0}, dtype.Int64)), "tensor([], size=(2, 0), dtype=int64)"},
		{floats(c, dtype.Float32, []int{3}, math.Copysign(0, -1), math.NaN(), 2), "tensor([-0., nan,  2.])"},
		{floats(c, dtype.Float32, []int{2}, 1e10, 1), "tensor([1.0000e+10, 1.0000e+00])"},
		{floats(c, dtype.Complex64, []int{2}, 1, -2.5), "tensor([ 1.0000+0.j, -2.5000+0.j])"},
		{must(Expand(floats(c, dtype.Float32, []int{1, 1}, 7), []int{2, 2})), "tensor([[7., 7.],\n        [7., 7.]])"},
		{must(Expand(floats(c, dtype.Float32, []int{1}, 7), []int{1 << 50})), "tensor([7., 7., 7., ..., 7., 7., 7.])"},
	} {
		if got := tc.t.String(); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}
