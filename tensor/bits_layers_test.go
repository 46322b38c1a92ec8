package tensor

import "drun/element"

func init() {
	bitModels = append(bitModels, []struct {
		name  string
		train func() []uint32
	}{
		{"optimizers", trainOptimizers},
	}...)
}

// trainOptimizers makes steps of one model with each optimizer that the other models do not use.
func trainOptimizers() (bits []uint32) {
	for _, build := range []func([]ParamGroup) (*Optimizer, error){
		func(g []ParamGroup) (*Optimizer, error) { return NewRMSprop(g, RMSpropOptions{0.9, 1e-8, 0.5, true}) },
		func(g []ParamGroup) (*Optimizer, error) { return NewAdagrad(g, AdagradOptions{0.1, 1e-10, 0.1}) },
		func(g []ParamGroup) (*Optimizer, error) { return NewLion(g, LionOptions{0.9, 0.99}) },
		nil, // L-BFGS
	} {
		b := newBitNet()
		up, down := b.linear(37, 1100), b.linear(1100, 7)
		groups := []ParamGroup{{Params: b.ps, LR: 0.01, WeightDecay: 0.01}}
		x := must(b.g.Randn(b.c, []int{19, 37}, element.Float32))
		y := must(b.g.RandInt(b.c, 0, 7, []int{19}, element.Int64))
		average := must(NewAverage(b.ps, 0.9))
		loss := func() *Tensor {
			l := must(CrossEntropy(down(must(Unary(OpTanh, up(x)))), y, ReduceMean))
			must(0, l.Backward(nil, false))
			return l
		}
		var step func()
		if build == nil {
			l := must(NewLBFGS(groups, LBFGSOptions{3, 10, 1e-7, 1e-9, 3, true}))
			step = func() {
				must(l.Step(func() (float64, error) {
					l.ZeroGrad()
					return loss().at(0).f, nil
				}))
			}
		} else {
			opt := must(build(groups))
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
