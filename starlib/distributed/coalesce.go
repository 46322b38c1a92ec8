package distributed

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"drun/collective"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"

	"go.starlark.net/starlark"
)

// coalesced is a dist.coalescing in progress: all_reduces in place that are made as one.
type coalesced struct {
	at collective.Origin

	g       *Group
	ctx     *collective.WaitLimit
	op      dtype.ReduceOp
	tensors []*tensor.Tensor
	memory  [][2]uintptr // of the tensors: from, to
}

// mostCoalesced is how many tensors are reduced as one, since each is compared with all before it.
const mostCoalesced = 1024

func coalescing(w *World) []*starlib.Def {
	return []*starlib.Def{{
		Sig: `coalescing(fn: callable)`,
		Doc: "Calls fn and returns its value. The dist.all_reduce calls of tensors within it are made together, as few large\n" +
			"ones: the tensors have the results, with the same bits, once coalescing returns, and must not be read or\n" +
			"written before. A tensor that comes again, another op or group, or another collective ends a batch. Calls\n" +
			"with async_op and those of numbers or with gradients are made at once.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			try.FailIf(w.coalesced != nil, "one dist.coalescing is within another")
			w.coalesced = &coalesced{at: origin(c)}
			defer func() { w.coalesced = nil }()
			value, err := starlark.Call(c.Thread, c.Arg("fn"), nil, nil)
			if err == nil {
				err = w.flush()
			}
			return value, err
		},
	}, {
		Sig: `all_reduce_coalesced(tensors: iterable, op: string = "sum", group: Group = None, timeout: number = None)`,
		Doc: "dist.all_reduce of each tensor, in place, as few large calls: in one step what dist.coalescing gathers from\n" +
			"single calls, and with the same bits. It has no gradient.",
		Fn: w.inGroup(allReduceCoalesced),
	}}
}

func allReduceCoalesced(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	all := try.To(startensor.List(c.Arg("tensors")))
	op, ok := dtype.ParseReduceOp(c.String("op"))
	if !ok {
		return nil, fmt.Errorf("unknown op %q: want one of %s", c.String("op"), strings.Trim(listText(dtype.ReduceOps()), "[]"))
	}
	memory := make([][3]uintptr, len(all)) // of each: from, to, and its number
	for i, t := range all {
		switch { // no try.FailIf, whose arguments would be allocated for each tensor
		case !op.Valid(t.DType()):
			return nil, fmt.Errorf("tensor %d: op %v is not defined for %v", i, op, t.DType())
		case t.RequiresGrad() && t.Context().Recording():
			return nil, fmt.Errorf("tensor %d: gradients are recorded, and do not flow through this call: dist.all_reduce has one, or give t.detach()", i)
		case !t.IsContiguous():
			return nil, fmt.Errorf("tensor %d is a view whose elements are not side by side: give t.clone()", i)
		}
		try.Ok(writable(t))
		at := extent(t)
		memory[i] = [3]uintptr{at[0], at[1], uintptr(i)}
	}
	slices.SortFunc(memory, func(a, b [3]uintptr) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	for i := range max(len(memory)-1, 0) {
		if a, b := memory[i], memory[i+1]; a[1] > b[0] {
			return nil, fmt.Errorf("tensor %d shares memory with one before it", max(a[2], b[2]))
		}
	}
	if g.comm == nil {
		return nil, nil
	}
	return nil, spreadAgreed(g, ctx, all, func(buf collective.Buffer) collective.Call { return collective.NewAllReduce(buf, op) }, anyType, origin(c))
}

// coalesce adds an all_reduce in place to the batch, if there is one.
func (w *World) coalesce(g *Group, ctx *collective.WaitLimit, t *tensor.Tensor, op dtype.ReduceOp) (added bool, err error) {
	b := w.coalesced
	if b == nil || g.comm == nil || !t.IsContiguous() {
		return false, nil
	}
	if len(b.tensors) == mostCoalesced || len(b.tensors) > 0 && (b.g != g || b.op != op || b.ctx.Limit != ctx.Limit || b.tensors[0].DType() != t.DType() || b.overlaps(t)) {
		if err := w.flush(); err != nil {
			return false, err
		}
	}
	b.g, b.ctx, b.op, b.tensors, b.memory = g, ctx, op, append(b.tensors, t), append(b.memory, extent(t))
	return true, nil
}

// overlaps reports whether the tensor shares memory with one that is there.
func (b *coalesced) overlaps(t *tensor.Tensor) bool {
	at := extent(t)
	for i := range b.memory {
		if other := &b.memory[i]; other[0] < at[1] && at[0] < other[1] {
			return true
		}
	}
	return false
}

// extent returns where a contiguous tensor's memory begins and ends.
func extent(t *tensor.Tensor) [2]uintptr {
	data := t.Bytes()
	first := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	return [2]uintptr{first, first + uintptr(len(data))}
}

// flush makes the call of the batch.
func (w *World) flush() error {
	b := w.coalesced
	if b == nil || len(b.tensors) == 0 {
		return nil
	}
	all := b.tensors
	b.tensors, b.memory = nil, b.memory[:0]
	return spreadAgreed(b.g, b.ctx, all, func(buf collective.Buffer) collective.Call {
		return collective.NewAllReduce(buf, b.op)
	}, anyType, b.at)
}
