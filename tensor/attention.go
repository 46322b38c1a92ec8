package tensor

import (
	"fmt"
	"math"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// Attention computes softmax(q·kᵀ/√d)·v over the last two dimensions (length, width); with causal, position i sees
// only positions up to i. Leading dimensions are batches that broadcast.
func Attention(q, k, v *Tensor, causal bool) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer lowered(&q, &k, &v).round(&result)
	const op = "attention"
	nq, nk, nv := attentionDims(op, q, k, v)
	a := kernel.Attention{Causal: causal, Rows: q.shape[nq-2], Cols: k.shape[nk-2], Width: q.shape[nq-1], Depth: v.shape[nv-1]}
	a.Scale = 1 / math.Sqrt(float64(max(a.Width, 1)))
	batch, err := BroadcastShape(op, nil, q.shape[:nq-2], k.shape[:nk-2])
	if err == nil {
		batch, err = BroadcastShape(op, nil, batch, v.shape[:nv-2])
	}
	if err != nil {
		return nil, fmt.Errorf("%s: the batches of shapes %s, %s and %s do not broadcast", op, ShapeString(q.shape), ShapeString(k.shape), ShapeString(v.shape))
	}
	if product(batch) > MaxValues() {
		try.Fail("%s: the batch %s is more than this machine's memory holds", op, ShapeString(batch))
	}
	a.At = make([][4]int, product(batch))
	in := [3]*Tensor{q, k, v}
	for i, t := range in {
		in[i] = attended(&a, i, t, batch)
	}
	b := build(op, q)
	out := b.like(append(batch[:len(batch):len(batch)], a.Rows, a.Depth)...)
	recording := recordsAny(q, k, v)
	var lse *Tensor
	if recording {
		lse = b.like(len(a.At), a.Rows)
	}
	if out.n > 0 && !out.shapeOnly() {
		forward(op, &a, out, lse, in)
	}
	alive(in[:]...)
	if recording {
		n := record(out, op, func(n *node, g *Tensor, out []*Tensor) { backAttention(n, g, out, a, batch) },
			q, k, v).save(in[0], in[1], in[2], lse)
		if n.again != nil {
			n.composed(func(in []*Tensor) *Tensor {
				y, _ := try.To2(AttentionWith(in[0], in[1], in[2], AttentionOptions{Causal: causal}))
				return y
			})
		}
		Discard(lse)
	}
	return out, nil
}

// forward computes an attention, and if lse is not nil what its gradient needs.
func forward(op string, a *kernel.Attention, out, lse *Tensor, in [3]*Tensor) {
	if d := out.on(); d != nil {
		q, k, v := d.read(in[0]), d.read(in[1]), d.read(in[2])
		if d.Attention(a, out.dtype, d.write(out), maybe(d.write, lse), q, k, v) {
			return
		}
	}
	try.Ok(Starved(op, a.Forward(out.dtype, out.ptr(), ptrOr(lse), in[0].read(), in[1].read(), in[2].read())))
}

// attentionDims checks the operands of an attention, and returns how many dimensions they have.
func attentionDims(op string, q, k, v *Tensor) (nq, nk, nv int) {
	sameFloat(op, q, k, v)
	nq, nk, nv = len(q.shape), len(k.shape), len(v.shape)
	if nq < 2 || nk < 2 || nv < 2 || q.shape[nq-1] != k.shape[nk-1] || k.shape[nk-2] != v.shape[nv-2] {
		try.Fail("%s: shapes %s, %s and %s of query, key and value do not fit: expected (…, L, D), (…, S, D) and (…, S, E)",
			op, ShapeString(q.shape), ShapeString(k.shape), ShapeString(v.shape))
	}
	if k.shape[nk-2] == 0 {
		try.Fail("%s: there is nothing to attend to: the keys' shape is %s", op, ShapeString(k.shape))
	}
	return nq, nk, nv
}

