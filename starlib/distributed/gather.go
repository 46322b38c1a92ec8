package distributed

import (
	"fmt"
	"slices"
	"strings"

	"drun/collective"
	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/tensor"

	startensor "drun/starlib/tensor"

	"go.starlark.net/starlark"
)

func exchanges(w *World) []*starlib.Def {
	return []*starlib.Def{
		{Sig: `all_gather(x, group: Group = None, timeout: number = None) -> list`,
			Doc: "A list of every rank's x in rank order: tensors, whose first dimensions may differ, or plain values.",
			Fn: w.inGroup(func(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
				return gather(g, c, ctx, everyone)
			})},
		{Sig: `gather(x, dst: int = 0, group: Group = None, timeout: number = None) -> list`,
			Doc: "Like all_gather, but only on rank dst; the other ranks get [].",
			Fn: w.withRank("dst", func(g *Group, c *starlib.Call, ctx *collective.WaitLimit, dst int) (starlark.Value, error) {
				return gather(g, c, ctx, dst)
			})},
		{Sig: `scatter(values: iterable = None, src: int = 0, group: Group = None, timeout: number = None)`, Fn: w.withRank("src", scatter),
			Doc: "Gives each rank its entry of src's list: tensors of one shape and dtype, or plain values. src must pass\n" +
				"exactly one entry per rank, and the other ranks None."},
		{Sig: `reduce_scatter(tensors: iterable, op: string = "sum", group: Group = None, timeout: number = None) -> Tensor`, Fn: w.inGroup(reduceScatter),
			Doc: "Combines the ranks' lists entry by entry and gives each rank its own entry. A list has one tensor\n" +
				"per rank; their sizes may differ. In backward the gradients are gathered."},
		{Sig: `all_to_all(t: Tensor | iterable, out_splits: iterable = None, in_splits: iterable = None, group: Group = None, timeout: number = None) -> Tensor | list`,
			Doc: "Splits t along dimension 0, sends each rank its part and returns the parts received, in rank order.\n" +
				"in_splits lists the rows sent to each rank, out_splits those received from each; by default they are\n" +
				"all equal. Of a list of tensors, one for each rank, whose first dimensions may differ, it returns the list of\n" +
				"those received.",
			Fn: w.inGroup(func(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
				if _, one := c.Arg("t").(*startensor.Value); one {
					return allToAll(g, c, ctx)
				}
				return allToAllLists(g, c, ctx)
			})},
	}
}

// rows is the number of elements per index of dimension 0.
func rows(shape []int) int {
	n := 1
	for _, d := range shape[min(1, len(shape)):] {
		n *= d
	}
	return n
}

// uneven returns the counts if they differ, else nil, so that backends can use their operations for
// parts of equal size.
func uneven(counts []int) []int {
	if slices.ContainsFunc(counts, func(n int) bool { return n != counts[0] }) {
		return counts
	}
	return nil
}

// ragged returns a shape in the form in which the board compares it if dimension 0 may differ.
func ragged(shape []int) []int {
	out := slices.Clone(shape)
	if len(out) > 0 {
		out[0] = -1
	}
	return out
}

// gatherCounts returns the ranks' sizes of dimension 0 and, if their other dimensions agree, numbers of elements.
func gatherCounts(g *Group, ctx *collective.WaitLimit, shape []int, dt dtype.Type, at collective.Origin) (first, counts []int, err error) {
	defer try.Caught(&err)
	own := 1
	if len(shape) > 0 {
		own = shape[0]
	}
	all := try.To(g.gatherSizes(ctx, int64(own), ragged(shape), dt, at))
	for _, n := range all {
		first, counts = append(first, int(n)), append(counts, int(n)*rows(shape))
	}
	return first, counts, nil
}

// everyone, as a destination, stands for all ranks.
const everyone = -1

// arrives reports whether this rank gets what is sent to dst.
func (g *Group) arrives(dst int) bool { return dst == everyone || dst == g.own }

// newGather makes the call that gathers on rank dst.
func newGather(send, recv collective.Buffer, dst int) collective.Call {
	if dst == everyone {
		return collective.NewAllGather(send, recv)
	}
	return collective.NewGather(send, recv, dst)
}

// gather makes a list of the ranks' x on rank dst; on the others it is empty.
func gather(g *Group, c *starlib.Call, ctx *collective.WaitLimit, dst int) (starlark.Value, error) {
	v, ok := c.Arg("x").(*startensor.Value)
	if !ok {
		values, err := gatherValues(g, c, ctx, c.Arg("x"), dst)
		return starlark.NewList(values), err
	}
	o, at := try.To(operandOf(v)), origin(c)
	first, counts := try.To2(gatherCounts(g, ctx, o.shape, o.buf.DType, at))
	total := 0
	if g.arrives(dst) {
		total = collective.Total(counts)
	}
	flat := try.To(tensor.Empty(g.world.tensors, []int{total}, o.t.DType()))
	call := newGather(o.buf, bufferOf(flat), dst)
	call.Counts, call.Shape = uneven(counts), ragged(o.shape)
	try.Ok(g.do(ctx, call, at))
	if !g.arrives(dst) {
		return starlark.NewList(nil), nil
	}
	if in, graph := recorded(v); graph && dst == everyone {
		at := at.Backward()
		differentiable("all_gather", flat, in, func(grad *tensor.Tensor) (*tensor.Tensor, error) {
			return scattered(g, g.world.within, grad, nil, dtype.Sum, counts, in.Shape(), at)
		})
	}
	return parts(flat, first, o.shape)
}

