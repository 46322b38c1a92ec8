package tensor

import (
	"fmt"
	"math"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// FillInPlace sets all elements.
func FillInPlace(t *Tensor, value Scalar) (err error) {
	defer try.Caught(&err)
	x := try.To(Full(t.ctx, nil, value, t.dtype))
	return assign("fill", t.Detach(), expanded(x, t.shape))
}

// TruncatedNormal fills t with normally distributed numbers, skipping those outside low to high.
func (g *Generator) TruncatedNormal(t *Tensor, mean, std, low, high float64) (err error) {
	defer try.Caught(&err)
	const op, rounds = "trunc_normal", 4096
	try.Ok(NeedFloat(op, t))
	if !(low < high) {
		return fmt.Errorf("%s: low %v must be less than high %v", op, low, high)
	}
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
	if len(values) < t.n {
		return fmt.Errorf("%s: hardly any value of a normal distribution with mean %v and standard deviation %v lies from %v to %v", op, mean, std, low, high)
	}
	x := try.To(FromFloats(t.ctx, values, t.shape, t.dtype))
	return assign(op, t.Detach(), x)
}

// Orthogonal fills t, seen as a matrix of its first dimension and all others, with
// orthogonal rows, or columns if there are more rows, of length gain: normal numbers
// orthogonalised by the Gram-Schmidt method, twice, in float64.
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
	return assign(op, t.Detach(), try.To(Reshape(try.To(cast(op, x, t.dtype)), t.shape)))
}

// Claimed reports whether an optimizer has t among its parameters, or a hook waits for its gradient.
func (t *Tensor) Claimed() bool { return t.leaf != nil && (t.leaf.owner != nil || t.leaf.ready != nil) }
