package tensor

import (
	"fmt"
	"math"
	"unsafe"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/opencl"
)

// GradSquareSum adds up the squares of all gradients, in the order of the
// parameters; a parameter without one adds nothing.
func GradSquareSum(params []*Tensor) (_ float64, err error) {
	defer try.Caught(&err)
	sums := make([]float64, len(params))
	var d *device
	var later []int // of sums that the device still computes
	var results opencl.Buffer
	for i, p := range params {
		if p.grad == nil {
			continue
		}
		try.Ok(NeedFloat("clip_grad_norm", p.grad))
		g := contiguous(p.grad)
		if on := g.on(); on != nil {
			if d == nil {
				d, results = on, on.get(8*len(params))
				defer d.Put(results)
			}
			d.SquareSum(g.dtype, g.n, results, i, d.read(g))
			later = append(later, i)
			continue
		}
		sums[i] = kernel.SquareSum(g.dtype, g.n, g.read())
		alive(g)
	}
	if d != nil {
		computed := make([]float64, len(params))
		d.Read(unsafe.Pointer(&computed[0]), results, 0, 8*len(computed))
		for _, i := range later {
			sums[i] = computed[i]
		}
	}
	total := 0.0
	for _, sum := range sums {
		total += sum
	}
	return total, nil
}

// ScaleGrads multiplies all gradients by a factor, in place.
func ScaleGrads(params []*Tensor, by float64) (err error) {
	defer try.Caught(&err)
	for _, p := range params {
		if p.grad == nil {
			continue
		}
		try.Ok(NeedFloat("clip_grad_norm", p.grad))
		if d := p.grad.on(); d != nil && p.grad.contiguous {
			d.Scale(p.grad.dtype, p.grad.n, d.change(p.grad), by)
		} else if p.grad.contiguous {
			kernel.Scale(p.grad.dtype, p.grad.n, p.grad.ptr(), by)
			alive(p.grad)
		} else {
			kBinary(OpMul, p.grad, p.grad, newNumber(p.ctx, Float(by), p.grad.dtype))
		}
		p.grad.st.version++
	}
	return nil
}

// ClipGrads scales the gradients, whose total 2-norm is given, down so that it is at most maxNorm. If it is not finite, they stay
// as they are.
func ClipGrads(params []*Tensor, norm, maxNorm float64) error {
	if !(maxNorm > 0) {
		return fmt.Errorf("clip_grad_norm: the norm must be positive, not %v", maxNorm)
	}
	if by := maxNorm / (norm + 1e-6); by < 1 && !math.IsInf(norm, 1) {
		return ScaleGrads(params, by)
	}
	return nil
}

// ClipGradValues clamps each element of the gradients to between -limit and limit; NaN stays NaN.
func ClipGradValues(params []*Tensor, limit float64) (err error) {
	defer try.Caught(&err)
	try.FailIf(!(limit >= 0), "clip_grad_value: the limit must be 0 or more, not %v", limit)
	for _, p := range params {
		if p.grad == nil {
			continue
		}
		try.Ok(NeedFloat("clip_grad_value", p.grad))
		kBinaryNumber(OpMinimum, p.grad, p.grad, Float(limit), false)
		kBinaryNumber(OpMaximum, p.grad, p.grad, Float(-limit), false)
		p.grad.st.version++
	}
	return nil
}
