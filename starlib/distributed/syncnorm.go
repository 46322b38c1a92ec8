package distributed

import (
	"fmt"

	"drun/collective"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/nn"
	"drun/tensor"

	"go.starlark.net/starlark"
)

func syncNorms(w *World) []*starlib.Def {
	return []*starlib.Def{{
		Sig: `sync_batch_norm(module: Module, group: Group = None, timeout: number = None) -> Module`,
		Doc: "The module, whose batch_norm layers normalise with the mean and variance of all ranks' batches together in\n" +
			"training (PyTorch's SyncBatchNorm); their sizes may differ, and one may be empty. Each pass in training, forward and\n" +
			"backward, is then a collective in each of these layers; in evaluation none is. The gradients of weight and bias\n" +
			"are this rank's, as those of other layers: dist.ddp or dist.sync_grad averages them.",
		Fn: w.inGroup(newSyncNorm),
	}}
}

// syncNorm is the statistics of a batch that is divided over a group's ranks.
type syncNorm struct {
	g      *Group
	ctx    *collective.WaitLimit
	thread *starlark.Thread // of the latest call
}

func newSyncNorm(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	m := c.Arg("module").(*nn.Model)
	layers := m.BatchNorms()
	try.Ok(g.agree(ctx, fmt.Appendf(nil, "%d", len(layers)), origin(c), "the ranks' models have different numbers of batch_norm layers", nil))
	if g.Size() == 1 {
		return m, nil
	}
	s := &syncNorm{g: g, ctx: ctx}
	for _, l := range layers {
		l.Across(s)
		l.Wrap(func(thread *starlark.Thread, compute func() (starlark.Value, error)) (starlark.Value, error) {
			s.thread = thread
			return compute()
		})
	}
	return m, nil
}

// origin returns the recipe's call of the layer.
func (s *syncNorm) origin() collective.Origin {
	return originOf("dist.sync_batch_norm", starlib.Position(s.thread)).In(collective.Step)
}

// Moments combines the ranks' means and sums of squared deviations in rank order (Chan, Golub and LeVeque 1979), in float64.
func (s *syncNorm) Moments(mean, low, variance *tensor.Tensor, count int) (total int, err error) {
	defer try.Caught(&err)
	try.FailIf(s.g.world.joining, "dist.sync_batch_norm cannot be used within dist.join: a rank that has no more batches has no part in the statistics; give each rank the same number of batches (drop_last, or pad = True)")
	c := mean.Len()
	own := make([]float64, 1+2*c)
	own[0] = float64(count)
	if count > 0 {
		m, l, v := try.To(tensor.Cast(mean, dtype.Float64)), try.To(tensor.Cast(low, dtype.Float64)), try.To(tensor.Cast(variance, dtype.Float64))
		for i := range c {
			own[1+i] = tensor.Elems[float64](m)[i] + tensor.Elems[float64](l)[i]
			own[1+c+i] = float64(tensor.Elems[float64](v)[i] * own[0])
		}
	}
	world := s.g.world.tensors
	send, all := try.To(tensor.FromFloats(world, own, []int{len(own)}, dtype.Float64)), try.To(tensor.Empty(world, []int{s.g.Size(), len(own)}, dtype.Float64))
	try.Ok(s.g.do(s.ctx, collective.NewAllGather(bufferOf(send), bufferOf(all)), s.origin()))
	middle, square, n := make([]float64, c), make([]float64, c), 0.0
	for r := range s.g.Size() {
		part := tensor.Elems[float64](all)[r*len(own):][:len(own)]
		if part[0] == 0 {
			continue
		}
		more := n + part[0]
		for i := range c {
			d := part[1+i] - middle[i]
			middle[i] += float64(d * (part[0] / more))
			square[i] += part[1+c+i] + float64(float64(d*d)*(n*part[0]/more))
		}
		n = more
	}
	rest := make([]float64, c)
	for i := range c {
		square[i] /= max(n, 1)
	}
	set := func(t *tensor.Tensor, values []float64) {
		try.Ok(tensor.CopyInto(t, try.To(tensor.FromFloats(world, values, []int{c}, dtype.Float64))))
	}
	set(mean, middle)
	rounded := try.To(tensor.Cast(mean, dtype.Float64))
	for i := range c {
		rest[i] = middle[i] - tensor.Elems[float64](rounded)[i]
	}
	set(low, rest)
	set(variance, square)
	return int(n), nil
}

// Sum adds the ranks' tensors, for the backward pass.
func (s *syncNorm) Sum(t *tensor.Tensor) (*tensor.Tensor, error) {
	return reduced(s.g, s.ctx, t, dtype.Sum, s.origin().Backward())
}
