package tensor

import (
	"fmt"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// A UnaryOp is an elementwise function.
type UnaryOp uint8

// The elementwise functions. Gelu is the exact one, with erf; Round rounds half to even.
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
	OpSinh
	OpCosh
	OpAsinh
	OpAcosh
	OpAtanh
	OpExp2
	OpLog2
	OpLog10
	OpRsqrt
	OpErfc
	OpErfinv
	OpLgamma
	OpDigamma
	OpTrigamma
	OpFloor
	OpCeil
	OpRound
	OpTrunc
	OpNot
)

var unaryOps = [...]struct {
	name    string
	gradual bool // has a gradient
	ints    bool // works on integers as they are; others compute in float32
}{
	OpNeg: {"neg", true, true}, OpAbs: {"abs", true, true}, OpSign: {"sign", true, true},
	OpSquare: {"square", true, true}, OpSqrt: {"sqrt", true, false},
	OpReciprocal: {"reciprocal", true, false}, OpExp: {"exp", true, false},
	OpExpm1: {"expm1", true, false}, OpLog: {"log", true, false}, OpLog1p: {"log1p", true, false},
	OpTanh: {"tanh", true, false}, OpSigmoid: {"sigmoid", true, false}, OpErf: {"erf", true, false},
	OpSin: {"sin", true, false}, OpCos: {"cos", true, false}, OpRelu: {"relu", true, true},
	OpGelu: {"gelu", true, false}, OpSilu: {"silu", true, false}, OpTan: {"tan", true, false},
	OpAsin: {"asin", true, false}, OpAcos: {"acos", true, false}, OpAtan: {"atan", true, false},
	OpSinh: {"sinh", true, false}, OpCosh: {"cosh", true, false}, OpAsinh: {"asinh", true, false}, OpAcosh: {"acosh", true, false}, OpAtanh: {"atanh", true, false},
	OpExp2: {"exp2", true, false}, OpLog2: {"log2", true, false}, OpLog10: {"log10", true, false}, OpRsqrt: {"rsqrt", true, false}, OpErfc: {"erfc", true, false},
	OpErfinv: {"erfinv", true, false}, OpLgamma: {"lgamma", true, false}, OpDigamma: {"digamma", true, false}, OpTrigamma: {"trigamma", false, false},
	OpFloor: {"floor", true, true}, OpCeil: {"ceil", true, true}, OpRound: {"round", true, true}, OpTrunc: {"trunc", true, true},
	OpNot: {"logical_not", false, true},
}

func (op UnaryOp) String() string { return unaryOps[op].name }

// rounds reports whether a function's results are whole numbers.
func (op UnaryOp) rounds() bool { return op >= OpFloor && op <= OpTrunc }

// unaryBacks has the backward function of each function, made once.
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
		n := record(out, info.name, unaryBacks[op], a).twice(unaryTwice[op])
		switch {
		case op == OpNeg, op == OpSign, op.rounds():
		case kernel.UnaryOp(op).SavesOutput():
			n.save(out)
		default:
			n.save(x)
		}
	}
	if op == OpTrigamma {
		noGradient(info.name, out, a)
	}
	return out, nil
}

func backUnary(op UnaryOp, n *node, g *Tensor, out []*Tensor) {
	if op >= OpSinh && op <= OpDigamma {
		out[0] = try.To(Mul(g, slopes[op](n.val(0))))
		return
	}
	dx := overwrite(op.String(), g)
	out[0] = dx
	switch {
	case op == OpNeg:
		kUnary(OpNeg, dx, g)
	case op == OpSign || op.rounds():
		zero(dx)
	default:
		kUnaryGrad(op, dx, g, n.val(0))
	}
}

// activate applies a function with parameters a and b to each element. For bfloat16 the slope is float32.
func activate(op string, f kernel.Activation, x *Tensor, a, b float64) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if !half(x) {
		try.Ok(NeedFloat(op, x))
	}
	made := build(op, x)
	in, out := made.contiguous(x), made.like(x.shape...)
	var slope *Tensor
	if records(x, nil) {
		slope = made.of(computable(x.dtype), x.shape...)
	}
	if d := out.on(); d != nil && !half(x) {
		from := d.read(in)
		d.Activate(x.dtype, f, x.n, a, b, d.write(out), maybe(d.write, slope), from)
	} else if !out.shapeOnly() {
		kernel.Activate(x.dtype, f, x.n, a, b, out.ptr(), ptrOr(slope), in.read())
	}
	alive(in, out, slope)
	if slope != nil {
		n := record(out, op, backSlope, x).save(slope)
		if n.again != nil {
			n.twice(func(n *node, g *Tensor, out []*Tensor) {
				out[0] = try.To(Mul(g, activationSlope(f, n.input(0), a, b)))
			})
		}
		Discard(slope)
	}
	return out, nil
}

