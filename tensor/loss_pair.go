package tensor

import (
	"fmt"
	"math"

	"drun/internal/try"
	"drun/kernel"
)

// pairLoss checks the operands of a loss that compares equal shapes: broadcasting here is nearly always a mistake.
func pairLoss(op string, x, y *Tensor) {
	try.FailIf(!sameShape(x.shape, y.shape), "%s: shapes %s and %s differ", op, shaped(x.shape), shaped(y.shape))
	if _, err := computing(y.dtype, op); err != nil {
		try.Ok(err)
	}
	try.Ok(NeedFloat(op, x))
}

// MSELoss returns the squared difference.
func MSELoss(x, y *Tensor, r Reduction) (*Tensor, error) {
	return difference("mse_loss", x, y, OpSquare, r)
}

// L1Loss returns the absolute difference.
func L1Loss(x, y *Tensor, r Reduction) (*Tensor, error) {
	return difference("l1_loss", x, y, OpAbs, r)
}

func difference(op string, x, y *Tensor, of UnaryOp, r Reduction) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&x, &y).round(&result)
	pairLoss(op, x, y)
	return chain(x).binary(OpSub, y).unary(of).then(r.apply).end()
}

// BCEWithLogits is the cross entropy of sigmoid(x) and y, as
// relu(x) - x·y + log(1 + exp(-|x|)), which does not overflow.
func BCEWithLogits(x, y *Tensor, r Reduction) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&x, &y).round(&result)
	pairLoss("bce_with_logits", x, y)
	const op = "bce_with_logits"
	plain, target := x.Detach(), y.Detach()
	soft := try.To(chain(plain).unary(OpAbs).unary(OpNeg).unary(OpExp).unary(OpLog1p).end())
	xy := try.To(Mul(plain, target))
	each := try.To(chain(plain).unary(OpRelu).binary(OpSub, xy).binary(OpAdd, soft).end())
	if records(x, y) {
		back := func(n *node, g *Tensor, out []*Tensor) {
			x, y := n.val(0), n.val(1)
			if n.needs(0) {
				out[0] = try.To(chain(x).unary(OpSigmoid).binary(OpSub, y).mul(g).end())
			}
			if n.needs(1) {
				out[1] = try.To(chain(x).mul(g).unary(OpNeg).end())
			}
		}
		record(each, op, back, x, y).save(x, y).twice(back)
	}
	return r.apply(each)
}

// ReduceBatchMean divides the sum by the number of samples, the first dimension.
const ReduceBatchMean Reduction = ReduceNone + 1

// WeightedBCE is BCEWithLogits with elements multiplied by weight, and their positive parts by posWeight; both
// broadcast to x, and may be nil.
func WeightedBCE(x, y, weight, posWeight *Tensor, r Reduction) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&x, &y, &weight, &posWeight).round(&result)
	const op = "bce_with_logits"
	pairLoss(op, x, y)
	for _, w := range []*Tensor{weight, posWeight} {
		if w == nil {
			continue
		}
		sameFloat(op, x, w)
		if s, err := BroadcastShape(op, nil, x.shape, w.shape); err != nil || !sameShape(s, x.shape) {
			return nil, fmt.Errorf("%s: weights of shape %s do not broadcast to shape %s", op, ShapeString(w.shape), ShapeString(x.shape))
		}
	}
	negative := try.To(Unary(OpNeg, x))
	soft := try.To(Softplus(negative, 1, math.Inf(1)))
	if posWeight != nil {
		factor := try.To(chain(posWeight.Detach()).scalar(OpSub, Float(1)).mul(y).scalar(OpAdd, Float(1)).end())
		soft = try.To(Mul(soft, factor))
	}
	rest := try.To(BinaryScalar(OpSub, y, Float(1), true)) // 1 - y
	each := chain(rest).mul(x).binary(OpAdd, soft)
	if weight != nil {
		each = each.mul(weight.Detach())
	}
	return each.then(r.apply).end()
}

// HuberLoss is half the squared difference up to delta, and a line of slope delta beyond (Huber 1964).
func HuberLoss(x, y *Tensor, delta float64, r Reduction) (*Tensor, error) {
	return huber("huber_loss", x, y, delta, r)
}

// SmoothL1Loss is HuberLoss divided by beta; the absolute difference with a beta of 0.
func SmoothL1Loss(x, y *Tensor, beta float64, r Reduction) (*Tensor, error) {
	const op = "smooth_l1_loss"
	if beta == 0 {
		return difference(op, x, y, OpAbs, r)
	}
	each, err := huber(op, x, y, beta, ReduceNone)
	return chained{t: each, err: err}.scalar(OpDiv, Float(beta)).then(r.apply).end()
}

func huber(op string, x, y *Tensor, delta float64, r Reduction) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&x, &y).round(&result)
	pairLoss(op, x, y)
	return chain(x).binary(OpSub, y).then(func(t *Tensor) (*Tensor, error) { return activate(op, kernel.Huber, t, delta, 0) }).then(r.apply).end()
}

