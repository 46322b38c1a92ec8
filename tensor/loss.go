package tensor

import (
	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
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
func classes(op string, x, target *Tensor) (rows, ix *Tensor) {
	try.Ok(NeedFloat(op, x))
	if !target.dtype.IsInt() {
		try.Fail("%s: targets must be integers (class numbers), not %s", op, target.dtype)
	}
	d := 1
	if len(x.shape) == 1 {
		d = 0
	}
	if len(x.shape) == 0 || !sameShape(target.shape, ReducedShape(x.shape, []int{d}, false)) {
		try.Fail("%s: targets of shape %s do not fit scores of shape %s: expected (N, C) and (N,)", op, ShapeString(target.shape), ShapeString(x.shape))
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
		rows = try.To(Contiguous(try.To(Reshape(rows, []int{target.n, x.shape[d]})))) // a view may be enough for Reshape
	}
	b := build(op, target)
	ix = b.indices(target)
	for i, c := range Values[int64](ix) {
		if (c < 0 || c >= int64(x.shape[d])) && c != IgnoreTarget {
			try.Fail("%s: target %d (sample %d) is out of range for %d classes: expected 0 to %d", op, c, i, x.shape[d], x.shape[d]-1)
		}
	}
	return rows, ix
}

// IgnoreTarget is the target of a sample that does not count unless told otherwise, as in PyTorch.
const IgnoreTarget = -100

func countTargets(ix *Tensor) int {
	n := 0
	for _, c := range Values[int64](ix) {
		if c != IgnoreTarget {
			n++
		}
	}
	return n
}

// CrossEntropy returns the negative logarithm of the softmax probability of the target class. scores are (N, C) or
// (N, C, d…); target is (N) or (N, d…) of class numbers, where -100 leaves the sample out, or probabilities of the
// scores' shape and type.
func CrossEntropy(scores, target *Tensor, r Reduction) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&scores, &target).round(&result)
	const op = "cross_entropy"
	if target.dtype.IsFloat() {
		return softCrossEntropy(scores, target, r), nil
	}
	x, ix := classes(op, scores, target)
	rows, n := x.shape[0], x.shape[1]
	b := build(op, x)
	loss, lse := b.like(rows), b.like(rows)
	if d := loss.on(); d != nil {
		from, target := d.read(x), d.read(ix)
		d.CrossEntropy(x.dtype, rows, n, d.write(loss), d.write(lse), from, target)
	} else {
		kernel.CrossEntropy(x.dtype, rows, n, loss.ptr(), lse.ptr(), x.read(), Values[int64](ix))
	}
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
		n := record(out, op, func(nd *node, g *Tensor, out []*Tensor) {
			x, lse, ix, step := nd.val(0), nd.val(1), nd.val(2), 0
			if r == ReduceNone {
				step = 1
			}
			b := build(op, g)
			out[0], g = b.like(x.shape...), b.contiguous(g)
			if d := out[0].on(); d != nil {
				dloss, x, lse, ix := d.read(g), d.read(x), d.read(lse), d.read(ix)
				d.CrossEntropyGrad(g.dtype, rows, n, d.write(out[0]), dloss, step, scale, x, lse, ix)
				return
			}
			kernel.CrossEntropyGrad(g.dtype, rows, n, out[0].ptr(), g.read(), step, scale, x.read(), lse.read(), Values[int64](ix))
			alive(g)
		}, x).save(x, lse, ix)
		if n.again != nil {
			n.composed(func(in []*Tensor) *Tensor {
				return classLoss(op, try.To(LogSoftmax(in[0], 1)), ix, target.shape, ClassOptions{}, r)
			})
		}
	}
	Discard(lse)
	return out, nil
}

// softCrossEntropy takes probabilities as targets.
func softCrossEntropy(scores, target *Tensor, r Reduction) *Tensor {
	if !sameShape(scores.shape, target.shape) || len(scores.shape) == 0 {
		hint := ""
		if len(target.shape) == 1 && len(scores.shape) == 2 && target.n == scores.shape[0] {
			hint = ": class numbers are integers, target.long()"
		}
		try.Fail("cross_entropy: probabilities of shape %s do not fit scores of shape %s%s", ShapeString(target.shape), ShapeString(scores.shape), hint)
	}
	sameFloat("cross_entropy", scores, target)
	d := min(1, len(scores.shape)-1)
	return try.To(chain(scores).then(func(t *Tensor) (*Tensor, error) { return LogSoftmax(t, d) }).mul(target).
		then(func(t *Tensor) (*Tensor, error) { return Sum(t, []int{d}, false) }).unary(OpNeg).then(r.apply).end())
}

// NLLLoss returns minus the score of the target class, times its weight, unless weight is nil; scores are logarithms of
// probabilities. Samples whose target is ignore do not count.
func NLLLoss(logp, target, weight *Tensor, ignore int64, r Reduction) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&logp, &weight).round(&result)
	const op = "nll_loss"
	o := ClassOptions{Weight: weight, Ignore: ignore}
	ids := ignoring(op, target, ignore, o.classes(op, logp))
	x, ix := classes(op, logp, ids)
	if weight != nil || countTargets(ix) != ix.n {
		return classLoss(op, x, ix, target.shape, o, r), nil
	}
	column := try.To(View(ix, []int{ix.n, 1}))
	return chain(x).then(func(t *Tensor) (*Tensor, error) { return Gather(t, 1, column) }).
		then(func(t *Tensor) (*Tensor, error) { return Reshape(t, target.shape) }).unary(OpNeg).then(r.apply).end()
}

