package tensor

import (
	"math"

	"drun/kernel/dtype"
)

// A Context is what the tensors of one rank share: whether gradients are being recorded, and the order in which
// operations happened. It is used by one goroutine at a time. Every tensor knows its context, and results take it
// from their operands.
type Context struct {
	noGrad   int    // depth of nested no-grad sections
	autocast bool   // products are in bfloat16
	seq      uint64 // operations recorded so far; orders the backward pass
	pass     uint64 // backward passes so far; marks visited nodes

	passes  int     // in progress: a backward function may start another
	grads   int     // of them, those that add to no tensor's gradient
	order   []*node // memory for the next backward pass
	spares  spares
	reduced reduced

	device *device // that computes the tensors; nil: the processor

	marks []marked // of the backward pass in progress, the earliest first

	// Shapes means that tensors have a shape and a type, but no memory. Operations check their operands as usual and
	// return the result's shape, but compute nothing; those whose result depends on elements panic with NoElementsError.
	Shapes bool

	// GradStorage, if set, provides memory for an optimizer's flat
	// gradients, for instance where a collective reduces them in place.
	GradStorage func(bytes int) (*Storage, error)

	// BackwardDone, if set, is called when a backward pass has delivered all gradients; its error becomes the pass's.
	BackwardDone func() error

	// CreateGraph makes operations keep what gradients of gradients need (GradOptions.Create).
	CreateGraph bool

	// Library is what a layer above keeps with the rank's tensors.
	Library any

	// Watch, if set, gets the result of each operation that records gradients, of each step of a backward pass and of
	// each optimizer step, with what it was computed from.
	Watch func(op string, out *Tensor, inputs []*Tensor)

	// Made, if set, gets these too, and the result of each builtin and operator of the recipe that gives a tensor.
	Made func(op string, out *Tensor, inputs []*Tensor)

	// Fail, if set, ends the recipe with an error that arose where Starlark allows none to be returned.
	Fail func(error)
}

// NoElementsError says that an operation needed the elements of a tensor that has only a shape.
type NoElementsError struct{}

func (NoElementsError) Error() string { return "the tensor has a shape, but no elements" }

// Misuse marks it as an error of the call, not a bug.
func (NoElementsError) Misuse() {}

// NoElements distinguishes it from other errors.
func (NoElementsError) NoElements() {}

// NewContext returns a context that records gradients.
func NewContext() *Context { return &Context{spares: newSpares()} }

// BeginNoGrad stops the recording of gradients until the matching EndNoGrad.
func (c *Context) BeginNoGrad() { c.noGrad++ }

// EndNoGrad ends the innermost section begun by BeginNoGrad.
func (c *Context) EndNoGrad() {
	if c.noGrad > 0 {
		c.noGrad--
	}
}

// Recording reports whether operations record gradients now.
func (c *Context) Recording() bool { return c != nil && c.noGrad == 0 }

// Finite reports whether a tensor holds NaN, and whether it holds infinities.
func Finite(t *Tensor) (nan, inf bool) {
	switch t.dtype {
	case dtype.Float32, dtype.Float64, dtype.Float16, dtype.BFloat16:
	default:
		return false, false
	}
	whole, err := Contiguous(t.Detach())
	if err == nil && (t.dtype == dtype.Float16 || t.dtype == dtype.BFloat16) {
		whole, err = Cast(whole, dtype.Float32)
	}
	if err != nil {
		return false, false // no memory for a copy: the next operation will report it
	}
	if whole.dtype == dtype.Float64 {
		for _, v := range Values[float64](whole)[:whole.n] {
			nan, inf = nan || v != v, inf || math.IsInf(v, 0)
		}
	} else {
		for _, v := range Values[float32](whole)[:whole.n] {
			nan, inf = nan || v != v, inf || v > math.MaxFloat32 || v < -math.MaxFloat32
		}
	}
	alive(whole)
	return nan, inf
}

// NotFinite says what is wrong with an operation's result, NaN or infinite, and whether it was given the like; "" if nothing is.
// where and masked_fill insert infinities on purpose.
func NotFinite(op string, out *Tensor, inputs []*Tensor) (what string, given bool) {
	nan, inf := Finite(out)
	switch {
	case nan:
		what = "NaN"
	case inf && op != "where" && op != "tensor.where" && op != "masked_fill":
		what = "infinite"
	default:
		return "", false
	}
	for _, t := range inputs {
		if t != nil {
			hadNaN, hadInf := Finite(t)
			given = given || nan && hadNaN || !nan && hadInf
		}
	}
	return what, given
}

// watched reports whether somebody wants to see each operation.
func (c *Context) watched() bool { return c != nil && (c.Watch != nil || c.Made != nil) }

// Watched passes the result of an operation, or of a step of the backward pass or an optimizer, to Watch and Made.
func (c *Context) Watched(op string, out *Tensor, inputs ...*Tensor) {
	if c == nil || out == nil {
		return
	}
	if c.Watch != nil {
		c.Watch(op, out, inputs)
	}
	if c.Made != nil {
		c.Made(op, out, inputs)
	}
}
