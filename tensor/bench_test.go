package tensor

import (
	"testing"

	"drun/kernel/dtype"
)

func BenchmarkAdd16(b *testing.B) {
	small(b, func(x, y *Tensor) { must(Add(x, y)) })
}

func BenchmarkAddScalar16(b *testing.B) {
	small(b, func(x, _ *Tensor) { must(BinaryScalar(OpAdd, x, Float(1), false)) })
}

func BenchmarkMul16Backward(b *testing.B) {
	small(b, func(x, y *Tensor) {
		x.requiresGrad = true
		must(0, must(Mul(x, y)).Backward(y, false))
		x.grad = nil
	})
}

func small(b *testing.B, f func(x, y *Tensor)) {
	c := NewContext()
	x, y := must(Ones(c, []int{16}, dtype.Float32)), must(Ones(c, []int{16}, dtype.Float32))
	b.ReportAllocs()
	for b.Loop() {
		f(x, y)
	}
}

func BenchmarkTranspose1M(b *testing.B) {
	x := must(Transpose(must(Ones(NewContext(), []int{1024, 1024}, dtype.Float32)), 0, 1))
	b.SetBytes(8 << 20)
	for b.Loop() {
		Discard(must(Clone(x)))
	}
}