// Accuracy returns the share of rows of scores (N, C) whose largest entry is the target's class.
func Accuracy(scores, target *Tensor) (_ float64, err error) {
	defer try.Caught(&err)
	try.FailIf(len(scores.shape) != 2 || len(target.shape) != 1 || target.shape[0] != scores.shape[0],
		"accuracy: targets of shape %s do not fit scores of shape %s: expected (N, C) and (N,)", shaped(target.shape), shaped(scores.shape))
	if target.n == 0 {
		return 0, emptyReduction("accuracy", target)
	}
	hits := try.To(chain(scores).then(func(t *Tensor) (*Tensor, error) { return ArgMax(t, new(1), false) }).binary(OpEq, target).
		then(func(t *Tensor) (*Tensor, error) { return Sum(t, nil, false) }).end())
	return hits.Element(0).f / float64(target.n), nil
}

// ClassOptions are settings of a cross entropy.
type ClassOptions struct {
	Weight    *Tensor // (C), of the scores' type: weight of each class; nil: 1
	Ignore    int64   // targets that leave their sample out
	Smoothing float64 // the share of the target's probability that is spread evenly over all classes
}

// CrossEntropyWith is CrossEntropy with weights of the classes, another target that leaves samples out, and smoothed
// targets (Szegedy et al. 2016). The mean is over the weights of the targets, as in PyTorch.
func CrossEntropyWith(scores, target *Tensor, o ClassOptions, r Reduction) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&scores, &target, &o.Weight).round(&result)
	const op = "cross_entropy"
	c := o.classes(op, scores)
	try.FailIf(!(o.Smoothing >= 0 && o.Smoothing <= 1), "%s: label_smoothing must be between 0 and 1, not %v", op, o.Smoothing)
	if target.dtype.IsFloat() {
		try.FailIf(o.Ignore != IgnoreTarget, "%s: targets that are probabilities have no class to ignore", op)
		return smoothCrossEntropy(scores, target, o, c, r), nil
	}
	ids := ignoring(op, target, o.Ignore, c)
	if o.Weight == nil && o.Smoothing == 0 {
		return CrossEntropy(scores, ids, r)
	}
	x, ix := classes(op, scores, ids)
	logp := try.To(LogSoftmax(x, 1))
	return classLoss(op, logp, ix, target.shape, o, r), nil
}

// classes returns the number of classes of scores, and checks that there are as many weights.
func (o *ClassOptions) classes(op string, scores *Tensor) int {
	try.Ok(NeedFloat(op, scores))
	try.FailIf(len(scores.shape) == 0, "%s: scores have no dimension of classes", op)
	c := scores.shape[min(1, len(scores.shape)-1)]
	if o.Weight != nil {
		sameFloat(op, scores, o.Weight)
		try.FailIf(len(o.Weight.shape) != 1 || o.Weight.shape[0] != c, "%s: weights of shape %s do not fit scores of shape %s: expected (%d,)", op, shaped(o.Weight.shape), shaped(scores.shape), c)
	}
	return c
}

// classLoss combines the losses of rows of log-probabilities (n, C) with n target classes, where -100 leaves its row out.
func classLoss(op string, logp, ix *Tensor, shape []int, o ClassOptions, r Reduction) *Tensor {
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
		return try.To(each.then(func(t *Tensor) (*Tensor, error) { return Reshape(t, shape) }).end())
	case ReduceSum:
		return try.To(each.then(func(t *Tensor) (*Tensor, error) { return Sum(t, nil, false) }).end())
	}
	total := try.To(Sum(per, nil, false))
	return try.To(each.then(func(t *Tensor) (*Tensor, error) { return Sum(t, nil, false) }).div(total).end())
}

// ignoring returns target with the ignored class replaced by -100, which no other target may be.
func ignoring(op string, target *Tensor, ignore int64, c int) *Tensor {
	if ignore == IgnoreTarget || !target.dtype.IsInt() {
		return target
	}
	ids := try.To(Clone(try.To(Cast(target, dtype.Int64))))
	v := Elems[int64](ids)
	for i, id := range v {
		switch id {
		case ignore:
			v[i] = IgnoreTarget
		case IgnoreTarget:
			try.Fail("%s: target %d (sample %d) is out of range for %d classes: expected 0 to %d", op, id, i, c, c-1)
		}
	}
	return ids
}

// smoothCrossEntropy takes probabilities as targets.
func smoothCrossEntropy(scores, target *Tensor, o ClassOptions, c int, r Reduction) *Tensor {
	b := build("cross_entropy", scores)
	if o.Smoothing > 0 {
		target = try.To(chain(target).scalar(OpMul, Float(1-o.Smoothing)).scalar(OpAdd, Float(o.Smoothing/float64(c))).end())
	}
	if o.Weight != nil {
		weight := try.To(View(b.contiguous(o.Weight.Detach()), alongAxis(max(len(scores.shape)-1, 1), 0, c)))
		target = try.To(Mul(target, weight))
	}
	return softCrossEntropy(scores, target, r)
}
