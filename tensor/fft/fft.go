// Package fft computes discrete Fourier transforms of tensors, like torch.fft; starlib's module fft calls it. Complex numbers
// are two tensors of the same shape, the real and the imaginary parts. Transforms are computed in float64 and rounded once.
package fft

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
	"drun/kernel/fft"
	"drun/tensor"
)

// Fourier selects a transform.
type Fourier struct {
	Op      string // the name in errors
	Inverse bool
	Norm    string // which transform divides by the length n: "backward" the inverse, "forward" the forward one, "ortho" both, by its root
	real    bool   // the numbers are real
}

// Functions from here on that return no error fail as try.To does.

func (f Fourier) scale(n int) float64 {
	switch {
	case f.Norm == "ortho":
		return 1 / math.Sqrt(float64(n))
	case f.Norm == "backward" && f.Inverse, f.Norm == "forward" && !f.Inverse:
		return 1 / float64(n)
	case f.Norm != "backward" && f.Norm != "forward":
		try.Ok(fmt.Errorf("%s: norm %q: want backward, ortho or forward", f.Op, f.Norm))
	}
	return 1
}

// FFT transforms complex numbers along the given dimensions, the last first; im may be nil, for 0. Along dims[i] the input is
// cut or zero-padded to sizes[i] numbers, unless sizes is nil.
func (f Fourier) FFT(re, im *tensor.Tensor, sizes, dims []int) (_, _ *tensor.Tensor, err error) {
	defer try.CaughtAs(f.Op, &err)
	z := f.complex(re, im)
	sizes, dims = f.lengths(re, sizes, dims)
	for i, dim := range slices.Backward(dims) {
		z = f.along(z, sizes[i], dim)
	}
	re, im = parts2(z)
	return re, im, nil
}

// RFFT transforms real numbers; along the last of the dimensions it returns the first n/2+1 results, whose conjugates are
// the others.
func (f Fourier) RFFT(x *tensor.Tensor, sizes, dims []int) (_, _ *tensor.Tensor, err error) {
	defer try.CaughtAs(f.Op, &err)
	z := f.complex(x, nil)
	sizes, dims = f.lengths(x, sizes, dims)
	for i, dim := range slices.Backward(dims) {
		f.real = i == len(dims)-1
		z = f.along(z, sizes[i], dim)
		if f.real {
			z = try.To(tensor.Narrow(z, dim, 0, sizes[i]/2+1))
		}
	}
	re, im := parts2(z)
	return re, im, nil
}

// IRFFT undoes RFFT: from n/2+1 complex numbers it makes n real ones, where n is the last of sizes, or by default 2·(m-1)
// for m numbers. The imaginary parts of the first number and, if n is even, of the last, which would make the result
// complex, are ignored.
func (f Fourier) IRFFT(re, im *tensor.Tensor, sizes, dims []int) (_ *tensor.Tensor, err error) {
	defer try.CaughtAs(f.Op, &err)
	z := f.complex(re, im)
	given := sizes != nil
	sizes, dims = f.lengths(re, sizes, dims)
	last := len(dims) - 1
	dim, n := dims[last], sizes[last]
	if !given {
		n = 2 * (n - 1)
	}
	if n < 1 {
		return nil, fmt.Errorf("%s: dimension %d of shape %s gives %d numbers: want at least 1", f.Op, dim, tensor.ShapeString(re.Shape()), n)
	}
	for i, d := range dims[:last] {
		z = f.along(z, sizes[i], d)
	}
	whole := func(t *tensor.Tensor, conjugate bool) *tensor.Tensor {
		middle := try.To(tensor.Narrow(t, dim, 1, (n-1)/2))
		back := try.To(tensor.Flip(middle, []int{dim}))
		list := []*tensor.Tensor{try.To(tensor.Narrow(t, dim, 0, 1)), middle}
		if n%2 == 0 {
			list = append(list, try.To(tensor.Narrow(t, dim, n/2, 1)))
		}
		if conjugate {
			back = try.To(tensor.Unary(tensor.OpNeg, back))
			for i := range list {
				if i != 1 {
					list[i] = try.To(tensor.Zeros(t.Context(), list[i].Shape(), t.DType()))
				}
			}
		}
		return try.To(tensor.Cat(append(list, back), dim))
	}
	re, im = parts2(f.fit(z, n/2+1, dim))
	z = try.To(tensor.Stack([]*tensor.Tensor{whole(re, false), whole(im, true)}, -1))
	re, _ = parts2(f.along(z, n, dim))
	return re, nil
}

// complex joins the parts in a last dimension.
func (f Fourier) complex(re, im *tensor.Tensor) *tensor.Tensor {
	if re.DType() != dtype.Float32 && re.DType() != dtype.Float64 {
		if re.DType().IsFloat() || re.DType() == dtype.Complex64 {
			try.Ok(tensor.StorageOnly(f.Op, re.DType()))
		}
		re = try.To(tensor.Cast(re, dtype.Float32))
	}
	if im == nil {
		im = try.To(tensor.Zeros(re.Context(), re.Shape(), re.DType()))
	}
	if re.DType() != im.DType() || !slices.Equal(re.Shape(), im.Shape()) {
		try.Ok(fmt.Errorf("%s: the real part is %s of shape %s, and the imaginary part %s of shape %s; they must be the same", f.Op, re.DType(), tensor.ShapeString(re.Shape()), im.DType(), tensor.ShapeString(im.Shape())))
	}
	return try.To(tensor.Stack([]*tensor.Tensor{re, im}, -1))
}