// parts cuts a flat tensor into one per rank, with the shape like except for dimension 0, whose sizes are in first.
// They are views, so gradients flow through them.
func parts(flat *tensor.Tensor, first, like []int) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	list := make([]starlark.Value, len(first))
	from := 0
	for r, n := range first {
		shape := slices.Clone(like)
		if len(shape) > 0 {
			shape[0] = n
		}
		part := try.To(tensor.Narrow(flat, 0, from, n*rows(like)))
		from += n * rows(like)
		part = try.To(tensor.Reshape(part, shape))
		list[r] = (*startensor.Value)(part)
	}
	return starlark.NewList(list), nil
}

// scattered reduces a flat tensor of all parts and returns this rank's part. The ranks' lists of parts, if given, must match.
func scattered(g *Group, ctx *collective.WaitLimit, flat *tensor.Tensor, list []*tensor.Tensor, op dtype.ReduceOp, counts, shape []int, at collective.Origin) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	all := try.To(tensor.Contiguous(flat))
	out := try.To(tensor.Empty(g.world.tensors, shape, flat.DType()))
	call := collective.NewReduceScatter(bufferOf(all), bufferOf(out), op)
	call.Counts = uneven(counts)
	if list != nil {
		call.Digest = fnv(appendShapes(nil, list))
		call.Detail = func() string { return describeShapes(list) }
	}
	return out, g.do(ctx, call, at)
}

func scatter(g *Group, c *starlib.Call, ctx *collective.WaitLimit, src int) (starlark.Value, error) {
	var list []starlark.Value
	try.FailIf(g.own != src && !c.IsNone("values"), "only src, rank %d, passes values; the other ranks pass None", g.ranks[src])
	try.FailIf(g.own == src && c.IsNone("values"), "src must pass a list of %d values, one per rank, not None", g.Size())
	if g.own == src {
		list = slices.Collect(starlark.Elements(c.Arg("values").(starlark.Iterable)))
		try.FailIf(len(list) != g.Size(), "src passes %d values for %d ranks", len(list), g.Size())
	}
	if g.comm == nil { // return a copy, as if it came from another rank
		return try.To(gatherValues(g, c, ctx, list[0], everyone))[0], nil
	}
	return scatterValues(g, c, ctx, list, src)
}

func reduceScatter(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	list := try.To(startensor.List(c.Arg("tensors")))
	try.FailIf(len(list) != g.Size(), "%d tensors for %d ranks: want one per rank", len(list), g.Size())
	counts := make([]int, len(list))
	flats := make([]*tensor.Tensor, len(list))
	for i, t := range list {
		try.FailIf(t.DType() != list[0].DType(), "tensor %d is %s, tensor 0 is %s", i, t.DType(), list[0].DType())
		counts[i] = t.Len()
		flats[i] = try.To(tensor.Reshape(t, []int{t.Len()}))
	}
	all := try.To(tensor.Cat(flats, 0))
	o := try.To(operandOf((*startensor.Value)(all)))
	op := try.To(reduction(c.String("op"), o))
	graph := all.RequiresGrad() && all.Context().Recording()
	try.FailIf(graph && op != dtype.Sum && op != dtype.Avg, "op %v has no gradient: use sum or avg, or detach the tensors", op)
	at := origin(c)
	out := try.To(scattered(g, ctx, all.Detach(), list, op, counts, list[g.own].Shape(), at))
	if graph {
		at := at.Backward()
		differentiable("reduce_scatter", out, all, func(grad *tensor.Tensor) (*tensor.Tensor, error) {
			joined, err := joined(g, grad, counts, at)
			if err == nil && op == dtype.Avg {
				err = tensor.BinaryScalarInPlace(tensor.OpDiv, joined, tensor.Float(float64(g.Size())))
			}
			return joined, err
		})
	}
	return (*startensor.Value)(out), nil
}

// joined gathers the ranks' gradients into one flat tensor.
func joined(g *Group, grad *tensor.Tensor, counts []int, at collective.Origin) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	own := try.To(tensor.Contiguous(grad))
	out := try.To(tensor.Empty(grad.Context(), []int{collective.Total(counts)}, grad.DType()))
	call := collective.NewAllGather(bufferOf(own), bufferOf(out))
	call.Counts = uneven(counts)
	return out, g.do(g.world.within, call, at)
}

