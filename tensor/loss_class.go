package tensor

import (
	"fmt"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// ClassOptions are settings of a cross entropy.
type ClassOptions struct {
	Weight    *Tensor // (C), of the scores' type: weight of each class; nil: 1
	Ignore    int64   // targets that leave their sample out
	Smoothing float64 // how much of the target's probability is spread evenly over all classes
}

// IgnoreTarget is the target that CrossEntropy leaves out unless told otherwise.
const IgnoreTarget = ignoreTarget

// CrossEntropyWith is CrossEntropy with weights of the classes, another target that leaves
// samples out, and smoothed targets (Szegedy et al. 2016). The mean is over the weights of
// the targets, as in PyTorch.
func CrossEntropyWith(scores, target *Tensor, o ClassOptions, r Reduction) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(scores, target, o.Weight) {
		return precise(func(t []*Tensor) (*Tensor, error) {
			o.Weight = t[2]
			return CrossEntropyWith(t[0], t[1], o, r)
		}, scores, target, o.Weight)
	}
	const op = "cross_entropy"
	c := try.To(o.classes(op, scores))
	if !(o.Smoothing >= 0 && o.Smoothing <= 1) {
		return nil, fmt.Errorf("%s: label_smoothing must be between 0 and 1, not %v", op, o.Smoothing)
	}
	if target.dtype.IsFloat() {
		if o.Ignore != ignoreTarget {
			return nil, fmt.Errorf("%s: targets that are probabilities have no class to ignore", op)
		}
		return smoothCrossEntropy(scores, target, o, c, r)
	}
	ids := try.To(ignoring(op, target, o.Ignore, c))
	if o.Weight == nil && o.Smoothing == 0 {
		return CrossEntropy(scores, ids, r)
	}
	x, ix := try.To2(classes(op, scores, ids))
	logp := try.To(LogSoftmax(x, 1))
	return classLoss(op, logp, ix, target.shape, o, r)
}

// NLLLossWith is NLLLoss with weights of the classes, and a target that leaves samples out.
func NLLLossWith(logp, target *Tensor, weight *Tensor, ignore int64, r Reduction) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(logp, weight) {
		return precise(func(t []*Tensor) (*Tensor, error) { return NLLLossWith(t[0], target, t[1], ignore, r) }, logp, weight)
	}
	const op = "nll_loss"
	o := ClassOptions{Weight: weight, Ignore: ignore}
	c := try.To(o.classes(op, logp))
	ids := try.To(ignoring(op, target, ignore, c))
	x, ix := try.To2(classes(op, logp, ids))
	if weight == nil && countTargets(ix) == ix.n {
		return NLLLoss(logp, target, r)
	}
	return classLoss(op, x, ix, target.shape, o, r)
}

// classes is the number of classes of scores, which the weights fit.
func (o *ClassOptions) classes(op string, scores *Tensor) (_ int, err error) {
	defer try.Caught(&err)
	try.Ok(NeedFloat(op, scores))
	if len(scores.shape) == 0 {
		return 0, fmt.Errorf("%s: scores have no dimension of classes", op)
	}
	c := scores.shape[min(1, len(scores.shape)-1)]
	if o.Weight != nil {
		try.Ok(sameFloat(op, scores, o.Weight))
		if len(o.Weight.shape) != 1 || o.Weight.shape[0] != c {
			return 0, fmt.Errorf("%s: weights of shape %s do not fit scores of shape %s: expected (%d,)", op, ShapeString(o.Weight.shape), ShapeString(scores.shape), c)
		}
	}
	return c, nil
}

// classLoss combines the losses of rows of log-probabilities (n, C) with n target classes, where -100 leaves its row out.
func classLoss(op string, logp, ix *Tensor, shape []int, o ClassOptions, r Reduction) (_ *Tensor, err error) {
	defer try.Caught(&err)
	c := logp.shape[1]
	ix = try.To(View(ix, []int{ix.n}))
	out := try.To(BinaryScalar(OpLt, ix, Int(0), false))
	known := try.To(MaskedFill(ix, out, Int(0)))
	weights, per := o.Weight, (*Tensor)(nil)
	if weights == nil {
		weights = try.To(Ones(logp.ctx, []int{c}, logp.dtype))
	}
	weights = weights.Detach()
	per = try.To(chain(weights).then(func(t *Tensor) (*Tensor, error) { return IndexSelect(t, 0, known) }).
		then(func(t *Tensor) (*Tensor, error) { return MaskedFill(t, out, Int(0)) }).end())
	column := try.To(View(known, []int{known.n, 1}))
	each := chain(logp).then(func(t *Tensor) (*Tensor, error) { return Gather(t, 1, column) }).
		then(func(t *Tensor) (*Tensor, error) { return Reshape(t, []int{known.n}) }).
		then(func(t *Tensor) (*Tensor, error) { return MaskedFill(t, out, Int(0)) }).mul(per).scalar(OpMul, Float(o.Smoothing-1))
	if o.Smoothing > 0 {
		all := try.To(chain(logp).mul(weights).then(func(t *Tensor) (*Tensor, error) { return Sum(t, []int{1}, false) }).
			then(func(t *Tensor) (*Tensor, error) { return MaskedFill(t, out, Int(0)) }).scalar(OpMul, Float(o.Smoothing/float64(c))).end())
		each = each.binary(OpSub, all)
	}
	switch r {
	case ReduceNone:
		return each.then(func(t *Tensor) (*Tensor, error) { return Reshape(t, shape) }).end()
	case ReduceSum:
		return each.then(func(t *Tensor) (*Tensor, error) { return Sum(t, nil, false) }).end()
	}
	total := try.To(Sum(per, nil, false))
	return each.then(func(t *Tensor) (*Tensor, error) { return Sum(t, nil, false) }).div(total).end()
}

// ignoring is target with the ignored class replaced by -100, which no other target may be.
func ignoring(op string, target *Tensor, ignore int64, c int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if ignore == ignoreTarget || !target.dtype.IsInt() {
		return target, nil
	}
	ids := try.To(Clone(try.To(Cast(target, dtype.Int64))))
	v := Elems[int64](ids)
	for i, id := range v {
		switch id {
		case ignore:
			v[i] = ignoreTarget
		case ignoreTarget:
			return nil, fmt.Errorf("%s: target %d (sample %d) is out of range for %d classes: expected 0 to %d", op, id, i, c, c-1)
		}
	}
	return ids, nil
}

// smoothCrossEntropy takes probabilities as targets.
func smoothCrossEntropy(scores, target *Tensor, o ClassOptions, c int, r Reduction) (_ *Tensor, err error) {
	defer try.Caught(&err)
	b := build("cross_entropy", scores)
	if o.Smoothing > 0 {
		target = try.To(chain(target).scalar(OpMul, Float(1-o.Smoothing)).scalar(OpAdd, Float(o.Smoothing/float64(c))).end())
	}
	if o.Weight != nil {
		shape := make([]int, max(len(scores.shape)-1, 1))
		for i := range shape {
			shape[i] = 1
		}
		shape[0] = c
		if len(scores.shape) == 1 {
			shape = shape[:1]
		}
		weight := try.To(View(b.contiguous(o.Weight.Detach()), shape))
		target = try.To(Mul(target, weight))
	}
	return softCrossEntropy(scores, target, r)
}
