package tensor

import (
	"fmt"
	"slices"
	"strings"

	"drun/internal/try"
)

// A label names a dimension of einsum's operands: a letter, or, negative, the position from the right of one that an
// ellipsis stands for.
type label int

// labelled is a tensor whose dimensions have names.
type labelled struct {
	t      *Tensor
	labels []label
}

// Einsum sums products of the operands' elements: dimensions with the same letter are aligned, and those that the output
// does not name are summed as soon as no further operand has them. Operands are taken from the left; pairs that share a
// dimension to be summed are matrix products.
func Einsum(equation string, operands []*Tensor) (out *Tensor, err error) {
	defer try.Caught(&err)
	operands = slices.Clone(operands)
	places := make([]**Tensor, len(operands))
	for i := range operands {
		places[i] = &operands[i]
	}
	r := narrow(places...)
	if out, err = einsum(equation, operands); err != nil {
		return nil, fmt.Errorf("einsum: %q: %w", equation, err)
	}
	r.round(&out)
	return out, nil
}

func einsum(equation string, operands []*Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	inputs, result, explicit := strings.Cut(strings.ReplaceAll(equation, " ", ""), "->")
	terms := strings.Split(inputs, ",")
	try.FailIf(len(operands) == 0 || len(terms) != len(operands), "it has %d operands before ->, and %d tensors were given", len(terms), len(operands))
	try.Ok(try.As("operands", adds("einsum", operands[0].dtype)))
	sizes, times, wide := map[label]int{}, map[label]int{}, 0
	list := make([]labelled, len(terms))
	for i, term := range terms {
		t := operands[i]
		try.FailIf(t.dtype != operands[0].dtype, "dtypes %s and %s differ; cast with .to()", operands[0].dtype, t.dtype)
		labels, more, err := parseTerm(term, len(t.shape))
		if err != nil {
			return nil, fmt.Errorf("operand %d, %q, does not fit shape %s: %w", i, term, ShapeString(t.shape), err)
		}
		wide = max(wide, more)
		for d, l := range labels {
			n := t.shape[d]
			if have, ok := sizes[l]; ok && have != n && have != 1 && n != 1 {
				return nil, fmt.Errorf("%s has size %d, and size %d in operand %d of shape %s", l, have, n, i, ShapeString(t.shape))
			}
			if sizes[l] == 0 || sizes[l] == 1 {
				sizes[l] = n
			}
			times[l]++
		}
		list[i] = labelled{t, labels}.diagonals()
	}
	var order []label
	if explicit {
		if order, _, err = parseTerm(result, -1, wide); err != nil {
			return nil, fmt.Errorf("the output %q: %w", result, err)
		}
		for i, l := range order {
			try.FailIf(times[l] == 0, "the output names %s, which no operand has", l)
			try.FailIf(slices.Contains(order[:i], l), "the output names %s twice", l)
		}
	} else {
		for l := range sizes {
			if times[l] == 1 || l < 0 {
				order = append(order, l)
			}
		}
		slices.Sort(order)
	}
	// needed reports whether the output, or an operand from the i-th on, has l.
	needed := func(l label, i int) bool {
		return slices.Contains(order, l) || slices.ContainsFunc(list[i:], func(o labelled) bool { return slices.Contains(o.labels, l) })
	}
	acc := list[0]
	for i := 1; i < len(list); i++ {
		acc = contract(acc, list[i], func(l label) bool { return needed(l, i+1) })
	}
	acc = acc.sum(func(l label) bool { return slices.Contains(order, l) })
	return acc.arrange(order, false), nil
}

func (l label) String() string {
	if l < 0 {
		return fmt.Sprintf("dimension %d of ...", int(l))
	}
	return string(rune(l))
}

// parseTerm reads the labels of an operand of nd dimensions, and how many of them its ellipsis stands for. For the output, nd is -1, and
// the ellipsis stands for wide[0] dimensions, as many as in any operand.
func parseTerm(term string, nd int, wide ...int) (labels []label, more int, err error) {
	head, tail, ellipsis := strings.Cut(term, "...")
	if ellipsis {
		if more = nd - len(head) - len(tail); nd < 0 {
			more = wide[0]
		}
	}
	if nd >= 0 && (more < 0 || len(head)+len(tail)+more != nd) {
		return nil, 0, fmt.Errorf("it has %d letters for %d dimensions", len(head)+len(tail), nd)
	}
	for i, c := range head + tail {
		if i == len(head) {
			labels = appendEllipsis(labels, more)
		}
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return nil, 0, fmt.Errorf("%q is not a letter", c)
		}
		labels = append(labels, label(c))
	}
	if tail == "" {
		labels = appendEllipsis(labels, more)
	}
	return labels, more, nil
}

