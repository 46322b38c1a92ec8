package tensor

import "testing"

func TestProd(t *testing.T) {
	c := NewContext()
	x := floats(c, Float32, []int{2, 3}, 1, 2, 3, 4, 5, 6)
	equal(t, must(Prod(x, nil, false)), []int{}, 720)
	equal(t, must(Prod(x, []int{0}, false)), []int{3}, 4, 10, 18)
	equal(t, must(Prod(x, []int{-1}, true)), []int{2, 1}, 6, 120)
	equal(t, must(Prod(must(Zeros(c, []int{2, 0}, Float32)), []int{1}, false)), []int{2}, 1, 1)
	bytes := must(FromInts(c, []int64{16, 16, 16}, []int{3}, Uint8))
	if p := must(Prod(bytes, nil, false)); p.dtype != Int64 || scalar(p) != 4096 {
		t.Errorf("product of bytes: %v of type %v", p, p.dtype)
	}
	fail[*Tensor](t, "prod", "dimension 2 is out of range")(Prod(x, []int{2}, false))
}

func TestProdGradient(t *testing.T) {
	gradcheck := func(want []float64, values ...float64) {
		t.Helper()
		c := NewContext()
		x := leaf(c, values...)
		check(t, must(Prod(x, nil, false)).Backward(nil, false))
		equal(t, x.Grad(), []int{len(values)}, want...)
	}
	gradcheck([]float64{6, 3, 2}, 1, 2, 3)
	gradcheck([]float64{0, 8, 0}, 2, 0, 4)
	gradcheck([]float64{0, 0, 0}, 0, 0, 4)
}
