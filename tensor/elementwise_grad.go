package tensor

import "drun/internal/try"

func backAdd(_ *node, g *Tensor, out []*Tensor) error {
	out[0], out[1] = g, g
	return nil
}

// numberGrads is binaryGrads for operations of a tensor with a number, which
// is kept in the node.
var numberGrads = [...]backward{OpAdd: backPass, OpSub: backPass, OpMul: backNumber(OpMul), OpDiv: backNumber(OpDiv)}

func backNumber(op BinaryOp) backward {
	return func(n *node, g *Tensor, out []*Tensor) (err error) {
		if out[0], err = overwrite(n.op, g); err == nil {
			kBinaryNumber(op, out[0], g, n.number, false)
		}
		return err
	}
}

func backSub(n *node, g *Tensor, out []*Tensor) (err error) {
	out[0] = g
	if n.needs(1) {
		out[1], err = Unary(OpNeg, g)
	}
	return err
}

func backMul(n *node, g *Tensor, out []*Tensor) error {
	if n.needs(0) {
		out[0] = try.To(Mul(g, n.val(1)))
	}
	if n.needs(1) {
		out[1] = try.To(Mul(g, n.val(0)))
	}
	return nil
}

func backDiv(n *node, g *Tensor, out []*Tensor) (err error) {
	q := try.To(Div(g, n.val(1)))
	out[0] = q
	if n.needs(1) {
		out[1], err = chain(q).mul(n.val(0)).div(n.val(1)).unary(OpNeg).end()
	}
	return err
}

func backMod(n *node, g *Tensor, out []*Tensor) (err error) {
	out[0] = g
	if n.needs(1) { // a % b = a - floor(a/b)·b
		out[1], err = chain(n.val(0)).div(n.val(1)).unary(OpFloor).mul(g).unary(OpNeg).end()
	}
	return err
}

// backAtan2: the angle of (x, y) changes by (x dy - y dx) / (x² + y²).
func backAtan2(n *node, g *Tensor, out []*Tensor) error {
	y, x := n.val(0), n.val(1)
	square := try.To(Mul(x, x))
	square = try.To(chain(y).mul(y).binary(OpAdd, square).end())
	share := try.To(Div(g, square))
	if n.needs(0) {
		out[0] = try.To(Mul(share, x))
	}
	if n.needs(1) {
		out[1] = try.To(chain(share).mul(y).unary(OpNeg).end())
	}
	return nil
}

func backPow(n *node, g *Tensor, out []*Tensor) error {
	a, b, y := n.val(0), n.val(1), n.val(2)
	if n.needs(0) { // b·a^(b-1), and 0 where b is 0
		less := try.To(BinaryScalar(OpSub, b, Float(1), false))
		out[0] = try.To(chain(a).binary(OpPow, less).mul(b).mul(g).zeroWhere(b).end())
	}
	if n.needs(1) { // a^b·log a, and 0 where a^b is 0 (log 0 has no value there)
		out[1] = try.To(chain(a).unary(OpLog).mul(y).mul(g).zeroWhere(y).end())
	}
	return nil
}

// zeroWhere puts zeros where x is 0.
func (c chained) zeroWhere(x *Tensor) chained {
	return c.then(func(t *Tensor) (*Tensor, error) {
		mask, err := BinaryScalar(OpEq, x, Int(0), false)
		if err != nil {
			return nil, err
		}
		return MaskedFill(t, mask, Int(0))
	})
}

// backExtreme passes the gradient to the operand that was chosen, and half of it to each if they are equal, as
// PyTorch does.
func backExtreme(n *node, g *Tensor, out []*Tensor) error {
	a, b, y := n.val(0), n.val(1), n.val(2)
	tie, half := try.To(Binary(OpEq, a, b)), try.To(BinaryScalar(OpMul, g, Float(0.5), false))
	half = try.To(Where(tie, half, g))
	zero := newNumber(g.ctx, Int(0), g.dtype)
	for i, x := range [2]*Tensor{a, b} {
		if !n.needs(i) {
			continue
		}
		chosen := try.To(Binary(OpEq, x, y))
		out[i] = try.To(Where(chosen, half, zero))
	}
	return nil
}
