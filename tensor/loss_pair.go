package tensor

import "fmt"

// pairLoss checks the operands of a loss that compares equal shapes:
// broadcasting here is nearly always a mistake.
func pairLoss(op string, x, y *Tensor) error {
	if !sameShape(x.shape, y.shape) {
		return fmt.Errorf("%s: shapes %s and %s differ", op, ShapeString(x.shape), ShapeString(y.shape))
	}
	if _, err := computing(y.dtype, op); err != nil {
		return err
	}
	return needFloat(op, x)
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
func BCEWithLogits(x, y *Tensor, r Reduction) (*Tensor, error) {
	if half(x, y) {
		return precise(func(t []*Tensor) (*Tensor, error) { return BCEWithLogits(t[0], t[1], r) }, x, y)
	}
	if err := pairLoss("bce_with_logits", x, y); err != nil {
		return nil, err
	}
	const op = "bce_with_logits"
	plain, target := x.Detach(), y.Detach()
	b := build(op, x)
	soft := b.keep(chain(plain).unary(OpAbs).unary(OpNeg).unary(OpExp).unary(OpLog1p).end())
	xy := b.keep(Mul(plain, target))
	if b.err != nil {
		return nil, b.err
	}
	each, err := chain(plain).unary(OpRelu).binary(OpSub, xy).binary(OpAdd, soft).end()
	if err != nil {
		return nil, err
	}
	if records(x, y) {
		record(each, op, func(n *node, g *Tensor, out []*Tensor) error {
			x, y, b := n.val(0), n.val(1), build(op, g)
			if n.needs(0) {
				out[0] = b.keep(chain(x).unary(OpSigmoid).binary(OpSub, y).mul(g).end())
			}
			if n.needs(1) {
				out[1] = b.keep(chain(x).mul(g).unary(OpNeg).end())
			}
			return b.err
		}, x, y).save(x, y)
	}
	return r.apply(each)
}
