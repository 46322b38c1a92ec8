package tensor

import (
	"math"

	"drun/internal/try"
)

// slopes are the derivatives of elementwise functions that have no kernel for them, made of other operations.
var slopes map[UnaryOp]func(x *Tensor) *Tensor

func init() { // the functions lead back to this table
	slopes = map[UnaryOp]func(x *Tensor) *Tensor{
		OpSinh:  func(x *Tensor) *Tensor { return apply(OpCosh, x) },
		OpCosh:  func(x *Tensor) *Tensor { return apply(OpSinh, x) },
		OpAsinh: func(x *Tensor) *Tensor { return apply(OpRsqrt, scaled(apply(OpSquare, x), 1, 1)) },
		OpAcosh: func(x *Tensor) *Tensor { return apply(OpRsqrt, scaled(apply(OpSquare, x), 1, -1)) },
		OpAtanh: func(x *Tensor) *Tensor { return apply(OpReciprocal, scaled(apply(OpSquare, x), -1, 1)) },
		OpExp2:  func(x *Tensor) *Tensor { return scaled(apply(OpExp2, x), math.Ln2, 0) },
		OpLog2:  func(x *Tensor) *Tensor { return apply(OpReciprocal, scaled(x, math.Ln2, 0)) },
		OpLog10: func(x *Tensor) *Tensor { return apply(OpReciprocal, scaled(x, math.Ln10, 0)) },
		OpRsqrt: func(x *Tensor) *Tensor {
			return try.To(Div(scaled(apply(OpRsqrt, x), -0.5, 0), x))
		},
		OpErfc: func(x *Tensor) *Tensor {
			return scaled(apply(OpExp, apply(OpNeg, apply(OpSquare, x))), -2/math.SqrtPi, 0)
		},
		OpErfinv: func(x *Tensor) *Tensor {
			return scaled(apply(OpExp, apply(OpSquare, apply(OpErfinv, x))), math.SqrtPi/2, 0)
		},
		OpLgamma:  func(x *Tensor) *Tensor { return apply(OpDigamma, x) },
		OpDigamma: func(x *Tensor) *Tensor { return apply(OpTrigamma, x) },
	}
}

func apply(op UnaryOp, x *Tensor) *Tensor { return try.To(Unary(op, x)) }

// scaled is a·x + b.
func scaled(x *Tensor, a, b float64) *Tensor {
	if a != 1 {
		x = try.To(BinaryScalar(OpMul, x, Float(a), false))
	}
	if b != 0 {
		x = try.To(BinaryScalar(OpAdd, x, Float(b), false))
	}
	return x
}
