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

func (f Fourier) scale(n int) (float64, error) {
	switch {
	case f.Norm == "ortho":
		return 1 / math.Sqrt(float64(n)), nil
	case f.Norm == "backward" && f.Inverse, f.Norm == "forward" && !f.Inverse:
		return 1 / float64(n), nil
	case f.Norm == "backward" || f.Norm == "forward":
		return 1, nil
	}
	return 0, fmt.Errorf("%s: norm %q: want backward, ortho or forward", f.Op, f.Norm)
}

// FFT transforms complex numbers along the given dimensions, the last first; im may be nil, for 0. Along dims[i] the input is
// cut or zero-padded to sizes[i] numbers, unless sizes is nil.
func (f Fourier) FFT(re, im *Tensor, sizes, dims []int) (_ *Tensor, _ *Tensor, err error) {
	defer caught(&err)
	z := try(f.complex(re, im))
	sizes, dims = try2(f.lengths(re, sizes, dims))
	for i, dim := range slices.Backward(dims) {
		z = try(f.along(z, sizes[i], dim))
	}
	return f.parts(z)
}

// RFFT transforms real numbers; along the last of the dimensions it returns the first n/2+1 results, whose conjugates are
// the others.
func (f Fourier) RFFT(x *Tensor, sizes, dims []int) (_ *Tensor, _ *Tensor, err error) {
	defer caught(&err)
	z := try(f.complex(x, nil))
	sizes, dims = try2(f.lengths(x, sizes, dims))
	for i, dim := range slices.Backward(dims) {
		f.real = i == len(dims)-1
		z = try(f.along(z, sizes[i], dim))
		if f.real {
			if z, err = Narrow(z, dim, 0, sizes[i]/2+1); err != nil {
				return nil, nil, As(f.Op, err)
			}
		}
	}
	return f.parts(z)
}

// IRFFT undoes RFFT: from n/2+1 complex numbers it makes n real ones, where n is the last of sizes, or by default twice one
// less than there are. The imaginary parts of the first one and, if n is even, of the last, which would make the result
// complex, are ignored.
func (f Fourier) IRFFT(re, im *Tensor, sizes, dims []int) (_ *Tensor, err error) {
	defer caught(&err)
	z := try(f.complex(re, im))
	given := sizes != nil
	sizes, dims = try2(f.lengths(re, sizes, dims))
	last := len(dims) - 1
	dim, n := dims[last], sizes[last]
	if !given {
		n = 2 * (n - 1)
	}
	if n < 1 {
		return nil, fmt.Errorf("%s: dimension %d of shape %s gives %d numbers: want at least 1", f.Op, dim, ShapeString(re.shape), n)
	}
	for i, d := range dims[:last] {
		z = try(f.along(z, sizes[i], d))
	}
	z = try(f.fit(z, n/2+1, dim))
	re, im = try2(f.parts(z))
	whole := func(t *Tensor, sign float64) (_ *Tensor, err error) {
		defer caught(&err)
		middle := try(Narrow(t, dim, 1, (n-1)/2))
		back := try(Flip(middle, []int{dim}))
		ends := try(Narrow(t, dim, 0, 1))
		list := []*Tensor{ends, middle}
		if n%2 == 0 {
			list = append(list, try(Narrow(t, dim, n/2, 1)))
		}
		if sign < 0 {
			back = try(Unary(OpNeg, back))
			for i := range list {
				if i != 1 {
					list[i] = try(Zeros(t.ctx, list[i].shape, t.dtype))
				}
			}
		}
		return try(Cat(append(list, back), dim)), nil
	}
	if re, err = whole(re, 1); err == nil {
		im, err = whole(im, -1)
	}
	if err != nil {
		return nil, As(f.Op, err)
	}
	if z, err = Stack([]*Tensor{re, im}, -1); err == nil {
		z, err = f.along(z, n, dim)
	}
	if err != nil {
		return nil, As(f.Op, err)
	}
	re, _, err = f.parts(z)
	return re, err
}

