package tensor

import "fmt"

// pairLoss checks the operands of a loss that compares equal shapes:
// broadcasting here is nearly always a mistake.
func pairLoss(op string, x, y *Tensor) error {
	if !sameShape(x.shape, y.shape) {
		return fmt.Errorf("%s: shapes %s and %s differ", op, shapeString(x.shape), shapeString(y.shape))
	}
	if _, err := computing(y.dtype, op); err != nil {
		return err
	}
	return needFloat(op, x)
}

// MSELoss is the squared difference.
func MSELoss(x, y *Tensor, r Reduction) (*Tensor, error) {
	if err := pairLoss("mse_loss", x, y); err != nil {
		return nil, err
	}
	each, err := chain(x).binary(OpSub, y).unary(OpSquare).end()
	if err != nil {
		return nil, err
	}
	return r.apply(each)
}

// L1Loss is the absolute difference.
func L1Loss(x, y *Tensor, r Reduction) (*Tensor, error) {
	if err := pairLoss("l1_loss", x, y); err != nil {
		return nil, err
	}
	each, err := chain(x).binary(OpSub, y).unary(OpAbs).end()
	if err != nil {
		return nil, err
	}
	return r.apply(each)
}

// BCEWithLogits is the cross entropy of sigmoid(x) and y, as
// relu(x) - x·y + log(1 + exp(-|x|)), which does not overflow.
func BCEWithLogits(x, y *Tensor, r Reduction) (*Tensor, error) {
	if err := pairLoss("bce_with_logits", x, y); err != nil {
		return nil, err
	}
	const op = "bce_with_logits"
	plain, target := x.Detach(), y.Detach()
	soft, err := chain(plain).unary(OpAbs).unary(OpNeg).unary(OpExp).unary(OpLog1p).end()
	if err != nil {
		return nil, err
	}
	xy, err := Mul(plain, target)
	if err != nil {
		return nil, err
	}
	each, err := chain(plain).unary(OpRelu).binary(OpSub, xy).binary(OpAdd, soft).end()
	if err != nil {
		return nil, err
	}
	if records(x, y) {
		record(each, op, func(n *node, g *Tensor, out []*Tensor) (err error) {
			x, y := n.val(0), n.val(1)
			if n.needs(0) {
				if out[0], err = chain(x).unary(OpSigmoid).binary(OpSub, y).mul(g).end(); err != nil {
					return err
				}
			}
			if n.needs(1) {
				out[1], err = chain(x).mul(g).unary(OpNeg).end()
			}
			return err
		}, x, y).save(x, y)
	}
	return r.apply(each)
}
