package tensor

import (
	"fmt"
	"math"
	"unsafe"

	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// A Scalar is a plain number or truth value.
type Scalar struct {
	kind dtype.Type // Float64, Int64 or Bool
	f    float64
	i    int64
}

// Float makes a floating-point scalar.
func Float(f float64) Scalar { return Scalar{kind: dtype.Float64, f: f, i: towardsZero(f)} }

// towardsZero rounds f to an integer as casts do: saturating, NaN as 0. Go's own conversion depends on the processor
// if f is out of range.
func towardsZero(f float64) int64 {
	switch {
	case f >= 0x1p63:
		return math.MaxInt64
	case f < -0x1p63:
		return math.MinInt64
	case f != f:
		return 0
	}
	return int64(f)
}

// Int makes an integer scalar.
func Int(i int64) Scalar { return Scalar{kind: dtype.Int64, f: float64(i), i: i} }

// Truth makes a truth value.
func Truth(b bool) Scalar {
	if b {
		return Scalar{kind: dtype.Bool, f: 1, i: 1}
	}
	return Scalar{kind: dtype.Bool}
}

// Kind returns Float64, Int64 or Bool.
func (s Scalar) Kind() dtype.Type { return s.kind }

func (s Scalar) Float() float64 { return s.f }

// Int returns the value as an integer, rounded towards zero, saturating.
func (s Scalar) Int() int64 { return s.i }

func (s Scalar) String() string {
	if s.kind == dtype.Float64 {
		return fmt.Sprint(s.f)
	}
	return fmt.Sprint(s.i)
}

// less compares integers exactly, others as float64.
func (s Scalar) less(o Scalar) bool {
	if s.kind == dtype.Float64 || o.kind == dtype.Float64 {
		return s.f < o.f
	}
	return s.i < o.i
}

// fits checks that an integer type can hold s.
func (s Scalar) fits(op string, d dtype.Type) error {
	lo, hi := int64(math.MinInt64), int64(math.MaxInt64)
	switch d {
	case dtype.Int32:
		lo, hi = math.MinInt32, math.MaxInt32
	case dtype.Int8:
		lo, hi = math.MinInt8, math.MaxInt8
	case dtype.Uint8:
		lo, hi = 0, math.MaxUint8
	case dtype.Int64:
	default:
		return nil
	}
	if s.i < lo || s.i > hi || s.kind == dtype.Float64 && (math.IsNaN(s.f) || s.f < -0x1p63 || s.f >= 0x1p63) {
		return fmt.Errorf("%s: %v does not fit in %s", op, s, d)
	}
	return nil
}

// put stores s, which fits, as an element of type d.
func (s Scalar) put(p unsafe.Pointer, d dtype.Type) {
	switch d {
	case dtype.Float32:
		if s.kind == dtype.Float64 {
			*(*float32)(p) = float32(s.f)
		} else {
			*(*float32)(p) = float32(s.i)
		}
	case dtype.Float64:
		*(*float64)(p) = s.f
	case dtype.Int64:
		*(*int64)(p) = s.i
	case dtype.Bool:
		*(*bool)(p) = s.f != 0
	default:
		s.convert(p, d)
	}
}

// convert is put for the other types.
func (s Scalar) convert(p unsafe.Pointer, d dtype.Type) {
	from := kernel.View{Data: unsafe.Pointer(&s.f)}
	kind := dtype.Float64
	if s.kind != dtype.Float64 {
		from.Data, kind = unsafe.Pointer(&s.i), dtype.Int64
	}
	kernel.Cast(d, kind, nil, kernel.View{Data: p}, from)
}

// Element reads element i of t's memory, counted from its first: of a contiguous tensor, in row-major order.
func (t *Tensor) Element(i int) Scalar {
	p := t.readAt(i)
	switch t.dtype {
	case dtype.Float32:
		return Float(float64(*(*float32)(p)))
	case dtype.Float64:
		return Float(*(*float64)(p))
	case dtype.Int64:
		return Int(*(*int64)(p))
	case dtype.Int32:
		return Int(int64(*(*int32)(p)))
	case dtype.Int8:
		return Int(int64(*(*int8)(p)))
	case dtype.Uint8:
		return Int(int64(*(*uint8)(p)))
	case dtype.Bool:
		return Truth(*(*bool)(p))
	}
	var f float64
	kernel.Cast(dtype.Float64, t.dtype, nil, kernel.View{Data: unsafe.Pointer(&f)}, kernel.View{Data: p})
	return Float(f)
}

// Scalars returns all elements in row-major order.
func (t *Tensor) Scalars() (_ []Scalar, err error) {
	defer try.Caught(&err)
	if t.n > MaxValues() {
		return nil, fmt.Errorf("%d elements are too many for a list", t.n)
	}
	x := contiguous(t)
	out := each.UpTo(t.n, x.Element)
	return out, nil
}

// Item returns the value of a tensor of one element.
func (t *Tensor) Item() (Scalar, error) {
	if t.n != 1 {
		return Scalar{}, fmt.Errorf("item: the tensor has %d elements (shape %s), not one", t.n, ShapeString(t.shape))
	}
	return t.Element(0), nil
}

// Promote returns the common type of two tensors, as PyTorch does: the higher category of bool < integer < float <
// complex wins; within a category the wider type. uint8 with int8 gives int32 (there is no int16), float16 with
// bfloat16 gives float32.
func Promote(a, b dtype.Type) dtype.Type {
	if a == b {
		return a
	}
	ra, rb := a.Kind(), b.Kind()
	switch {
	case ra > rb:
		return a
	case rb > ra:
		return b
	case a.Size() > b.Size():
		return a
	case b.Size() > a.Size():
		return b
	case a.IsFloat(): // float16 and bfloat16
		return dtype.Float32
	}
	return dtype.Int32 // int8 and uint8
}

// promoteOperands returns the type in which two operands are computed. A tensor without dimensions does not widen one
// with dimensions unless its category is higher; a plain number (wrapped) does not widen either.
func promoteOperands(a, b *Tensor) dtype.Type {
	if a.dtype == b.dtype {
		return a.dtype
	}
	pa, pb := a.priority(), b.priority()
	if pa == pb {
		return Promote(a.dtype, b.dtype)
	}
	strong, weak := a.dtype, b.dtype
	if pb > pa {
		strong, weak = weak, strong
	}
	return promoteWeak(strong, weak, min(pa, pb) == 0)
}

// promoteWeak returns strong unless weak's category is higher; then it returns weak, or for a plain number the default type of its category.
func promoteWeak(strong, weak dtype.Type, number bool) dtype.Type {
	if weak.Kind() <= strong.Kind() {
		return strong
	}
	if number && weak == dtype.Float64 {
		return dtype.Float32
	}
	return weak
}

// priority ranks operands for promotion: 2 with dimensions, 1 without, 0 a plain number.
func (t *Tensor) priority() int {
	switch {
	case t.number:
		return 0
	case len(t.shape) == 0:
		return 1
	}
	return 2
}
