package tensor

import (
	"fmt"
	"math"
	"math/bits"
	"unsafe"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// A Generator draws random numbers. They depend on seed and stream, and on how much has been drawn, which Position
// counts; setting the three fields restores a state.
type Generator struct{ Seed, Stream, Position uint64 }

// NewGenerator returns a generator at the start of a stream.
func NewGenerator(seed, stream uint64) *Generator { return &Generator{Seed: seed, Stream: stream} }

// draw reserves n elements. Position counts pairs of 32-bit words: a draw of float32 uniforms takes one word per
// element, all others take two, so that no word is used twice.
func (g *Generator) draw(dt dtype.Type, n int) kernel.Stream {
	if dt == dtype.Float32 {
		at := kernel.Stream{Seed: g.Seed, Stream: g.Stream, At: 2 * g.Position}
		g.Position += uint64(n+1) / 2
		return at
	}
	return g.drawPairs(n)
}

func (g *Generator) drawPairs(n int) kernel.Stream {
	at := kernel.Stream{Seed: g.Seed, Stream: g.Stream, At: g.Position}
	g.Position += uint64(n)
	return at
}

// Rand draws from the uniform distribution on [0, 1).
func (g *Generator) Rand(c *Context, shape []int, dt dtype.Type) (*Tensor, error) {
	return g.drawn("rand", c, shape, dt, g.uniform)
}

// Float draws one float64 from the uniform distribution on [0, 1), as Rand draws it.
func (g *Generator) Float() (x float64) {
	g.draw(dtype.Float64, 1).Uniform(dtype.Float64, 1, unsafe.Pointer(&x))
	return x
}

// Randn draws from the standard normal distribution.
func (g *Generator) Randn(c *Context, shape []int, dt dtype.Type) (*Tensor, error) {
	return g.drawn("randn", c, shape, dt, g.normal)
}

func (g *Generator) drawn(op string, c *Context, shape []int, dt dtype.Type, fill func(*Tensor)) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if !dt.IsFloat() {
		return nil, fmt.Errorf("%s: needs a floating-point dtype, not %s", op, dt)
	}
	compute := dt
	if dt != dtype.Float64 {
		compute = dtype.Float32
	}
	t := newTensor(op, c, shape, compute)
	fill(t)
	return cast(op, t, dt), nil
}

func (g *Generator) uniform(t *Tensor) { g.real(t, false) }
func (g *Generator) normal(t *Tensor)  { g.real(t, true) }

// real fills t, from the normal distribution or the uniform one.
func (g *Generator) real(t *Tensor, normal bool) {
	if t.shapeOnly() {
		return
	}
	draw, fill := g.draw, kernel.Stream.Uniform
	if normal {
		draw, fill = func(_ dtype.Type, n int) kernel.Stream { return g.drawPairs(n) }, kernel.Stream.Normal
	}
	s := draw(t.dtype, t.n)
	if d := t.on(); d != nil {
		d.Draw(s, normal, t.dtype, t.n, d.write(t))
		return
	}
	fill(s, t.dtype, t.n, t.ptr())
	alive(t)
}

// RandInt draws integers from low up to, not including, high.
func (g *Generator) RandInt(c *Context, low, high int64, shape []int, dt dtype.Type) (_ *Tensor, err error) {
	defer try.Caught(&err)
	try.FailIf(low >= high, "randint: low %d must be less than high %d", low, high)
	for _, v := range []int64{low, high - 1} {
		try.Ok(Int(v).fits("randint", dt))
	}
	t := newTensor("randint", c, shape, dtype.Int64)
	if !t.shapeOnly() {
		s, count := g.drawPairs(t.n), uint64(high)-uint64(low)
		if d := t.on(); d != nil {
			d.Bounded(s, t.n, d.write(t), low, count)
		} else {
			s.Bounded(Elems[int64](t), low, count)
		}
	}
	return cast("randint", t, dt), nil
}

// Permutation returns the numbers below n in random order (Fisher and Yates).
func (g *Generator) Permutation(n int) (_ []int64, err error) {
	defer try.Caught(&err)
	try.FailIf(n < 0, "permutation: %d is not a possible length", n)
	try.FailIf(n > MaxValues(), "permutation: %d elements need more memory than this machine has", n)
	p, r := make([]int64, n), make([]int64, n)
	g.drawPairs(n).Bounded(r, 0, 0)
	for i := range p {
		p[i] = int64(i)
	}
	for i := n - 1; i > 0; i-- {
		j, _ := bits.Mul64(uint64(r[i]), uint64(i+1))
		p[i], p[j] = p[j], p[i]
	}
	return p, nil
}

// Uniform fills t from the uniform distribution on [low, high).
func (g *Generator) Uniform(t *Tensor, low, high float64) error {
	return g.refill("uniform", t, g.uniform, high-low, low)
}

func (g *Generator) Normal(t *Tensor, mean, std float64) error {
	return g.refill("normal", t, g.normal, std, mean)
}

func (g *Generator) refill(op string, t *Tensor, fill func(*Tensor), scale, shift float64) (err error) {
	defer try.Caught(&err)
	try.Ok(NeedFloat(op, t))
	x := newTensor(op, t.ctx, t.shape, t.dtype)
	fill(x)
	y := try.To(chain(x).scalar(OpMul, Float(scale)).scalar(OpAdd, Float(shift)).end())
	assign(op, t.Detach(), y)
	return nil
}

