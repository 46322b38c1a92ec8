package optim

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/starlib"
	"drun/tensor"
)

// rules are the optimizers besides sgd and adam.
func rules(rank *starlib.Rank, ctx *tensor.Context) []*starlib.Def {
	build := func(c *starlib.Call, kind string, decay starlark.Value, fn func([]tensor.ParamGroup) (*tensor.Optimizer, error)) (starlark.Value, error) {
		return newOptimizer(c, rank, ctx, kind, c.Arg("lr"), decay, fn)
	}
	return []*starlib.Def{
		{
			Sig: "rmsprop(params: iterable, lr = 0.01, alpha: number = 0.99, eps: number = 1e-8, weight_decay: number = 0, momentum: number = 0, centered: bool = False) -> Optimizer",
			Doc: "RMSprop (Hinton 2012) with PyTorch's formulas: p -= lr·g/(√v + eps), where v is the moving average of g² with decay alpha. centered subtracts the mean gradient's square from v (Graves 2013); momentum accumulates the steps.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				o := tensor.RMSpropOptions{Alpha: setting(c, "alpha"), Eps: setting(c, "eps"), Momentum: setting(c, "momentum"), Centered: c.Bool("centered")}
				if o.Alpha > 1 {
					return nil, fmt.Errorf("alpha = %v: want a number from 0 to 1", o.Alpha)
				}
				return build(c, "rmsprop", c.Arg("weight_decay"), func(g []tensor.ParamGroup) (*tensor.Optimizer, error) { return tensor.NewRMSprop(g, o) })
			},
		},
		{
			Sig: "adagrad(params: iterable, lr = 0.01, lr_decay: number = 0, weight_decay: number = 0, initial_accumulator_value: number = 0, eps: number = 1e-10) -> Optimizer",
			Doc: "Adagrad (Duchi, Hazan, Singer 2011): p -= lr·g/(√v + eps), where v is the sum of g² so far, starting at initial_accumulator_value; in step n, from 0, lr is divided by 1 + n·lr_decay.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				o := tensor.AdagradOptions{LRDecay: setting(c, "lr_decay"), Eps: setting(c, "eps"), Initial: setting(c, "initial_accumulator_value")}
				return build(c, "adagrad", c.Arg("weight_decay"), func(g []tensor.ParamGroup) (*tensor.Optimizer, error) { return tensor.NewAdagrad(g, o) })
			},
		},
		{
			Sig: "lion(params: iterable, lr = 0.0001, betas: tuple | list = (0.9, 0.99), weight_decay: number = 0) -> Optimizer",
			Doc: "Lion (Chen et al. 2023, algorithm 2): p -= lr·(sign(β₁·m + (1 - β₁)·g) + weight_decay·p), then m = β₂·m + (1 - β₂)·g.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				var o tensor.LionOptions
				o.Beta1, o.Beta2 = betas(c)
				return build(c, "lion", c.Arg("weight_decay"), func(g []tensor.ParamGroup) (*tensor.Optimizer, error) { return tensor.NewLion(g, o) })
			},
		},
		{
			Sig: "lbfgs(params: iterable, lr = 1, max_iter: int = 20, max_eval: int = None, tolerance_grad: number = 1e-7, tolerance_change: number = 1e-9, history_size: int = 100, line_search_fn: string = None) -> Optimizer",
			Doc: `L-BFGS (Liu, Nocedal 1989) as in PyTorch: step(closure) makes up to max_iter iterations, with at most max_eval calls of the closure (1.25·max_iter by default), and ends early when no gradient is above tolerance_grad, or neither parameters nor loss change by more than tolerance_change. line_search_fn = "strong_wolfe" searches for each iteration's step length, instead of using lr. One group of parameters of one dtype; the optimizer needs 2·history_size + 2 times their memory.`,
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				o := tensor.LBFGSOptions{MaxIter: c.Int("max_iter"), TolGrad: setting(c, "tolerance_grad"), TolChange: setting(c, "tolerance_change"), History: c.Int("history_size")}
				o.MaxEval = o.MaxIter * 5 / 4
				if !c.IsNone("max_eval") {
					o.MaxEval = c.Int("max_eval")
				}
				if o.MaxIter < 1 || o.MaxEval < 1 || o.History < 1 {
					return nil, fmt.Errorf("max_iter = %d, max_eval = %d, history_size = %d: want numbers of at least 1", o.MaxIter, o.MaxEval, o.History)
				}
				if !c.IsNone("line_search_fn") {
					if o.StrongWolfe = c.String("line_search_fn") == "strong_wolfe"; !o.StrongWolfe {
						return nil, fmt.Errorf(`line_search_fn = %s: want "strong_wolfe" or None`, c.Arg("line_search_fn"))
					}
				}
				var l *tensor.LBFGS
				v, err := build(c, "lbfgs", starlark.MakeInt(0), func(g []tensor.ParamGroup) (_ *tensor.Optimizer, err error) {
					if l, err = tensor.NewLBFGS(g, o); err != nil {
						return nil, err
					}
					return l.Optimizer, nil
				})
				if err == nil {
					v.(*Optimizer).lbfgs = l
				}
				return v, err
			},
		},
	}
}
