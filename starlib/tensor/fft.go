package tensor

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/element"
	"drun/starlib"
	"drun/tensor"
)

// FFT is the module fft: PyTorch's torch.fft, with complex numbers as two tensors.
func FFT(ctx *tensor.Context) *starlib.Module {
	return &starlib.Module{
		Name: "fft",
		Doc: `Discrete Fourier transforms of float32 and float64. Names, arguments and norms are those of torch.fft, gradients too. A complex tensor is two tensors of one shape, its real and its imaginary part: re, im = fft.rfft(x), and fft.irfft(re, im) back. It is computed in float64 and rounded once, with the same bits on every processor, for any length.

norm says what is divided by the number n of numbers: backward the inverse transform, forward the other one, ortho each by the root of n.`,
		Defs: fftDefs(ctx),
	}
}

const (
	fftDoc  = " Along dim the input is cut, or filled up with zeros, to n numbers."
	fft2Doc = " Along dim the input is cut, or filled up with zeros, to the sizes s."
)

func fftDefs(ctx *tensor.Context) []*starlib.Def {
	return []*starlib.Def{
		transform("fft", `(x: Tensor, imag: Tensor = None, n: int = None, dim: int = -1, norm: string = "backward") -> (re, im)`, "The transform sum_j x[j] exp(-2πi jk/n) along dim, of the complex numbers x + i imag, or of real ones."+fftDoc),
		transform("ifft", `(x: Tensor, imag: Tensor = None, n: int = None, dim: int = -1, norm: string = "backward") -> (re, im)`, "The inverse of fft: the mean of x[j] exp(2πi jk/n)."+fftDoc),
		transform("rfft", `(x: Tensor, n: int = None, dim: int = -1, norm: string = "backward") -> (re, im)`, "The first n//2 + 1 results of fft, of real numbers; the others are their conjugates."+fftDoc),
		transform("irfft", `(x: Tensor, imag: Tensor, n: int = None, dim: int = -1, norm: string = "backward") -> Tensor`, "The inverse of rfft: n real numbers of n//2 + 1 complex ones. Without n it is even: 2 (size - 1). The imaginary part of the first number, and of the last where n is even, is taken for 0."),
		transform("fft2", `(x: Tensor, imag: Tensor = None, s: tuple | list = None, dim: tuple | list = (-2, -1), norm: string = "backward") -> (re, im)`, "fft along two or more dimensions."+fft2Doc),
		transform("ifft2", `(x: Tensor, imag: Tensor = None, s: tuple | list = None, dim: tuple | list = (-2, -1), norm: string = "backward") -> (re, im)`, "The inverse of fft2."+fft2Doc),
		transform("rfft2", `(x: Tensor, s: tuple | list = None, dim: tuple | list = (-2, -1), norm: string = "backward") -> (re, im)`, "rfft along the last dimension of dim, and fft along the others."+fft2Doc),
		transform("irfft2", `(x: Tensor, imag: Tensor, s: tuple | list = None, dim: tuple | list = (-2, -1), norm: string = "backward") -> Tensor`, "The inverse of rfft2. Without s the last size is even: 2 (size - 1)."),
		{
			Sig: "fftfreq(n: int, d: number = 1.0) -> Tensor",
			Doc: "The frequencies of the n results of fft, in cycles per unit of the spacing d: 0, 1, …, and from the middle on the negative ones, divided by d·n. float32 of shape (n,).",
			Fn:  func(c *starlib.Call) (starlark.Value, error) { return frequencies(ctx, c, false) },
		},
		{
			Sig: "rfftfreq(n: int, d: number = 1.0) -> Tensor",
			Doc: "The frequencies of the n//2 + 1 results of rfft: 0, 1, …, divided by d·n. float32 of shape (n//2 + 1,).",
			Fn:  func(c *starlib.Call) (starlark.Value, error) { return frequencies(ctx, c, true) },
		},
		shifted("fftshift", "Rolls dimensions by half their sizes, so that the frequency 0 is in the middle; all dimensions, or those of dim.", func(n int) int { return n / 2 }),
		shifted("ifftshift", "Undoes fftshift.", func(n int) int { return -(n / 2) }),
	}
}

// transform is a Def whose arguments say which transform.
func transform(name, signature, doc string) *starlib.Def {
	f := tensor.Fourier{Op: name, Inverse: name[0] == 'i'}
	real := name[0] == 'r' || name[:2] == "ir"
	several := name[len(name)-1] == '2'
	return &starlib.Def{Sig: name + signature, Doc: doc, Fn: func(c *starlib.Call) (starlark.Value, error) {
		f := f
		f.Norm = c.String("norm")
		x := Arg(c, "x")
		var sizes, dims []int
		var im *tensor.Tensor
		if several {
			var err error
			if dims, err = Ints(c.Arg("dim").(starlark.Iterable)); err != nil {
				return nil, fmt.Errorf("dim: %w", err)
			}
			if len(dims) == 0 {
				return nil, fmt.Errorf("dim is empty: want one dimension or more")
			}
			if s, given := c.Arg("s").(starlark.Iterable); given {
				if sizes, err = Ints(s); err != nil {
					return nil, fmt.Errorf("s: %w", err)
				}
			}
		} else {
			dims = []int{c.Int("dim")}
			if !c.IsNone("n") {
				sizes = []int{c.Int("n")}
			}
		}
		switch {
		case real && !f.Inverse:
			return pair(f.RFFT(x, sizes, dims))
		case !c.IsNone("imag"):
			im = Arg(c, "imag")
		}
		if real {
			return Result(f.IRFFT(x, im, sizes, dims))
		}
		return pair(f.FFT(x, im, sizes, dims))
	}}
}

// frequencies are k / (d n), each rounded once to float64 and once to float32.
func frequencies(ctx *tensor.Context, c *starlib.Call, positive bool) (starlark.Value, error) {
	n, d := c.Int("n"), c.Float("d")
	if n < 1 {
		return nil, fmt.Errorf("n = %d: want at least 1", n)
	}
	if n > tensor.MaxValues() {
		return nil, fmt.Errorf("n = %d: more numbers than memory has", n)
	}
	if d == 0 {
		return nil, fmt.Errorf("d = 0: want the spacing of the numbers")
	}
	count := n
	if positive {
		count = n/2 + 1
	}
	values := make([]float64, count)
	for k := range values {
		f := k
		if !positive && k >= (n+1)/2 {
			f = k - n
		}
		values[k] = float64(f) / float64(d*float64(n))
	}
	return Result(tensor.FromFloats(ctx, values, []int{count}, element.Float32))
}

func shifted(name, doc string, by func(n int) int) *starlib.Def {
	return &starlib.Def{Sig: name + "(x: Tensor, dim: int | tuple | list = None) -> Tensor", Doc: doc, Fn: func(c *starlib.Call) (starlark.Value, error) {
		x, over := Arg(c, "x"), dims(c)
		if over == nil {
			for d := range x.Dim() {
				over = append(over, d)
			}
		}
		shifts := make([]int, len(over))
		for i, d := range over {
			if d < 0 {
				d += x.Dim()
			}
			if d >= 0 && d < x.Dim() { // Roll refuses others
				shifts[i] = by(x.Shape()[d])
			}
		}
		out, err := tensor.Roll(x, shifts, over)
		return Result(out, tensor.As(name, err))
	}}
}