// backSlope is the gradient of an operation that has saved its slope.
func backSlope(n *node, g *Tensor, out []*Tensor) {
	out[0] = overwrite(n.op, g)
	kBinary(OpMul, out[0], g, n.val(0))
}

// LeakyRelu is x where x is above 0, and slope·x elsewhere.
func LeakyRelu(x *Tensor, slope float64) (*Tensor, error) {
	return activate("leaky_relu", kernel.LeakyRelu, x, slope, 0)
}

// Elu is x where x is above 0, and alpha·(e^x - 1) elsewhere (Clevert et al. 2016).
func Elu(x *Tensor, alpha float64) (*Tensor, error) {
	return activate("elu", kernel.Elu, x, alpha, 0)
}

// Softplus is log(1 + e^(beta·x))/beta, and x itself where beta·x is above the threshold.
func Softplus(x *Tensor, beta, threshold float64) (*Tensor, error) {
	return activate("softplus", kernel.Softplus, x, beta, threshold)
}

// Mish is x·tanh(softplus(x)) (Misra 2020).
func Mish(x *Tensor) (*Tensor, error) { return activate("mish", kernel.Mish, x, 0, 0) }

// GeluTanh approximates x·Φ(x) by a tanh (Hendrycks and Gimpel 2016).
func GeluTanh(x *Tensor) (*Tensor, error) { return activate("gelu", kernel.GeluTanh, x, 0, 0) }

// Softmax is exp(x) divided by its sum along dim.
func Softmax(t *Tensor, dim int) (*Tensor, error) { return softmax("softmax", t, dim, false) }

// LogSoftmax is the logarithm of Softmax, computed without overflow.
func LogSoftmax(t *Tensor, dim int) (*Tensor, error) { return softmax("log_softmax", t, dim, true) }

func softmax(op string, t *Tensor, dim int, logarithm bool) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer precise(&t).round(&result)
	try.Ok(NeedFloat(op, t))
	a := try.To(Axis(op, dim, len(t.shape)))
	if last := len(t.shape) - 1; len(t.shape) > 0 && a != last {
		moved := try.To(Transpose(t, a, last))
		out := try.To(softmax(op, moved, last, logarithm))
		return Transpose(out, a, last)
	}
	b := build(op, t)
	x, out := b.contiguous(t), b.like(t.shape...)
	rows, n := matrixSize(t)
	if d := out.on(); d != nil {
		from := d.read(x)
		d.Softmax(t.dtype, logarithm, rows, n, d.write(out), from)
	} else if !out.shapeOnly() {
		kernel.Softmax(t.dtype, logarithm, rows, n, out.ptr(), x.read())
	}
	alive(x)
	if records(t, nil) {
		node := record(out, op, func(nd *node, g *Tensor, out []*Tensor) {
			b := build(op, g)
			dy := b.contiguous(g)
			out[0] = b.like(g.shape...)
			if d := g.on(); d != nil {
				dy, y := d.read(dy), d.read(nd.val(0))
				d.SoftmaxGrad(g.dtype, logarithm, rows, n, d.write(out[0]), dy, y)
				return
			}
			kernel.SoftmaxGrad(g.dtype, logarithm, rows, n, out[0].ptr(), dy.read(), nd.val(0).read())
			alive(dy)
		}, t).save(out)
		if node.again != nil {
			node.twice(softmaxTwice(logarithm))
		}
	}
	return out, nil
}

// matrixSize views t as rows of its last dimension.
func matrixSize(t *Tensor) (rows, n int) {
	if len(t.shape) == 0 {
		return 1, 1
	}
	n = t.shape[len(t.shape)-1]
	if n == 0 {
		return 0, 0
	}
	return t.n / n, n
}
