package tensor

import (
	"math"
	"testing"

	"drun/kernel"
)

// trained runs a few steps of a small network with all kinds of layers, of
// sizes that are not multiples of a vector, and gives its parameters' bits.
func trained(t *testing.T) []uint32 {
	c, g := NewContext(), NewGenerator(3, 0)
	param := func(shape ...int) *Tensor {
		p := must(Zeros(c, shape, Float32))
		check(t, g.Uniform(p, -0.3, 0.3))
		check(t, p.SetRequiresGrad(true))
		return p
	}
	ps := []*Tensor{param(5, 2, 3, 3), param(5), param(33, 45), param(33), param(33), param(33), param(7, 33), param(7), param(11, 33)}
	opt := must(NewAdam([]ParamGroup{{Params: ps, LR: 0.01, WeightDecay: 0.01}}, AdamOptions{0.9, 0.999, 1e-8, true}))
	x := must(g.Randn(c, []int{19, 2, 6, 6}, Float32))
	y := must(g.RandInt(c, 0, 7, []int{19}, Int64))
	ids := must(g.RandInt(c, 0, 11, []int{19}, Int64))
	for range 5 {
		h := must(Unary(OpRelu, must(Conv2d(x, ps[0], ps[1], [2]int{1, 1}, [2]int{1, 1}))))
		h = must(Flatten(must(MaxPool2d(h, [2]int{2, 2}, [2]int{2, 2}, [2]int{})), 1, -1))
		h = must(LayerNorm(must(Linear(h, ps[2], ps[3])), ps[4], ps[5], 1, 1e-5))
		h = must(Add(must(Unary(OpGelu, h)), must(Embedding(ps[8], ids))))
		three := must(Reshape(h, []int{1, 19, 33}))
		h = must(Reshape(must(Attention(three, three, three, true)), []int{19, 33}))
		h = must(Dropout(must(Unary(OpTanh, h)), 0.1, g))
		check(t, must(CrossEntropy(must(Linear(h, ps[6], ps[7])), y, ReduceMean)).Backward(nil, false))
		must(ClipGradNorm(ps, 1))
		check(t, opt.Step())
		opt.ZeroGrad()
	}
	var bits []uint32
	for _, p := range ps {
		for _, v := range elems[float32](p) {
			if v != v {
				t.Fatal("a parameter became NaN")
			}
			bits = append(bits, math.Float32bits(v))
		}
	}
	return bits
}

func TestSameBits(t *testing.T) {
	path, threads := kernel.Path(), kernel.Threads()
	defer func() {
		check(t, kernel.SetPath(path))
		kernel.SetThreads(threads)
	}()
	want := trained(t)
	for _, p := range kernel.Paths() {
		for _, n := range []int{1, 2, 3} {
			check(t, kernel.SetPath(p))
			kernel.SetThreads(n)
			got := trained(t)
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("%s with %d threads: element %d is %#x, want %#x", p, n, i, got[i], want[i])
				}
			}
		}
	}
}
