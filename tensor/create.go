package tensor

import (
	"fmt"
	"math"
	"unsafe"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// Zeros makes a tensor of zeros.
func Zeros(c *Context, shape []int, dt dtype.Type) (_ *Tensor, err error) {
	defer try.Caught(&err)
	return zeros("zeros", c, shape, dt), nil
}

// zeros is Zeros for an operation.
func zeros(op string, c *Context, shape []int, dt dtype.Type) *Tensor {
	b := builder{op: op, ctx: c}
	return b.zeros(dt, shape...)
}

// Ones makes a tensor of ones.
func Ones(c *Context, shape []int, dt dtype.Type) (_ *Tensor, err error) {
	defer try.Caught(&err)
	return full("ones", c, shape, Int(1), dt), nil
}

// Full makes a tensor whose elements are all value.
func Full(c *Context, shape []int, value Scalar, dt dtype.Type) (_ *Tensor, err error) {
	defer try.Caught(&err)
	return full("full", c, shape, value, dt), nil
}

// full is Full for an operation.
func full(op string, c *Context, shape []int, value Scalar, dt dtype.Type) *Tensor {
	try.Ok(value.fits(op, dt))
	t := newTensor(op, c, shape, dt)
	fill(t, value)
	return t
}

func fill(t *Tensor, value Scalar) {
	if t.n == 0 || t.shapeOnly() {
		return
	}
	if t.n == 1 && t.on() == nil {
		value.put(t.ptr(), t.dtype)
		return
	}
	one := newNumber(t.ctx, value, t.dtype)
	kCopy(t, expanded(one, t.shape))
}

// newNumber makes a tensor without dimensions that counts as a plain number.
func newNumber(c *Context, s Scalar, dt dtype.Type) *Tensor {
	b := new(inlineTensor)
	t := &b.Tensor
	t.st = &b.Storage
	t.st.ptr, t.st.bytes = unsafe.Pointer(&b.data), dt.Size()
	t.ctx, t.dtype, t.n, t.contiguous, t.number = c, dt, 1, true, true
	t.setDims(0)
	s.put(t.st.ptr, dt)
	return t
}

// FromScalars makes a tensor of the given elements in row-major order; each must fit the type.
func FromScalars(c *Context, values []Scalar, shape []int, dt dtype.Type) (_ *Tensor, err error) {
	defer try.Caught(&err)
	t := newTensor("tensor", c, shape, dt)
	try.FailIf(len(values) != t.n, "tensor: %d values for shape %s", len(values), shaped(shape))
	if t.shapeOnly() {
		return t, nil
	}
	p, size := t.ptr(), dt.Size()
	for i, v := range values {
		try.Ok(v.fits("tensor", dt))
		v.put(unsafe.Add(p, i*size), dt)
	}
	return t, nil
}

// FromFloats makes a tensor of the given elements in row-major order.
func FromFloats(c *Context, values []float64, shape []int, dt dtype.Type) (*Tensor, error) {
	return fromSlice(c, values, shape, dtype.Float64, dt)
}

// FromInts makes a tensor of the given elements in row-major order.
func FromInts(c *Context, values []int64, shape []int, dt dtype.Type) (*Tensor, error) {
	return fromSlice(c, values, shape, dtype.Int64, dt)
}

func fromSlice[T any](c *Context, values []T, shape []int, from, to dtype.Type) (_ *Tensor, err error) {
	defer try.Caught(&err)
	t := newTensor("tensor", c, shape, from)
	try.FailIf(len(values) != t.n, "tensor: %d values for shape %s", len(values), shaped(shape))
	if !t.shapeOnly() {
		copy(Elems[T](t), values)
	}
	if from == to {
		return t, nil
	}
	return cast("tensor", t, to), nil
}

// FromBytes makes a tensor from the bytes of its elements, in row-major order and the machine's byte order.
func FromBytes(c *Context, raw []byte, shape []int, dt dtype.Type) (_ *Tensor, err error) {
	defer try.Caught(&err)
	// Check before allocating: the shape may come from an untrusted source.
	n := try.To(countElems("tensor", shape))
	if n > len(raw) || len(raw) != n*dt.Size() {
		return nil, fmt.Errorf("tensor: %d bytes do not make shape %s of %s, which takes %d", len(raw), ShapeString(shape), dt, uint64(n)*uint64(dt.Size()))
	}
	t := newTensor("tensor", c, shape, dt)
	copy(t.Bytes(), raw)
	return t, nil
}

// Arange returns start, start+step, … up to but excluding stop.
func Arange(c *Context, start, stop, step Scalar, dt dtype.Type) (_ *Tensor, err error) {
	defer try.Caught(&err)
	try.FailIf(step.f == 0 || math.IsNaN(step.f), "arange: the step must not be %v", step)
	try.FailIf(step.f > 0 && stop.less(start) || step.f < 0 && start.less(stop), "arange: a step of %v does not lead from %v to %v", step, start, stop)
	n := steps(start, stop, step)
	try.FailIf(n < 0, "arange: %v to %v in steps of %v are too many elements", start, stop, step)
	return sequence("arange", c, start, n, step, dt), nil
}

// steps returns how many steps lead from start to just before stop, exactly for integers; negative
// if they are more than a tensor can have elements.
func steps(start, stop, step Scalar) int {
	if start.kind == dtype.Float64 || stop.kind == dtype.Float64 || step.kind == dtype.Float64 {
		if n := math.Ceil((stop.f - start.f) / step.f); n < maxElems {
			return int(n)
		}
		return -1
	}
	way, stride := uint64(stop.i)-uint64(start.i), uint64(step.i)
	if step.i < 0 {
		way, stride = -way, -stride
	}
	if way == 0 {
		return 0
	}
	if n := (way-1)/stride + 1; n < maxElems {
		return int(n)
	}
	return -1
}

// sequence returns start + i·step, i < n.
func sequence(op string, c *Context, start Scalar, n int, step Scalar, dt dtype.Type) *Tensor {
	compute := dtype.Float64
	if start.kind != dtype.Float64 && step.kind != dtype.Float64 {
		compute = dtype.Int64
	}
	t := newTensor(op, c, []int{n}, compute)
	if compute == dtype.Int64 {
		for i, v := 0, Elems[int64](t); i < n; i++ {
			v[i] = start.i + int64(i)*step.i
		}
	} else {
		for i, v := 0, Elems[float64](t); i < n; i++ {
			d := float64(i) * step.f // rounded by itself, never fused with the sum
			v[i] = start.f + float64(d)
		}
	}
	if n > 0 { // the first and last values are the extremes
		for _, i := range []int{0, n - 1} {
			try.Ok(t.Element(i).fits(op, dt))
		}
	}
	return cast(op, t, dt)
}

// Linspace returns n values from start to stop, both included.
func Linspace(c *Context, start, stop float64, n int, dt dtype.Type) (_ *Tensor, err error) {
	defer try.Caught(&err)
	try.FailIf(n < 0, "linspace: the number of steps must not be negative, not %d", n)
	step := 0.0
	if n > 1 {
		if step = (stop - start) / float64(n-1); math.IsInf(step, 0) { // the difference overflowed
			step = stop/float64(n-1) - start/float64(n-1)
		}
	}
	try.Ok(Float(start).fits("linspace", dt))
	t := sequence("linspace", c, Float(start), n, Float(step), dtype.Float64)
	if n > 1 {
		Elems[float64](t)[n-1] = stop
		try.Ok(Float(stop).fits("linspace", dt))
	}
	return cast("linspace", t, dt), nil
}

// Eye makes an n×m matrix with ones on the diagonal.
func Eye(c *Context, n, m int, dt dtype.Type) (_ *Tensor, err error) {
	defer try.Caught(&err)
	t := zeros("eye", c, []int{n, m}, dt)
	for i := range min(n, m) {
		Int(1).put(unsafe.Add(t.ptr(), i*(m+1)*dt.Size()), dt)
	}
	return t, nil
}

// Clone copies t into new contiguous memory; gradients flow through.
func Clone(t *Tensor) (_ *Tensor, err error) {
	defer try.Caught(&err)
	out := newTensor("clone", t.ctx, t.shape, t.dtype)
	kCopy(out, t)
	if records(t, nil) {
		record(out, "clone", backPass, t).twice(backPass)
	}
	return out, nil
}

func backPass(_ *node, g *Tensor, out []*Tensor) {
	out[0] = g // the engine casts and sums where needed
}

// Cast converts to another type. A tensor that already has it is returned itself. Floats become integers by rounding
// towards zero.
func Cast(t *Tensor, dt dtype.Type) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if t.dtype == dt {
		return t, nil
	}
	out := cast("to", t, dt)
	if dt.IsFloat() && records(t, nil) {
		record(out, "to", backPass, t).twice(backPass)
	}
	return out, nil
}

