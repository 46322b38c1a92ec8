package nn

import (
	"fmt"
	"slices"

	"go.starlark.net/starlark"

	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

var losses = []*starlib.Def{
	loss("mse_loss", "input", "The squared difference of two tensors of one shape.", tensor.MSELoss),
	loss("l1_loss", "input", "The absolute difference of two tensors of one shape.", tensor.L1Loss),
	{
		Sig: "accuracy(logits: Tensor, target: Tensor) -> float",
		Doc: "The fraction of rows whose largest logit is the target's: logits (n, classes), target (n,).",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			a, err := tensor.Accuracy(startensor.Arg(c, "logits"), startensor.Arg(c, "target"))
			return starlark.Float(a), err
		},
	},
}

func loss(name, input, doc string, fn func(x, y *tensor.Tensor, r tensor.Reduction) (*tensor.Tensor, error)) *starlib.Def {
	return &starlib.Def{
		Sig: name + "(" + input + `: Tensor, target: Tensor, reduction: string = "mean") -> Tensor`,
		Doc: doc + ` reduction is "mean", "sum" or "none".`,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			return startensor.Result(fn(startensor.Arg(c, input), startensor.Arg(c, "target"), reduction(c)))
		},
	}
}

// reduction is the argument reduction.
func reduction(c *starlib.Call) tensor.Reduction {
	r := slices.Index([]string{"mean", "sum", "none"}, c.String("reduction"))
	if r < 0 {
		starlib.Must(0, fmt.Errorf(`reduction = %s: want "mean", "sum" or "none"`, c.Arg("reduction")))
	}
	return tensor.Reduction(r)
}
