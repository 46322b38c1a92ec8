package tensor

import (
	"unsafe"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// CumSum adds along dim: out[i] is the sum of the elements up to i.
func CumSum(t *Tensor, dim int) (*Tensor, error) {
	if half(t) {
		return precise(func(t []*Tensor) (*Tensor, error) { return CumSum(t[0], dim) }, t)
	}
	const op = "cumsum"
	out, _, a, err := cumulate(op, t, dim, kernel.CumSum)
	if err == nil && t.dtype.IsFloat() && records(t, nil) {
		record(out, op, func(_ *node, g *Tensor, out []*Tensor) (err error) {
			flip := func(x *Tensor) (*Tensor, error) { return Flip(x, []int{a}) }
			out[0], err = chain(g).then(flip).then(func(x *Tensor) (*Tensor, error) { return CumSum(x, a) }).then(flip).end()
			return err
		}, t)
	}
	return out, err
}

// cumulate runs a kernel along dim without recording; x is t in row-major order. Integers become int64.
func cumulate(op string, t *Tensor, dim int, run func(dt dtype.Type, outer, n, inner int, out, in unsafe.Pointer)) (out, x *Tensor, a int, err error) {
	defer try.Caught(&err)
	a = try.To(Axis(op, dim, len(t.shape)))
	result := try.To(computing(t.dtype, op))
	if !result.IsFloat() {
		result = dtype.Int64
	}
	b := build(op, t)
	x, out = b.contiguous(t), b.of(result, t.shape...)
	if t.n > 0 {
		outer, n, inner := around(t.shape, a)
		run(t.dtype, outer, n, inner, out.ptr(), x.ptr())
		alive(x)
	}
	return out, x, a, nil
}