// complex joins the parts in a last dimension.
func (f Fourier) complex(re, im *Tensor) (*Tensor, error) {
	if re.dtype != element.Float32 && re.dtype != element.Float64 {
		if re.dtype.IsFloat() || re.dtype == element.Complex64 {
			return nil, storageOnly(f.Op, re.dtype)
		}
		var err error
		if re, err = Cast(re, element.Float32); err != nil {
			return nil, err
		}
	}
	if im == nil {
		var err error
		if im, err = Zeros(re.ctx, re.shape, re.dtype); err != nil {
			return nil, As(f.Op, err)
		}
	}
	if re.dtype != im.dtype || !sameShape(re.shape, im.shape) {
		return nil, fmt.Errorf("%s: the real part is %s of shape %s, and the imaginary part %s of shape %s; they must be alike", f.Op, re.dtype, ShapeString(re.shape), im.dtype, ShapeString(im.shape))
	}
	z, err := Stack([]*Tensor{re, im}, -1)
	return z, As(f.Op, err)
}

func (f Fourier) parts(z *Tensor) (re, im *Tensor, err error) {
	if re, err = Select(z, -1, 0); err == nil {
		im, err = Select(z, -1, 1)
	}
	return re, im, As(f.Op, err)
}

// lengths are the dimensions, from 0, and the sizes along them.
func (f Fourier) lengths(t *Tensor, sizes, dims []int) ([]int, []int, error) {
	nd := len(t.shape)
	if nd == 0 {
		return nil, nil, fmt.Errorf("%s: needs a dimension, not a single number", f.Op)
	}
	if sizes != nil && len(sizes) != len(dims) {
		return nil, nil, fmt.Errorf("%s: %d sizes for %d dimensions", f.Op, len(sizes), len(dims))
	}
	lengths, places := make([]int, len(dims)), make([]int, len(dims))
	for i, d := range dims {
		a, err := axis(f.Op, d, nd)
		if err != nil {
			return nil, nil, err
		}
		if slices.Contains(places[:i], a) {
			return nil, nil, fmt.Errorf("%s: dimension %d comes twice", f.Op, d)
		}
		places[i], lengths[i] = a, t.shape[a]
		if sizes != nil {
			lengths[i] = sizes[i]
		}
		if lengths[i] < 1 {
			return nil, nil, fmt.Errorf("%s: %d numbers along dimension %d of shape %s: want at least 1", f.Op, lengths[i], d, ShapeString(t.shape))
		}
	}
	return lengths, places, nil
}

// fit cuts z along dim, or pads it with zeros.
func (f Fourier) fit(z *Tensor, n, dim int) (*Tensor, error) {
	var err error
	if have := z.shape[dim]; n < have {
		z, err = Narrow(z, dim, 0, n)
	} else if n > have {
		shape := slices.Clone(z.shape)
		shape[dim] = n - have
		var zeros *Tensor
		if zeros, err = Zeros(z.ctx, shape, z.dtype); err == nil {
			z, err = Cat([]*Tensor{z, zeros}, dim)
		}
	}
	return z, As(f.Op, err)
}

// along transforms z along dim, fitted to n numbers.
func (f Fourier) along(z *Tensor, n, dim int) (_ *Tensor, err error) {
	defer caught(&err)
	scale := try(f.scale(n))
	z = try(f.fit(z, n, dim))
	last := len(z.shape) - 2
	if z, err = Transpose(z, dim, last); err == nil {
		if z, err = transformed(f.Op, z, f.Inverse, f.real, scale); err == nil {
			z, err = Transpose(z, dim, last)
		}
	}
	return z, As(f.Op, err)
}

// transformed is the transform of z (…, n, 2) along the dimension before its last, multiplied by scale. The transform's matrix is
// symmetric, so its gradient is the transform the other way. For real numbers, the first result and the middle one are real
// whatever the rounding.
func transformed(op string, z *Tensor, inverse, real bool, scale float64) (_ *Tensor, err error) {
	defer caught(&err)
	b := build(op, z)
	x := b.contiguous(b.cast(z.Detach(), element.Float64))
	n := z.shape[len(z.shape)-2]
	if float64(z.n)+fft.Memory(n) > 4*float64(MaxValues()) {
		return nil, fmt.Errorf("%s: shape %s is too large", op, ShapeString(z.shape[:len(z.shape)-1]))
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
		record(out, op, func(_ *node, g *Tensor, out []*Tensor) (err error) {
			out[0], err = transformed(op, g, !inverse, false, scale)
			return err
		}, z)
	}
	return out, nil
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
