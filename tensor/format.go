package tensor

import (
	"math"
	"strconv"
	"strings"

	"drun/kernel/dtype"
)

// A tensor with more elements than this is summarised: only the first and last edgeItems of each dimension are shown.
const (
	maxPrinted = 1000
	edgeItems  = 3
)

// String formats t as PyTorch does: tensor([[1., 2.], [3., 4.]]), with the dtype unless it is the default for such values.
func (t *Tensor) String() string {
	if t.cells() > 10*maxPrinted {
		return "tensor(<" + ShapeString(t.shape) + " " + t.dtype.String() + ">)"
	}
	var values, imaginary []Scalar
	t.eachPrinted(nil, func(off int) {
		values = append(values, t.Element(off))
		if t.dtype == dtype.Complex64 {
			imaginary = append(imaginary, Float(float64(imag(*(*complex64)(t.readAt(off))))))
		}
	})
	cells := formatCells(values)
	for i, c := range formatCells(imaginary) {
		if !strings.HasPrefix(c, "-") {
			c = "+" + c
		}
		cells[i] += c + "j"
	}
	width := 0
	for _, c := range cells {
		width = max(width, len(c))
	}
	if len(t.shape) == 0 {
		width = 0
	}
	var b strings.Builder
	b.WriteString("tensor(")
	if t.n > 0 {
		t.write(&b, 0, &cells, width)
	} else {
		b.WriteString("[]")
	}
	if t.n == 0 && len(t.shape) > 1 {
		b.WriteString(", size=" + ShapeString(t.shape))
	}
	if t.dtype != dtype.Float32 && t.dtype != dtype.Int64 && t.dtype != dtype.Bool && t.dtype != dtype.Complex64 || t.n == 0 && t.dtype != dtype.Float32 {
		b.WriteString(", dtype=" + t.dtype.String())
	}
	switch {
	case t.node != nil:
		b.WriteString(", grad_fn=" + t.node.op)
	case t.requiresGrad:
		b.WriteString(", requires_grad=True")
	}
	b.WriteString(")")
	return b.String()
}

// printed returns how many entries of a dimension are shown: all of them as head, or the first and last few.
func (t *Tensor) printed(d int) (head, tail int) {
	if t.n > maxPrinted && t.shape[d] > 2*edgeItems {
		return edgeItems, edgeItems
	}
	return t.shape[d], 0
}

// cells counts the elements that are shown, stopping once there are too many.
func (t *Tensor) cells() int {
	n := 1
	for d := range t.shape {
		head, tail := t.printed(d)
		if n *= head + tail; n > 10*maxPrinted {
			break
		}
	}
	return n
}

func (t *Tensor) eachPrinted(at []int, f func(off int)) {
	d := len(at)
	if d == len(t.shape) {
		off := 0
		for i, k := range at {
			off += k * t.strides[i]
		}
		f(off)
		return
	}
	head, tail := t.printed(d)
	for i := range head {
		t.eachPrinted(append(at, i), f)
	}
	for i := t.shape[d] - tail; i < t.shape[d]; i++ {
		t.eachPrinted(append(at, i), f)
	}
}

func (t *Tensor) write(b *strings.Builder, d int, cells *[]string, width int) {
	if d == len(t.shape) {
		c := (*cells)[0]
		*cells = (*cells)[1:]
		b.WriteString(strings.Repeat(" ", max(0, width-len(c))) + c)
		return
	}
	sep := ", "
	if d < len(t.shape)-1 {
		sep = "," + strings.Repeat("\n", len(t.shape)-1-d) + strings.Repeat(" ", len("tensor(")+d+1)
	}
	b.WriteByte('[')
	head, tail := t.printed(d)
	for i := range head {
		if i > 0 {
			b.WriteString(sep)
		}
		t.write(b, d+1, cells, width)
	}
	if tail > 0 {
		b.WriteString(sep + "...")
		for range tail {
			b.WriteString(sep)
			t.write(b, d+1, cells, width)
		}
	}
	b.WriteByte(']')
}

// formatCells writes all values in one style: whole numbers as "1.", others
// with four decimals, or with an exponent if they span too much.
func formatCells(values []Scalar) []string {
	out := make([]string, len(values))
	whole, lo, hi := true, math.Inf(1), 0.0
	for _, v := range values {
		if a := math.Abs(v.f); v.kind == dtype.Float64 && !math.IsNaN(a) && !math.IsInf(a, 0) {
			whole = whole && a == math.Trunc(a)
			hi = max(hi, a)
			if a != 0 {
				lo = min(lo, a)
			}
		}
	}
	exponent := hi >= 1e8 || !whole && (lo < 1e-4 || hi/lo > 1e5 && hi > 1000)
	for i, v := range values {
		switch {
		case v.kind == dtype.Bool:
			out[i] = "False"
			if v.i != 0 {
				out[i] = "True"
			}
		case v.kind == dtype.Int64:
			out[i] = strconv.FormatInt(v.i, 10)
		case math.IsNaN(v.f):
			out[i] = "nan"
		case math.IsInf(v.f, 0):
			out[i] = strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(v.f, 'f', -1, 64)), "+")
		case exponent:
			out[i] = strconv.FormatFloat(v.f, 'e', 4, 64)
		case whole:
			out[i] = strconv.FormatFloat(v.f, 'f', 0, 64) + "."
		default:
			out[i] = strconv.FormatFloat(v.f, 'f', 4, 64)
		}
	}
	return out
}
