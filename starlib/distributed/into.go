package distributed

import (
	"fmt"
	"runtime"
	"slices"

	"drun/collective"
	"drun/internal/each"
	"drun/internal/try"
	"drun/starlib"
	"drun/tensor"

	startensor "drun/starlib/tensor"

	"go.starlark.net/starlark"
)

// fillers has the collectives that write into a tensor, with PyTorch's names and arguments.
func fillers(w *World) []*starlib.Def {
	return []*starlib.Def{
		{Sig: `all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Group = None, async_op: bool = False, timeout: number = None) -> Work`,
			Doc: "Writes every rank's input_tensor, of one shape, into output_tensor, in rank order; its shape is theirs with\n" +
				"dimension 0 longer by as many times as there are ranks, or with a dimension of the ranks in front. Returns a Work\n" +
				"with async_op. It has no gradient: dist.all_gather has one.",
			Fn: w.inGroup(func(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
				in, out := filled(c, "input_tensor", "output_tensor")
				try.FailIf(out.t.Len() != g.Size()*in.Len(), "output_tensor has %d elements: want %d, %d of each of %d ranks", out.t.Len(), g.Size()*in.Len(), in.Len(), g.Size())
				return fill(g, c, ctx, collective.NewAllGather(bufferOf(in), out.buf), in.Shape(), in, out)
			})},
		{Sig: `reduce_scatter_tensor(output: Tensor, input: Tensor, op: string | ReduceOp = "sum", group: Group = None, async_op: bool = False, timeout: number = None) -> Work`,
			Doc: "Combines the ranks' inputs, and writes this rank's part, as large as output, into output. Returns a Work with\n" +
				"async_op. It has no gradient: dist.reduce_scatter has one.",
			Fn: w.inGroup(func(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
				in, out := filled(c, "input", "output")
				try.FailIf(in.Len() != g.Size()*out.t.Len(), "input has %d elements: want %d, %d for each of %d ranks", in.Len(), g.Size()*out.t.Len(), out.t.Len(), g.Size())
				op, in := try.To2(scaled(c, in))
				return fill(g, c, ctx, collective.NewReduceScatter(bufferOf(in), out.buf, try.To(reduction(op, out))), out.shape, in, out)
			})},
		{Sig: `all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: iterable = None, input_split_sizes: iterable = None, group: Group = None, async_op: bool = False, timeout: number = None) -> Work`,
			Doc: "Splits input along dimension 0, sends each rank its part and writes the parts received into output, in rank\n" +
				"order. The sizes are the rows sent to and received from each rank, by default all equal. Returns a Work with\n" +
				"async_op. It has no gradient: dist.all_to_all has one.",
			Fn: w.inGroup(func(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
				in, out := filled(c, "input", "output")
				try.FailIf(in.Dim() == 0 || out.t.Dim() == 0, "input and output need a dimension 0 to divide")
				per := rows(in.Shape())
				try.FailIf(rows(out.shape) != per, "a row of input has %d elements, one of output %d", per, rows(out.shape))
				sent := try.To(splits(g, c, "input_split_sizes", in.Shape()[0]))
				received := try.To(splits(g, c, "output_split_sizes", out.shape[0]))
				call := collective.NewAllToAll(bufferOf(in), out.buf, times(sent, per), times(received, per))
				call.Detail = func() string {
					return fmt.Sprintf("input_split_sizes %s, output_split_sizes %s", listText(sent), listText(received))
				}
				return fill(g, c, ctx, call, ragged(in.Shape()), in, out)
			})},
	}
}

// filled reads the tensors that a call reads and writes, which have one dtype.
func filled(c *starlib.Call, input, output string) (*tensor.Tensor, *operand) {
	in, out := startensor.Arg(c, input), startensor.Arg(c, output)
	try.FailIf(in.DType() != out.DType(), "%s is %s, %s is %s", input, in.DType(), output, out.DType())
	try.Ok(writable(out))
	for _, name := range []string{input, output} {
		_, graph := recorded(c.Arg(name))
		try.FailIf(graph, "gradients are recorded for %s, and this call has none: pass a detached tensor", name)
	}
	if tensor.SharesStorage(in, out) { // what one rank writes, another may still read
		in = try.To(tensor.Clone(in.Detach()))
	}
	return try.To(tensor.Contiguous(in)), try.To(operandOf(c.Arg(output)))
}

// fill makes a call that reads in and writes out. A group of one copies at once.
func fill(g *Group, c *starlib.Call, ctx *collective.WaitLimit, call collective.Call, shape []int, in *tensor.Tensor, out *operand) (starlark.Value, error) {
	what, async := call.Kind.String(), c.Bool("async_op")
	shown := *out
	shown.shape = shape
	if async && g.comm != nil && !out.copied() {
		return start(g, c, ctx, call, &shown, false, finish(func() (starlark.Value, error) {
			runtime.KeepAlive(in) // which the recipe may have dropped, while the call was reading it
			return out.result()
		}))
	}
	call.Shape = shape
	try.Ok(g.do(ctx, call, origin(c)))
	value, err := out.result()
	if err != nil || !async {
		return starlark.None, err
	}
	return finished(what, value), nil
}

// times multiplies counts.
func times(counts []int, by int) []int {
	return each.Of(counts, func(n int) int { return n * by })
}

// premul is PyTorch's PREMUL_SUM: a sum to which each rank contributes its tensor times a factor.
type premul struct {
	starlib.Opaque
	factor starlark.Value // a number or a tensor
}

func (p *premul) String() string { return "premul_sum(" + p.factor.String() + ")" }

func reduceOps() []*starlib.Def {
	return []*starlib.Def{{
		Sig: `premul_sum(factor: Tensor | number) -> ReduceOp`,
		Doc: "The op of a sum to which each rank contributes its float tensor times factor: dist.all_reduce(t, op = dist.premul_sum(0.5)).",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			return &premul{"ReduceOp", c.Arg("factor")}, nil
		},
	}}
}

// scaled reads the argument op: its name, and the tensor to reduce, a new one if op scales it.
func scaled(c *starlib.Call, t *tensor.Tensor) (string, *tensor.Tensor, error) {
	p, ok := c.Arg("op").(*premul)
	if !ok {
		return c.String("op"), t, nil
	}
	try.FailIf(!t.DType().IsFloat(), "op premul_sum needs a tensor of a float dtype, got %v", t.DType())
	var out *tensor.Tensor
	var err error
	if v, ok := p.factor.(*startensor.Value); ok {
		out, err = tensor.Mul(t, v.Tensor().Detach())
	} else {
		out, err = tensor.BinaryScalar(tensor.OpMul, t, tensor.Float(starlib.Number(p.factor)), false)
	}
	if err == nil && (out.DType() != t.DType() || !slices.Equal(out.Shape(), t.Shape())) {
		err = fmt.Errorf("op premul_sum: the factor gives a tensor of another shape or dtype")
	}
	return "sum", out, err
}
