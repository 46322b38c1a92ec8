package tensor

import (
	"math"

	"drun/internal/try"
)

// slopes are the derivatives of elementwise functions, made of other operations: of all, for gradients of gradients; a backward pass
// uses those of functions that have no kernel for them.
var slopes map[UnaryOp]func(x *Tensor) *Tensor

func init() { // the functions lead back to this table
	slopes = map[UnaryOp]func(x *Tensor) *Tensor{
		OpSquare: func(x *Tensor) *Tensor { return scaled(x, 2, 0) },
		OpSqrt:   func(x *Tensor) *Tensor { return scaled(apply(OpRsqrt, x), 0.5, 0) },
		OpReciprocal: func(x *Tensor) *Tensor {
			return apply(OpNeg, apply(OpSquare, apply(OpReciprocal, x)))
		},
		OpExp:     func(x *Tensor) *Tensor { return apply(OpExp, x) },
		OpExpm1:   func(x *Tensor) *Tensor { return apply(OpExp, x) },
		OpLog:     func(x *Tensor) *Tensor { return apply(OpReciprocal, x) },
		OpLog1p:   func(x *Tensor) *Tensor { return apply(OpReciprocal, scaled(x, 1, 1)) },
		OpTanh:    func(x *Tensor) *Tensor { return scaled(apply(OpSquare, apply(OpTanh, x)), -1, 1) },
		OpSigmoid: sigmoidSlope,
		OpErf: func(x *Tensor) *Tensor {
			return scaled(apply(OpExp, apply(OpNeg, apply(OpSquare, x))), 2/math.SqrtPi, 0)
		},
		OpSin:  func(x *Tensor) *Tensor { return apply(OpCos, x) },
		OpCos:  func(x *Tensor) *Tensor { return apply(OpNeg, apply(OpSin, x)) },
		OpTan:  func(x *Tensor) *Tensor { return scaled(apply(OpSquare, apply(OpTan, x)), 1, 1) },
		OpAsin: func(x *Tensor) *Tensor { return apply(OpRsqrt, scaled(apply(OpSquare, x), -1, 1)) },
		OpAcos: func(x *Tensor) *Tensor {
			return apply(OpNeg, apply(OpRsqrt, scaled(apply(OpSquare, x), -1, 1)))
		},
		OpAtan: func(x *Tensor) *Tensor { return apply(OpReciprocal, scaled(apply(OpSquare, x), 1, 1)) },
		OpGelu: func(x *Tensor) *Tensor { // Φ(x) + x·φ(x)
			density := scaled(apply(OpExp, scaled(apply(OpSquare, x), -0.5, 0)), 1/math.Sqrt(2*math.Pi), 0)
			share := scaled(apply(OpErf, scaled(x, math.Sqrt2/2, 0)), 0.5, 0.5)
			return try.To(Add(share, try.To(Mul(x, density))))
		},
		OpSilu: func(x *Tensor) *Tensor {
			return try.To(Add(apply(OpSigmoid, x), try.To(Mul(x, sigmoidSlope(x)))))
		},
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

func sigmoidSlope(x *Tensor) *Tensor {
	s := apply(OpSigmoid, x)
	return try.To(Mul(s, scaled(s, -1, 1)))
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
