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

// A training step of the digits classifier: 64 samples, 64-128-10.
func BenchmarkMLPStep(b *testing.B) {
	c, g := NewContext(), NewGenerator(1, 0)
	layer := func(in, out int) (w, bias *Tensor) {
		w, bias = must(Zeros(c, []int{out, in}, dtype.Float32)), must(Zeros(c, []int{out}, dtype.Float32))
		must(0, g.InitLinear(w, bias))
		w.requiresGrad, bias.requiresGrad = true, true
		return w, bias
	}
	w1, b1 := layer(64, 128)
	w2, b2 := layer(128, 10)
	opt := must(NewSGD([]ParamGroup{{Params: []*Tensor{w1, b1, w2, b2}, LR: 0.1}}, SGDOptions{Momentum: 0.9}))
	x, y := must(g.Rand(c, []int{64, 64}, dtype.Float32)), must(g.RandInt(c, 0, 10, []int{64}, dtype.Int64))
	b.ReportAllocs()
	for b.Loop() {
		h := must(Unary(OpRelu, must(Linear(x, w1, b1))))
		loss := must(CrossEntropy(must(Linear(h, w2, b2)), y, ReduceMean))
		must(0, loss.Backward(nil, false))
		must(0, opt.Step())
		opt.ZeroGrad()
	}
}

func BenchmarkTranspose1M(b *testing.B) {
	x := must(Transpose(must(Ones(NewContext(), []int{1024, 1024}, dtype.Float32)), 0, 1))
	b.SetBytes(8 << 20)
	for b.Loop() {
		Discard(must(Clone(x)))
	}
}