// attended records where operand i of an attention begins in each product; rows of adjacent elements need no copy.
func attended(a *kernel.Attention, i int, t *Tensor, batch []int) *Tensor {
	nd := len(t.shape)
	if t.strides[nd-1] != 1 && t.shape[nd-1] != 1 {
		t = contiguous(t)
	}
	a.Stride[i] = t.strides[nd-2]
	eachMatrix(t, batch, func(b, at int) { a.At[b][i] = at })
	return t
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

func backAttention(n *node, g *Tensor, out []*Tensor, a kernel.Attention, batch []int) {
	q, k, v, lse := n.val(0), n.val(1), n.val(2), n.val(3)
	dy := attended(&a, 3, g, batch)
	grads := n.wholeOfParts(g, func(t *Tensor) bool {
		nd := len(t.shape)
		return sameShape(t.shape[:nd-2], batch) && t.strides[nd-1] == 1
	})
	if grads[0] != nil {
		a.To = make([][3]int, len(a.At))
		for i, t := range grads {
			a.ToStride[i] = t.strides[len(batch)]
			eachMatrix(t, batch, func(b, at int) { a.To[b][i] = at })
		}
	} else {
		lead, b := batch[:len(batch):len(batch)], build(n.op, g)
		for i, size := range [3][2]int{{a.Rows, a.Width}, {a.Cols, a.Width}, {a.Cols, a.Depth}} {
			out[i] = b.like(append(lead, size[0], size[1])...)
			grads[i] = out[i]
		}
	}
	if d := g.ctx.deviceOf(grads[:]...); d != nil {
		dy, lse, q, k, v := d.read(dy), d.read(lse), d.read(q), d.read(k), d.read(v)
		use := d.write
		if a.To != nil {
			use = d.change
		}
		if d.AttentionGrad(&a, g.dtype, use(grads[0]), use(grads[1]), use(grads[2]), dy, lse, q, k, v) {
			return
		}
	}
	err := a.Backward(g.dtype, grads[0].ptr(), grads[1].ptr(), grads[2].ptr(), dy.read(), lse.read(), q.read(), k.read(), v.read())
	alive(dy, grads[0], grads[1], grads[2])
	try.Ok(Starved(n.op, err))
}

// AttentionOptions are the settings of AttentionWith.
type AttentionOptions struct {
	Mask    *Tensor // bool: True where a query may attend; or added to the scores; broadcasts to (…, L, S)
	Causal  bool
	Dropout float64    // of the weights
	Stream  *Generator // for dropout
	Scale   float64    // of the scores; 0: 1/√D
}

// AttentionWith is Attention with a mask, dropout and a scale, and also returns the weights (…, L, S). A query
// that may attend to nothing gets zeros.
func AttentionWith(q, k, v *Tensor, o AttentionOptions) (out, weights *Tensor, err error) {
	defer try.Caught(&err)
	const op = "attention"
	low := lowered(&q, &k, &v)
	defer low.round(&out, &weights)
	if low.on && half(o.Mask) {
		o.Mask = try.To(Cast(o.Mask, dtype.Float32))
	}
	nq, nk, _ := attentionDims(op, q, k, v)
	scale := o.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(max(q.shape[nq-1], 1)))
	}
	turned := try.To(Transpose(k, -1, -2))
	s := chain(q).scalar(OpMul, Float(scale)).then(func(t *Tensor) (*Tensor, error) { return MatMul(t, turned) })
	if s.err != nil {
		return nil, nil, s.err
	}
	if o.Causal {
		all := try.To(Full(q.ctx, []int{q.shape[nq-2], k.shape[nk-2]}, Truth(true), dtype.Bool))
		later := try.To(Triu(all, 1))
		s = s.then(func(t *Tensor) (*Tensor, error) { return MaskedFill(t, later, Float(math.Inf(-1))) })
	}
	if m := o.Mask; m != nil && s.err == nil {
		if shape, err := BroadcastShape(op, nil, s.t.shape, m.shape); err != nil || !sameShape(shape, s.t.shape) {
			return nil, nil, fmt.Errorf("%s: a mask of shape %s does not broadcast to the scores' shape %s", op, ShapeString(m.shape), ShapeString(s.t.shape))
		}
		switch {
		case m.dtype == dtype.Bool:
			never := try.To(Unary(OpNot, m))
			s = s.then(func(t *Tensor) (*Tensor, error) { return MaskedFill(t, never, Float(math.Inf(-1))) })
		case m.dtype == q.dtype:
			s = s.binary(OpAdd, m)
		default:
			return nil, nil, fmt.Errorf("%s: a mask must be bool or %s, not %s", op, q.dtype, m.dtype)
		}
	}
	if s.err != nil {
		return nil, nil, s.err
	}
	// A row of only -inf has no softmax: its weights are 0.
	top, _ := try.To2(MaxDim(s.t.Detach(), -1, true))
	none := try.To(BinaryScalar(OpEq, top, Float(math.Inf(-1)), false))
	dead := func(t *Tensor) (*Tensor, error) { return MaskedFill(t, none, Int(0)) }
	weights = try.To(s.then(dead).then(func(t *Tensor) (*Tensor, error) { return Softmax(t, -1) }).then(dead).end())
	used := weights
	if o.Dropout > 0 {
		used = try.To(Dropout(weights, o.Dropout, o.Stream))
	}
	out, err = MatMul(used, v)
	return out, weights, err
}

