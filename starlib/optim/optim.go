// Package optim is the module optim of recipes: optimizers, schedules of the
// learning rate, averages of weights, clipping of gradients.
package optim

import (
	"fmt"
	"math"
	"slices"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
	"drun/tensor/optim"
)

// Ranks are the collectives that clip_grad_norm needs.
type Ranks interface {
	// Sum adds a number over the ranks of a group (None: the world) on behalf of a call.
	Sum(c *starlib.Call, group starlark.Value, x float64) (float64, error)
	// GradSquareSum adds up the squares of all gradients, those of divided models over the ranks that divide them.
	GradSquareSum(c *starlib.Call, params []*tensor.Tensor) (float64, error)
}

// Module makes the module for a rank.
func Module(rank *starlib.Rank, ctx *tensor.Context, ranks Ranks) *starlib.Module {
	k := maker{rank, ctx, map[string]int{}, map[*tensor.Tensor]bool{}}
	return &starlib.Module{
		Name:  "optim",
		Doc:   "Optimizers. params are tensors, or dicts with params and their own lr and weight_decay; those that do not require a gradient are left as they are. lr is a number, a schedule, or a function of the step, which counts from 0. If all ranks start with the same parameters and a loader divides the samples among them, an update that makes the parameters differ is an error, since the gradients were not averaged; local = True says that each rank trains a model of its own.",
		Types: []*starlib.Methods{methods, plateauMethods, averageMethods},
		Defs: slices.Concat([]*starlib.Def{
			{Sig: "sgd(params: iterable, lr = None, momentum: number = 0, nesterov: bool = False, weight_decay: number = 0, local: bool = False) -> Optimizer",
				Doc: "Stochastic gradient descent with PyTorch's momentum: v = momentum·v + g, p -= lr·v; g includes weight_decay·p.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					momentum, nesterov := c.Float("momentum"), c.Bool("nesterov")
					try.FailIf(!(momentum >= 0) || nesterov && momentum == 0, "momentum = %v: want 0 or more, and more than 0 with nesterov", momentum)
					return k.make(c, "sgd", optim.SGD{Momentum: momentum, Nesterov: nesterov})
				}},
			k.adam("adam", false, "Adam (Kingma, Ba 2015); weight_decay·p is added to the gradient."),
			k.adam("adamw", true, "Adam with decoupled weight decay (Loshchilov, Hutter 2019): p -= lr·weight_decay·p before each step."),
			{
				Sig: "clip_grad_norm(params: iterable, max_norm: number, sharded: iterable = [], group = None) -> float",
				Doc: "Scales the gradients so that their total 2-norm is at most max_norm, and returns the norm before scaling. If that is infinite or NaN, the gradients stay as they are. sharded lists parameters of which each rank of the group holds a different part.",
				Fn:  func(c *starlib.Call) (starlark.Value, error) { return clip(c, ranks) },
			},
			{Sig: "clip_grad_value(params: iterable, clip_value: number)",
				Doc: "Clamps each element of the gradients to between -clip_value and clip_value, in place; NaN stays NaN.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					limit := c.Float("clip_value")
					try.FailIf(!(limit >= 0), "clip_value = %v: want 0 or more", limit)
					return nil, tensor.ClipGradValues(tensors(c, "params"), limit)
				}},
		}, k.rules(), k.adaptive(), schedules, decays, k.averages()),
	}
}

// maker makes optimizers for one rank.
type maker struct {
	rank *starlib.Rank
	ctx  *tensor.Context
	made map[string]int // how many optimizers were made, by the calls that led to them

	averaged map[*tensor.Tensor]bool // the parameters that hold averages of optim.ema
}

// make makes an optimizer from a call's params, lr and weight_decay.
func (k maker) make(c *starlib.Call, kind string, rule optim.Rule) (starlark.Value, error) {
	return k.newOptimizer(c, kind, c.Arg("weight_decay"), func(g []optim.ParamGroup) (*optim.Optimizer, error) { return optim.New(g, rule) })
}

func (k maker) adam(name string, decoupled bool, doc string) *starlib.Def {
	return &starlib.Def{
		Sig: name + "(params: iterable, lr = None, betas: tuple | list = (0.9, 0.999), eps: number = 1e-8, weight_decay: number = 0, local: bool = False) -> Optimizer",
		Doc: doc,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			first, second := betas(c)
			return k.make(c, name, optim.Adam{Beta1: first, Beta2: second, Eps: setting(c, "eps"), Decoupled: decoupled})
		},
	}
}

// betas reads the argument betas: two numbers of at least 0 and below 1.
func betas(c *starlib.Call) (first, second float64) {
	pair := c.Arg("betas").(starlark.Indexable)
	if pair.Len() == 2 {
		first, second = starlib.Number(pair.Index(0)), starlib.Number(pair.Index(1))
	}
	try.FailIf(pair.Len() != 2 || !(first >= 0 && first < 1 && second >= 0 && second < 1), "betas = %s: want two numbers of at least 0 and below 1", c.Arg("betas"))
	return first, second
}

// setting reads an argument that is a finite number of 0 or more.
func setting(c *starlib.Call, name string) float64 {
	v := c.Float(name)
	try.FailIf(!(v >= 0) || math.IsInf(v, 0), "%s = %v: want a finite number of 0 or more", name, v)
	return v
}

