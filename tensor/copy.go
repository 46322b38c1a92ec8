package tensor

import (
	"fmt"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// Clone copies t into fresh contiguous memory; gradients flow through.
func Clone(t *Tensor) (*Tensor, error) {
	out, err := newTensor("clone", t.ctx, t.shape, t.dtype)
	if err != nil {
		return nil, err
	}
	kCopy(out, t)
	if records(t, nil) {
		record(out, "clone", backPass, t)
	}
	return out, nil
}

func backPass(_ *node, g *Tensor, out []*Tensor) error {
	out[0] = g // the engine casts and sums where needed
	return nil
}

// Cast converts to another type. A tensor that already has it is returned itself. Floats become integers by rounding
// towards zero.
func Cast(t *Tensor, dt dtype.Type) (*Tensor, error) {
	if t.dtype == dt {
		return t, nil
	}
	out, err := cast("to", t, dt)
	if err != nil {
		return nil, err
	}
	if dt.IsFloat() && records(t, nil) {
		record(out, "to", backPass, t)
	}
	return out, nil
}

// cast converts without recording.
func cast(op string, t *Tensor, dt dtype.Type) (*Tensor, error) {
	if t.dtype == dt {
		return t, nil
	}
	out, err := newTensor(op, t.ctx, t.shape, dt)
	if err != nil {
		return nil, err
	}
	kCast(out, t)
	out.number = t.number
	return out, nil
}

// assign writes src, broadcast and cast, into dst's elements, without the checks that a user's operation needs.
func assign(op string, dst, src *Tensor) (err error) {
	defer try.Caught(&err)
	var arr [8]int
	shape, err := BroadcastShape(op, arr[:0], dst.shape, src.shape)
	if err != nil || !sameShape(shape, dst.shape) {
		return fmt.Errorf("%s: shape %s does not broadcast to %s", op, ShapeString(src.shape), ShapeString(dst.shape))
	}
	src = try.To(cast(op, src, dst.dtype))
	if src.st == dst.st && src.st.ptr != nil && (src.off != dst.off || !sameShape(src.strides, dst.strides)) {
		src = try.To(Clone(src.Detach()))
	}
	if !sameShape(src.shape, dst.shape) {
		src = expanded(src, dst.shape)
	}
	kCopy(dst, src)
	dst.st.version++
	return nil
}

// addInto adds g to dst's elements.
func addInto(dst, g *Tensor) error {
	g, err := cast("add_", g, dst.dtype)
	if err != nil {
		return err
	}
	kBinary(OpAdd, dst, dst, g)
	dst.st.version++
	return nil
}

// sumTo sums g over the dimensions along which shape was broadcast to g's.
func sumTo(g *Tensor, shape []int) (*Tensor, error) {
	pad := len(g.shape) - len(shape)
	var arr [8]int
	dims := arr[:0]
	for i, d := range g.shape {
		if i < pad || shape[i-pad] == 1 && d != 1 {
			dims = append(dims, i)
		}
	}
	out := g
	if len(dims) > 0 {
		var err error
		if out, err = reduceDims("sum", reduceSum, g, dims, false); err != nil {
			return nil, err
		}
	}
	return Reshape(out, shape)
}
