package tensor

import (
	"math"

	"drun/kernel/dtype"
)

// Finite reports whether a tensor holds NaN, and whether it holds infinities.
func Finite(t *Tensor) (nan, inf bool) {
	switch t.dtype {
	case dtype.Float32, dtype.Float64, dtype.Float16, dtype.BFloat16:
	default:
		return false, false
	}
	whole, err := Contiguous(t.Detach())
	if err == nil && (t.dtype == dtype.Float16 || t.dtype == dtype.BFloat16) {
		whole, err = Cast(whole, dtype.Float32)
	}
	if err != nil {
		return false, false // no memory for a copy: the next operation will say so
	}
	if whole.dtype == dtype.Float64 {
		for _, v := range Elems[float64](whole)[:whole.n] {
			nan, inf = nan || v != v, inf || math.IsInf(v, 0)
		}
	} else {
		for _, v := range Elems[float32](whole)[:whole.n] {
			nan, inf = nan || v != v, inf || v > math.MaxFloat32 || v < -math.MaxFloat32
		}
	}
	alive(whole)
	return nan, inf
}

// watch passes the result of an operation, or of a step of the backward pass, to Watch.
func (c *Context) watch(op string, out *Tensor, inputs ...*Tensor) {
	if c != nil && c.Watch != nil && out != nil {
		c.Watch(op, out, inputs)
	}
}
