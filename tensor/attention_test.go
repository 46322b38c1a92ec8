package tensor

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"drun/kernel/dtype"
)

// composed is attention from its parts, with whole matrices of scores.
func composed(q, k, v *Tensor, causal bool) *Tensor {
	scale := 1 / math.Sqrt(float64(q.shape[len(q.shape)-1]))
	scores := must(BinaryScalar(OpMul, must(MatMul(q, must(Transpose(k, -2, -1)))), Float(scale), false))
	if causal {
		rows, cols := q.shape[len(q.shape)-2], k.shape[len(k.shape)-2]
		later := must(Cast(must(Triu(must(Ones(q.ctx, []int{rows, cols}, dtype.Int32)), 1)), dtype.Bool))
		scores = must(MaskedFill(scores, later, Float(math.Inf(-1))))
	}
	return must(MatMul(must(Softmax(scores, -1)), v))
}

// Values and gradients, over several blocks of queries, with operands that
// are views, batches that broadcast and lengths that differ.
func TestAttentionAgainstParts(t *testing.T) {
	for _, s := range []struct {
		name    string
		q, k, v []int // as stored: (…, length, heads, width), seen as (…, heads, length, width)
		causal  bool
	}{
		{"one block", []int{2, 5, 3, 4}, []int{2, 5, 3, 4}, []int{2, 5, 3, 6}, false},
		{"causal blocks", []int{2, 131, 2, 7}, []int{2, 131, 2, 7}, []int{2, 131, 2, 5}, true},
		{"more keys", []int{70, 2, 3}, []int{150, 2, 3}, []int{150, 2, 1}, false},
		{"more queries, causal", []int{140, 1, 8}, []int{67, 1, 8}, []int{67, 1, 8}, true},
		{"broadcast", []int{2, 3, 66, 1, 4}, []int{3, 9, 1, 4}, []int{2, 1, 9, 1, 2}, false},
	} {
		t.Run(s.name, func(t *testing.T) {
			c, g := NewContext(), NewGenerator(5, 0)
			var leaves []*Tensor
			for _, shape := range [][]int{s.q, s.k, s.v} {
				x := must(g.Randn(c, shape, dtype.Float64))
				check(t, x.SetRequiresGrad(true))
				leaves = append(leaves, x)
			}
			run := func(f func(q, k, v *Tensor, causal bool) *Tensor) [4]*Tensor {
				var seen [3]*Tensor
				for i, x := range leaves {
					seen[i] = must(Transpose(x, -3, -2))
				}
				y := f(seen[0], seen[1], seen[2], s.causal)
				weights := must(NewGenerator(6, 0).Randn(c, y.shape, dtype.Float64))
				check(t, must(Sum(must(Mul(y, weights)), nil, false)).Backward(nil, false))
				out := [4]*Tensor{y.Detach()}
				for i, x := range leaves {
					out[i+1] = x.Grad()
					check(t, x.SetGrad(nil))
				}
				return out
			}
			want := run(composed)
			got := run(func(q, k, v *Tensor, causal bool) *Tensor { return must(Attention(q, k, v, causal)) })
			for i, name := range []string{"value", "dq", "dk", "dv"} {
				t.Run(name, func(t *testing.T) { near(t, got[i], 1e-12, want[i].shape, list(want[i])...) })
			}
		})
	}
}

