package distributed

import (
	"encoding/binary"
	"fmt"

	"go.starlark.net/starlark"

	"drun/collective"
	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/nn"
	"drun/tensor"
)

// Tensor-parallel layers (Shoeybi et al. 2019, Megatron-LM): each rank of a group has a part of a layer's weight, and
// all work on the same input.

func parallelLayers(w *World) []*starlib.Def {
	return []*starlib.Def{
		{
			Sig: `column_linear(i: int, o: int, bias: bool = True, gather_output: bool = False, group: Group = None, timeout: number = None) -> Module`,
			Doc: "nn.linear(i, o) divided over the n ranks of the group by outputs: weight (o/n, i) and bias (o/n). The input\n" +
				"(…, i) is the same on all ranks; the output is this rank's part, (…, o/n), or with gather_output the whole, (…, o).\n" +
				"In backward the gradient of the input is summed over the ranks. The initial values are those of nn.linear.",
			Fn: w.inGroup(columnLinear),
		},
		{Sig: `row_linear(i: int, o: int, bias: bool = True, input_is_parallel: bool = True, group: Group = None, timeout: number = None) -> Module`, Fn: w.inGroup(rowLinear),
			Doc: "nn.linear(i, o) divided over the n ranks of the group by inputs: weight (o, i/n), and the whole bias. The\n" +
				"input is this rank's part, (…, i/n), as from column_linear, or with input_is_parallel = False the whole; the\n" +
				"output (…, o) is summed over the ranks. The initial values are those of nn.linear."},
		parallelEmbedding(w), parallelize(w),
	}
}

// parallelLinear reads the arguments of a layer that is divided along the named dimension, and draws the whole layer's
// weights: all ranks draw the same. A failure ends the caller.
func parallelLinear(g *Group, c *starlib.Call, ctx *collective.WaitLimit, divided string) (in, out int, weight, bias *tensor.Tensor) {
	in, out = c.Int("i"), c.Int("o")
	try.FailIf(in < 1 || out < 1, "sizes must be at least 1, not %d and %d", in, out)
	n := c.Int(divided)
	try.FailIf(n%g.Size() != 0, "%s = %d is not divisible by the group's %d ranks", divided, n, g.Size())
	key := fmt.Appendf(nil, "(%d, %d, bias = %v)", in, out, c.Bool("bias"))
	try.Ok(g.agree(ctx, key, origin(c), "the ranks make different layers", nil))
	weight = try.To(tensor.Zeros(g.world.tensors, []int{out, in}, dtype.Float32))
	if c.Bool("bias") {
		bias = try.To(tensor.Zeros(g.world.tensors, []int{out}, dtype.Float32))
	}
	try.Ok(g.world.random.InitLinear(weight, bias))
	return in, out, weight, bias
}

// partOf returns this rank's part of a tensor along a dimension, as a copy.
func partOf(g *Group, t *tensor.Tensor, dim int) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	per := t.Shape()[dim] / g.Size()
	part := try.To(tensor.Narrow(t, dim, g.own*per, per))
	return tensor.Clone(part)
}

// ownPart is partOf for a layer's parameter.
func ownPart(g *Group, t *tensor.Tensor, dim int) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	part := try.To(partOf(g, t, dim))
	if g.Size() > 1 {
		place([]*tensor.Tensor{part}, division{layers: g}, true, false)
	}
	return part, nil
}

func columnLinear(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	_, _, weight, bias := parallelLinear(g, c, ctx, "o")
	return columnLayer(g, ctx, weight, bias, c.Bool("gather_output"))
}

// columnLayer makes a column_linear of a whole layer's weights.
func columnLayer(g *Group, ctx *collective.WaitLimit, weight, bias *tensor.Tensor, gather bool) (_ *nn.Model, err error) {
	defer try.Caught(&err)
	out, in := weight.Shape()[0], weight.Shape()[1]
	weight = try.To(ownPart(g, weight, 0))
	if bias != nil {
		bias = try.To(ownPart(g, bias, 0))
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
	_, _, weight, bias := parallelLinear(g, c, ctx, "i")
	return rowLayer(g, ctx, weight, bias, !c.Bool("input_is_parallel"))
}

// rowLayer makes a row_linear of a whole layer's weights; whole says that its input is not divided.
func rowLayer(g *Group, ctx *collective.WaitLimit, weight, bias *tensor.Tensor, whole bool) (_ *nn.Model, err error) {
	defer try.Caught(&err)
	out, in := weight.Shape()[0], weight.Shape()[1]
	weight = try.To(ownPart(g, weight, 1))
	return nn.NewLayer(g.world.tensors, "row_linear", fmt.Sprintf("%d, %d", in, out), weight, bias, func(c *starlib.Call, x *tensor.Tensor) (_ *tensor.Tensor, err error) {
		defer try.Caught(&err)
		at := originOf("dist.row_linear", c.Position())
		if dims := x.Dim(); whole && dims > 0 && x.Shape()[dims-1] == in {
			per := in / g.Size()
			x = try.To(tensor.Narrow(copyToGroup(g, ctx, x, at), dims-1, g.own*per, per))
		}
		sum := summed(g, ctx, "row_linear", try.To(tensor.Linear(x, weight, nil)), at)
		if bias == nil {
			return sum, nil
		}
		return tensor.Binary(tensor.OpAdd, sum, bias)
	}), nil
}

// copyToGroup returns x; its gradient is summed over the ranks.
func copyToGroup(g *Group, ctx *collective.WaitLimit, x *tensor.Tensor, at collective.Origin) *tensor.Tensor {
	if g.comm == nil || !x.RequiresGrad() || !x.Context().Recording() {
		return x
	}
	out := x.Detach()
	differentiable("copy_to_group", out, x, func(grad *tensor.Tensor) (*tensor.Tensor, error) {
		return reduced(g, ctx, grad, dtype.Sum, at.Backward())
	})
	return out
}

// gathered joins the ranks' parts along the last dimension. The gradient of a rank's part is that part of
// the whole's gradient, which needs no sum: all ranks compute the same from the whole.
func gathered(g *Group, ctx *collective.WaitLimit, y *tensor.Tensor, at collective.Origin) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	if g.comm == nil {
		return y, nil
	}
	own := try.To(tensor.Contiguous(y.Detach()))
	flat := try.To(tensor.Empty(g.world.tensors, append([]int{g.Size()}, y.Shape()...), y.DType()))
	call := collective.NewAllGather(bufferOf(own), bufferOf(flat))
	call.Shape = y.Shape()
	try.Ok(g.do(ctx, call, at))
	parts := each.UpTo(g.Size(), func(r int) *tensor.Tensor { return try.To(tensor.Select(flat, 0, r)) })
	last := y.Dim() - 1
	out := try.To(tensor.Cat(parts, last))
	differentiable("column_linear", out, y, func(grad *tensor.Tensor) (*tensor.Tensor, error) { return partOf(g, grad, last) })
	return out, nil
}

