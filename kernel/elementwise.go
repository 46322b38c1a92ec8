package kernel

// #define DRUN_MEM char
// #include "kernel.h"
// #cgo noescape drun_binary
// #cgo nocallback drun_binary
// #cgo noescape drun_compare
// #cgo nocallback drun_compare
// #cgo noescape drun_unary
// #cgo nocallback drun_unary
// #cgo noescape drun_unary_grad
// #cgo nocallback drun_unary_grad
// #cgo noescape drun_where
// #cgo nocallback drun_where
// #cgo noescape drun_copy
// #cgo nocallback drun_copy
// #cgo noescape drun_cast
// #cgo nocallback drun_cast
// #cgo noescape drun_activation
// #cgo nocallback drun_activation
import "C"

import (
	"unsafe"

	"drun/kernel/dtype"
)

// BinaryOp is an operation of Binary.
type BinaryOp int32

const (
	Add      BinaryOp = C.ADD
	Sub      BinaryOp = C.SUB
	Mul      BinaryOp = C.MUL
	Div      BinaryOp = C.DIV      // integers: truncated; by zero gives 0
	FloorDiv BinaryOp = C.FLOORDIV // as Python's //; integers by zero give 0
	Mod      BinaryOp = C.MOD      // as Python's %; integers by zero give 0
	Pow      BinaryOp = C.POW
	Min      BinaryOp = C.MIN // NaN if either is
	Max      BinaryOp = C.MAX // NaN if either is
	And      BinaryOp = C.AND // And, Or and Xor: integers (bitwise) and Bool
	Or       BinaryOp = C.OR
	Xor      BinaryOp = C.XOR
	Atan2    BinaryOp = C.ATAN2 // reals: the angle of the point (b, a)
)

// CompareOp is a comparison.
type CompareOp int32

const (
	Eq CompareOp = C.EQ
	Ne CompareOp = C.NE
	Lt CompareOp = C.LT
	Le CompareOp = C.LE
	Gt CompareOp = C.GT
	Ge CompareOp = C.GE
)

// UnaryOp is an operation of Unary and UnaryGrad.
type UnaryOp int32

const (
	Neg        UnaryOp = C.NEG    // Neg to Square, Relu and Floor to Trunc also on integers
	Abs        UnaryOp = C.ABS    //
	Sign       UnaryOp = C.SIGN   // -1, 0, 1
	Square     UnaryOp = C.SQUARE //
	Sqrt       UnaryOp = C.SQRT
	Reciprocal UnaryOp = C.RECIPROCAL
	Exp        UnaryOp = C.EXP
	Expm1      UnaryOp = C.EXPM1
	Log        UnaryOp = C.LOG
	Log1p      UnaryOp = C.LOG1P
	Tanh       UnaryOp = C.TANH
	Sigmoid    UnaryOp = C.SIGMOID
	Erf        UnaryOp = C.ERF
	Sin        UnaryOp = C.SIN
	Cos        UnaryOp = C.COS
	Relu       UnaryOp = C.RELU
	Gelu       UnaryOp = C.GELU // x Φ(x), Φ the normal distribution
	Silu       UnaryOp = C.SILU
	Tan        UnaryOp = C.TAN
	Asin       UnaryOp = C.ASIN
	Acos       UnaryOp = C.ACOS
	Atan       UnaryOp = C.ATAN
	Sinh       UnaryOp = C.SINH // Sinh to Trigamma have no UnaryGrad
	Cosh       UnaryOp = C.COSH
	Asinh      UnaryOp = C.ASINH
	Acosh      UnaryOp = C.ACOSH
	Atanh      UnaryOp = C.ATANH
	Exp2       UnaryOp = C.EXP2
	Log2       UnaryOp = C.LOG2
	Log10      UnaryOp = C.LOG10
	Rsqrt      UnaryOp = C.RSQRT
	Erfc       UnaryOp = C.ERFC
	Erfinv     UnaryOp = C.ERFINV
	Lgamma     UnaryOp = C.LGAMMA
	Digamma    UnaryOp = C.DIGAMMA
	Trigamma   UnaryOp = C.TRIGAMMA // the derivative of Digamma
	Floor      UnaryOp = C.FLOOR    // Floor to Trunc have no UnaryGrad: it is 0, as Sign's
	Ceil       UnaryOp = C.CEIL
	Round      UnaryOp = C.ROUND // half to even
	Trunc      UnaryOp = C.TRUNC // toward zero
	Not        UnaryOp = C.NOT   // integers (bitwise) and Bool
)

