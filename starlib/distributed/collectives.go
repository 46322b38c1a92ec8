package distributed

import (
	"fmt"
	"strings"

	"drun/collective"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/tensor"

	startensor "drun/starlib/tensor"

	"go.starlark.net/starlark"
)

func collectives(w *World) []*starlib.Def {
	return []*starlib.Def{
		{Sig: `barrier(group: Group = None, timeout: number = None)`, Fn: func(c *starlib.Call) (starlark.Value, error) { return barrier(w, c) },
			Doc: "Waits until every rank of the group has called it. On timeout the error names the missing ranks and\n" +
				"where they are. Ranks outside the group do not wait."},
		{
			Sig: `all_reduce(t: Tensor | number, op: string | ReduceOp = "sum", async_op: bool = False, group: Group = None, timeout: number = None) -> Tensor | number | Work`,
			Doc: "Combines t over all ranks, in rank order, in place, and returns t. A number is not changed: the\n" +
				"result is returned, exact for integers (each rank's number must fit into 64 bits).\n" +
				"t has the same shape and dtype on all ranks. op is sum, avg, product, min or max, and for integers\n" +
				"also band, bor or bxor; or dist.premul_sum(factor). The average of an integer tensor is truncated to\n" +
				"integers; that of a number is a float.\n" +
				"If gradients are recorded and t requires one, the result is a new tensor, and backward reduces\n" +
				"the ranks' gradients in the same way (op sum or avg).",
			Fn: w.inGroup(allReduce),
		},
		{Sig: `broadcast(x, src: int = 0, async_op: bool = False, group: Group = None, timeout: number = None)`, Fn: w.withRank("src", broadcastTo),
			Doc: "Gives rank src's x to all ranks: a tensor in place (same shape and dtype everywhere), a plain value\n" +
				"as the result (what the other ranks pass is ignored). Returns src's x. In backward, src gets the sum\n" +
				"of the gradients and the others zeros. A plain value is waited for even with async_op, because its\n" +
				"size must arrive first: the Work returned is already done."},
		{
			Sig: `reduce(t: Tensor | number, dst: int = 0, op: string = "sum", async_op: bool = False, group: Group = None, timeout: number = None) -> Tensor | number | Work`,
			Doc: "Like all_reduce, but only rank dst gets the result, in place; the tensors of the other ranks keep\n" +
				"their values. It has no gradient: a tensor for which gradients are recorded is an error.",
			Fn: w.withRank("dst", reduce),
		},
	}
}

func barrier(w *World, c *starlib.Call) (starlark.Value, error) {
	g := try.To(w.anyGroup(c))
	ctx := try.To(w.until(c))
	return nil, g.do(ctx, collective.NewBarrier(), origin(c))
}

// reduction reads a reduce op that is defined for the operand.
func reduction(name string, o *operand) (dtype.ReduceOp, error) {
	op, ok := dtype.ParseReduceOp(name)
	if !ok {
		return 0, fmt.Errorf("unknown op %q: want one of %s", name, strings.Trim(listText(dtype.ReduceOps()), "[]"))
	}
	if !op.Valid(o.buf.DType) {
		return 0, fmt.Errorf("op %v is not defined for %v", op, o.buf.DType)
	}
	return op, nil
}

// divisible converts an int to be averaged to a float: the mean of 0 and 1 is 0.5.
func divisible(x starlark.Value, op string) (starlark.Value, error) {
	if n, ok := x.(starlark.Int); ok && op == "avg" {
		f, err := starlib.AsNumber(n)
		return starlark.Float(f), err
	}
	return x, nil
}

