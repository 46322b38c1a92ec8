package tensor

import (
	"fmt"
	"strings"
)

// As names an error of an operation's part for the operation that was called.
func As(op string, err error) error {
	if err == nil {
		return nil
	}
	part, what, ok := strings.Cut(err.Error(), ": ")
	if !ok || strings.ContainsAny(part, " (") {
		return fmt.Errorf("%s: %w", op, err)
	}
	return fmt.Errorf("%s: %s", op, what)
}

// chained strings operations together and keeps the first error. Results in
// between are discarded: nobody else has seen them.
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