func appendEllipsis(labels []label, more int) []label {
	for i := range more {
		labels = append(labels, label(i-more))
	}
	return labels
}

// diagonals merges dimensions that have the same label.
func (x labelled) diagonals() labelled {
	for i := 0; i < len(x.labels); i++ {
		j := slices.Index(x.labels[i+1:], x.labels[i]) + i + 1
		if j == i {
			continue
		}
		if x.t.shape[i] != x.t.shape[j] {
			try.Fail("%s has sizes %d and %d in one operand of shape %s", x.labels[i], x.t.shape[i], x.t.shape[j], ShapeString(x.t.shape))
		}
		t := try.To(Diagonal(x.t, 0, i, j))
		l := x.labels[i]
		labels := slices.Delete(slices.Clone(x.labels), j, j+1)
		x = labelled{t, append(slices.Delete(labels, i, i+1), l)}
		i--
	}
	return x
}

// sum adds up the dimensions that are not kept.
func (x labelled) sum(keep func(label) bool) labelled {
	var dims []int
	var labels []label
	for d, l := range x.labels {
		if keep(l) {
			labels = append(labels, l)
		} else {
			dims = append(dims, d)
		}
	}
	if dims == nil {
		return x
	}
	t := try.To(Sum(x.t, dims, false))
	return labelled{try.To(Cast(t, x.t.dtype)), labels} // as a matrix product, which keeps the type
}

// arrange permutes x's dimensions to order; with fill, those that it lacks have size 1.
func (x labelled) arrange(order []label, fill bool) *Tensor {
	var dims []int
	shape := make([]int, len(order))
	for i, l := range order {
		shape[i] = 1
		if d := slices.Index(x.labels, l); d >= 0 {
			dims = append(dims, d)
			shape[i] = x.t.shape[d]
		}
	}
	t := try.To(Permute(x.t, dims))
	if fill {
		t = try.To(Reshape(t, shape))
	}
	return t
}

// contract multiplies two operands and sums the dimensions that are no longer needed.
func contract(a, b labelled, needed func(label) bool) labelled {
	shared := func(x labelled, l label) bool { return slices.Contains(x.labels, l) }
	// Dimensions that only one operand has, or that have size 1 in the other, are summed first.
	size := func(x labelled, l label) int { return x.t.shape[slices.Index(x.labels, l)] }
	meets := func(l label) bool { return shared(a, l) && shared(b, l) && size(a, l) == size(b, l) }
	one := a
	a = a.sum(func(l label) bool { return needed(l) || meets(l) })
	b = b.sum(func(l label) bool { return needed(l) || shared(one, l) && size(one, l) == size(b, l) })
	var batch, left, right, inner []label
	for _, l := range a.labels {
		switch {
		case !shared(b, l):
			left = append(left, l)
		case needed(l):
			batch = append(batch, l)
		default:
			inner = append(inner, l)
		}
	}
	for _, l := range b.labels {
		if !shared(a, l) {
			right = append(right, l)
		}
	}
	labels := slices.Concat(batch, left, right)
	try.FailIf(len(labels) > MaxDims, "a product has %d dimensions; a tensor has at most %d", len(labels), MaxDims)
	if inner == nil {
		x := a.arrange(labels, true)
		y := b.arrange(labels, true)
		return labelled{try.To(Mul(x, y)), labels}
	}
	x := a.matrix(batch, left, inner)
	y := b.matrix(batch, inner, right)
	t := try.To(MatMul(x, y))
	shape := slices.Clone(t.shape[:len(batch)])
	for _, l := range left {
		shape = append(shape, size(a, l))
	}
	for _, l := range right {
		shape = append(shape, size(b, l))
	}
	return labelled{try.To(Reshape(t, shape)), labels}
}

// matrix views x as matrices, rows by columns, one for each index of batch.
func (x labelled) matrix(batch, rows, cols []label) *Tensor {
	t := x.arrange(slices.Concat(batch, rows, cols), false)
	nb, nr := len(batch), len(batch)+len(rows)
	return try.To(Reshape(t, append(slices.Clone(t.shape[:nb]), product(t.shape[nb:nr]), product(t.shape[nr:]))))
}
