// Package optim is the module optim of recipes: optimizers, schedules of the
// learning rate, averages of weights, clipping of gradients.
package optim

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"go.starlark.net/starlark"

	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// SumOver adds a number over the ranks of a group (None: the world) on behalf of a call: the collective that
// clip_grad_norm needs.
type SumOver func(c *starlib.Call, group starlark.Value, x float64) (float64, error)

// Module makes the module for a rank.
func Module(rank *starlib.Rank, ctx *tensor.Context, sum SumOver) *starlib.Module {
	return &starlib.Module{
		Name:  "optim",
		Doc:   "Optimizers. params are tensors, or dicts with params and their own lr and weight_decay; those that do not require a gradient are left as they are. lr is a number, a schedule, or a function of the step, which counts from 0.",
		Types: []*starlib.Methods{methods, plateauMethods, averageMethods},
		Defs: slices.Concat([]*starlib.Def{
			{
				Sig: "sgd(params: iterable, lr = None, momentum: number = 0, nesterov: bool = False, weight_decay: number = 0) -> Optimizer",
				Doc: "Stochastic gradient descent with PyTorch's momentum: v = momentum·v + g, p -= lr·v; g includes weight_decay·p.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					momentum, nesterov := c.Float("momentum"), c.Bool("nesterov")
					if !(momentum >= 0) || nesterov && momentum == 0 {
						return nil, fmt.Errorf("momentum = %v: want 0 or more, and more than 0 with nesterov", momentum)
					}
					return newOptimizer(c, rank, ctx, "sgd", c.Arg("lr"), c.Arg("weight_decay"), func(g []tensor.ParamGroup) (*tensor.Optimizer, error) {
						return tensor.NewSGD(g, tensor.SGDOptions{Momentum: momentum, Nesterov: nesterov})
					})
				},
			},
			adam(rank, ctx, "adam", false, "Adam (Kingma, Ba 2015); weight_decay·p is added to the gradient."),
			adam(rank, ctx, "adamw", true, "Adam with decoupled weight decay (Loshchilov, Hutter 2019): p -= lr·weight_decay·p before each step."),
			{
				Sig: "clip_grad_norm(params: iterable, max_norm: number, sharded: iterable = [], group = None) -> float",
				Doc: "Scales the gradients so that their total 2-norm is at most max_norm, and returns the norm before scaling. If that is infinite or NaN, the gradients stay as they are. sharded lists parameters of which each rank of the group holds a different part.",
				Fn:  func(c *starlib.Call) (starlark.Value, error) { return clip(c, sum) },
			},
			{
				Sig: "clip_grad_value(params: iterable, clip_value: number)",
				Doc: "Clamps each element of the gradients to between -clip_value and clip_value, in place; NaN stays NaN.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					limit := c.Float("clip_value")
					if !(limit >= 0) {
						return nil, fmt.Errorf("clip_value = %v: want 0 or more", limit)
					}
					return nil, tensor.ClipGradValues(tensors(c, "params"), limit)
				},
			},
		}, rules(rank, ctx), schedules, averages(ctx)),
	}
}

func adam(rank *starlib.Rank, ctx *tensor.Context, name string, decoupled bool, doc string) *starlib.Def {
	return &starlib.Def{
		Sig: name + "(params: iterable, lr = None, betas: tuple | list = (0.9, 0.999), eps: number = 1e-8, weight_decay: number = 0) -> Optimizer",
		Doc: doc,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			o := tensor.AdamOptions{Eps: setting(c, "eps"), Decoupled: decoupled}
			o.Beta1, o.Beta2 = betas(c)
			return newOptimizer(c, rank, ctx, name, c.Arg("lr"), c.Arg("weight_decay"), func(g []tensor.ParamGroup) (*tensor.Optimizer, error) {
				return tensor.NewAdam(g, o)
			})
		},
	}
}

// betas is the argument betas: two numbers from 0 to below 1.
func betas(c *starlib.Call) (first, second float64) {
	pair := c.Arg("betas").(starlark.Indexable)
	if pair.Len() == 2 {
		first, second = starlib.Number(pair.Index(0)), starlib.Number(pair.Index(1))
	}
	if pair.Len() != 2 || !(first >= 0 && first < 1 && second >= 0 && second < 1) {
		starlib.Must(0, fmt.Errorf("betas = %s: want two numbers from 0 to below 1", c.Arg("betas")))
	}
	return first, second
}

// setting is a number of 0 or more.
func setting(c *starlib.Call, name string) float64 {
	v := c.Float(name)
	if !(v >= 0) || math.IsInf(v, 0) {
		starlib.Must(0, fmt.Errorf("%s = %v: want a finite number of 0 or more", name, v))
	}
	return v
}

func clip(c *starlib.Call, sum SumOver) (starlark.Value, error) {
	params, sharded, limit := tensors(c, "params"), tensors(c, "sharded"), c.Float("max_norm")
	if !(limit > 0) {
		return nil, fmt.Errorf("max_norm = %v: want more than 0", limit)
	}
	if slices.ContainsFunc(params, func(p *tensor.Tensor) bool { return p.Share() != nil }) {
		return nil, errors.New("each rank holds a different part of these parameters: call clip_grad_norm(max_norm) on what dist.fsdp returned, or pass them as sharded")
	}
	if len(sharded) == 0 && c.IsNone("group") {
		norm, err := tensor.ClipGradNorm(params, limit)
		return starlark.Float(norm), err
	}
	square := starlib.Must(tensor.GradSquareSum(sharded))
	if sum != nil {
		square = starlib.Must(sum(c, c.Arg("group"), square))
	}
	norm := math.Sqrt(square + starlib.Must(tensor.GradSquareSum(params)))
	return starlark.Float(norm), tensor.ClipGrads(append(params, sharded...), norm, limit)
}

// tensors is an argument that is a list of tensors, or a single one, whose rows must not be iterated: they are views
// without gradients.
func tensors(c *starlib.Call, name string) []*tensor.Tensor {
	if t, ok := c.Arg(name).(*startensor.Value); ok {
		return []*tensor.Tensor{t.Tensor()}
	}
	return starlib.Must(startensor.List(c.Arg(name)))
}
