package tensor

import (
	"fmt"
	"math"
	"testing"

	"drun/element"
)

// TestSequencesTogether: a sequence has the same bits in a batch, where the weights lie in panels, as by itself, where they
// do not.
func TestSequencesTogether(t *testing.T) {
	const steps, batch, in, width = 6, 5, 7, 64
	for _, cell := range []Cell{LSTM, GRU, RNNTanh, RNNRelu} {
		for _, dtype := range []element.Type{element.Float32, element.Float64} {
			t.Run(fmt.Sprint(cell, dtype), func(t *testing.T) {
				c, next := NewContext(), 1
				draw := func(shape ...int) *Tensor {
					values := make([]float64, product(shape))
					for i := range values {
						next = next * 16807 % math.MaxInt32
						values[i] = float64(next)/math.MaxInt32 - 0.5
					}
					return floats(c, dtype, shape, values...)
				}
				sums := gatesOf(cell) * width
				w := RNNWeights{draw(sums, in), draw(sums, width), draw(sums), nil}
				x, seed := draw(steps, batch, in), draw(steps, batch, width)
				through := func(x, seed *Tensor) (out, dx *Tensor) {
					x = must(Contiguous(x)).Detach()
					check(t, x.SetRequiresGrad(true))
					zero := must(Zeros(c, []int{x.shape[1], width}, dtype))
					var memory *Tensor
					if cell == LSTM {
						memory = zero
					}
					out, _, _, err := Recurrent(cell, x, zero, memory, w, nil, false)
					check(t, err)
					check(t, out.Backward(seed, false))
					return out, x.Grad()
				}
				out, dx := through(x, seed)
				for i := range batch {
					one := func(x *Tensor) *Tensor { return must(Narrow(x, 1, i, 1)) }
					alone, dalone := through(one(x), one(seed))
					equal(t, one(out), alone.shape, list(alone)...)
					equal(t, one(dx), dalone.shape, list(dalone)...)
				}
			})
		}
	}
}