func allToAll(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	in := startensor.Arg(c, "t")
	try.FailIf(in.Dim() == 0, "the tensor has no dimension 0 to divide")
	sent := try.To(splits(g, c, "in_splits", in.Shape()[0]))
	received := sent
	if !c.IsNone("out_splits") {
		received = try.To(splits(g, c, "out_splits", -1))
	} else if !c.IsNone("in_splits") {
		return nil, fmt.Errorf("in_splits needs out_splits, the rows received from each rank")
	}
	at := origin(c)
	out := try.To(exchanged(g, ctx, in, sent, received, at))
	if _, graph := recorded(c.Arg("t")); graph {
		at := at.Backward()
		differentiable("all_to_all", out, in, func(grad *tensor.Tensor) (*tensor.Tensor, error) {
			return exchanged(g, g.world.within, grad, received, sent, at)
		})
	}
	return (*startensor.Value)(out), nil
}

// allToAllLists sends each rank a tensor, and returns those received.
func allToAllLists(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	try.FailIf(!c.IsNone("out_splits") || !c.IsNone("in_splits"), "a list has a tensor for each rank: leave out_splits and in_splits out")
	list := try.To(startensor.List(c.Arg("t")))
	try.FailIf(len(list) != g.Size(), "%d tensors for %d ranks: want one per rank", len(list), g.Size())
	sent := make([]int, len(list))
	for i, t := range list {
		try.FailIf(t.Dim() == 0 || rows(t.Shape()) != rows(list[0].Shape()) || t.DType() != list[0].DType(),
			"tensor %d is %s of shape %s, tensor 0 is %s of shape %s: only the first dimensions may differ", i, t.DType(), listText(t.Shape()), list[0].DType(), listText(list[0].Shape()))
		sent[i] = t.Shape()[0]
	}
	in, at := try.To(tensor.Cat(list, 0)), origin(c)
	counts, theirs := make([]int64, len(sent)), make([]int64, len(sent))
	for i, n := range sent {
		counts[i] = int64(n)
	}
	one := slices.Repeat([]int{1}, g.Size())
	call := collective.NewAllToAll(collective.Of(counts), collective.Of(theirs), one, one)
	call.Shape, call.As = ragged(in.Shape()), in.DType()
	try.Ok(g.do(ctx, call, at))
	received := each.Of(theirs, func(n int64) int { return int(n) })
	step := at.In(collective.Step)
	out := try.To(exchanged(g, ctx, in.Detach(), sent, received, step))
	if in.RequiresGrad() && in.Context().Recording() {
		back := at.Backward()
		differentiable("all_to_all", out, in, func(grad *tensor.Tensor) (*tensor.Tensor, error) {
			return exchanged(g, g.world.within, grad, received, sent, back)
		})
	}
	flat := try.To(tensor.Reshape(out, []int{out.Len()}))
	return parts(flat, received, list[0].Shape())
}

// splits reads an argument that lists the rows for each rank, which must add up to total unless that is negative;
// None divides total evenly.
func splits(g *Group, c *starlib.Call, name string, total int) ([]int, error) {
	if c.IsNone(name) {
		try.FailIf(total%g.Size() != 0, "%d rows cannot be divided evenly among %d ranks: give in_splits and out_splits", total, g.Size())
		return collective.Evenly(nil, total, g.Size()), nil
	}
	list, err := startensor.Ints(c.Arg(name).(starlark.Iterable))
	try.FailIf(err != nil, "argument %s: %w", name, err)
	try.FailIf(len(list) != g.Size(), "argument %s: %d entries for %d ranks", name, len(list), g.Size())
	for _, n := range list {
		try.FailIf(n < 0, "argument %s: a negative number of rows, %d", name, n)
	}
	if total >= 0 && collective.Total(list) != total {
		return nil, fmt.Errorf("argument %s: %s adds up to %d, but the tensor has %d rows", name, listText(list), collective.Total(list), total)
	}
	return list, nil
}

// listText formats a list as a recipe writes it: [1, 2].
func listText[T any](list []T) string { return strings.ReplaceAll(fmt.Sprint(list), " ", ", ") }

// exchanged sends rows of in and returns those received.
func exchanged(g *Group, ctx *collective.WaitLimit, in *tensor.Tensor, sent, received []int, at collective.Origin) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	data := try.To(tensor.Contiguous(in))
	per, total := rows(in.Shape()), collective.Total(received)
	shape := slices.Clone(in.Shape())
	shape[0] = total
	out := try.To(tensor.Empty(in.Context(), shape, in.DType()))
	if g.comm == nil && total != in.Shape()[0] {
		return nil, fmt.Errorf("out_splits %s do not match the %d rows sent", listText(received), in.Shape()[0])
	}
	call := collective.NewAllToAll(bufferOf(data), bufferOf(out), times(sent, per), times(received, per))
	call.Shape = ragged(in.Shape())
	call.Detail = func() string { return fmt.Sprintf("in_splits %s, out_splits %s", listText(sent), listText(received)) }
	return out, g.do(ctx, call, at)
}