func TestAttentionEdges(t *testing.T) {
	c := NewContext()
	zeros := func(shape ...int) *Tensor { return must(Zeros(c, shape, dtype.Float32)) }
	fail[*Tensor](t, "attention", "(2, 3)", "(4, 5)")(Attention(zeros(2, 3), zeros(4, 5), zeros(4, 5), false))
	fail[*Tensor](t, "attention", "nothing to attend to", "(0, 3)")(Attention(zeros(2, 3), zeros(0, 3), zeros(0, 3), false))
	fail[*Tensor](t, "attention", "do not broadcast", "(2, 4, 3)")(Attention(zeros(2, 4, 3), zeros(3, 4, 3), zeros(3, 4, 3), false))
	fail[*Tensor](t, "attention", "differ", "float64")(Attention(zeros(2, 3), must(Zeros(c, []int{2, 3}, dtype.Float64)), zeros(2, 3), false))
	for _, shape := range [][]int{{0, 3, 4}, {2, 0, 4}} {
		if y := must(Attention(zeros(shape...), zeros(shape[0], 2, 4), zeros(shape[0], 2, 4), true)); !sameShape(y.shape, shape) {
			t.Errorf("shape %v, want %v", y.shape, shape)
		}
	}
	// Without a width all keys weigh the same.
	v := floats(c, dtype.Float32, []int{2, 1}, 1, 3)
	equal(t, must(Attention(zeros(3, 0), zeros(2, 0), v, false)), []int{3, 1}, 2, 2, 2)
	// Large scores neither overflow nor lose the largest.
	big := floats(c, dtype.Float32, []int{2, 1}, 1e4, -1e4)
	equal(t, must(Attention(big, big, v, false)), []int{2, 1}, 1, 3)
	// NaN stays in the rows that see it.
	nan := floats(c, dtype.Float32, []int{2, 1}, 1, math.NaN())
	equal(t, must(Attention(big, nan, v, true)), []int{2, 1}, 1, math.NaN())
}

// With fewer heads than threads the gradients are cut by queries and keys: the
// same bits, on every path.
func TestAttentionOfFewHeads(t *testing.T) {
	for _, s := range []struct {
		batch, rows, cols int
		causal            bool
	}{{1, 200, 200, true}, {1, 130, 331, false}, {2, 331, 130, true}, {1, 65, 700, true}, {1, 64, 300, false}} {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			var want []float64
			everyPath(t, func(where string) {
				c, g := NewContext(), NewGenerator(9, 0)
				q, k, v := param(g, c, s.batch, s.rows, 24), param(g, c, s.batch, s.cols, 24), param(g, c, s.batch, s.cols, 17)
				y := must(Attention(q, k, v, s.causal))
				check(t, y.Backward(must(g.Randn(c, y.shape, dtype.Float32)), false))
				got := slices.Concat(list(y), list(q.Grad()), list(k.Grad()), list(v.Grad()))
				if want == nil {
					want = got
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%s: other bits", where)
				}
			})
		})
	}
}

// An infinite value reaches the queries that see its key, and of those before no more than are in one strip of twelve: the
// same ones on every path, with few heads too.
func TestUnseenKeys(t *testing.T) {
	const rows, strip, bad = 150, 100, 107 // the block of 64 queries from 64 on has a strip from 100 on
	attend := func(value float64) []float64 {
		c, g := NewContext(), NewGenerator(9, 0)
		q, k, v := param(g, c, 1, rows, 24), param(g, c, 1, rows, 24), param(g, c, 1, rows, 17)
		fill(must(Select(must(Select(v.Detach(), 0, 0)), 0, bad)), Float(value))
		y := must(Attention(q, k, v, true))
		check(t, y.Backward(must(g.Randn(c, y.shape, dtype.Float32)), false))
		return slices.Concat(list(y), list(q.Grad()), list(k.Grad()), list(v.Grad()))
	}
	finite := attend(1)
	var want []float64
	everyPath(t, func(where string) {
		got := attend(math.Inf(1))
		if !slices.Equal(got[:strip*17], finite[:strip*17]) {
			t.Fatalf("%s: a query before the key's strip sees it", where)
		}
		if !math.IsNaN(got[(bad-1)*17]) || !math.IsInf(got[bad*17], 1) {
			t.Fatalf("%s: the query before the key gives %v and its own %v", where, got[(bad-1)*17], got[bad*17])
		}
		if want == nil {
			want = got
		}
		if !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }) {
			t.Fatalf("%s: other bits", where)
		}
	})
}
