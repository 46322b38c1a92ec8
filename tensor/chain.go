package tensor

import "drun/kernel/dtype"

// chained strings operations together and keeps the first error. Intermediate results are discarded: nobody else has seen them.
type chained struct {
	t     *Tensor
	fresh bool // t was made in this chain
	err   error
}

func chain(t *Tensor) chained { return chained{t: t} }

func (c chained) then(f func(*Tensor) (*Tensor, error)) chained {
	if c.err != nil {
		return c
	}
	t, err := f(c.t)
	if err != nil {
		return chained{err: err}
	}
	if t.st == c.t.st {
		return chained{t, c.fresh, nil}
	}
	if c.fresh {
		Discard(c.t)
	}
	return chained{t, true, nil}
}

func (c chained) binary(op BinaryOp, b *Tensor) chained {
	return c.then(func(t *Tensor) (*Tensor, error) { return Binary(op, t, b) })
}

func (c chained) scalar(op BinaryOp, s Scalar) chained {
	return c.then(func(t *Tensor) (*Tensor, error) { return BinaryScalar(op, t, s, false) })
}

func (c chained) mul(b *Tensor) chained { return c.binary(OpMul, b) }
func (c chained) div(b *Tensor) chained { return c.binary(OpDiv, b) }
func (c chained) unary(op UnaryOp) chained {
	return c.then(func(t *Tensor) (*Tensor, error) { return Unary(op, t) })
}
func (c chained) end() (*Tensor, error) { return c.t, c.err }

// A builder makes the operands and results of one operation. Where one cannot be made it ends the function that
// uses it, as try.To does.
type builder struct {
	op    string
	ctx   *Context
	dtype dtype.Type
}

// build makes tensors for op, of t's context and type unless stated otherwise.
func build(op string, t *Tensor) builder { return builder{op, t.ctx, t.dtype} }

// like is a new tensor of the builder's type.
func (b *builder) like(shape ...int) *Tensor { return b.of(b.dtype, shape...) }

// of is a new tensor of another type.
func (b *builder) of(dt dtype.Type, shape ...int) *Tensor {
	return newTensor(b.op, b.ctx, shape, dt)
}

// zeros is of, filled with zeros.
func (b *builder) zeros(dt dtype.Type, shape ...int) *Tensor {
	t := b.of(dt, shape...)
	if !t.shapeOnly() {
		clear(t.Bytes())
	}
	return t
}

// contiguous is t or a copy in row-major order; nil for nil.
func (b *builder) contiguous(t *Tensor) *Tensor {
	if t == nil || t.contiguous {
		return t
	}
	return contiguous(t)
}

// cast is t in another type.
func (b *builder) cast(t *Tensor, dt dtype.Type) *Tensor { return cast(b.op, t, dt) }

// indices is the int64 elements of a tensor of integers, in row-major order.
func (b *builder) indices(t *Tensor) *Tensor { return b.contiguous(b.cast(t, dtype.Int64)) }
