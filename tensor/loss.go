package tensor

import (
	"fmt"

	"drun/internal/try"
	"drun/kernel"
)

// A Reduction says how a loss combines the losses of the samples.
type Reduction uint8

// The reductions of losses.
const (
	ReduceMean Reduction = iota
	ReduceSum
	ReduceNone
)

// apply combines the losses of the samples.
func (r Reduction) apply(t *Tensor) (*Tensor, error) {
	switch r {
	case ReduceMean:
		return Mean(t, nil, false)
	case ReduceSum:
		return Sum(t, nil, false)
	}
	return t, nil
}

// classes checks and flattens the operands of a classification loss: scores
// (N, C) or (N, C, d…), and targets (N) or (N, d…) of classes.
func classes(op string, x, target *Tensor) (rows, ix *Tensor, err error) {
	defer try.Caught(&err)
	try.Ok(NeedFloat(op, x))
	if !target.dtype.IsInt() {
		return nil, nil, fmt.Errorf("%s: targets must be integers (class numbers), not %s", op, target.dtype)
	}
	d := 1
	if len(x.shape) == 1 {
		d = 0
	}
	if len(x.shape) == 0 || !sameShape(target.shape, ReducedShape(x.shape, []int{d}, false)) {
		return nil, nil, fmt.Errorf("%s: targets of shape %s do not fit scores of shape %s: expected (N, C) and (N,)",
			op, ShapeString(target.shape), ShapeString(x.shape))
	}
	rows = x
	if len(x.shape) > 2 {
		order := []int{0}
		for i := 2; i < len(x.shape); i++ {
			order = append(order, i)
		}
		rows = try.To(Permute(x, append(order, 1)))
	}
	if len(rows.shape) != 2 || !rows.contiguous {
		rows = try.To(Reshape(rows, []int{target.n, x.shape[d]}))
	}
	b := build(op, target)
	ix = b.indices(target)
	for i, c := range Elems[int64](ix) {
		if (c < 0 || c >= int64(x.shape[d])) && c != ignoreTarget {
			return nil, nil, fmt.Errorf("%s: target %d (sample %d) is out of range for %d classes: expected 0 to %d", op, c, i, x.shape[d], x.shape[d]-1)
		}
	}
	return rows, ix, nil
}

// ignoreTarget marks a sample that does not count, as in PyTorch.
const ignoreTarget = -100

func countTargets(ix *Tensor) int {
	n := 0
	for _, c := range Elems[int64](ix) {
		if c != ignoreTarget {
			n++
		}
	}
	return n
}

// CrossEntropy is the negative logarithm of the softmax probability of the
// target class. scores are (N, C) or (N, C, d…); target is (N) or (N, d…) of
// class numbers, where -100 leaves the sample out, or probabilities of the
// scores' shape and type.
func CrossEntropy(scores, target *Tensor, r Reduction) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(scores, target) {
		return precise(func(t []*Tensor) (*Tensor, error) { return CrossEntropy(t[0], t[1], r) }, scores, target)
	}
	const op = "cross_entropy"
	if target.dtype.IsFloat() {
		return softCrossEntropy(scores, target, r)
	}
	x, ix := try.To2(classes(op, scores, target))
	rows, n := x.shape[0], x.shape[1]
	b := build(op, x)
	loss, lse := b.like(rows), b.like(rows)
	kernel.CrossEntropy(x.dtype, rows, n, loss.ptr(), lse.ptr(), x.ptr(), Elems[int64](ix))
	alive(x)
	out, scale := loss, 1.0
	switch r {
	case ReduceMean, ReduceSum:
		out = try.To(Sum(loss, nil, false))
		Discard(loss)
		if r == ReduceMean {
			counted := float64(countTargets(ix))
			scale = 1 / counted
			kBinaryNumber(OpDiv, out, out, Float(counted), false)
		}
	case ReduceNone:
		out = try.To(View(loss, target.shape))
		out.view = false
	}
	if records(x, nil) {
		record(out, op, func(nd *node, g *Tensor, out []*Tensor) error {
			x, lse, ix, step := nd.val(0), nd.val(1), nd.val(2), 0
			if r == ReduceNone {
				step = 1
			}
			b := build(op, g)
			out[0], g = b.like(x.shape...), b.contiguous(g)
			kernel.CrossEntropyGrad(g.dtype, rows, n, out[0].ptr(), g.ptr(), step, scale, x.ptr(), lse.ptr(), Elems[int64](ix))
			alive(g)
			return nil
		}, x).save(x, lse, ix)
	}
	Discard(lse)
	return out, nil
}

// softCrossEntropy takes probabilities as targets.
func softCrossEntropy(scores, target *Tensor, r Reduction) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if !sameShape(scores.shape, target.shape) || len(scores.shape) == 0 {
		hint := ""
		if len(target.shape) == 1 && len(scores.shape) == 2 && target.n == scores.shape[0] {
			hint = ": class numbers are integers, target.long()"
		}
		return nil, fmt.Errorf("cross_entropy: probabilities of shape %s do not fit scores of shape %s%s", ShapeString(target.shape), ShapeString(scores.shape), hint)
	}
	try.Ok(sameFloat("cross_entropy", scores, target))
	d := min(1, len(scores.shape)-1)
	return chain(scores).then(func(t *Tensor) (*Tensor, error) { return LogSoftmax(t, d) }).mul(target).
		then(func(t *Tensor) (*Tensor, error) { return Sum(t, []int{d}, false) }).unary(OpNeg).then(r.apply).end()
}

// NLLLoss is minus the score of the target class; scores are logarithms of
// probabilities.
func NLLLoss(logp, target *Tensor, r Reduction) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(logp) {
		return precise(func(t []*Tensor) (*Tensor, error) { return NLLLoss(t[0], target, r) }, logp)
	}
	x, ix := try.To2(classes("nll_loss", logp, target))
	if countTargets(ix) != ix.n {
		return NLLLossWith(logp, target, nil, ignoreTarget, r)
	}
	column := try.To(View(ix, []int{ix.n, 1}))
	return chain(x).then(func(t *Tensor) (*Tensor, error) { return Gather(t, 1, column) }).
		then(func(t *Tensor) (*Tensor, error) { return Reshape(t, target.shape) }).unary(OpNeg).then(r.apply).end()
}

// Accuracy is the share of rows of scores (N, C) whose largest entry is the
// target's class.
func Accuracy(scores, target *Tensor) (_ float64, err error) {
	defer try.Caught(&err)
	if len(scores.shape) != 2 || len(target.shape) != 1 || target.shape[0] != scores.shape[0] {
		return 0, fmt.Errorf("accuracy: targets of shape %s do not fit scores of shape %s: expected (N, C) and (N,)",
			ShapeString(target.shape), ShapeString(scores.shape))
	}
	if target.n == 0 {
		return 0, emptyReduction("accuracy", target)
	}
	hits := try.To(chain(scores).then(func(t *Tensor) (*Tensor, error) { return ArgMax(t, new(1), false) }).binary(OpEq, target).
		then(func(t *Tensor) (*Tensor, error) { return Sum(t, nil, false) }).end())
	return hits.at(0).f / float64(target.n), nil
}
