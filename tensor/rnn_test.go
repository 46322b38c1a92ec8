package tensor

import (
	"fmt"
	"math"
	"testing"

	"drun/kernel/dtype"
)

// TestSequencesTogether: a sequence has the same bits in a batch, where the weights lie in panels, as by itself, where they
// do not.
func TestSequencesTogether(t *testing.T) {
	const steps, batch, in, width = 6, 5, 7, 64
	for _, cell := range []Cell{LSTM, GRU, RNNTanh, RNNRelu} {
		for _, dt := range []dtype.Type{dtype.Float32, dtype.Float64} {
			t.Run(fmt.Sprint(cell, dt), func(t *testing.T) {
				c, next := NewContext(), 1
				draw := func(shape ...int) *Tensor {
					values := make([]float64, product(shape))
					for i := range values {
						next = next * 16807 % math.MaxInt32
						values[i] = float64(next)/math.MaxInt32 - 0.5
					}
					return floats(c, dt, shape, values...)
				}
				sums := gatesOf(cell) * width
				w := RNNWeights{draw(sums, in), draw(sums, width), draw(sums), nil}
				x, seed := draw(steps, batch, in), draw(steps, batch, width)
				through := func(x, seed *Tensor) (out, dx *Tensor) {
					x = must(Contiguous(x)).Detach()
					check(t, x.SetRequiresGrad(true))
					zero := must(Zeros(c, []int{x.shape[1], width}, dt))
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

// A step of a recurrent layer leaves its results behind, and nothing of what it computed them with.
func TestRecurrentGivesBack(t *testing.T) {
	const steps, batch, in, width = 8, 4, 32, 256
	for _, cell := range []Cell{LSTM, GRU, RNNTanh} {
		t.Run(fmt.Sprint(cell), func(t *testing.T) {
			c, g := NewContext(), NewGenerator(1, 0)
			leaf := func(shape ...int) *Tensor {
				w := must(g.Randn(c, shape, dtype.Float32))
				check(t, w.SetRequiresGrad(true))
				return w
			}
			sums := gatesOf(cell) * width
			w := RNNWeights{leaf(sums, in), leaf(sums, width), leaf(sums), leaf(sums)}
			x, zero, seed := leaf(steps, batch, in), must(Zeros(c, []int{batch, width}, dtype.Float32)), must(Ones(c, []int{steps, batch, width}, dtype.Float32))
			var memory *Tensor
			if cell == LSTM {
				memory = zero
			}
			step := func(train bool) int {
				before := Memory().InUse
				if !train {
					c.BeginNoGrad()
					defer c.EndNoGrad()
				}
				out, _, _, err := Recurrent(cell, x, zero, memory, w, nil, false)
				check(t, err)
				if train {
					check(t, out.Backward(seed, false))
				}
				return Memory().InUse - before
			}
			step(true) // the first has gradients to make
			for _, train := range []bool{true, false} {
				if left, results := step(train), classBytes(4*(steps+2)*batch*width); left > results {
					t.Errorf("training %v: %d bytes stay in use, of which results are %d", train, left, results)
				}
			}
		})
	}
}

// A NaN in the first state has the same bits as any other in all that comes out.
func TestRecurrentNaN(t *testing.T) {
	const steps, batch, in, width = 2, 3, 4, 17
	everyPath(t, func(where string) {
		for _, cell := range []Cell{LSTM, GRU, RNNTanh, RNNRelu} {
			c, g := NewContext(), NewGenerator(1, 0)
			draw := func(shape ...int) *Tensor { return must(g.Randn(c, shape, dtype.Float32)) }
			sums := gatesOf(cell) * width
			first := draw(batch, width)
			Elems[float32](first)[1] = math.Float32frombits(0xffabcdef)
			var memory *Tensor
			if cell == LSTM {
				memory = must(Clone(first))
			}
			out, hn, cn, err := Recurrent(cell, draw(steps, batch, in), first, memory, RNNWeights{draw(sums, in), draw(sums, width), draw(sums), nil}, nil, false)
			check(t, err)
			results, seen := []*Tensor{out, hn}, false
			if cn != nil {
				results = append(results, cn)
			}
			for _, bits := range bitsOf(results...) {
				if v := math.Float32frombits(bits); v != v {
					seen = true
					if bits != 0x7fc00000 {
						t.Fatalf("%s, cell %v: a NaN of bits %08x", where, cell, bits)
					}
				}
			}
			if !seen {
				t.Errorf("%s, cell %v: the NaN is lost", where, cell)
			}
		}
	})
}
