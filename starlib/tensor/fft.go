package tensor

import (
	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/tensor"
	"drun/tensor/fft"
)

// FFT makes the module fft: PyTorch's torch.fft, with complex numbers as two tensors.
func FFT(ctx *tensor.Context) *starlib.Module {
	return &starlib.Module{
		Name: "fft",
		Doc: `Discrete Fourier transforms of float32 and float64. Names, arguments, norms and gradients are those of torch.fft. A complex tensor is two tensors of the same shape, the real and the imaginary part: re, im = fft.rfft(x), and fft.irfft(re, im) back. Transforms, of any length, are computed in float64 and rounded once, with the same bits on every processor.

norm says which transform of n numbers is divided: "backward" divides the inverse by n, "forward" the other one by n, "ortho" each by the root of n.`,
		Defs: fftDefs(ctx),
	}
}

const (
	fftDoc  = " Along dim the input is cut or zero-padded to n numbers."
	fft2Doc = " Along dim the input is cut or zero-padded to the sizes s."
)

func fftDefs(ctx *tensor.Context) []*starlib.Def {
	return []*starlib.Def{
		fourier(`fft(x: Tensor, imag: Tensor = None, n: int = None, dim: int = -1, norm: string = "backward") -> (re, im)`,
			"The transform sum_j x[j] exp(-2πi jk/n) along dim, of the complex numbers x + i imag, or of the real numbers x."+fftDoc, oneDim, complexFourier),
		fourier(`ifft(x: Tensor, imag: Tensor = None, n: int = None, dim: int = -1, norm: string = "backward") -> (re, im)`,
			"The inverse of fft: the mean of x[j] exp(2πi jk/n) over j."+fftDoc, oneDim, complexFourier),
		fourier(`rfft(x: Tensor, n: int = None, dim: int = -1, norm: string = "backward") -> (re, im)`,
			"The first n//2 + 1 results of fft for real numbers; the others are their conjugates."+fftDoc, oneDim, realFourier),
		fourier(`irfft(x: Tensor, imag: Tensor, n: int = None, dim: int = -1, norm: string = "backward") -> Tensor`,
			"The inverse of rfft: n real numbers from n//2 + 1 complex ones. The default n is even: 2 (size - 1). The imaginary part of the first number, and of the last if n is even, is taken as 0.", oneDim, inverseRealFourier),
		fourier(`fft2(x: Tensor, imag: Tensor = None, s: tuple | list = None, dim: tuple | list = (-2, -1), norm: string = "backward") -> (re, im)`,
			"fft along two or more dimensions."+fft2Doc, severalDims, complexFourier),
		fourier(`ifft2(x: Tensor, imag: Tensor = None, s: tuple | list = None, dim: tuple | list = (-2, -1), norm: string = "backward") -> (re, im)`,
			"The inverse of fft2."+fft2Doc, severalDims, complexFourier),
		fourier(`rfft2(x: Tensor, s: tuple | list = None, dim: tuple | list = (-2, -1), norm: string = "backward") -> (re, im)`,
			"rfft along the last dimension of dim, and fft along the others."+fft2Doc, severalDims, realFourier),
		fourier(`irfft2(x: Tensor, imag: Tensor, s: tuple | list = None, dim: tuple | list = (-2, -1), norm: string = "backward") -> Tensor`,
			"The inverse of rfft2. By default the last size is even: 2 (size - 1).", severalDims, inverseRealFourier),
		{Sig: "fftfreq(n: int, d: number = 1.0) -> Tensor", Fn: func(c *starlib.Call) (starlark.Value, error) { return frequencies(ctx, c, false) },
			Doc: "The frequencies of the n results of fft, in cycles per unit of the spacing d: 0, 1, …, and in the second half the negative ones …, -2, -1, all divided by d·n. float32 of shape (n,)."},
		{Sig: "rfftfreq(n: int, d: number = 1.0) -> Tensor", Fn: func(c *starlib.Call) (starlark.Value, error) { return frequencies(ctx, c, true) },
			Doc: "The frequencies of the n//2 + 1 results of rfft: 0, 1, …, divided by d·n. float32 of shape (n//2 + 1,)."},
		shifted("fftshift", "Rolls dimensions by half their sizes, so that the frequency 0 is in the middle; all dimensions, or those of dim.", func(n int) int { return n / 2 }),
		shifted("ifftshift", "Undoes fftshift.", func(n int) int { return -(n / 2) }),
	}
}

// axes are the sizes and dimensions of a transform, from its arguments; sizes is nil if none are given.
type axes struct{ sizes, dims []int }

func fourier(sig, doc string, along func(*starlib.Call) axes, run func(*starlib.Call, fft.Fourier, axes) (starlark.Value, error)) *starlib.Def {
	d := &starlib.Def{Sig: sig, Doc: doc}
	d.Fn = func(c *starlib.Call) (starlark.Value, error) {
		return run(c, fft.Fourier{Op: d.Name(), Inverse: d.Name()[0] == 'i', Norm: c.String("norm")}, along(c))
	}
	return d
}

func oneDim(c *starlib.Call) axes {
	of := axes{dims: []int{c.Int("dim")}}
	if !c.IsNone("n") {
		of.sizes = []int{c.Int("n")}
	}
	return of
}

func severalDims(c *starlib.Call) (of axes) {
	list := func(name string) []int {
		n, err := Ints(c.Arg(name).(starlark.Iterable))
		try.FailIf(err != nil, "%s: %w", name, err)
		return n
	}
	of.dims = list("dim")
	try.FailIf(len(of.dims) == 0, "dim is empty: want one dimension or more")
	if !c.IsNone("s") {
		of.sizes = list("s")
	}
	return of
}

func complexFourier(c *starlib.Call, f fft.Fourier, of axes) (starlark.Value, error) {
	return pair(f.FFT(Arg(c, "x"), Optional(c, "imag"), of.sizes, of.dims))
}

func realFourier(c *starlib.Call, f fft.Fourier, of axes) (starlark.Value, error) {
	return pair(f.RFFT(Arg(c, "x"), of.sizes, of.dims))
}

func inverseRealFourier(c *starlib.Call, f fft.Fourier, of axes) (starlark.Value, error) {
	return Result(f.IRFFT(Arg(c, "x"), Arg(c, "imag"), of.sizes, of.dims))
}

// frequencies returns k / (d n), each rounded once to float64 and once to float32.
func frequencies(ctx *tensor.Context, c *starlib.Call, positive bool) (starlark.Value, error) {
	n, d := c.Int("n"), c.Float("d")
	try.FailIf(n < 1, "n = %d: want at least 1", n)
	try.FailIf(n > tensor.MaxValues(), "n = %d: that many numbers do not fit in memory", n)
	try.FailIf(d == 0, "d = 0: want the spacing of the samples, not 0")
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
	return Result(tensor.FromFloats(ctx, values, []int{count}, dtype.Float32))
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
			if d >= 0 && d < x.Dim() { // Roll refuses other dimensions
				shifts[i] = by(x.Shape()[d])
			}
		}
		out, err := tensor.Roll(x, shifts, over)
		return Result(out, try.As(name, err))
	}}
}