func clip(c *starlib.Call, ranks Ranks) (starlark.Value, error) {
	params, sharded, limit := tensors(c, "params"), tensors(c, "sharded"), c.Float("max_norm")
	try.FailIf(!(limit > 0), "max_norm = %v: want more than 0", limit)
	try.FailIf(slices.ContainsFunc(params, func(p *tensor.Tensor) bool { return p.Share() != nil }), "each rank holds a different part of these parameters: call clip_grad_norm(max_norm) on what dist.fsdp returned, or pass them as sharded")
	if len(sharded) == 0 && c.IsNone("group") {
		norm := math.Sqrt(try.To(ranks.GradSquareSum(c, params)))
		return starlark.Float(norm), tensor.ClipGrads(params, norm, limit)
	}
	square := try.To(ranks.Sum(c, c.Arg("group"), try.To(tensor.GradSquareSum(sharded))))
	norm := math.Sqrt(square + try.To(ranks.GradSquareSum(c, params)))
	return starlark.Float(norm), tensor.ClipGrads(append(params, sharded...), norm, limit)
}

// tensors reads an argument that is a list of tensors, or a single one, over which it must not iterate: its rows are
// views without gradients.
func tensors(c *starlib.Call, name string) []*tensor.Tensor {
	if t, ok := c.Arg(name).(*startensor.Value); ok {
		return []*tensor.Tensor{t.Tensor()}
	}
	return try.To(startensor.List(c.Arg(name)))
}

// rules are the optimizers besides sgd and adam.
func (k maker) rules() []*starlib.Def {
	return []*starlib.Def{
		{Sig: "rmsprop(params: iterable, lr = 0.01, alpha: number = 0.99, eps: number = 1e-8, weight_decay: number = 0, momentum: number = 0, centered: bool = False, local: bool = False) -> Optimizer",
			Doc: "RMSprop (Hinton 2012) with PyTorch's formulas: p -= lr·g/(√v + eps), where v is the moving average of g² with decay alpha. centered subtracts the mean gradient's square from v (Graves 2013); momentum accumulates the steps.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				r := optim.RMSprop{Alpha: setting(c, "alpha"), Eps: setting(c, "eps"), Momentum: setting(c, "momentum"), Centered: c.Bool("centered")}
				try.FailIf(r.Alpha > 1, "alpha = %v: want a number from 0 to 1", r.Alpha)
				return k.make(c, "rmsprop", r)
			}},
		{Sig: "adagrad(params: iterable, lr = 0.01, lr_decay: number = 0, weight_decay: number = 0, initial_accumulator_value: number = 0, eps: number = 1e-10, local: bool = False) -> Optimizer",
			Doc: "Adagrad (Duchi, Hazan, Singer 2011): p -= lr·g/(√v + eps), where v is the sum of g² so far, starting at initial_accumulator_value; in step n, from 0, lr is divided by 1 + n·lr_decay.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				return k.make(c, "adagrad", optim.Adagrad{Eps: setting(c, "eps"), LRDecay: setting(c, "lr_decay"), Initial: setting(c, "initial_accumulator_value")})
			}},
		{Sig: "lion(params: iterable, lr = 0.0001, betas: tuple | list = (0.9, 0.99), weight_decay: number = 0, local: bool = False) -> Optimizer",
			Doc: "Lion (Chen et al. 2023, algorithm 2): p -= lr·(sign(β₁·m + (1 - β₁)·g) + weight_decay·p), then m = β₂·m + (1 - β₂)·g.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				first, second := betas(c)
				return k.make(c, "lion", optim.Lion{Beta1: first, Beta2: second})
			}},
		{Sig: "lbfgs(params: iterable, lr = 1, max_iter: int = 20, max_eval: int = None, tolerance_grad: number = 1e-7, tolerance_change: number = 1e-9, history_size: int = 100, line_search_fn: string = None, local: bool = False) -> Optimizer",
			Doc: `L-BFGS (Liu, Nocedal 1989) as in PyTorch: step(closure) does up to max_iter iterations, with at most max_eval calls of the closure (1.25·max_iter by default), and ends early when no gradient is above tolerance_grad, or neither parameters nor loss change by more than tolerance_change. line_search_fn = "strong_wolfe" searches for each iteration's step length, instead of using lr. The parameters must be one group of one dtype; the optimizer needs 2·history_size + 2 times their memory.`,
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				o := optim.LBFGSOptions{MaxIter: c.Int("max_iter"), TolGrad: setting(c, "tolerance_grad"), TolChange: setting(c, "tolerance_change"), History: c.Int("history_size")}
				o.MaxEval = o.MaxIter * 5 / 4
				if !c.IsNone("max_eval") {
					o.MaxEval = c.Int("max_eval")
				}
				try.FailIf(o.MaxIter < 1 || o.MaxEval < 1 || o.History < 1, "max_iter = %d, max_eval = %d, history_size = %d: want numbers of at least 1", o.MaxIter, o.MaxEval, o.History)
				if !c.IsNone("line_search_fn") {
					if o.StrongWolfe = c.String("line_search_fn") == "strong_wolfe"; !o.StrongWolfe {
						return nil, fmt.Errorf(`line_search_fn = %s: want "strong_wolfe" or None`, c.Arg("line_search_fn"))
					}
				}
				var l *optim.LBFGS
				v, err := k.newOptimizer(c, "lbfgs", starlark.MakeInt(0), func(g []optim.ParamGroup) (*optim.Optimizer, error) {
					l = try.To(optim.NewLBFGS(g, o))
					return l.Optimizer, nil
				})
				if err == nil {
					v.(*Optimizer).lbfgs = l
				}
				return v, err
			}},
	}
}
