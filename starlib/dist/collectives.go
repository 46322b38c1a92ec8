package dist

import (
	"fmt"
	"slices"

	"drun/collective"
	"drun/starlib"
	"drun/tensor"

	startensor "drun/starlib/tensor"

	"go.starlark.net/starlark"
)

func (w *World) collectives() []*starlib.Def {
	return []*starlib.Def{
		{
			Sig: `barrier(group: Group = None, timeout: number = None)`,
			Doc: "Waits until every rank has come here. On timeout the error names the missing ranks and where they are.",
			Fn:  w.barrier,
		},
		{
			Sig: `all_reduce(t: Tensor | number, op: string = "sum", group: Group = None, timeout: number = None) -> Tensor | number`,
			Doc: "Combines t of all ranks, in rank order, in place, and returns t; a number's result is returned.\n" +
				"t has the same shape and dtype on all ranks. op: sum avg product min max, and band bor bxor for\n" +
				"integers. When gradients are recorded and t requires one, the result is a new tensor whose\n" +
				"backward sums the ranks' gradients (op sum or avg).",
			Fn: w.allReduce,
		},
		{
			Sig: `broadcast(x, src: int = 0, group: Group = None, timeout: number = None)`,
			Doc: "Gives x of rank src to all: a tensor in place (same shape and dtype everywhere), a plain value\n" +
				"as the result (what the others pass is ignored). Returns x of src.",
			Fn: w.broadcast,
		},
		{
			Sig: `all_gather(x, group: Group = None, timeout: number = None) -> list`,
			Doc: "A list of every rank's x in rank order: tensors, whose first dimensions may differ, or plain values.",
			Fn:  w.allGather,
		},
	}
}

func (w *World) barrier(c *starlib.Call) (starlark.Value, error) {
	limit, err := timeout(c, 1)
	if err != nil || w.comm == nil {
		return nil, err
	}
	call := collective.NewBarrier()
	return nil, w.do(c, &call, limit)
}

func (w *World) allReduce(c *starlib.Call) (starlark.Value, error) {
	op, ok := collective.ParseReduceOp(c.String(1))
	if !ok {
		return nil, fmt.Errorf("unknown op %q: known are %v", c.String(1), collective.ReduceOps())
	}
	limit, err := timeout(c, 3)
	if err != nil {
		return nil, err
	}
	var graph *tensor.Tensor // the tensor whose gradient flows through the call
	x := c.Args[0]
	if v, ok := x.(*startensor.Value); ok {
		if t := v.Tensor(); t.RequiresGrad() && t.Context().Recording() {
			if op != collective.Sum && op != collective.Avg {
				return nil, fmt.Errorf("op %v has no gradient: use sum or avg, or t.detach()", op)
			}
			if x, err = clone(t); err != nil {
				return nil, err
			}
			graph = t
		} else if err := writable(t); err != nil {
			return nil, err
		}
	}
	o, err := operandOf(x)
	if err != nil {
		return nil, err
	}
	if !op.Valid(o.buf.DType) {
		return nil, fmt.Errorf("op %v is not defined for %v", op, o.buf.DType)
	}
	if w.comm != nil {
		call := collective.NewAllReduce(o.buf, op)
		call.Shape = o.shape
		if err := w.do(c, &call, limit); err != nil {
			return nil, err
		}
	}
	result, err := o.result()
	if graph != nil && err == nil {
		w.reduceBackward(c, o.t, graph, op)
	}
	return result, err
}

// reduceBackward makes out = all_reduce(in) part of the graph: every rank's
// output depends on every rank's input, so the gradients are reduced likewise.
func (w *World) reduceBackward(c *starlib.Call, out, in *tensor.Tensor, op collective.ReduceOp) {
	pos := c.Position()
	at := collective.Position{File: pos.Filename(), Line: pos.Line, Col: pos.Col}
	tensor.Function("all_reduce", out, []*tensor.Tensor{in}, func(g *tensor.Tensor) ([]*tensor.Tensor, error) {
		sum, err := tensor.Clone(g)
		if err != nil || w.comm == nil {
			return []*tensor.Tensor{sum}, err
		}
		call := collective.NewAllReduce(collective.Buffer{DType: dtypeOf(sum.DType()), Data: sum.Bytes()}, op)
		call.Shape, call.Pos = sum.Shape(), at
		work, err := w.comm.Start(&call)
		if err == nil {
			err = work.Wait(w.patience)
		}
		return []*tensor.Tensor{sum}, err
	})
}

func (w *World) broadcast(c *starlib.Call) (starlark.Value, error) {
	src, err := w.root(c, 1, "src")
	if err != nil {
		return nil, err
	}
	limit, err := timeout(c, 3)
	if err != nil {
		return nil, err
	}
	v, ok := c.Args[0].(*startensor.Value)
	if !ok {
		return w.broadcastValue(c, c.Args[0], src, limit)
	}
	if err := writable(v.Tensor()); err != nil {
		return nil, err
	}
	o, err := operandOf(v)
	if err != nil {
		return nil, err
	}
	if w.comm != nil {
		call := collective.NewBroadcast(o.buf, src)
		call.Shape = o.shape
		if err := w.do(c, &call, limit); err != nil {
			return nil, err
		}
	}
	return o.result()
}

func (w *World) allGather(c *starlib.Call) (starlark.Value, error) {
	limit, err := timeout(c, 2)
	if err != nil {
		return nil, err
	}
	v, ok := c.Args[0].(*startensor.Value)
	if !ok {
		values, err := w.gatherValues(c, c.Args[0], limit)
		return starlark.NewList(values), err
	}
	t := v.Tensor()
	if w.comm == nil {
		one, err := clone(t)
		return starlark.NewList([]starlark.Value{one}), err
	}
	o, err := operandOf(v)
	if err != nil {
		return nil, err
	}
	sizes, err := w.gatherInts(c, int64(len(o.buf.Data)/o.buf.DType.Size()), limit)
	if err != nil {
		return nil, err
	}
	counts, total := make([]int, len(sizes)), 0
	for r, n := range sizes {
		counts[r] = int(n)
		total += int(n)
	}
	all := collective.Buffer{DType: o.buf.DType, Data: make([]byte, total*o.buf.DType.Size())}
	call := collective.NewAllGather(o.buf, all)
	call.Counts = counts
	if len(o.shape) > 0 { // the first dimension may differ, the others may not
		call.Shape = append([]int{-1}, o.shape[1:]...)
	} else {
		call.Shape = []int{}
	}
	if err := w.do(c, &call, limit); err != nil {
		return nil, err
	}
	parts := make([]starlark.Value, len(counts))
	at := 0
	for r, n := range counts {
		shape := slices.Clone(o.shape)
		if len(shape) > 0 {
			if rest := product(shape[1:]); rest > 0 {
				shape[0] = n / rest
			}
		}
		part := all.Part(at, at+n)
		at += n
		p, err := tensor.FromBytes(w.tensors, part.Data, shape, t.DType())
		if err != nil {
			return nil, err
		}
		parts[r] = (*startensor.Value)(p)
	}
	return starlark.NewList(parts), nil
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

func clone(t *tensor.Tensor) (*startensor.Value, error) {
	out, err := tensor.Clone(t.Detach())
	if err != nil {
		return nil, err
	}
	return (*startensor.Value)(out), nil
}

// writable reports why a tensor cannot be changed in place.
func writable(t *tensor.Tensor) error {
	if t.Frozen() {
		return fmt.Errorf("the tensor was made at top level and is frozen: make it in main()")
	}
	return nil
}