// Rotary rotates pairs of elements of x (…, L, D) by angles that grow with the position: element
// pair i of position p by p·base^(-2i/D) (Su et al. 2021). Pairs are (i, i + D/2), or with
// interleaved (2i, 2i + 1). The first position is offset.
func Rotary(x *Tensor, base float64, offset int, interleaved bool) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer narrow(&x).round(&result)
	const op = "rotary_embedding"
	try.Ok(NeedFloat(op, x))
	nd := len(x.shape)
	try.FailIf(nd < 2 || x.shape[nd-1]%2 != 0 || x.shape[nd-1] == 0, "%s: needs an input (…, L, D) with an even D, not shape %s", op, shaped(x.shape))
	length, half := x.shape[nd-2], x.shape[nd-1]/2
	at := try.To(Arange(x.ctx, Int(int64(offset)), Int(int64(offset)+int64(length)), Int(1), dtype.Float64))
	powers := try.To(Arange(x.ctx, Int(0), Int(int64(half)), Int(1), dtype.Float64))
	rates := try.To(chain(powers).scalar(OpMul, Float(-2)).scalar(OpDiv, Float(float64(2*half))).
		then(func(t *Tensor) (*Tensor, error) { return BinaryScalar(OpPow, t, Float(base), true) }).end())
	column := try.To(View(at, []int{length, 1}))
	angles := try.To(Mul(column, rates))
	cast := func(t *Tensor) (*Tensor, error) { return Cast(t, x.dtype) }
	cos, sin := try.To(chain(angles).unary(OpCos).then(cast).end()), try.To(chain(angles).unary(OpSin).then(cast).end())
	if interleaved { // (…, L, D/2, 2)
		x = try.To(Reshape(x, append(append([]int(nil), x.shape[:nd-1]...), half, 2)))
	}
	var first, second *Tensor
	if interleaved {
		first, second = try.To(Select(x, -1, 0)), try.To(Select(x, -1, 1))
	} else {
		first, second = try.To(Narrow(x, -1, 0, half)), try.To(Narrow(x, -1, half, half))
	}
	turn := func(a, c *Tensor, join BinaryOp) *Tensor {
		other := try.To(Mul(c, sin))
		return try.To(chain(a).mul(cos).binary(join, other).end())
	}
	left, right := turn(first, second, OpSub), turn(second, first, OpAdd)
	if !interleaved {
		return Cat([]*Tensor{left, right}, -1)
	}
	y := try.To(Stack([]*Tensor{left, right}, -1))
	return Flatten(y, -2, -1)
}