// The embedding of a tensor-parallel model (Megatron-LM's VocabParallelEmbedding): each rank has some rows of the table, looks
// up the indices among them, and leaves zeros for the others; the sum over the ranks has every row once.

func parallelEmbedding(w *World) *starlib.Def {
	return &starlib.Def{
		Sig: `vocab_embedding(n: int, dim: int, group: Group = None, timeout: number = None) -> Module`,
		Doc: "nn.embedding(n, dim) divided over the k ranks of the group by rows: weight (n/k, dim). The input,\n" +
			"integers from 0 to n - 1 of any shape (…), must be the same on all ranks, which is checked; the output (…, dim)\n" +
			"is the whole one on all of them. In backward each rank's rows get their gradient, without communication. The\n" +
			"initial values are those of nn.embedding.",
		Fn: w.inGroup(vocabEmbedding),
	}
}

func vocabEmbedding(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	n, dim := c.Int("n"), c.Int("dim")
	try.FailIf(n < 1 || dim < 1, "sizes must be at least 1, not %d and %d", n, dim)
	try.FailIf(n%g.Size() != 0, "n = %d is not divisible by the group's %d ranks", n, g.Size())
	try.Ok(g.agree(ctx, fmt.Appendf(nil, "(%d, %d)", n, dim), origin(c), "the ranks make different layers", nil))
	table, err := g.world.random.Randn(g.world.tensors, []int{n, dim}, dtype.Float32)
	if err != nil {
		return nil, try.As("weight", err)
	}
	return wordLayer(g, ctx, table)
}

// wordLayer makes a vocab_embedding of a whole table.
func wordLayer(g *Group, ctx *collective.WaitLimit, table *tensor.Tensor) (_ *nn.Model, err error) {
	defer try.Caught(&err)
	n, dim := table.Shape()[0], table.Shape()[1]
	weight := try.To(ownPart(g, table, 0))
	return nn.NewLayer(g.world.tensors, "vocab_embedding", fmt.Sprintf("%d, %d", n, dim), weight, nil, func(c *starlib.Call, x *tensor.Tensor) (*tensor.Tensor, error) {
		return embedded(g, ctx, weight, n, x, originOf("dist.vocab_embedding", c.Position()))
	}), nil
}

// embedded looks up rows in a table of n rows; weight is this rank's part of it.
func embedded(g *Group, ctx *collective.WaitLimit, weight *tensor.Tensor, n int, x *tensor.Tensor, at collective.Origin) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	if g.comm == nil {
		return tensor.Embedding(weight, x)
	}
	indices := try.To(tensor.EmbeddingRows(x, n))
	rows, dim := weight.Shape()[0], weight.Shape()[1]
	first := int64(g.own * rows)
	var places, own []int64 // positions in x, and rows of weight, for the indices whose rows are here
	for i, k := range indices {
		if k >= first && k < first+int64(rows) {
			places, own = append(places, int64(i)), append(own, k-first)
		}
	}
	ints := func(values []int64) *tensor.Tensor {
		return try.To(tensor.FromInts(g.world.tensors, values, []int{len(values)}, dtype.Int64))
	}
	found, at64 := try.To(tensor.Embedding(weight, ints(own))), ints(places)
	sum := try.To(tensor.Zeros(g.world.tensors, append(append([]int{}, x.Shape()...), dim), dtype.Float32))
	to, from := sum.Bytes(), try.To(tensor.Contiguous(found.Detach())).Bytes()
	width := dim * dtype.Float32.Size()
	for i, place := range places {
		copy(to[int(place)*width:][:width], from[i*width:])
	}
	call := collective.NewAllReduce(bufferOf(sum), dtype.Sum)
	call.Shape = sum.Shape()
	// If the indices differed, the ranks would add up rows of different words.
	call.Digest = digestOf(indices)
	call.Detail = func() string { return fmt.Sprintf("indices with the digest %016x", call.Digest) }
	try.Ok(g.do(ctx, call, at))
	differentiable("vocab_embedding", sum, found, func(grad *tensor.Tensor) (_ *tensor.Tensor, err error) {
		defer try.Caught(&err)
		return tensor.IndexSelect(try.To(tensor.Reshape(grad, []int{len(indices), dim})), 0, at64)
	})
	return sum, nil
}

func digestOf(values []int64) uint64 {
	raw := make([]byte, 0, 8*len(values))
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
	}
	return fnv(raw)
}
