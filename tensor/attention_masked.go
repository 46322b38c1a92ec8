package tensor

import (
	"fmt"
	"math"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// AttentionOptions are settings that Attention does not have.
type AttentionOptions struct {
	Mask    *Tensor // bool: True where a query may attend; or added to the scores; broadcasts to (…, L, S)
	Causal  bool
	Dropout float64    // of the weights
	Stream  *Generator // for dropout
	Scale   float64    // of the scores; 0: 1/√D
}

// AttentionWith is Attention with a mask, dropout and another scale, and also returns the weights (…, L, S). A query
// that may attend to nothing gets zeros.
func AttentionWith(q, k, v *Tensor, o AttentionOptions) (out, weights *Tensor, err error) {
	defer try.Caught(&err)
	const op = "attention"
	if lowProduct(q, k, v) {
		out, err = lowered(func(t []*Tensor) (out *Tensor, err error) {
			defer try.Caught(&err)
			if m := o.Mask; half(m) || m != nil && m.dtype == dtype.Float32 {
				o.Mask = try.To(Cast(m, dtype.Float32))
			}
			out, weights, err = AttentionWith(t[0], t[1], t[2], o)
			return out, err
		}, q, k, v)
		if err == nil {
			weights, err = Cast(weights, dtype.BFloat16)
		}
		return out, weights, err
	}
	try.Ok(sameFloat(op, q, k, v))
	nq, nk, nv := len(q.shape), len(k.shape), len(v.shape)
	if nq < 2 || nk < 2 || nv < 2 || q.shape[nq-1] != k.shape[nk-1] || k.shape[nk-2] != v.shape[nv-2] || k.shape[nk-2] == 0 {
		return nil, nil, fmt.Errorf("%s: shapes %s, %s and %s of query, key and value do not fit: expected (…, L, D), (…, S, D) and (…, S, E)",
			op, ShapeString(q.shape), ShapeString(k.shape), ShapeString(v.shape))
	}
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

// Rotary turns pairs of elements of x (…, L, D) by angles that grow with the position: element
// pair i of position p by p·base^(-2i/D) (Su et al. 2021). Pairs are (i, i + D/2), or with
// interleaved (2i, 2i + 1). The first position is offset.
func Rotary(x *Tensor, base float64, offset int, interleaved bool) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(x) {
		return narrow(func(t []*Tensor) (*Tensor, error) { return Rotary(t[0], base, offset, interleaved) }, x)
	}
	const op = "rotary_embedding"
	try.Ok(NeedFloat(op, x))
	nd := len(x.shape)
	if nd < 2 || x.shape[nd-1]%2 != 0 || x.shape[nd-1] == 0 {
		return nil, fmt.Errorf("%s: needs an input (…, L, D) with an even D, not shape %s", op, ShapeString(x.shape))
	}
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