// InitLinear draws a weight (out, in, …) and its bias as PyTorch does for linear and convolutional layers: uniform on
// ±1/√fan_in, where fan_in is the product of all sizes but the first. bias may be nil.
func (g *Generator) InitLinear(weight, bias *Tensor) error {
	if len(weight.shape) < 2 {
		return fmt.Errorf("init: a weight needs at least two dimensions, not shape %s", ShapeString(weight.shape))
	}
	bound := 0.0
	if fan := product(weight.shape[1:]); fan > 0 {
		bound = 1 / math.Sqrt(float64(fan))
	}
	if err := g.Uniform(weight, -bound, bound); err != nil || bias == nil {
		return err
	}
	return g.Uniform(bias, -bound, bound)
}

// Multinomial draws n indices for each row of p, (N) or (B, N), with probabilities proportional to its elements;
// without replacement no index occurs twice.
func (g *Generator) Multinomial(c *Context, p *Tensor, n int, replacement bool) (_ *Tensor, err error) {
	defer try.Caught(&err)
	const op = "multinomial"
	try.Ok(NeedFloat(op, p))
	nd := len(p.shape)
	try.FailIf(nd < 1 || nd > 2 || n < 1, "%s: needs probabilities (N) or (B, N) and at least one sample, not shape %s and %d", op, shaped(p.shape), n)
	wide := cast(op, p, dtype.Float64)
	wide = try.To(Clone(wide.Detach()))
	out := newTensor(op, c, append(append([]int(nil), p.shape[:nd-1]...), n), dtype.Int64)
	u := try.To(g.Rand(c, []int{max(out.n, 1)}, dtype.Float64))
	size := p.shape[nd-1]
	draws, picks, weights := Elems[float64](u), Elems[int64](out), Elems[float64](wide)
	for i := range picks {
		row := weights[i/n*size : (i/n+1)*size]
		k := pickWeighted(op, row, draws[i])
		picks[i] = int64(k)
		if !replacement {
			row[k] = 0
		}
	}
	return out, nil
}

// pickWeighted finds the index at which the running sum passes u times the whole sum.
func pickWeighted(op string, row []float64, u float64) int {
	total := 0.0
	for _, w := range row {
		if !(w >= 0) || math.IsInf(w, 1) {
			try.Fail("%s: probabilities must be finite and not negative, but one is %v", op, w)
		}
		total += w
	}
	try.FailIf(total == 0, "%s: no index with a positive probability is left", op)
	target, sum, last := u*total, 0.0, 0
	for k, w := range row {
		if w == 0 {
			continue
		}
		last = k
		if sum += w; target < sum {
			return k
		}
	}
	return last
}

// FillInPlace sets all elements.
func FillInPlace(t *Tensor, value Scalar) (err error) {
	defer try.Caught(&err)
	x := try.To(Full(t.ctx, nil, value, t.dtype))
	assign("fill", t.Detach(), expanded(x, t.shape))
	return nil
}

// TruncatedNormal fills t with normally distributed numbers, drawing until they are from low to high.
func (g *Generator) TruncatedNormal(t *Tensor, mean, std, low, high float64) (err error) {
	defer try.Caught(&err)
	const op, rounds = "trunc_normal", 4096
	try.Ok(NeedFloat(op, t))
	try.FailIf(!(low < high), "%s: low %v must be less than high %v", op, low, high)
	values := make([]float64, 0, t.n)
	for range rounds {
		if len(values) == t.n {
			break
		}
		x := try.To(g.Randn(t.ctx, []int{max(t.n, 64)}, dtype.Float64))
		for _, v := range Elems[float64](x) {
			if v = mean + float64(v*std); v >= low && v <= high && len(values) < t.n {
				values = append(values, v)
			}
		}
	}
	try.FailIf(len(values) < t.n, "%s: hardly any value of a normal distribution with mean %v and standard deviation %v lies from %v to %v", op, mean, std, low, high)
	x := try.To(FromFloats(t.ctx, values, t.shape, t.dtype))
	assign(op, t.Detach(), x)
	return nil
}

// Orthogonal fills t, seen as a matrix of its first dimension and all others, with orthogonal rows, or columns if
// there are more rows, of length gain: normal numbers orthogonalised by the Gram-Schmidt method, twice, in float64.
func (g *Generator) Orthogonal(t *Tensor, gain float64) (err error) {
	defer try.Caught(&err)
	const op = "orthogonal"
	try.Ok(NeedFloat(op, t))
	if t.n == 0 {
		return nil
	}
	rows, cols := t.shape[0], t.n/t.shape[0]
	lines, length := min(rows, cols), max(rows, cols)
	x := try.To(g.Randn(t.ctx, []int{lines, length}, dtype.Float64))
	v := Elems[float64](x)
	dot := func(a, b []float64) (sum float64) {
		for i := range a {
			sum += float64(a[i] * b[i])
		}
		return sum
	}
	for i := range lines {
		line := v[i*length : (i+1)*length]
		for range 2 {
			for j := range i {
				other := v[j*length : (j+1)*length]
				by := dot(line, other)
				for k := range line {
					line[k] -= float64(by * other[k])
				}
			}
		}
		size := math.Sqrt(dot(line, line))
		for k := range line {
			line[k] /= size
		}
	}
	for i := range v {
		v[i] *= gain
	}
	if rows > cols {
		x = try.To(Transpose(x, 0, 1))
	}
	assign(op, t.Detach(), try.To(Reshape(cast(op, x, t.dtype), t.shape)))
	return nil
}