// KLDiv is target·(log(target) - x), 0 where target is 0: the Kullback-Leibler divergence of x, log-probabilities,
// from target, probabilities or, with logTarget, log-probabilities.
func KLDiv(x, target *Tensor, logTarget bool, r Reduction) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&x, &target).round(&result)
	const op = "kl_div"
	pairLoss(op, x, target)
	sameFloat(op, x, target)
	var each chained
	if logTarget {
		p := try.To(Unary(OpExp, target))
		each = chain(target).binary(OpSub, x).mul(p)
	} else {
		zero := try.To(BinaryScalar(OpEq, target, Int(0), false))
		own := try.To(chain(target).then(func(t *Tensor) (*Tensor, error) { return MaskedFill(t, zero, Int(1)) }).unary(OpLog).mul(target).end())
		cross := try.To(Mul(target, x))
		each = chain(own).binary(OpSub, cross)
	}
	if r != ReduceBatchMean {
		return each.then(r.apply).end()
	}
	try.FailIf(len(x.shape) == 0 || x.shape[0] == 0, "%s: a mean over the batch needs samples, but the input's shape is %s", op, shaped(x.shape))
	return each.then(ReduceSum.apply).scalar(OpDiv, Float(float64(x.shape[0]))).end()
}

// CosineSimilarity is a·b / (‖a‖·‖b‖) along a dimension; norms below eps count as eps. a and b broadcast.
func CosineSimilarity(a, b *Tensor, dim int, eps float64) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&a, &b).round(&result)
	const op = "cosine_similarity"
	sameFloat(op, a, b)
	shape := try.To(BroadcastShape(op, nil, a.shape, b.shape))
	d := try.To(Axis(op, dim, len(shape)))
	unit := func(t *Tensor) (_ *Tensor, err error) {
		defer try.Caught(&err)
		t = try.To(Expand(t, shape))
		length := try.To(chain(t).unary(OpSquare).then(func(t *Tensor) (*Tensor, error) { return Sum(t, []int{d}, true) }).
			then(func(t *Tensor) (*Tensor, error) {
				least := Float(eps * eps)
				return Clamp(t, &least, nil)
			}).unary(OpSqrt).end())
		return Div(t, length)
	}
	x := try.To(unit(a))
	y := try.To(unit(b))
	return chain(x).mul(y).then(func(t *Tensor) (*Tensor, error) { return Sum(t, []int{d}, false) }).end()
}

// CosineEmbeddingLoss is 1 - cos(a, b) where target is 1, and cos(a, b) - margin, at least
// 0, where it is -1. a and b are (N, D) or (D), target (N) or without dimensions.
func CosineEmbeddingLoss(a, b, target *Tensor, margin float64, r Reduction) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&a, &b).round(&result)
	const op = "cosine_embedding_loss"
	sameFloat(op, a, b)
	if nd := len(a.shape); nd < 1 || nd > 2 || !sameShape(a.shape, b.shape) || !sameShape(target.shape, a.shape[:nd-1]) {
		return nil, fmt.Errorf("%s: shapes %s, %s and %s do not fit: expected (N, D), (N, D) and (N,)", op, ShapeString(a.shape), ShapeString(b.shape), ShapeString(target.shape))
	}
	last := len(a.shape) - 1
	sum := func(t *Tensor) (*Tensor, error) { return Sum(t, []int{last}, false) }
	const tiny = 1e-12
	bb := try.To(chain(b).unary(OpSquare).then(sum).scalar(OpAdd, Float(tiny)).end())
	length := try.To(chain(a).unary(OpSquare).then(sum).scalar(OpAdd, Float(tiny)).mul(bb).unary(OpSqrt).end())
	cos := try.To(chain(a).mul(b).then(sum).div(length).end())
	like := try.To(BinaryScalar(OpSub, cos, Float(1), true))
	unlike := try.To(chain(cos).scalar(OpSub, Float(margin)).unary(OpRelu).end())
	zero := newNumber(a.ctx, Int(0), a.dtype)
	pos, neg := try.To(BinaryScalar(OpEq, target, Int(1), false)), try.To(BinaryScalar(OpEq, target, Int(-1), false))
	first, second := try.To(Where(pos, like, zero)), try.To(Where(neg, unlike, zero))
	return chain(first).binary(OpAdd, second).then(r.apply).end()
}

// TripletMarginLoss is margin + ‖anchor - positive‖ - ‖anchor - negative‖, at least 0, in
// the p-norm over the last dimension; eps is added to differences. swap measures the second
// distance from the nearer of anchor and positive (Balntas et al. 2016).
func TripletMarginLoss(anchor, positive, negative *Tensor, margin, p, eps float64, swap bool, r Reduction) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&anchor, &positive, &negative).round(&result)
	const op = "triplet_margin_loss"
	sameFloat(op, anchor, positive, negative)
	try.FailIf(len(anchor.shape) == 0 || !sameShape(anchor.shape, positive.shape) || !sameShape(anchor.shape, negative.shape),
		"%s: shapes %s, %s and %s differ", op, shaped(anchor.shape), shaped(positive.shape), shaped(negative.shape))
	last := len(anchor.shape) - 1
	far := func(a, b *Tensor) (*Tensor, error) {
		return chain(a).binary(OpSub, b).scalar(OpAdd, Float(eps)).then(func(t *Tensor) (*Tensor, error) { return Norm(t, p, []int{last}, false) }).end()
	}
	near, away := try.To(far(anchor, positive)), try.To(far(anchor, negative))
	if swap {
		other := try.To(far(positive, negative))
		away = try.To(Binary(OpMinimum, away, other))
	}
	return chain(near).binary(OpSub, away).scalar(OpAdd, Float(margin)).unary(OpRelu).then(r.apply).end()
}
