package tensor

import (
	"fmt"

	"drun/element"
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
	OpFloor
	OpCeil
	OpRound
	OpNot
)

// What a function's gradient is computed from.
const (
	fromNothing = iota // no gradient
	fromInput
	fromOutput
)

var unaryOps = [...]struct {
	name string
	from int
	ints bool // works on integers as it is; others compute in float32
}{
	OpNeg: {"neg", fromInput, true}, OpAbs: {"abs", fromInput, true}, OpSign: {"sign", fromNothing, true},
	OpSquare: {"square", fromInput, true}, OpSqrt: {"sqrt", fromOutput, false},
	OpReciprocal: {"reciprocal", fromOutput, false}, OpExp: {"exp", fromOutput, false},
	OpExpm1: {"expm1", fromOutput, false}, OpLog: {"log", fromInput, false}, OpLog1p: {"log1p", fromInput, false},
	OpTanh: {"tanh", fromOutput, false}, OpSigmoid: {"sigmoid", fromOutput, false}, OpErf: {"erf", fromInput, false},
	OpSin: {"sin", fromInput, false}, OpCos: {"cos", fromInput, false}, OpRelu: {"relu", fromOutput, true},
	OpGelu: {"gelu", fromInput, false}, OpSilu: {"silu", fromInput, false}, OpFloor: {"floor", fromNothing, true},
	OpCeil: {"ceil", fromNothing, true}, OpRound: {"round", fromNothing, true}, OpNot: {"logical_not", fromNothing, true},
}

func (op UnaryOp) String() string { return unaryOps[op].name }

// unaryBacks has one backward function for each function, made once.
var unaryBacks [len(unaryOps)]backward

func init() {
	for op := range unaryBacks {
		unaryBacks[op] = func(n *node, g *Tensor, out []*Tensor) error { return backUnary(UnaryOp(op), n, g, out) }
	}
}

// Unary applies a function to each element.
func Unary(op UnaryOp, a *Tensor) (*Tensor, error) {
	info := &unaryOps[op]
	compute := a.dtype
	switch {
	case compute == element.Complex64 || compute == element.Float16 || compute == element.BFloat16:
		return nil, storageOnly(info.name, compute)
	case op == OpNot:
		compute = element.Bool
	case compute == element.Bool && (op == OpNeg || op == OpAbs || op == OpSign || op == OpSquare):
		return nil, fmt.Errorf("%s: not defined for bool tensors; cast with .to()", info.name)
	case !compute.IsFloat() && !info.ints:
		compute = element.Float32
	case !compute.IsFloat() && op >= OpFloor && op <= OpRound:
		return Clone(a)
	}
	x, err := cast(info.name, a, compute)
	if err != nil {
		return nil, err
	}
	out, err := newTensor(info.name, a.ctx, a.shape, compute)
	if err != nil {
		return nil, err
	}
	kUnary(op, out, x)
	if info.from != fromNothing && records(a, nil) && compute.IsFloat() {
		n := record(out, info.name, unaryBacks[op], a)
		switch {
		case op == OpNeg:
		case info.from == fromInput:
			n.save(x)
		default:
			n.save(out)
		}
	}
	return out, nil
}

func backUnary(op UnaryOp, n *node, g *Tensor, out []*Tensor) error {
	dx, err := overwrite(op.String(), g)
	if err != nil {
		return err
	}
	out[0] = dx
	if op == OpNeg {
		kUnary(OpNeg, dx, g)
	} else {
		kUnaryGrad(op, dx, g, n.val(0))
	}
	return nil
}
