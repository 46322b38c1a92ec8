package distributed

import (
	"encoding/binary"
	"fmt"

	"drun/collective"
	"drun/kernel/element"
	"drun/starlib"
	"drun/starlib/nn"
	"drun/tensor"

	"go.starlark.net/starlark"
)

// The embedding of a tensor-parallel model (Megatron-LM's VocabParallelEmbedding): each rank has some rows of the table, looks
// up the indices among them, and leaves zeros for the others; the sum over the ranks has every row once.

func parallelEmbedding(w *World) *starlib.Def {
	return &starlib.Def{
		Sig: `vocab_embedding(n: int, dim: int, group: Group = None, timeout: number = None) -> Module`,
		Doc: "nn.embedding(n, dim) of which each of the group's k ranks has n/k rows: weight (n/k, dim). The input,\n" +
			"integers from 0 to n - 1 of any shape (…), is the same on all ranks, which is checked; the output (…, dim) is\n" +
			"the whole one on all of them. In backward each rank's rows get their gradient, without communication. The\n" +
			"initial values are those of nn.embedding.",
		Fn: w.inGroup(vocabEmbedding),
	}
}

func vocabEmbedding(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	n, dim := c.Int("n"), c.Int("dim")
	if n < 1 || dim < 1 {
		return nil, fmt.Errorf("sizes must be at least 1, not %d and %d", n, dim)
	}
	if n%g.Size() != 0 {
		return nil, fmt.Errorf("n = %d is not divisible by the group's %d ranks", n, g.Size())
	}
	err := g.agree(ctx, fmt.Appendf(nil, "(%d, %d)", n, dim), origin(c), "the ranks make different layers", func(key []byte) string { return string(key) })
	if err != nil {
		return nil, err
	}
	table, err := g.world.random.Randn(g.world.tensors, []int{n, dim}, element.Float32)
	if err != nil {
		return nil, tensor.As("weight", err)
	}
	weight := starlib.Must(partOf(g, table, 0))
	return nn.NewLayer(g.world.tensors, "vocab_embedding", fmt.Sprintf("%d, %d", n, dim), weight, nil, func(c *starlib.Call, x *tensor.Tensor) (*tensor.Tensor, error) {
		return embedded(g, ctx, weight, n, x, originOf("dist.vocab_embedding", c.Position()))
	}), nil
}

// embedded looks up the rows of a table of n rows, of which weight is this rank's part.
func embedded(g *Group, ctx *collective.WaitLimit, weight *tensor.Tensor, n int, x *tensor.Tensor, at collective.Origin) (*tensor.Tensor, error) {
	if g.comm == nil {
		return tensor.Embedding(weight, x)
	}
	indices, err := tensor.EmbeddingRows(x, n)
	if err != nil {
		return nil, err
	}
	rows, dim := weight.Shape()[0], weight.Shape()[1]
	first := int64(g.own * rows)
	var places, own []int64 // in x, and in weight, of the indices whose rows are here
	for i, k := range indices {
		if k >= first && k < first+int64(rows) {
			places, own = append(places, int64(i)), append(own, k-first)
		}
	}
	ints := func(values []int64) *tensor.Tensor {
		return starlib.Must(tensor.FromInts(g.world.tensors, values, []int{len(values)}, element.Int64))
	}
	found, at64 := starlib.Must(tensor.Embedding(weight, ints(own))), ints(places)
	sum := starlib.Must(tensor.Zeros(g.world.tensors, append(append([]int{}, x.Shape()...), dim), element.Float32))
	to, from := sum.Bytes(), starlib.Must(tensor.Contiguous(found.Detach())).Bytes()
	width := dim * element.Float32.Size()
	for i, place := range places {
		copy(to[int(place)*width:][:width], from[i*width:])
	}
	call := collective.NewAllReduce(bufferOf(sum), element.Sum)
	call.Shape = sum.Shape()
	// With different indices the ranks would add up rows of different words.
	call.Digest = digestOf(indices)
	call.Detail = func() string { return fmt.Sprintf("indices with the digest %016x", call.Digest) }
	if err := g.do(ctx, call, at); err != nil {
		return nil, err
	}
	differentiable("vocab_embedding", sum, found, func(grad *tensor.Tensor) (*tensor.Tensor, error) {
		flat, err := tensor.Reshape(grad, []int{len(indices), dim})
		if err != nil {
			return nil, err
		}
		return tensor.IndexSelect(flat, 0, at64)
	})
	return sum, nil
}

// digestOf is a hash of numbers.
func digestOf(values []int64) uint64 {
	raw := make([]byte, 0, 8*len(values))
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
	}
	return fnv(raw)
}
