package optim

import (
	"testing"

	"drun/kernel/dtype"
	. "drun/tensor"
)

// A training step of the digits classifier: 64 samples, 64-128-10.
func BenchmarkMLPStep(b *testing.B) {
	c, g := NewContext(), NewGenerator(1, 0)
	layer := func(in, out int) (w, bias *Tensor) {
		w, bias = must(Zeros(c, []int{out, in}, dtype.Float32)), must(Zeros(c, []int{out}, dtype.Float32))
		must(0, g.InitLinear(w, bias))
		must(0, w.SetRequiresGrad(true))
		must(0, bias.SetRequiresGrad(true))
		return w, bias
	}
	w1, b1 := layer(64, 128)
	w2, b2 := layer(128, 10)
	opt := must(New([]ParamGroup{{Params: []*Tensor{w1, b1, w2, b2}, LR: 0.1}}, SGD{Momentum: 0.9}))
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