// parts2 splits the last dimension into the real and the imaginary part.
func parts2(z *tensor.Tensor) (re, im *tensor.Tensor) {
	return try.To(tensor.Select(z, -1, 0)), try.To(tensor.Select(z, -1, 1))
}

// lengths returns the sizes along the dimensions, and the dimensions counted from 0.
func (f Fourier) lengths(t *tensor.Tensor, sizes, dims []int) (lengths, axes []int) {
	nd := len(t.Shape())
	switch {
	case nd == 0:
		try.Ok(fmt.Errorf("%s: needs a dimension, not a single number", f.Op))
	case sizes != nil && len(sizes) != len(dims):
		try.Ok(fmt.Errorf("%s: %d sizes for %d dimensions", f.Op, len(sizes), len(dims)))
	}
	for i, d := range dims {
		a := try.To(tensor.Axis(f.Op, d, nd))
		n := t.Shape()[a]
		if sizes != nil {
			n = sizes[i]
		}
		switch {
		case slices.Contains(axes, a):
			try.Ok(fmt.Errorf("%s: dimension %d appears twice", f.Op, d))
		case n < 1:
			try.Ok(fmt.Errorf("%s: %d numbers along dimension %d of shape %s: want at least 1", f.Op, n, d, tensor.ShapeString(t.Shape())))
		}
		lengths, axes = append(lengths, n), append(axes, a)
	}
	return lengths, axes
}

// fit cuts z along dim to n numbers, or pads it with zeros.
func (f Fourier) fit(z *tensor.Tensor, n, dim int) *tensor.Tensor {
	if have := z.Shape()[dim]; n < have {
		return try.To(tensor.Narrow(z, dim, 0, n))
	} else if n > have {
		shape := slices.Clone(z.Shape())
		shape[dim] = n - have
		return try.To(tensor.Cat([]*tensor.Tensor{z, try.To(tensor.Zeros(z.Context(), shape, z.DType()))}, dim))
	}
	return z
}

// along transforms z along dim, fitted to n numbers.
func (f Fourier) along(z *tensor.Tensor, n, dim int) *tensor.Tensor {
	scale, last := f.scale(n), len(z.Shape())-2
	z = try.To(tensor.Transpose(f.fit(z, n, dim), dim, last))
	return try.To(tensor.Transpose(transformed(f.Op, z, f.Inverse, f.real, scale), dim, last))
}

// transformed returns the transform of z (…, n, 2) along the dimension before the last, multiplied by scale. The transform's matrix is
// symmetric, so its gradient is the transform in the other direction. For real numbers, the first result and the middle one are exactly
// real, whatever the rounding.
func transformed(op string, z *tensor.Tensor, inverse, real bool, scale float64) *tensor.Tensor {
	x := try.To(tensor.Contiguous(try.To(tensor.Cast(z.Detach(), dtype.Float64))))
	n := z.Shape()[len(z.Shape())-2]
	if float64(z.Len())+fft.Memory(n) > 4*float64(tensor.MaxValues()) {
		try.Ok(fmt.Errorf("%s: shape %s is too large", op, tensor.ShapeString(z.Shape()[:len(z.Shape())-1])))
	}
	var out *tensor.Tensor
	if z.Context().Shapes {
		out = try.To(tensor.Empty(z.Context(), z.Shape(), z.DType()))
	} else {
		v := slices.Clone(tensor.Elems[float64](x))
		runtime.KeepAlive(x)
		plan := fft.New(n, inverse, sinCos)
		kernel.Audited("Fourier transform", v, func() {
			plan.Lines(v)
			for i := range v {
				if v[i] *= scale; v[i] != v[i] {
					v[i] = canonicalNaN
				}
			}
			for first := 0; real && first < len(v); first += 2 * n {
				v[first+1] = 0
				if n%2 == 0 {
					v[first+n+1] = 0
				}
			}
		})
		out = try.To(tensor.FromFloats(z.Context(), v, z.Shape(), z.DType()))
	}
	tensor.Record(op, out, []*tensor.Tensor{z}, nil, func(g *tensor.Tensor, _ []*tensor.Tensor) []*tensor.Tensor {
		return []*tensor.Tensor{transformed(op, g, !inverse, false, scale)}
	})
	return out
}

// canonicalNaN replaces every NaN here, since the bits of the NaN that an operation makes depend on the processor.
var canonicalNaN = math.Float64frombits(0x7ff8000000000000)

// sinCos uses drun's own sine and cosine, whose bits are the same everywhere.
func sinCos(angles, sines, cosines []float64) {
	view := func(v []float64) kernel.View {
		return kernel.View{Data: unsafe.Pointer(unsafe.SliceData(v)), Strides: []int{1}}
	}
	shape := []int{len(angles)}
	kernel.Unary(kernel.Sin, dtype.Float64, shape, view(sines), view(angles))
	kernel.Unary(kernel.Cos, dtype.Float64, shape, view(cosines), view(angles))
}
