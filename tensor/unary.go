package tensor

import (
	"fmt"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// A UnaryOp is an elementwise function.
type UnaryOp uint8

// The elementwise functions. Gelu is the exact one, with erf; Round rounds
// half to even.
const (
	OpNeg UnaryOp = iota
	OpAbs
	OpSign
	OpSquare
	OpSqrt
	OpReciprocal
	OpExp
	OpExpm1
	OpLog
	OpLog1p
	OpTanh
	OpSigmoid
	OpErf
	OpSin
	OpCos
	OpRelu
	OpGelu
	OpSilu
	OpTan
	OpAsin
	OpAcos
	OpAtan
	OpFloor
	OpCeil
	OpRound
	OpTrunc
	OpNot
)

var unaryOps = [...]struct {
	name    string
	gradual bool // has a gradient
	ints    bool // works on integers as it is; others compute in float32
}{
	OpNeg: {"neg", true, true}, OpAbs: {"abs", true, true}, OpSign: {"sign", true, true},
	OpSquare: {"square", true, true}, OpSqrt: {"sqrt", true, false},
	OpReciprocal: {"reciprocal", true, false}, OpExp: {"exp", true, false},
	OpExpm1: {"expm1", true, false}, OpLog: {"log", true, false}, OpLog1p: {"log1p", true, false},
	OpTanh: {"tanh", true, false}, OpSigmoid: {"sigmoid", true, false}, OpErf: {"erf", true, false},
	OpSin: {"sin", true, false}, OpCos: {"cos", true, false}, OpRelu: {"relu", true, true},
	OpGelu: {"gelu", true, false}, OpSilu: {"silu", true, false}, OpTan: {"tan", true, false},
	OpAsin: {"asin", true, false}, OpAcos: {"acos", true, false}, OpAtan: {"atan", true, false},
	OpFloor: {"floor", true, true}, OpCeil: {"ceil", true, true}, OpRound: {"round", true, true}, OpTrunc: {"trunc", true, true},
	OpNot: {"logical_not", false, true},
}

func (op UnaryOp) String() string { return unaryOps[op].name }

// rounds is true for the functions whose results are whole numbers.
func (op UnaryOp) rounds() bool { return op >= OpFloor && op <= OpTrunc }

// unaryBacks has one backward function for each function, made once.
var unaryBacks [len(unaryOps)]backward

func init() {
	for op := range unaryBacks {
		unaryBacks[op] = func(n *node, g *Tensor, out []*Tensor) { backUnary(UnaryOp(op), n, g, out) }
	}
}

// Unary applies a function to each element.
func Unary(op UnaryOp, a *Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	info := &unaryOps[op]
	compute := a.dtype
	switch {
	case compute == dtype.Complex64 || compute == dtype.Float16:
		return nil, StorageOnly(info.name, compute)
	case op == OpNot:
		compute = dtype.Bool
	case compute == dtype.BFloat16 && (op == OpGelu || op == OpSilu):
		return activate(info.name, kernel.Activation(op), a, 0, 0)
	case compute == dtype.BFloat16:
		return halfUnary(op, a), nil
	case compute == dtype.Bool && (op == OpNeg || op == OpAbs || op == OpSign || op == OpSquare):
		return nil, fmt.Errorf("%s: not defined for bool tensors; cast with .to()", info.name)
	case !compute.IsFloat() && !info.ints:
		compute = dtype.Float32
	case !compute.IsFloat() && op.rounds():
		return Clone(a)
	case (op == OpGelu || op == OpSilu) && compute.IsFloat() && records(a, nil):
		return activate(info.name, kernel.Activation(op), a, 0, 0)
	}
	x := cast(info.name, a, compute)
	out := newTensor(info.name, a.ctx, a.shape, compute)
	kUnary(op, out, x)
	if info.gradual && records(a, nil) && compute.IsFloat() {
		n := record(out, info.name, unaryBacks[op], a)
		switch {
		case op == OpNeg, op == OpSign, op.rounds():
		case kernel.UnaryOp(op).SavesOutput():
			n.save(out)
		default:
			n.save(x)
		}
	}
	return out, nil
}

func backUnary(op UnaryOp, n *node, g *Tensor, out []*Tensor) {
	dx := overwrite(op.String(), g)
	out[0] = dx
	switch {
	case op == OpNeg:
		kUnary(OpNeg, dx, g)
	case op == OpSign || op.rounds():
		clear(dx.Bytes())
	default:
		kUnaryGrad(op, dx, g, n.val(0))
	}
}