// Convert makes t, a leaf, itself a tensor of another type of floats. It loses its gradient, and in bfloat16 it requires none, since
// only float32 and float64 do. Earlier views of t keep the type and the memory that it had.
func (t *Tensor) Convert(dt dtype.Type) (err error) {
	defer try.Caught(&err)
	switch {
	case t.dtype == dt || !t.dtype.IsFloat():
		return nil
	case t.node != nil || t.st.gone || t.frozen || t.Claimed() || t.leaf != nil && t.leaf.share != nil:
		return fmt.Errorf("to: a tensor of shape %s is a part of something else, and keeps its dtype", ShapeString(t.shape))
	}
	c := cast("to", t.Detach(), dt)
	c.st.home = nil // t has the memory now
	t.st, t.off, t.dtype, t.contiguous, t.grad = c.st, c.off, dt, true, nil
	setContiguous(t.strides, t.shape)
	t.requiresGrad = t.requiresGrad && (dt == dtype.Float32 || dt == dtype.Float64)
	return nil
}

// cast converts without recording.
func cast(op string, t *Tensor, dt dtype.Type) *Tensor {
	if t.dtype == dt {
		return t
	}
	out := newTensor(op, t.ctx, t.shape, dt)
	kCast(out, t)
	out.number = t.number
	return out
}

