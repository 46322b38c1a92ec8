package tensor

import (
	"fmt"
	"math"
	"slices"

	"drun/kernel"
	"drun/kernel/element"
	"drun/kernel/fft"
)

// Discrete Fourier transforms, as in torch.fft. Complex numbers are two tensors of one shape, the real and the imaginary
// parts. Transforms are computed in float64 and rounded once.

// Fourier selects a transform.
type Fourier struct {
	Op      string // the name in messages
	Inverse bool
	Norm    string // which transform divides by the length n: "backward" the inverse, "forward" the forward one, "ortho" both, by its root
	real    bool   // the numbers are real
}

// The methods below that return no error end the function as try does.

func (f Fourier) scale(n int) float64 {
	switch {
	case f.Norm == "ortho":
		return 1 / math.Sqrt(float64(n))
	case f.Norm == "backward" && f.Inverse, f.Norm == "forward" && !f.Inverse:
		return 1 / float64(n)
	case f.Norm != "backward" && f.Norm != "forward":
		ensure(fmt.Errorf("%s: norm %q: want backward, ortho or forward", f.Op, f.Norm))
	}
	return 1
}

// FFT transforms complex numbers along the given dimensions, the last first; im may be nil, for 0. Along dims[i] the input is
// cut or zero-padded to sizes[i] numbers, unless sizes is nil.
func (f Fourier) FFT(re, im *Tensor, sizes, dims []int) (_, _ *Tensor, err error) {
	defer caughtAs(f.Op, &err)
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
func (f Fourier) RFFT(x *Tensor, sizes, dims []int) (_, _ *Tensor, err error) {
	defer caughtAs(f.Op, &err)
	z := f.complex(x, nil)
	sizes, dims = f.lengths(x, sizes, dims)
	for i, dim := range slices.Backward(dims) {
		f.real = i == len(dims)-1
		z = f.along(z, sizes[i], dim)
		if f.real {
			z = try(Narrow(z, dim, 0, sizes[i]/2+1))
		}
	}
	re, im := parts2(z)
	return re, im, nil
}

// IRFFT undoes RFFT: from n/2+1 complex numbers it makes n real ones, where n is the last of sizes, or by default twice one
// less than there are. The imaginary parts of the first one and, if n is even, of the last, which would make the result
// complex, are ignored.
func (f Fourier) IRFFT(re, im *Tensor, sizes, dims []int) (_ *Tensor, err error) {
	defer caughtAs(f.Op, &err)
	z := f.complex(re, im)
	given := sizes != nil
	sizes, dims = f.lengths(re, sizes, dims)
	last := len(dims) - 1
	dim, n := dims[last], sizes[last]
	if !given {
		n = 2 * (n - 1)
	}
	if n < 1 {
		return nil, fmt.Errorf("%s: dimension %d of shape %s gives %d numbers: want at least 1", f.Op, dim, ShapeString(re.shape), n)
	}
	for i, d := range dims[:last] {
		z = f.along(z, sizes[i], d)
	}
	whole := func(t *Tensor, conjugate bool) *Tensor {
		middle := try(Narrow(t, dim, 1, (n-1)/2))
		back := try(Flip(middle, []int{dim}))
		list := []*Tensor{try(Narrow(t, dim, 0, 1)), middle}
		if n%2 == 0 {
			list = append(list, try(Narrow(t, dim, n/2, 1)))
		}
		if conjugate {
			back = try(Unary(OpNeg, back))
			for i := range list {
				if i != 1 {
					list[i] = try(Zeros(t.ctx, list[i].shape, t.dtype))
				}
			}
		}
		return try(Cat(append(list, back), dim))
	}
	re, im = parts2(f.fit(z, n/2+1, dim))
	z = try(Stack([]*Tensor{whole(re, false), whole(im, true)}, -1))
	re, _ = parts2(f.along(z, n, dim))
	return re, nil
}

// complex joins the parts in a last dimension.
func (f Fourier) complex(re, im *Tensor) *Tensor {
	if re.dtype != element.Float32 && re.dtype != element.Float64 {
		if re.dtype.IsFloat() || re.dtype == element.Complex64 {
			ensure(storageOnly(f.Op, re.dtype))
		}
		re = try(Cast(re, element.Float32))
	}
	if im == nil {
		im = try(Zeros(re.ctx, re.shape, re.dtype))
	}
	if re.dtype != im.dtype || !sameShape(re.shape, im.shape) {
		ensure(fmt.Errorf("%s: the real part is %s of shape %s, and the imaginary part %s of shape %s; they must be alike", f.Op, re.dtype, ShapeString(re.shape), im.dtype, ShapeString(im.shape)))
	}
	return try(Stack([]*Tensor{re, im}, -1))
}

// parts2 takes the real and the imaginary parts out of the last dimension.
func parts2(z *Tensor) (re, im *Tensor) { return try(Select(z, -1, 0)), try(Select(z, -1, 1)) }

// lengths are the sizes along the dimensions, and the dimensions from 0.
func (f Fourier) lengths(t *Tensor, sizes, dims []int) (lengths, axes []int) {
	nd := len(t.shape)
	switch {
	case nd == 0:
		ensure(fmt.Errorf("%s: needs a dimension, not a single number", f.Op))
	case sizes != nil && len(sizes) != len(dims):
		ensure(fmt.Errorf("%s: %d sizes for %d dimensions", f.Op, len(sizes), len(dims)))
	}
	for i, d := range dims {
		a := try(axis(f.Op, d, nd))
		n := t.shape[a]
		if sizes != nil {
			n = sizes[i]
		}
		switch {
		case slices.Contains(axes, a):
			ensure(fmt.Errorf("%s: dimension %d appears twice", f.Op, d))
		case n < 1:
			ensure(fmt.Errorf("%s: %d numbers along dimension %d of shape %s: want at least 1", f.Op, n, d, ShapeString(t.shape)))
		}
		lengths, axes = append(lengths, n), append(axes, a)
	}
	return lengths, axes
}

// fit cuts z along dim, or pads it with zeros.
func (f Fourier) fit(z *Tensor, n, dim int) *Tensor {
	if have := z.shape[dim]; n < have {
		return try(Narrow(z, dim, 0, n))
	} else if n > have {
		shape := slices.Clone(z.shape)
		shape[dim] = n - have
		return try(Cat([]*Tensor{z, try(Zeros(z.ctx, shape, z.dtype))}, dim))
	}
	return z
}

// along transforms z along dim, fitted to n numbers.
func (f Fourier) along(z *Tensor, n, dim int) *Tensor {
	scale, last := f.scale(n), len(z.shape)-2
	z = try(Transpose(f.fit(z, n, dim), dim, last))
	return try(Transpose(transformed(f.Op, z, f.Inverse, f.real, scale), dim, last))
}

// transformed is the transform of z (…, n, 2) along the dimension before its last, multiplied by scale. The transform's matrix is
// symmetric, so its gradient is the transform the other way. For real numbers, the first result and the middle one are real
// whatever the rounding.
func transformed(op string, z *Tensor, inverse, real bool, scale float64) *Tensor {
	b := build(op, z)
	x := b.contiguous(b.cast(z.Detach(), element.Float64))
	n := z.shape[len(z.shape)-2]
	if float64(z.n)+fft.Memory(n) > 4*float64(MaxValues()) {
		ensure(fmt.Errorf("%s: shape %s is too large", op, ShapeString(z.shape[:len(z.shape)-1])))
	}
	var out *Tensor
	if z.shapeOnly() {
		out = b.of(z.dtype, z.shape...)
	} else {
		v := slices.Clone(elems[float64](x))
		alive(x)
		fft.New(n, inverse, sinCos).Lines(v)
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
		out = try(FromFloats(z.ctx, v, z.shape, z.dtype))
	}
	if records(z, nil) {
		record(out, op, func(_ *node, g *Tensor, out []*Tensor) error {
			out[0] = transformed(op, g, !inverse, false, scale)
			return nil
		}, z)
	}
	return out
}

// canonicalNaN replaces every NaN here, since the NaN that an operation makes depends on the processor.
var canonicalNaN = math.Float64frombits(0x7ff8000000000000)

// sinCos uses drun's own functions, whose bits are the same everywhere.
func sinCos(angles, sines, cosines []float64) {
	view := func(v []float64) kernel.View { return kernel.View{Data: pointer(v), Strides: []int{1}} }
	shape := []int{len(angles)}
	kernel.Unary(kernel.Sin, element.Float64, shape, view(sines), view(angles))
	kernel.Unary(kernel.Cos, element.Float64, shape, view(cosines), view(angles))
}
