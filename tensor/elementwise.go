package tensor

import (
	"fmt"
	"slices"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// A BinaryOp is an elementwise operation on two operands.
type BinaryOp uint8

// The elementwise operations on two operands. Comparisons give bool tensors;
// And, Or and Xor are for bool and integer types.
const (
	OpAdd BinaryOp = iota
	OpSub
	OpMul
	OpDiv
	OpFloorDiv
	OpMod
	OpPow
	OpMinimum
	OpMaximum
	OpAnd
	OpOr
	OpXor
	OpAtan2
	OpEq
	OpNe
	OpLt
	OpLe
	OpGt
	OpGe
)

type backward = func(n *node, g *Tensor, out []*Tensor) error

var binaryNames = [...]string{
	OpAdd: "add", OpSub: "sub", OpMul: "mul", OpDiv: "div", OpFloorDiv: "floor_divide", OpMod: "remainder",
	OpPow: "pow", OpMinimum: "minimum", OpMaximum: "maximum", OpAnd: "and", OpOr: "or", OpXor: "xor", OpAtan2: "atan2",
	OpEq: "eq", OpNe: "ne", OpLt: "lt", OpLe: "le", OpGt: "gt", OpGe: "ge",
}

// binaryGrads has the gradients of the differentiable operations, and whether they need the operands and the result.
var binaryGrads [len(binaryNames)]struct {
	back                backward
	saveInputs, saveOut bool
}

func init() { // the functions use operations themselves
	type g = struct {
		back                backward
		saveInputs, saveOut bool
	}
	binaryGrads[OpAdd], binaryGrads[OpSub] = g{back: backAdd}, g{back: backSub}
	binaryGrads[OpMul], binaryGrads[OpDiv] = g{backMul, true, false}, g{backDiv, true, false}
	binaryGrads[OpMod], binaryGrads[OpPow] = g{backMod, true, false}, g{backPow, true, true}
	binaryGrads[OpAtan2] = g{backAtan2, true, false}
	binaryGrads[OpMinimum], binaryGrads[OpMaximum] = g{backExtreme, true, true}, g{backExtreme, true, true}
}

func (op BinaryOp) String() string { return binaryNames[op] }

func (op BinaryOp) compares() bool { return op >= OpEq }

// Binary computes a op b elementwise, broadcasting. Division of integers
// gives float32; // and % of integers by zero are errors.
func Binary(op BinaryOp, a, b *Tensor) (*Tensor, error) {
	compute, err := op.computeType(promoteOperands(a, b))
	if err != nil {
		return nil, err
	}
	return binary(op, a, b, compute)
}

// BinaryScalar computes a op s, or s op a if swapped.
func BinaryScalar(op BinaryOp, a *Tensor, s Scalar, swapped bool) (_ *Tensor, err error) {
	defer try.Caught(&err)
	compute := try.To(op.computeType(promoteWeak(a.dtype, s.kind, true)))
	if op.compares() && compute.IsInt() {
		// An integer out of the type's range is compared in int64.
		if s.fits(op.String(), compute) != nil {
			compute = dtype.Int64
		}
	} else if err := s.fits(op.String(), compute); err != nil {
		return nil, err
	}
	if compute == dtype.BFloat16 {
		return halfScalar(op, a, s, swapped)
	}
	recording := records(a, nil) && compute.IsFloat() && !op.compares()
	simple := op <= OpMul || op == OpDiv && !swapped || op.compares()
	if !simple && recording || op >= OpFloorDiv && op <= OpPow && compute.IsInt() {
		b := newNumber(a.ctx, s, compute)
		if swapped {
			return binary(op, b, a, compute)
		}
		return binary(op, a, b, compute)
	}
	x := try.To(cast(op.String(), a, compute))
	result := compute
	if op.compares() {
		result = dtype.Bool
	}
	out := try.To(newTensor(op.String(), a.ctx, a.shape, result))
	kBinaryNumber(op, out, x, s, swapped)
	if recording {
		back := numberGrads[op]
		if op == OpSub && swapped {
			back = unaryBacks[OpNeg]
		}
		record(out, op.String(), back, a).number = s
	}
	return out, nil
}

// computeType returns the type in which op is computed for operands promoted to d.
func (op BinaryOp) computeType(d dtype.Type) (dtype.Type, error) {
	switch {
	case d == dtype.Complex64 || d == dtype.Float16:
		return 0, StorageOnly(op.String(), d)
	case (op == OpDiv || op == OpAtan2) && !d.IsFloat():
		return dtype.Float32, nil
	case d == dtype.Bool && op == OpSub:
		return 0, fmt.Errorf("sub: bool tensors cannot be subtracted; compare them with != or cast with .to()")
	case d == dtype.Bool && (op == OpFloorDiv || op == OpMod || op == OpPow):
		return 0, fmt.Errorf("%s: not defined for bool tensors; cast with .to()", op)
	case d == dtype.Bool && op == OpAdd:
		return dtype.Bool, nil
	case d.IsFloat() && op >= OpAnd && op <= OpXor:
		return 0, fmt.Errorf("%s: not defined for %s tensors; it needs bool or integers", op, d)
	}
	return d, nil
}

// StorageOnly is the error of an operation on a type that does not compute.
func StorageOnly(op string, d dtype.Type) error {
	if d == dtype.BFloat16 {
		return fmt.Errorf("%s: not defined for bfloat16 tensors; cast with .to(\"float32\")", op)
	}
	return fmt.Errorf("%s: %s tensors are for storage and communication; cast with .to(\"float32\") to compute", op, d)
}

func binary(op BinaryOp, a, b *Tensor, compute dtype.Type) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if compute == dtype.BFloat16 {
		return halfBinary(op, a, b)
	}
	var shapeArr [8]int
	shape := a.shape
	if !sameShape(a.shape, b.shape) {
		shape = try.To(BroadcastShape(op.String(), shapeArr[:0], a.shape, b.shape))
	}
	x := try.To(cast(op.String(), a, compute))
	y := try.To(cast(op.String(), b, compute))
	if op >= OpFloorDiv && op <= OpPow && compute.IsInt() {
		try.Ok(checkIntegers(op, y))
	}
	result := compute
	if op.compares() {
		result = dtype.Bool
	}
	c := a.ctx
	if c == nil {
		c = b.ctx
	}
	out := try.To(newTensor(op.String(), c, shape, result))
	kBinary(op, out, x, y)
	info := &binaryGrads[op]
	if info.back != nil && records(a, b) && result.IsFloat() {
		n := record(out, op.String(), info.back, a, b)
		if info.saveInputs {
			n.save(x, y)
		}
		if info.saveOut {
			n.save(out)
		}
	}
	return out, nil
}

// checkIntegers refuses operands for which //, % and pow of integers have no result: a divisor of 0, a negative exponent.
func checkIntegers(op BinaryOp, y *Tensor) error {
	bad := OpEq
	if op == OpPow {
		bad = OpLt
	}
	found, err := newTensor(op.String(), y.ctx, y.shape, dtype.Bool)
	if err != nil {
		return err
	}
	kBinaryNumber(bad, found, y, Int(0), false)
	switch {
	case found.shapeOnly():
		return nil
	case !slices.Contains(Elems[bool](found), true):
		return nil
	case op == OpPow:
		return fmt.Errorf("pow: integers to negative powers are not integers; cast with .to(\"float32\")")
	}
	return fmt.Errorf("%s: integer division by zero", op)
}

// Add computes a + b.
func Add(a, b *Tensor) (*Tensor, error) { return Binary(OpAdd, a, b) }

// Sub computes a - b.
func Sub(a, b *Tensor) (*Tensor, error) { return Binary(OpSub, a, b) }

// Mul computes a · b elementwise.
func Mul(a, b *Tensor) (*Tensor, error) { return Binary(OpMul, a, b) }

// Div computes a / b.
func Div(a, b *Tensor) (*Tensor, error) { return Binary(OpDiv, a, b) }
