package tensor

import "testing"

func BenchmarkAdd16(b *testing.B) {
	c := NewContext()
	x, _ := Full(c, []int{16}, Float(1), Float32)
	y, _ := Full(c, []int{16}, Float(2), Float32)
	b.ReportAllocs()
	for b.Loop() {
		Add(x, y)
	}
}
func BenchmarkAdd16Backward(b *testing.B) {
	c := NewContext()
	x, _ := Full(c, []int{16}, Float(1), Float32)
	y, _ := Full(c, []int{16}, Float(2), Float32)
	x.SetRequiresGrad(true)
	b.ReportAllocs()
	for b.Loop() {
		z, _ := Mul(x, y)
		z.Backward(y, false)
		x.SetGrad(nil)
	}
}
func TestSmoke(t *testing.T) {
	c := NewContext()
	x, err := FromFloats(c, []float64{1, 2, 3, 4, 5, 6}, []int{2, 3}, Float32)
	if err != nil {
		t.Fatal(err)
	}
	x.SetRequiresGrad(true)
	y, err := Mul(x, x)
	if err != nil {
		t.Fatal(err)
	}
	z, err := Sum(y, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(z.Item())
	if err := z.Backward(nil, false); err != nil {
		t.Fatal(err)
	}
	t.Log(elems[float32](x.Grad()))
}
