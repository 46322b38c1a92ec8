package tensor

import (
	"fmt"

	"drun/internal/try"
)

// pairLoss checks the operands of a loss that compares equal shapes:
// broadcasting here is nearly always a mistake.
func pairLoss(op string, x, y *Tensor) error {
	if !sameShape(x.shape, y.shape) {
		return fmt.Errorf("%s: shapes %s and %s differ", op, ShapeString(x.shape), ShapeString(y.shape))
	}
	if _, err := computing(y.dtype, op); err != nil {
		return err
	}
	return NeedFloat(op, x)
}

// MSELoss is the squared difference.
func MSELoss(x, y *Tensor, r Reduction) (*Tensor, error) {
	return difference("mse_loss", x, y, OpSquare, r)
}

// L1Loss is the absolute difference.
func L1Loss(x, y *Tensor, r Reduction) (*Tensor, error) {
	return difference("l1_loss", x, y, OpAbs, r)
}

func difference(op string, x, y *Tensor, of UnaryOp, r Reduction) (*Tensor, error) {
	if half(x, y) {
		return precise(func(t []*Tensor) (*Tensor, error) { return difference(op, t[0], t[1], of, r) }, x, y)
	}
	if err := pairLoss(op, x, y); err != nil {
		return nil, err
	}
	return chain(x).binary(OpSub, y).unary(of).then(r.apply).end()
}

// BCEWithLogits is the cross entropy of sigmoid(x) and y, as
// relu(x) - x·y + log(1 + exp(-|x|)), which does not overflow.
func BCEWithLogits(x, y *Tensor, r Reduction) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if half(x, y) {
		return precise(func(t []*Tensor) (*Tensor, error) { return BCEWithLogits(t[0], t[1], r) }, x, y)
	}
	try.Ok(pairLoss("bce_with_logits", x, y))
	const op = "bce_with_logits"
	plain, target := x.Detach(), y.Detach()
	soft := try.To(chain(plain).unary(OpAbs).unary(OpNeg).unary(OpExp).unary(OpLog1p).end())
	xy := try.To(Mul(plain, target))
	each := try.To(chain(plain).unary(OpRelu).binary(OpSub, xy).binary(OpAdd, soft).end())
	if records(x, y) {
		record(each, op, func(n *node, g *Tensor, out []*Tensor) error {
			x, y := n.val(0), n.val(1)
			if n.needs(0) {
				out[0] = try.To(chain(x).unary(OpSigmoid).binary(OpSub, y).mul(g).end())
			}
			if n.needs(1) {
				out[1] = try.To(chain(x).mul(g).unary(OpNeg).end())
			}
			return nil
		}, x, y).save(x, y)
	}
	return r.apply(each)
}
