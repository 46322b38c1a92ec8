package distributed

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/collective"
	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/nn"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// A pipeline within a model: an nn.sequential whose parts are spread over the ranks of a group. What is before and after it is
// computed by all of them, from the same numbers with the same bits, so the sequence has the same input and output on all ranks,
// and so do its gradients. The schedule is gpipe's: all micro-batches go forward when the module is called, and back in
// the backward pass.

// spreadStages has the ranks of stages compute a part of the sequence each; layers are the ranks that divide this rank's part.
func spreadStages(stages, layers *Group, ctx *collective.WaitLimit, m *nn.Model, path string, micros int) (err error) {
	defer try.Caught(&err)
	parts, n := m.Sequence(), stages.Size()
	try.FailIf(len(parts) == 0, "plan: %s is %s, which cannot be a pipeline: want an nn.sequential", path, m.Name())
	try.FailIf(len(parts)%n != 0, "plan: %s has %d parts, which cannot be spread evenly over %d ranks", path, len(parts), n)
	numbers := each.UpTo(len(parts)/n, func(i int) int { return stages.own*len(parts)/n + i })
	if n == 1 {
		return nil
	}
	try.Ok(apart(parts, numbers))
	w := stages.world
	p := &pipeline{world: w, g: stages, micros: micros, schedule: schedules["gpipe"]}
	p.Model = try.To(nn.Sequential(w.tensors, parts[numbers[0]:numbers[0]+len(numbers)], numbers))
	p.chunks = []*nn.Model{p.Model}
	m.Spread(numbers, func(thread *starlark.Thread, x *tensor.Tensor) (*tensor.Tensor, error) {
		s := &step{pipeline: p, at: originOf("dist.parallelize_module", starlib.Position(thread)), thread: thread, ctx: ctx, train: w.tensors.Recording(), x: x}
		out, err := w.sameDraws(layers.ranks, func() (starlark.Value, error) { return startensor.Result(s.through(path)) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return out.(*startensor.Value).Tensor(), nil
	})
	return nil
}

// through takes the batch forward through all stages.
func (s *step) through(path string) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	data := try.To(tensor.Contiguous(s.x.Detach()))
	key := fmt.Appendf(nil, "%s of shape %s, digest %016x, with gradients: %v", s.x.DType(), tensor.ShapeString(s.x.Shape()), fnv(data.Content()), s.train && s.x.RequiresGrad())
	try.Ok(s.g.agree(s.ctx, key, s.at, "the ranks give "+path+" different inputs, but each computes a part of it", nil))
	try.Ok(s.begin())
	turns := s.schedule.turns(s.g.own, s.g.Size(), 1, s.of)
	for _, t := range turns[:s.of] {
		try.Ok(s.forward(t))
	}
	var last *tensor.Tensor
	if s.hasLast() {
		last = try.To(tensor.Cat(s.outs, 0))
		s.outs = nil
	}
	out, grads := try.To2(s.spreadLast(last))
	for _, sent := range s.sent {
		try.Ok(sent.wait(s.ctx))
	}
	s.sent = nil
	if !s.train || !grads {
		return out, nil
	}
	// This rank's parameters get their gradients even if the input has none.
	anchor := try.To(tensor.Zeros(s.world.tensors, []int{1}, dtype.Float32))
	try.Ok(anchor.SetRequiresGrad(true))
	tensor.Function("pipeline", out, []*tensor.Tensor{s.x, anchor}, func(grad *tensor.Tensor) ([]*tensor.Tensor, error) {
		in, err := s.back(grad, turns[s.of:])
		return []*tensor.Tensor{in, nil}, err
	})
	return out, nil
}

// back takes the gradient of the whole output back through all stages, and returns that of the input.
func (s *step) back(grad *tensor.Tensor, turns []turn) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	try.FailIf(!s.world.tensors.AddsGrads(), "a pipeline computes the gradients of its parameters with those of its input: use backward()")
	try.FailIf(s.filled == 0, "a second backward pass cannot go through a pipeline: its activations are gone")
	s.at, s.grad = s.at.Backward(), grad
	for _, t := range turns {
		try.Ok(s.backward(t))
	}
	var in *tensor.Tensor
	if s.hasFirst() && s.x.RequiresGrad() {
		for i, g := range s.ins {
			if g == nil {
				_, n := share(s.rows, s.of, i)
				s.ins[i] = try.To(tensor.Zeros(s.world.tensors, append([]int{n}, s.x.Shape()[1:]...), gradType(s.x)))
			}
		}
		in = try.To(tensor.Cat(s.ins, 0))
	}
	for _, sent := range s.sent {
		try.Ok(sent.wait(s.ctx))
	}
	s.sent, s.ins, s.grad = nil, nil, nil
	if !s.x.RequiresGrad() {
		return nil, nil
	}
	if !s.hasFirst() {
		in = try.To(tensor.Empty(s.world.tensors, s.x.Shape(), gradType(s.x)))
	}
	return in, s.g.do(s.ctx, collective.NewBroadcast(bufferOf(in), 0), s.at.In(collective.Step))
}

// spreadLast gives a tensor of the last rank, and whether it has a gradient, to all.
func (s *step) spreadLast(t *tensor.Tensor) (_ *tensor.Tensor, grads bool, err error) {
	defer try.Caught(&err)
	var h head
	root, at := s.g.Size()-1, s.at.In(collective.Step)
	if t != nil {
		h = headOf(parcel{t: t, grad: t.RequiresGrad()})
		t = try.To(tensor.Contiguous(t.Detach()))
	}
	try.Ok(s.g.do(s.ctx, collective.NewBroadcast(collective.Of(h[:]), root), at))
	if t == nil {
		t = try.To(h.empty(s.g, root))
	}
	return t, h[3] == awaitsGradient, s.g.do(s.ctx, collective.NewBroadcast(bufferOf(t), root), at)
}
