package tensor

import (
	"fmt"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// Linear is x·weightᵀ + bias over the last dimension of x; weight is (out,
// in), and bias (out) may be nil.
func Linear(x, weight, bias *Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	nx := len(x.shape)
	if nx == 0 || len(weight.shape) != 2 || x.shape[nx-1] != weight.shape[1] {
		return nil, fmt.Errorf("linear: an input of shape %s does not fit a weight of shape %s: its last size must be the weight's second",
			ShapeString(x.shape), ShapeString(weight.shape))
	}
	n := weight.shape[0]
	if bias != nil && (len(bias.shape) != 1 || bias.shape[0] != n) {
		return nil, fmt.Errorf("linear: a bias of shape %s does not fit a weight of shape %s", ShapeString(bias.shape), ShapeString(weight.shape))
	}
	low, dt := lowProduct(x, weight, bias), dtype.BFloat16
	if !low {
		try.Ok(sameFloat("linear", x, weight, bias))
		dt = x.dtype
	}
	k := weight.shape[1]
	rows := product(x.shape[:nx-1])
	flat := try.To(rowsOf(x, rows, k))
	var arr [8]int
	b := build("linear", x)
	w, beta, out := b.contiguous(weight), b.contiguous(bias), b.of(dt, append(append(arr[:0], x.shape[:nx-1]...), n)...)
	if low && beta != nil { // as bfloat16, which is added in float32
		beta = b.cast(b.cast(beta, dtype.BFloat16), dtype.Float32)
	}
	try.Ok(kGemm("linear", low, factor{t: out, ld: n}, factor{t: flat, ld: max(k, 1)}, factor{t: w, ld: max(k, 1), trans: true}, 1, rows, n, k, beta, false))
	if recordsAny(x, weight, bias) {
		back := backLinear
		if low {
			back = backLinearHalf
		}
		record(out, "linear", back, x, weight, bias).save(flat, w)
	}
	return out, nil
}

func backLinear(n *node, g *Tensor, out []*Tensor) error { return linearGrads(false, n, g, out) }

func backLinearHalf(n *node, g *Tensor, out []*Tensor) error { return linearGrads(true, n, g, out) }

func linearGrads(low bool, n *node, g *Tensor, out []*Tensor) (err error) {
	x, w := n.val(0), n.val(1)
	g = try.To(rowsOf(g, x.shape[0], w.shape[0]))
	if n.needs(0) {
		dx := try.To(matmul(g.dtype, low, g, w))
		if out[0] = dx; !sameShape(dx.shape, n.in[0].shape()) {
			out[0] = try.To(Reshape(dx, n.in[0].shape()))
		}
	}
	rows, wide, k := g.shape[0], w.shape[0], w.shape[1]
	if n.needs(1) {
		dw, add := n.place(1, g)
		if dw == nil {
			dw = try.To(newTensor("linear", g.ctx, w.shape, g.dtype))
			out[1] = dw
		}
		try.Ok(kGemm("linear", low, factor{t: dw, ld: max(k, 1)}, factor{t: g, ld: max(wide, 1), trans: true}, factor{t: x, ld: max(k, 1)},
			1, wide, k, rows, nil, add))
	}
	if n.needs(2) {
		if n.in[2].leaf != nil && n.in[2].leaf.grad == nil {
			if db, _ := n.place(2, g); db != nil {
				kReduce(reduceSum, db, g, 1, rows, wide)
				return nil
			}
		}
		out[2], err = reduceDims("sum", reduceSum, g, []int{0}, false)
	}
	alive(g)
	return err
}

// rowsOf is t's memory as a contiguous matrix, never recorded.
func rowsOf(t *Tensor, rows, cols int) (*Tensor, error) {
	if len(t.shape) == 2 && t.contiguous {
		return t, nil
	}
	x, err := contiguous(t)
	if err != nil {
		return nil, err
	}
	v := viewOf(x, 2)
	v.shape[0], v.shape[1] = rows, cols
	setContiguous(v.strides, v.shape)
	return v.seal(), nil
}

// sameFloat checks that the operands of a layer have one computing type; nil
// operands are skipped.
func sameFloat(op string, x *Tensor, others ...*Tensor) error {
	if !half(x) {
		if err := NeedFloat(op, x); err != nil {
			return err
		}
	}
	for _, t := range others {
		if t != nil && t.dtype != x.dtype {
			return fmt.Errorf("%s: dtypes %s and %s differ; cast with .to()", op, x.dtype, t.dtype)
		}
	}
	return NeedFloat(op, x)
}
