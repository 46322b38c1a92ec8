package nn

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/starlib"
)

// autocast calls a function with products in bfloat16.
func (k *maker) autocast() *starlib.Def {
	return &starlib.Def{
		Sig: `autocast(fn: callable, *args, dtype: string = "bfloat16", **kwargs)`,
		Doc: `Calls fn, a model or a function, with these arguments and returns its result. Meanwhile linear layers, matmul, convolutions and attention round float32 operands to bfloat16, add up in float32 and return bfloat16; softmax, norms, losses, sums, exp, log and pow return float32; everything else follows the types of its operands. Parameters and their gradients stay float32. Put the loss inside, backward and the optimizer's step outside:
	loss = nn.autocast(lambda: nn.cross_entropy(model(x), y))
	loss.backward()
dtype = "float32" turns it off within. Recurrent layers compute in float32.`,
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			dtype := c.String("dtype")
			if dtype != "bfloat16" && dtype != "float32" {
				return nil, fmt.Errorf("dtype is %q: want bfloat16, or float32 to turn autocast off", dtype)
			}
			defer k.ctx.Autocast(k.ctx.Autocast(dtype == "bfloat16"))
			return starlark.Call(c.Thread, c.Arg("fn").(starlark.Callable), c.Rest, c.Named)
		},
	}
}
