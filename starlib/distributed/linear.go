package distributed

import (
	"fmt"

	"drun/collective"
	"drun/kernel/element"
	"drun/starlib"
	"drun/starlib/nn"
	"drun/tensor"

	"go.starlark.net/starlark"
)

// Tensor-parallel layers (Shoeybi et al. 2019, Megatron-LM): each rank of a group has a part of a layer's weight, and
// all work on the same input.

func parallelLayers(w *World) []*starlib.Def {
	return []*starlib.Def{
		{
			Sig: `column_linear(i: int, o: int, bias: bool = True, gather_output: bool = False, group: Group = None, timeout: number = None) -> Module`,
			Doc: "nn.linear(i, o) of which each rank of the group has o/n outputs: weight (o/n, i) and bias (o/n). The input\n" +
				"(…, i) is the same on all ranks; the output is this rank's part, (…, o/n), or with gather_output all of it.\n" +
				"In backward the gradient of the input is summed over the ranks. The initial values are those of nn.linear.",
			Fn: w.inGroup(columnLinear),
		},
		{
			Sig: `row_linear(i: int, o: int, bias: bool = True, input_is_parallel: bool = True, group: Group = None, timeout: number = None) -> Module`,
			Doc: "nn.linear(i, o) of which each rank of the group has i/n inputs: weight (o, i/n), and the whole bias. The\n" +
				"input is this rank's part, (…, i/n), as from column_linear, or the whole one, which is then cut; the\n" +
				"output (…, o) is summed over the ranks. The initial values are those of nn.linear.",
			Fn: w.inGroup(rowLinear),
		},
		parallelEmbedding(w),
	}
}

// parallelLinear reads the arguments of a layer, whose named dimension the ranks divide, and draws the whole layer's
// weights, as all ranks do.
func parallelLinear(g *Group, c *starlib.Call, ctx *collective.WaitLimit, divided string) (in, out int, weight, bias *tensor.Tensor, err error) {
	in, out = c.Int("i"), c.Int("o")
	if in < 1 || out < 1 {
		return 0, 0, nil, nil, fmt.Errorf("sizes must be at least 1, not %d and %d", in, out)
	}
	if n := c.Int(divided); n%g.Size() != 0 {
		return 0, 0, nil, nil, fmt.Errorf("%s = %d is not divisible by the group's %d ranks", divided, n, g.Size())
	}
	key := fmt.Appendf(nil, "(%d, %d, bias = %v)", in, out, c.Bool("bias"))
	if err = g.agree(ctx, key, origin(c), "the ranks make different layers", func(key []byte) string { return string(key) }); err != nil {
		return
	}
	if weight, err = tensor.Zeros(g.world.tensors, []int{out, in}, element.Float32); err == nil && c.Bool("bias") {
		bias, err = tensor.Zeros(g.world.tensors, []int{out}, element.Float32)
	}
	if err == nil {
		err = g.world.random.InitLinear(weight, bias)
	}
	return
}

// partOf is this rank's part of a tensor along a dimension, as a copy.
func partOf(g *Group, t *tensor.Tensor, dim int) (*tensor.Tensor, error) {
	per := t.Shape()[dim] / g.Size()
	part, err := tensor.Narrow(t, dim, g.own*per, per)
	if err != nil {
		return nil, err
	}
	return tensor.Clone(part)
}

func columnLinear(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	in, out, weight, bias, err := parallelLinear(g, c, ctx, "o")
	if err != nil {
		return nil, err
	}
	gather := c.Bool("gather_output")
	weight = starlib.Must(partOf(g, weight, 0))
	if bias != nil {
		bias = starlib.Must(partOf(g, bias, 0))
	}
	return nn.NewLayer(g.world.tensors, "column_linear", fmt.Sprintf("%d, %d", in, out), weight, bias, func(c *starlib.Call, x *tensor.Tensor) (*tensor.Tensor, error) {
		at := originOf("dist.column_linear", c.Position())
		y, err := tensor.Linear(copyToGroup(g, ctx, x, at), weight, bias)
		if err != nil || !gather {
			return y, err
		}
		return gathered(g, ctx, y, at)
	}), nil
}

func rowLinear(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	in, out, weight, bias, err := parallelLinear(g, c, ctx, "i")
	if err != nil {
		return nil, err
	}
	whole := !c.Bool("input_is_parallel")
	weight = starlib.Must(partOf(g, weight, 1))
	return nn.NewLayer(g.world.tensors, "row_linear", fmt.Sprintf("%d, %d", in, out), weight, bias, func(c *starlib.Call, x *tensor.Tensor) (*tensor.Tensor, error) {
		at := originOf("dist.row_linear", c.Position())
		if dims := x.Dim(); whole && dims > 0 && x.Shape()[dims-1] == in {
			per := in / g.Size()
			var err error
			if x, err = tensor.Narrow(copyToGroup(g, ctx, x, at), dims-1, g.own*per, per); err != nil {
				return nil, err
			}
		}
		part, err := tensor.Linear(x, weight, nil)
		if err != nil {
			return nil, err
		}
		sum, err := reduced(g, ctx, part.Detach(), element.Sum, at)
		if err != nil {
			return nil, err
		}
		differentiable("row_linear", sum, part, tensor.Clone)
		if bias == nil {
			return sum, nil
		}
		return tensor.Binary(tensor.OpAdd, sum, bias)
	}), nil
}

// copyToGroup is x, whose gradient is summed over the ranks.
func copyToGroup(g *Group, ctx *collective.WaitLimit, x *tensor.Tensor, at collective.Origin) *tensor.Tensor {
	if g.comm == nil || !x.RequiresGrad() || !x.Context().Recording() {
		return x
	}
	out := x.Detach()
	differentiable("copy_to_group", out, x, func(grad *tensor.Tensor) (*tensor.Tensor, error) {
		return reduced(g, ctx, grad, element.Sum, at.Backward())
	})
	return out
}

// gathered joins the ranks' parts of the last dimension. The gradient of a rank's part is its part of the whole's
// gradient: the whole is the same on all ranks, and so is what they compute from it.
func gathered(g *Group, ctx *collective.WaitLimit, y *tensor.Tensor, at collective.Origin) (*tensor.Tensor, error) {
	if g.comm == nil {
		return y, nil
	}
	own, err := tensor.Contiguous(y.Detach())
	if err != nil {
		return nil, err
	}
	flat, err := tensor.Empty(g.world.tensors, append([]int{g.Size()}, y.Shape()...), y.DType())
	if err != nil {
		return nil, err
	}
	call := collective.NewAllGather(bufferOf(own), bufferOf(flat))
	call.Shape = y.Shape()
	if err := g.do(ctx, call, at); err != nil {
		return nil, err
	}
	parts := make([]*tensor.Tensor, g.Size())
	for r := range parts {
		if parts[r], err = tensor.Select(flat, 0, r); err != nil {
			return nil, err
		}
	}
	last := y.Dim() - 1
	out, err := tensor.Cat(parts, last)
	if err != nil {
		return nil, err
	}
	per := y.Shape()[last]
	differentiable("column_linear", out, y, func(grad *tensor.Tensor) (*tensor.Tensor, error) {
		part, err := tensor.Narrow(grad, last, g.own*per, per)
		if err != nil {
			return nil, err
		}
		return tensor.Clone(part)
	})
	return out, nil
}
