package tensor

import (
	"math"
	"slices"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// This file lets gradients have gradients. An operation's backward function is made for speed: it writes into memory that
// is there, and most are one kernel. Where a recipe asks for gradients of gradients (Context.CreateGraph), a node has a
// second one, made of operations that are recorded. An operation that has none is refused when it is met.

// again is what a node has where gradients of gradients are asked for.
type again struct {
	in   []savedTensor // what the operation was called with
	back backward      // as node.back, of recorded operations; nil: there is none
}

// keepInputs makes n keep the operation's inputs. One that the operation has changed in place is not kept.
func (n *node) keepInputs(out *Tensor, inputs []*Tensor) {
	n.again = &again{in: make([]savedTensor, len(inputs))}
	for i, t := range inputs {
		if t != nil && t != out {
			t.st.hold()
			n.again.in[i] = savedTensor{t, t.st.version}
		}
	}
}

// twice sets the backward function whose operations are recorded. It may be n.back itself, if that consists of recorded operations
// on n.val: what they return must depend on the inputs through the graph.
func (n *node) twice(back backward) *node {
	if n != nil && n.again != nil {
		n.again.back = back
	}
	return n
}

// input returns what the operation was called with.
func (n *node) input(i int) *Tensor {
	s := n.again.in[i]
	if s.t == nil || s.t.st.version != s.version {
		try.Fail("%s: its input was modified in place afterwards; clone() it first, or use the form that is not in place", n.op)
	}
	return s.t
}

// A formula computes an operation's result from its inputs by simpler operations.
type formula func(in []*Tensor) *Tensor

// composed gives an operation the gradients of a formula with the same result. It is called where n.again is set.
func (n *node) composed(f formula) {
	n.again.back = func(n *node, g *Tensor, out []*Tensor) {
		in, inner := make([]*Tensor, len(n.in)), make([]*Tensor, 0, len(n.in))
		for i := range in {
			if s := n.again.in[i]; s.t == nil {
				continue
			}
			in[i] = n.input(i)
			if n.needs(i) { // a view of its own, where the inner pass ends
				v := alias(in[i]).seal()
				v.view = false
				record(v, n.op, backPass, in[i]).twice(backPass)
				in[i] = v
				inner = append(inner, v)
			}
		}
		y := f(in)
		if !y.requiresGrad {
			return
		}
		grads := try.To(Grad([]*Tensor{y}, inner, []*Tensor{g}, GradOptions{Create: true}))
		for i := range in {
			if n.needs(i) {
				out[i], grads = grads[0], grads[1:]
			}
		}
	}
}

// linear gives an operation on one tensor, which is linear, the gradient of a formula with the same result.
func (n *node) linear(f formula) {
	op := n.op
	n.again.back = func(n *node, g *Tensor, out []*Tensor) {
		x := n.again.in[0].t
		out[0] = multilinear{op, f}.partial(0, []*Tensor{like(x), g})
	}
}

// bilinear gives an operation that is linear in each of its first two inputs their gradients. rest computes those of others.
func (n *node) bilinear(f formula, rest backward) {
	op := n.op
	n.again.back = func(n *node, g *Tensor, out []*Tensor) {
		x, w := n.input(0), n.input(1)
		if n.needs(0) {
			out[0] = multilinear{op, f}.partial(0, []*Tensor{like(x), w, g})
		}
		if n.needs(1) {
			out[1] = multilinear{op, f}.partial(1, []*Tensor{x, like(w), g})
		}
		rest(n, g, out)
	}
}

// like returns zeros of t's shape and type, without memory for them.
func like(t *Tensor) *Tensor { return expanded(newNumber(t.ctx, Int(0), t.dtype), t.shape) }

// multilinear is a function of tensors that is linear in each. With g for its result, ⟨g, f(x, w)⟩ is linear in x, w and g; its
// gradient with respect to one of them is linear in the others, and has gradients of the same kind, of any order.
type multilinear struct {
	op string
	f  formula
}

// partial returns the gradient of ⟨g, f(…)⟩ with respect to slot k of (…, g), whose own value does not matter.
func (m multilinear) partial(k int, slot []*Tensor) *Tensor {
	c, last := slot[k].ctx, len(slot)-1
	plain := make([]*Tensor, len(slot))
	for i, t := range slot {
		plain[i] = t.Detach()
	}
	out := func() *Tensor {
		if k == last {
			return m.f(plain[:last])
		}
		plain[k].requiresGrad = true
		defer c.record()()
		defer func(on bool) { c.CreateGraph = on }(c.CreateGraph)
		c.CreateGraph = false
		y := m.f(plain[:last])
		if g := try.To(Grad([]*Tensor{y}, plain[k:k+1], plain[last:], GradOptions{}))[0]; g != nil {
			return g
		}
		return like(slot[k])
	}()
	others := slices.Delete(slices.Clone(slot), k, k+1)
	if recordsAny(others...) {
		back := func(n *node, g *Tensor, grads []*Tensor) {
			for i := range others {
				if n.needs(i) {
					next := make([]*Tensor, 0, len(others)+1)
					for j := range others {
						next = append(next, n.val(j))
					}
					next = slices.Insert(next, k, g)
					j := i
					if i >= k {
						j++
					}
					next[j] = like(next[j])
					grads[i] = m.partial(j, next)
				}
			}
		}
		record(out, m.op, back, others...).save(others...).twice(back)
	}
	return out
}

// spreadOver is spread, recorded.
func spreadOver(g *Tensor, shape, dims []int) *Tensor {
	return try.To(Expand(try.To(Reshape(g, ReducedShape(shape, dims, true))), shape))
}

// unaryTwice has the gradients of elementwise functions.
var unaryTwice [len(unaryOps)]backward

func init() {
	for op := range unaryTwice {
		unaryTwice[op] = func(n *node, g *Tensor, out []*Tensor) {
			out[0] = try.To(Mul(g, slopes[UnaryOp(op)](n.input(0))))
		}
	}
	unaryTwice[OpNeg] = backNegTwice
	where := func(n *node, compare BinaryOp, a, b *Tensor) *Tensor {
		return try.To(Where(try.To(BinaryScalar(compare, n.input(0).Detach(), Int(0), false)), a, b))
	}
	unaryTwice[OpRelu] = func(n *node, g *Tensor, out []*Tensor) {
		out[0] = where(n, OpGt, g, newNumber(g.ctx, Int(0), g.dtype))
	}
	unaryTwice[OpAbs] = func(n *node, g *Tensor, out []*Tensor) { // 0 at 0, whatever g is
		out[0] = where(n, OpGt, g, where(n, OpLt, apply(OpNeg, g), newNumber(g.ctx, Int(0), g.dtype)))
	}
	for _, op := range []UnaryOp{OpSign, OpFloor, OpCeil, OpRound, OpTrunc} {
		unaryTwice[op] = backNothing
	}
}

// numberTwice is numberGrads of recorded operations.
var numberTwice [OpDiv + 1]backward

func init() {
	numberTwice = [...]backward{OpAdd: backPass, OpSub: backPass, OpMul: numberAgain(OpMul), OpDiv: numberAgain(OpDiv)}
}

func numberAgain(op BinaryOp) backward {
	return func(n *node, g *Tensor, out []*Tensor) {
		out[0] = try.To(BinaryScalar(op, g, n.number, false))
	}
}

func backNegTwice(_ *node, g *Tensor, out []*Tensor) { out[0] = apply(OpNeg, g) }

// activationSlope returns the derivative of a function at x.
func activationSlope(f kernel.Activation, x *Tensor, a, b float64) *Tensor {
	below := func(t *Tensor, limit float64) *Tensor {
		return try.To(BinaryScalar(OpMinimum, t, Float(limit), false))
	}
	above := func(t *Tensor, limit float64) *Tensor {
		return try.To(BinaryScalar(OpGt, t.Detach(), Float(limit), false))
	}
	one := newNumber(x.ctx, Int(1), x.dtype)
	switch f {
	case kernel.LeakyRelu:
		return try.To(Where(above(x, 0), one, newNumber(x.ctx, Float(a), x.dtype)))
	case kernel.Elu:
		return try.To(Where(above(x, 0), one, scaled(apply(OpExp, below(x, 0)), a, 0)))
	case kernel.Softplus:
		return try.To(Where(above(scaled(x.Detach(), a, 0), b), one, apply(OpSigmoid, scaled(x, a, 0))))
	case kernel.Mish:
		soft := try.To(Softplus(x, 1, 20))
		t := apply(OpTanh, soft)
		steep := try.To(chain(apply(OpSigmoid, x)).mul(x).mul(scaled(apply(OpSquare, t), -1, 1)).end())
		return try.To(Add(t, steep))
	case kernel.GeluTanh:
		const k = 0.044715
		root := math.Sqrt(2 / math.Pi)
		square := apply(OpSquare, x)
		t := apply(OpTanh, scaled(try.To(Mul(x, scaled(square, k, 1))), root, 0))
		inner := try.To(chain(scaled(square, 3*k*root, root)).mul(x).mul(scaled(apply(OpSquare, t), -1, 1)).end())
		return scaled(try.To(Add(t, inner)), 0.5, 0.5)
	case kernel.Huber:
		lo, hi := Float(-a), Float(a)
		return try.To(Clamp(x, &lo, &hi))
	}
	return slopes[UnaryOp(f)](x)
}

// softmaxTwice is the gradient of softmax along the last dimension, or of its logarithm.
func softmaxTwice(logarithm bool) backward {
	return func(n *node, g *Tensor, out []*Tensor) {
		total := func(t *Tensor) *Tensor {
			if len(t.shape) == 0 {
				return t
			}
			return try.To(Sum(t, []int{-1}, true))
		}
		y := try.To(softmax("softmax", n.input(0), -1, false))
		if logarithm {
			out[0] = try.To(Sub(g, try.To(Mul(y, total(g)))))
			return
		}
		out[0] = try.To(Mul(y, try.To(Sub(g, total(try.To(Mul(g, y)))))))
	}
}

func linearTwice(n *node, g *Tensor, out []*Tensor) {
	x, w := n.input(0), n.input(1)
	rows, wide, k := product(x.shape[:len(x.shape)-1]), w.shape[0], w.shape[1]
	g = try.To(Reshape(g, []int{rows, wide}))
	if n.needs(0) {
		out[0] = try.To(Reshape(try.To(MatMul(g, w)), x.shape))
	}
	if n.needs(1) {
		out[1] = try.To(MatMul(try.To(Transpose(g, 0, 1)), try.To(Reshape(x, []int{rows, k}))))
	}
	if n.needs(2) {
		out[2] = try.To(Sum(g, []int{0}, false))
	}
}

func matmulTwice(n *node, g *Tensor, out []*Tensor) {
	if n.needs(0) {
		out[0] = try.To(MatMul(g, try.To(Transpose(n.input(1), -1, -2))))
	}
	if n.needs(1) {
		out[1] = try.To(MatMul(try.To(Transpose(n.input(0), -1, -2)), g))
	}
}

// without returns, for each of n elements, the product of the others along the last dimension of x (…, n); upTo leaves out
// those behind it as well. Zeros are no exception, since nothing is divided.
func productsOf(x *Tensor, keep *Tensor) *Tensor {
	wide := try.To(Unsqueeze(x, -2)) // (…, 1, n): row i has the factors of result i
	one := newNumber(x.ctx, Int(1), x.dtype)
	rows := try.To(Where(keep, wide, one))
	last := len(rows.shape) - 1
	return try.To(Prod(rows, &last, false))
}

// prodTwice is the gradient of a product: g times, for each factor, the product of the others.
func prodTwice(dims []int) backward {
	return func(n *node, g *Tensor, out []*Tensor) {
		x := n.input(0)
		shape, a := x.shape, len(x.shape)-1
		if len(dims) != 1 {
			x = try.To(Reshape(x, []int{x.n}))
		} else {
			x = try.To(Transpose(x, dims[0], a))
		}
		size := x.shape[len(x.shape)-1]
		eye := try.To(Eye(x.ctx, size, size, dtype.Bool))
		others := productsOf(x, try.To(Unary(OpNot, eye)))
		if len(dims) != 1 {
			out[0] = try.To(Reshape(try.To(Mul(others, try.To(Reshape(g, nil)))), shape))
			return
		}
		g = try.To(Reshape(g, ReducedShape(shape, dims, true)))
		out[0] = try.To(Mul(try.To(Transpose(others, dims[0], a)), g))
	}
}

// cumprodOf is CumProd along dimension a, of simpler operations.
func cumprodOf(a int) formula {
	return func(in []*Tensor) *Tensor {
		last := len(in[0].shape) - 1
		x := try.To(Transpose(in[0], a, last))
		all := try.To(Ones(x.ctx, []int{x.shape[last], x.shape[last]}, dtype.Bool))
		return try.To(Transpose(productsOf(x, try.To(Tril(all, 0))), a, last))
	}
}

// varianceOf is the variance, or its root, of simpler operations.
func varianceOf(dims []int, divisor float64, keepdim, root bool) formula {
	return func(in []*Tensor) *Tensor {
		x := in[0]
		centered := try.To(Sub(x, try.To(Mean(x, dims, true))))
		v := scaled(try.To(Sum(apply(OpSquare, centered), dims, keepdim)), 1/divisor, 0)
		if !root {
			return v
		}
		zero := try.To(BinaryScalar(OpEq, v.Detach(), Int(0), false)) // where the root has no gradient
		return try.To(MaskedFill(apply(OpSqrt, try.To(MaskedFill(v, zero, Int(1)))), zero, Int(0)))
	}
}

// normOf is a normalisation: x, less its mean over dims unless that is to stay, divided by the root of its mean square plus eps,
// times weight, plus bias; each of shape, or nil.
func normOf(dims, shape []int, eps float64, center bool) formula {
	return func(in []*Tensor) *Tensor {
		x := in[0]
		if center {
			x = try.To(Sub(x, try.To(Mean(x, dims, true))))
		}
		square := try.To(Mean(apply(OpSquare, x), dims, true))
		return affineOf(try.To(Mul(x, apply(OpRsqrt, scaled(square, 1, eps)))), in[1:], shape)
	}
}

// affineOf returns x times weight plus bias, each of shape, or nil.
func affineOf(x *Tensor, weightBias []*Tensor, shape []int) *Tensor {
	if w := weightBias[0]; w != nil {
		x = try.To(Mul(x, try.To(Reshape(w, shape))))
	}
	if len(weightBias) > 1 && weightBias[1] != nil {
		x = try.To(Add(x, try.To(Reshape(weightBias[1], shape))))
	}
	return x
}

// lastDims lists the last n of nd dimensions.
func lastDims(nd, n int) (dims []int) {
	for d := nd - n; d < nd; d++ {
		dims = append(dims, d)
	}
	return dims
}

// biasTwice is the gradient of the bias of a convolution.
func biasTwice(n *node, g *Tensor, out []*Tensor) {
	if len(n.in) > 2 && n.needs(2) {
		out[2] = try.To(Sum(g, []int{0, 2, 3}, false))
	}
}

// summed gives n the gradient of a sum over dims, or with a divisor of a mean.
func (n *node) summed(dims []int, divisor *Tensor) {
	n.again.back = func(n *node, g *Tensor, out []*Tensor) {
		if divisor != nil {
			g = try.To(Div(g, divisor))
		}
		out[0] = spreadOver(g, n.in[0].shape(), dims)
	}
}