// assign writes src, broadcast and cast, into dst's elements, without the checks of a user's in-place operation.
func assign(op string, dst, src *Tensor) {
	var arr [8]int
	shape, err := BroadcastShape(op, arr[:0], dst.shape, src.shape)
	if err != nil || !sameShape(shape, dst.shape) {
		try.Fail("%s: shape %s does not broadcast to %s", op, ShapeString(src.shape), ShapeString(dst.shape))
	}
	src = cast(op, src, dst.dtype)
	if src.st == dst.st && !src.shapeOnly() && (src.off != dst.off || !sameShape(src.strides, dst.strides)) {
		src = try.To(Clone(src.Detach()))
	}
	if !sameShape(src.shape, dst.shape) {
		src = expanded(src, dst.shape)
	}
	kCopy(dst, src)
	dst.st.version++
}

func addInto(dst, g *Tensor) {
	g = cast("add_", g, dst.dtype)
	kBinary(OpAdd, dst, dst, g)
	dst.st.version++
}

// sumTo sums g over the dimensions along which a tensor of shape was broadcast to g's.
func sumTo(g *Tensor, shape []int) *Tensor {
	if sameShape(g.shape, shape) {
		return g
	}
	pad := len(g.shape) - len(shape)
	var arr [8]int
	dims := arr[:0]
	for i, d := range g.shape {
		if i < pad || shape[i-pad] == 1 && d != 1 {
			dims = append(dims, i)
		}
	}
	return try.To(Reshape(try.To(Sum(g, dims, true)), shape))
}
