package kernel

// #define DRUN_MEM char
// #include "kernel.h"
// #cgo noescape drun_activation
// #cgo nocallback drun_activation
import "C"

import (
	"unsafe"

	"drun/kernel/dtype"
)

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
	C.drun_activation(C.int(dt), C.int(f), long(n), C.double(a), C.double(b), mem(o), mem(slope), mem(x))
}
