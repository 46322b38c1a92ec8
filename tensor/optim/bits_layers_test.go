package optim

import (
	"drun/kernel/dtype"
	. "drun/tensor"
)

func init() {
	bitModels = append(bitModels, []struct {
		name  string
		train func() []uint32
	}{
		{"optimizers", trainOptimizers},
		{"convolved", trainConvolved},
		{"sequences", trainSequences},
	}...)
}

// trainOptimizers makes steps of one model with each optimizer that the other models do not use.
func trainOptimizers() (bits []uint32) {
	for _, rule := range []Rule{
		RMSprop{Alpha: 0.9, Eps: 1e-8, Momentum: 0.5, Centered: true},
		Adagrad{LRDecay: 0.1, Eps: 1e-10, Initial: 0.1},
		Lion{Beta1: 0.9, Beta2: 0.99},
		nil, // L-BFGS
	} {
		b := newBitNet()
		up, down := b.linear(37, 1100), b.linear(1100, 7)
		groups := []ParamGroup{{Params: b.ps, LR: 0.01, WeightDecay: 0.01}}
		x := must(b.g.Randn(b.c, []int{19, 37}, dtype.Float32))
		y := must(b.g.RandInt(b.c, 0, 7, []int{19}, dtype.Int64))
		average := must(NewAverage(b.ps, 0.9))
		loss := func() *Tensor {
			l := must(CrossEntropy(down(must(Unary(OpTanh, up(x)))), y, ReduceMean))
			must(0, l.Backward(nil, false))
			return l
		}
		var step func()
		if rule == nil {
			l := must(NewLBFGS(groups, LBFGSOptions{3, 10, 1e-7, 1e-9, 3, true}))
			step = func() {
				must(l.Step(func() (float64, error) {
					l.ZeroGrad()
					return scalar(loss()), nil
				}))
			}
		} else {
			opt := must(New(groups, rule))
			step = func() {
				opt.ZeroGrad()
				loss()
				must(0, ClipGradValues(b.ps, 0.01))
				must(0, opt.Step())
			}
		}
		for range 3 {
			step()
			must(0, average.Update())
		}
		bits = append(bits, bitsOf(append(b.ps, average.Averages()...)...)...)
	}
	return bits
}

// trainConvolved has dilation, groups, transposed convolutions, group norm and activations with parameters.
func trainConvolved() []uint32 {
	b := newBitNet()
	w, up, gamma, beta, deep := b.param(12, 3, 3, 3), b.param(12, 5, 4, 3), b.param(12), b.param(12), b.param(4, 10, 3, 2, 2)
	head := b.linear(40, 7)
	opt := b.sgd()
	x := must(b.g.Randn(b.c, []int{5, 6, 23, 19}, dtype.Float32))
	y := must(b.g.RandInt(b.c, 0, 7, []int{5}, dtype.Int64))
	return b.steps(3, opt, func() *Tensor {
		o := ConvOptions{Stride: [2]int{2, 1}, Padding: [2]int{3, 2}, Dilation: [2]int{2, 3}, Groups: 2}
		h := must(GroupNorm("group_norm", must(Convolve("conv2d", x, w, nil, o)), gamma, beta, 3, 1e-5))
		h = must(Mish(must(LeakyRelu(must(Elu(h, 0.5)), 0.1))))
		h = must(ConvTranspose2d(h, up, nil, ConvOptions{Stride: [2]int{2, 3}, Padding: [2]int{1, 0}, Dilation: [2]int{1, 2}, Groups: 2, OutputPadding: [2]int{1, 0}}))
		h = must(Interpolate(must(Softplus(h, 1, 20)), []int{9, 17}, nil, "linear", false))
		h = must(Conv3d(must(View(must(GeluTanh(h)), []int{5, 10, 1, 9, 17})), deep, nil, [3]int{1, 2, 2}, [3]int{1, 0, 0}, [3]int{1, 1, 2}, 1))
		h = must(AdaptivePool("pool", must(View(h, []int{5, 4, 4, 8})), []int{2, 5}, false))
		return must(CrossEntropy(head(must(Flatten(h, 1, -1))), y, ReduceMean))
	})
}

// trainSequences has recurrent layers, attention with a mask, and rotary positions.
func trainSequences() []uint32 {
	b := newBitNet()
	const in, width = 13, 27
	var cells []RNNWeights
	kinds := []Cell{LSTM, GRU, RNNTanh}
	for i, gates := range []int{4, 3, 1} {
		from := width
		if i == 0 {
			from = in
		}
		cells = append(cells, RNNWeights{WIH: b.param(gates*width, from), WHH: b.param(gates*width, width), BIH: b.param(gates * width), BHH: b.param(gates * width)})
	}
	head := b.linear(width-1, 5)
	opt := b.adam()
	x := must(b.g.Randn(b.c, []int{11, 53, in}, dtype.Float32))
	y := must(b.g.RandInt(b.c, 0, 5, []int{11 * 53}, dtype.Int64))
	lengths := make([]int64, 53)
	for i := range lengths {
		lengths[i] = int64(1 + i%11)
	}
	zero := must(Zeros(b.c, []int{53, width}, dtype.Float32))
	mask := must(BinaryScalar(OpGt, must(b.g.Rand(b.c, []int{11, 11}, dtype.Float32)), Float(0.4), false))
	return b.steps(3, opt, func() *Tensor {
		h := x
		for i, w := range cells {
			var c *Tensor
			if kinds[i] == LSTM {
				c = zero
			}
			out, _, _, err := Recurrent(kinds[i], h, zero, c, w, lengths, i == 1)
			h = must(out, err)
		}
		h = must(Rotary(must(Narrow(must(Transpose(h, 0, 1)), 2, 0, width-1)), 100, 3, false))
		out, _, err := AttentionWith(h, h, h, AttentionOptions{Mask: mask, Dropout: 0.1, Stream: b.g})
		return must(CrossEntropy(must(Reshape(head(must(out, err)), []int{-1, 5})), y, ReduceMean))
	})
}
