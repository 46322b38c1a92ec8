package tensor

import (
	"fmt"
	"math"

	"drun/internal/try"
	"drun/kernel"
)

// Attention is softmax(q·kᵀ/√d)·v over the last two dimensions (length,
// width); causal lets position i see positions up to i only. Leading
// dimensions are batches that broadcast.
func Attention(q, k, v *Tensor, causal bool) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if lowProduct(q, k, v) {
		return lowered(func(t []*Tensor) (*Tensor, error) { return Attention(t[0], t[1], t[2], causal) }, q, k, v)
	}
	const op = "attention"
	try.Ok(sameFloat(op, q, k, v))
	nq, nk, nv := len(q.shape), len(k.shape), len(v.shape)
	if nq < 2 || nk < 2 || nv < 2 || q.shape[nq-1] != k.shape[nk-1] || k.shape[nk-2] != v.shape[nv-2] {
		return nil, fmt.Errorf("%s: shapes %s, %s and %s of query, key and value do not fit: expected (…, L, D), (…, S, D) and (…, S, E)",
			op, ShapeString(q.shape), ShapeString(k.shape), ShapeString(v.shape))
	}
	a := kernel.Attention{Causal: causal, Rows: q.shape[nq-2], Cols: k.shape[nk-2], Width: q.shape[nq-1], Depth: v.shape[nv-1]}
	if a.Cols == 0 {
		return nil, fmt.Errorf("%s: there is nothing to attend to: the keys' shape is %s", op, ShapeString(k.shape))
	}
	a.Scale = 1 / math.Sqrt(float64(max(a.Width, 1)))
	batch, err := BroadcastShape(op, nil, q.shape[:nq-2], k.shape[:nk-2])
	if err == nil {
		batch, err = BroadcastShape(op, nil, batch, v.shape[:nv-2])
	}
	if err != nil {
		return nil, fmt.Errorf("%s: the batches of shapes %s, %s and %s do not broadcast", op, ShapeString(q.shape), ShapeString(k.shape), ShapeString(v.shape))
	}
	if product(batch) > MaxValues() {
		return nil, fmt.Errorf("%s: the batch %s is more than this machine's memory holds", op, ShapeString(batch))
	}
	a.At = make([][4]int, product(batch))
	in := [3]*Tensor{q, k, v}
	for i, t := range in {
		in[i] = try.To(attended(&a, i, t, batch))
	}
	b := build(op, q)
	out := b.like(append(batch[:len(batch):len(batch)], a.Rows, a.Depth)...)
	recording := recordsAny(q, k, v)
	var lse *Tensor
	if recording {
		lse = b.like(len(a.At), a.Rows)
	}
	if out.n > 0 && !out.shapeOnly() {
		try.Ok(Starved(op, a.Forward(q.dtype, out.ptr(), ptrOr(lse), in[0].ptr(), in[1].ptr(), in[2].ptr())))
	}
	alive(in[:]...)
	if recording {
		record(out, op, func(n *node, g *Tensor, out []*Tensor) error { return backAttention(n, g, out, a, batch) },
			q, k, v).save(in[0], in[1], in[2], lse)
		Discard(lse)
	}
	return out, nil
}

// attended records where operand i of an attention begins in each product; rows of adjacent elements need no copy.
func attended(a *kernel.Attention, i int, t *Tensor, batch []int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	nd := len(t.shape)
	if t.strides[nd-1] != 1 && t.shape[nd-1] != 1 {
		t = try.To(contiguous(t))
	}
	a.Stride[i] = t.strides[nd-2]
	eachMatrix(t, batch, func(b, at int) { a.At[b][i] = at })
	return t, nil
}

// eachMatrix calls begin with the offset of each matrix of a batch.
func eachMatrix(t *Tensor, batch []int, begin func(b, at int)) {
	var steps [MaxDims]int
	nd := len(t.shape)
	lead := viewOf(t, nd-2)
	copy(lead.shape, t.shape)
	copy(lead.strides, t.strides)
	broadcastStrides(steps[:len(batch)], batch, lead)
	for b := range product(batch) {
		at := 0
		for d, rest := len(batch)-1, b; d >= 0; d-- {
			at += rest % batch[d] * steps[d]
			rest /= batch[d]
		}
		begin(b, at)
	}
}

func backAttention(n *node, g *Tensor, out []*Tensor, a kernel.Attention, batch []int) (err error) {
	q, k, v, lse := n.val(0), n.val(1), n.val(2), n.val(3)
	dy := try.To(attended(&a, 3, g, batch))
	grads, err := n.wholeOfParts(g, func(t *Tensor) bool {
		nd := len(t.shape)
		return sameShape(t.shape[:nd-2], batch) && t.strides[nd-1] == 1
	})
	switch {
	case err != nil:
		return err
	case grads[0] != nil:
		a.To = make([][3]int, len(a.At))
		for i, t := range grads {
			a.ToStride[i] = t.strides[len(batch)]
			eachMatrix(t, batch, func(b, at int) { a.To[b][i] = at })
		}
	default:
		lead, b := batch[:len(batch):len(batch)], build(n.op, g)
		for i, size := range [3][2]int{{a.Rows, a.Width}, {a.Cols, a.Width}, {a.Cols, a.Depth}} {
			out[i] = b.like(append(lead, size[0], size[1])...)
			grads[i] = out[i]
		}
	}
	err = a.Backward(g.dtype, grads[0].ptr(), grads[1].ptr(), grads[2].ptr(), dy.ptr(), lse.ptr(), q.ptr(), k.ptr(), v.ptr())
	alive(dy, grads[0], grads[1], grads[2])
	return Starved(n.op, err)
}
