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

type backward = func(n *node, g *Tensor, out []*Tensor)

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

func init() { // not an initializer, since the functions use binaryGrads themselves
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
func Binary(op BinaryOp, a, b *Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	return binary(op, a, b, op.computeType(promoteOperands(a, b))), nil
}

// BinaryScalar computes a op s, or s op a if swapped.
func BinaryScalar(op BinaryOp, a *Tensor, s Scalar, swapped bool) (_ *Tensor, err error) {
	defer try.Caught(&err)
	compute := op.computeType(promoteWeak(a.dtype, s.kind, true))
	if op.compares() && compute.IsInt() {
		// An integer outside the type's range is compared in int64.
		if s.fits(op.String(), compute) != nil {
			compute = dtype.Int64
		}
	} else if err := s.fits(op.String(), compute); err != nil {
		return nil, err
	}
	if compute == dtype.BFloat16 {
		return halfScalar(op, a, s, swapped), nil
	}
	recording := records(a, nil) && compute.IsFloat() && !op.compares()
	simple := op <= OpMul || op == OpDiv && !swapped || op.compares()
	if !simple && recording || op >= OpFloorDiv && op <= OpPow && compute.IsInt() {
		b := newNumber(a.ctx, s, compute)
		if swapped {
			return binary(op, b, a, compute), nil
		}
		return binary(op, a, b, compute), nil
	}
	x := cast(op.String(), a, compute)
	result := compute
	if op.compares() {
		result = dtype.Bool
	}
	out := newTensor(op.String(), a.ctx, a.shape, result)
	kBinaryNumber(op, out, x, s, swapped)
	if recording {
		back := numberGrads[op]
		if op == OpSub && swapped {
			back = unaryBacks[OpNeg]
		}
		n := record(out, op.String(), back, a)
		if n.number = s; op == OpSub && swapped {
			n.twice(backNegTwice)
		} else {
			n.twice(numberTwice[op])
		}
	}
	return out, nil
}

// computeType returns the type in which op is computed for operands promoted to d.
func (op BinaryOp) computeType(d dtype.Type) dtype.Type {
	switch {
	case d == dtype.Complex64 || d == dtype.Float16:
		try.Ok(StorageOnly(op.String(), d))
	case (op == OpDiv || op == OpAtan2) && !d.IsFloat():
		return dtype.Float32
	case d == dtype.Bool && op == OpSub:
		try.Fail("sub: bool tensors cannot be subtracted; compare them with != or cast with .to()")
	case d == dtype.Bool && (op == OpFloorDiv || op == OpMod || op == OpPow):
		try.Fail("%s: not defined for bool tensors; cast with .to()", op)
	case d == dtype.Bool && op == OpAdd:
		return dtype.Bool
	case d.IsFloat() && op >= OpAnd && op <= OpXor:
		try.Fail("%s: not defined for %s tensors; it needs bool or integers", op, d)
	}
	return d
}

// StorageOnly returns the error of an operation on a type that cannot be computed with.
func StorageOnly(op string, d dtype.Type) error {
	if d == dtype.BFloat16 {
		return fmt.Errorf("%s: not defined for bfloat16 tensors; cast with .to(\"float32\")", op)
	}
	return fmt.Errorf("%s: %s tensors are for storage and communication; cast with .to(\"float32\") to compute", op, d)
}

func binary(op BinaryOp, a, b *Tensor, compute dtype.Type) *Tensor {
	if compute == dtype.BFloat16 {
		return halfBinary(op, a, b)
	}
	var shapeArr [8]int
	shape := a.shape
	if !sameShape(a.shape, b.shape) {
		shape = try.To(BroadcastShape(op.String(), shapeArr[:0], a.shape, b.shape))
	}
	c := a.ctx
	if c == nil {
		c = b.ctx
	}
	if c != nil && c.CreateGraph && compute.IsFloat() { // what is saved must be part of the graph
		a, b = try.To(Cast(a, compute)), try.To(Cast(b, compute))
	}
	x := cast(op.String(), a, compute)
	y := cast(op.String(), b, compute)
	if op >= OpFloorDiv && op <= OpPow && compute.IsInt() {
		checkIntegers(op, y)
	}
	result := compute
	if op.compares() {
		result = dtype.Bool
	}
	out := newTensor(op.String(), c, shape, result)
	kBinary(op, out, x, y)
	info := &binaryGrads[op]
	if info.back != nil && records(a, b) && result.IsFloat() {
		n := record(out, op.String(), info.back, a, b).twice(info.back)
		if info.saveInputs {
			n.save(x, y)
		}
		if info.saveOut {
			n.save(out)
		}
	}
	return out
}

// checkIntegers refuses operands for which //, % and pow of integers have no result: a divisor of 0, a negative exponent.
func checkIntegers(op BinaryOp, y *Tensor) {
	bad := OpEq
	if op == OpPow {
		bad = OpLt
	}
	found := newTensor(op.String(), y.ctx, y.shape, dtype.Bool)
	kBinaryNumber(bad, found, y, Int(0), false)
	switch {
	case found.shapeOnly():
		return
	case !slices.Contains(Values[bool](found), true):
		return
	case op == OpPow:
		try.Fail("pow: integers to negative powers are not integers; cast with .to(\"float32\")")
	}
	try.Fail("%s: integer division by zero", op)
}

// Add computes a + b.
func Add(a, b *Tensor) (*Tensor, error) { return Binary(OpAdd, a, b) }

// Sub computes a - b.
func Sub(a, b *Tensor) (*Tensor, error) { return Binary(OpSub, a, b) }

// Mul computes a · b elementwise.
func Mul(a, b *Tensor) (*Tensor, error) { return Binary(OpMul, a, b) }

// Div computes a / b.
func Div(a, b *Tensor) (*Tensor, error) { return Binary(OpDiv, a, b) }

func backAdd(_ *node, g *Tensor, out []*Tensor) {
	out[0], out[1] = g, g
}

// numberGrads is binaryGrads for operations of a tensor with a number, which is kept in the node.
var numberGrads = [...]backward{OpAdd: backPass, OpSub: backPass, OpMul: backNumber(OpMul), OpDiv: backNumber(OpDiv)}

func backNumber(op BinaryOp) backward {
	return func(n *node, g *Tensor, out []*Tensor) {
		out[0] = overwrite(n.op, g)
		kBinaryNumber(op, out[0], g, n.number, false)
	}
}

func backSub(n *node, g *Tensor, out []*Tensor) {
	out[0] = g
	if n.needs(1) {
		out[1] = try.To(Unary(OpNeg, g))
	}
}

func backMul(n *node, g *Tensor, out []*Tensor) {
	if n.needs(0) {
		out[0] = try.To(Mul(g, n.val(1)))
	}
	if n.needs(1) {
		out[1] = try.To(Mul(g, n.val(0)))
	}
}

func backDiv(n *node, g *Tensor, out []*Tensor) {
	q := try.To(Div(g, n.val(1)))
	out[0] = q
	if n.needs(1) {
		out[1] = try.To(chain(q).mul(n.val(0)).div(n.val(1)).unary(OpNeg).end())
	}
}

func backMod(n *node, g *Tensor, out []*Tensor) {
	out[0] = g
	if n.needs(1) { // a % b = a - floor(a/b)·b
		out[1] = try.To(chain(n.val(0)).div(n.val(1)).unary(OpFloor).mul(g).unary(OpNeg).end())
	}
}

// backAtan2: the angle of (x, y) changes by (x dy - y dx) / (x² + y²).
func backAtan2(n *node, g *Tensor, out []*Tensor) {
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
}

func backPow(n *node, g *Tensor, out []*Tensor) {
	a, b, y := n.val(0), n.val(1), n.val(2)
	if n.needs(0) { // b·a^(b-1), and 0 where b is 0
		less := try.To(BinaryScalar(OpSub, b, Float(1), false))
		out[0] = try.To(chain(a).binary(OpPow, less).mul(b).mul(g).zeroWhere(b).end())
	}
	if n.needs(1) { // a^b·log a, and 0 where a^b is 0 (a may be 0, which has no logarithm)
		out[1] = try.To(chain(a).unary(OpLog).mul(y).mul(g).zeroWhere(y).end())
	}
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
func backExtreme(n *node, g *Tensor, out []*Tensor) {
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
}