func allReduce(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	x := c.Arg("t")
	in, graph := recorded(x)
	name, ok := starlark.AsString(c.Arg("op"))
	if !ok {
		try.FailIf(in == nil || graph, "op premul_sum needs a tensor for which no gradients are recorded")
		var scale *tensor.Tensor
		name, scale = try.To2(scaled(c, in))
		try.Ok(writable(in))
		try.Ok(tensor.CopyInto(in.Detach(), scale))
		in.Touched()
	}
	if graph {
		x = try.To(clone(in))
	} else if in != nil {
		try.Ok(writable(in))
	}
	async := c.Bool("async_op")
	o := &g.operand
	if async || graph { // ctx outlives this call
		o = new(operand)
	}
	try.Ok(o.set(try.To(divisible(x, name))))
	op := try.To(reduction(name, o))
	if in != nil && !graph && !async && try.To(g.world.coalesce(g, ctx, in, op)) {
		return x, nil
	}
	o.widen(op, g)
	if graph && op != dtype.Sum && op != dtype.Avg {
		return nil, fmt.Errorf("op %v has no gradient: use sum or avg, or t.detach()", op)
	}
	o.moveToArena(g.world)
	var then finisher = o
	if graph {
		at := origin(c).Backward()
		then = finish(func() (starlark.Value, error) {
			differentiable("all_reduce", o.t, in, func(grad *tensor.Tensor) (*tensor.Tensor, error) {
				return reduced(g, g.world.within, grad, op, at)
			})
			return o.value, nil
		})
	}
	return start(g, c, ctx, collective.NewAllReduce(o.buf, op), o, o.copied(), then)
}

// reduced does all_reduce of a tensor into a new tensor.
func reduced(g *Group, ctx *collective.WaitLimit, t *tensor.Tensor, op dtype.ReduceOp, at collective.Origin) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	out := try.To(tensor.Clone(t))
	call := collective.NewAllReduce(bufferOf(out), op)
	call.Shape = out.Shape()
	return out, g.do(ctx, call, at)
}

func broadcastTo(g *Group, c *starlib.Call, ctx *collective.WaitLimit, src int) (starlark.Value, error) {
	v, ok := c.Arg("x").(*startensor.Value)
	if !ok {
		value, err := broadcastValue(g, ctx, c.Arg("x"), src, origin(c))
		if err != nil || !c.Bool("async_op") {
			return value, err
		}
		return finished(collective.Broadcast.String(), value), nil
	}
	t := v.Tensor()
	try.Ok(writable(t))
	in, graph := recorded(v)
	if graph {
		// A leaf is changed in place as well: it may be a parameter.
		v = try.To(clone(t))
	}
	o := try.To(operandOf(v))
	var then finisher = o
	if graph {
		at := origin(c).Backward()
		then = finish(func() (starlark.Value, error) {
			if in.IsLeaf() && g.own != src {
				try.Ok(writeRaw(in.Detach(), o.t.Bytes()))
			}
			differentiable("broadcast", o.t, in, func(grad *tensor.Tensor) (*tensor.Tensor, error) {
				return reducedAt(g, grad, src, at)
			})
			return o.value, nil
		})
	}
	return start(g, c, ctx, collective.NewBroadcast(o.buf, src), o, o.copied() || graph && in.IsLeaf(), then)
}

// reducedAt returns the sum of a gradient on one rank, zeros on the others.
func reducedAt(g *Group, grad *tensor.Tensor, root int, at collective.Origin) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	out := try.To(tensor.Clone(grad))
	call := collective.NewReduce(bufferOf(out), bufferOf(out), dtype.Sum, root)
	call.Shape = out.Shape()
	try.Ok(g.do(g.world.within, call, at))
	if g.own != root {
		clear(out.Bytes())
	}
	return out, nil
}

func reduce(g *Group, c *starlib.Call, ctx *collective.WaitLimit, dst int) (starlark.Value, error) {
	if t, ok := c.Arg("t").(*startensor.Value); ok {
		try.Ok(writable(t.Tensor()))
		if _, graph := recorded(t); graph {
			return nil, fmt.Errorf("reduce changes the tensor in place, and gradients are recorded for it: use all_reduce, which has a gradient, or reduce t.detach().clone()")
		}
	}
	o := try.To(operandOf(try.To(divisible(c.Arg("t"), c.String("op")))))
	op := try.To(reduction(c.String("op"), o))
	o.widen(op, g)
	var then finisher = o
	if g.own != dst {
		x := c.Arg("t")
		then = finish(func() (starlark.Value, error) { return x, nil })
	}
	return start(g, c, ctx, collective.NewReduce(o.buf, o.buf, op, dst), o, o.copied(), then)
}