// Binary computes out = a op b elementwise; all three have element type dt and shape's dimensions.
func Binary(op BinaryOp, dt dtype.Type, shape []int, out, a, b View) {
	for c := begin("elementwise operation"); c.again(out.output(dt, shape, a, b)); {
		C.drun_binary(C.int(op), C.int(dt), C.int(len(shape)), ints(shape), out.mem(), out.strides(), a.mem(), a.strides(),
			b.mem(), b.strides())
	}
}

// Compare computes out = a op b elementwise; a and b have element type dt, out is Bool.
func Compare(op CompareOp, dt dtype.Type, shape []int, out, a, b View) {
	for c := begin("comparison"); c.again(out.output(dtype.Bool, shape, a, b)); {
		C.drun_compare(C.int(op), C.int(dt), C.int(len(shape)), ints(shape), out.mem(), out.strides(), a.mem(), a.strides(),
			b.mem(), b.strides())
	}
}

// Unary computes out = op(a) elementwise.
func Unary(op UnaryOp, dt dtype.Type, shape []int, out, a View) {
	for c := begin("function"); c.again(out.output(dt, shape, a)); {
		C.drun_unary(C.int(op), C.int(dt), C.int(len(shape)), ints(shape), out.mem(), out.strides(), a.mem(), a.strides())
	}
}

// SavesOutput reports whether UnaryGrad of op needs the forward's output rather than its input.
func (op UnaryOp) SavesOutput() bool {
	switch op {
	case Sqrt, Reciprocal, Exp, Expm1, Tan, Tanh, Sigmoid, Relu:
		return true
	}
	return false
}

// UnaryGrad computes dx = dy op'(x) elementwise for a real dt. saved is the forward's output where
// op.SavesOutput, else its input.
func UnaryGrad(op UnaryOp, dt dtype.Type, shape []int, dx, dy, saved View) {
	for c := begin("function's gradient"); c.again(dx.output(dt, shape, dy, saved)); {
		C.drun_unary_grad(C.int(op), C.int(dt), C.int(len(shape)), ints(shape), dx.mem(), dx.strides(), dy.mem(), dy.strides(),
			saved.mem(), saved.strides())
	}
}

// Where computes out = a where cond (Bool), else b, for elements of any type.
func Where(dt dtype.Type, shape []int, out, cond, a, b View) {
	for c := begin("selection"); c.again(out.output(dt, shape, cond, a, b)); {
		C.drun_where(C.int(dt.Size()), C.int(len(shape)), ints(shape), out.mem(), out.strides(), cond.mem(), cond.strides(),
			a.mem(), a.strides(), b.mem(), b.strides())
	}
}

// Copy copies elements of any type, bits unchanged. Strides of 0 in a broadcast it, so it also fills.
func Copy(dt dtype.Type, shape []int, out, a View) {
	for c := begin("copy"); c.again(out.output(dt, shape, a)); {
		C.drun_copy(C.int(dt.Size()), C.int(len(shape)), ints(shape), out.mem(), out.strides(), a.mem(), a.strides())
	}
}

// Cast converts between any two types. Reals become integers by truncation, saturating, NaN as 0; nonzero
// values become true; to and from Complex64 it converts the real part.
func Cast(to, from dtype.Type, shape []int, out, a View) {
	for c := begin("conversion"); c.again(out.output(to, shape, a)); {
		C.drun_cast(C.int(to), C.int(from), C.int(len(shape)), ints(shape), out.mem(), out.strides(), a.mem(), a.strides())
	}
}

// An Activation is an elementwise function with parameters, or one whose value and slope share much of their
// computation.
type Activation int

// The activations; A and B name the parameters of Activate.
const (
	LeakyRelu Activation = C.LEAKY_RELU // A is the slope below 0
	Elu       Activation = C.ELU        // A times expm1 below 0
	Softplus  Activation = C.SOFTPLUS   // A is beta, B the threshold
	Mish      Activation = C.MISH
	GeluTanh  Activation = C.GELU_TANH
	Huber     Activation = C.HUBER // A is delta
	GeluSlope Activation = C.GELU  // Gelu, with its slope
	SiluSlope Activation = C.SILU  // Silu likewise
)

// Activate computes n elements of f(x) and, unless slope is nil, of its derivative at x. For bfloat16 it computes in
// float32 and rounds f(x); the slope is float32.
func Activate(dt dtype.Type, f Activation, n int, a, b float64, o, slope, x unsafe.Pointer) {
	slopes := dt
	if dt == dtype.BFloat16 {
		slopes = dtype.Float32
	}
	for c := begin("activation"); c.again(array(dt, o, n), array(slopes, slope, n)); {
		C.drun_activation(C.int(dt), C.int(f), long(n), C.double(a), C.double(b), mem(o), mem(slope), mem(x))
	}
}
