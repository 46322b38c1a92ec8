package tensor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"drun/kernel/dtype"
)

// Values against loops written from the definitions, in float64, on random
// shapes and layouts.

func randomTensor(r *rand.Rand, c *Context, shape ...int) (*Tensor, func(ix ...int) float64) {
	values := make([]float64, product(shape))
	for i := range values {
		values[i] = r.NormFloat64()
	}
	t := floats(c, dtype.Float64, shape, values...)
	if r.IntN(2) == 0 {
		t = strided(c, t)
	}
	n := listed(shape, values)
	return t, func(ix ...int) float64 { return n.at(ix) }
}

func eachSeed(t *testing.T, n uint64, f func(t *testing.T, r *rand.Rand, c *Context)) {
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { f(t, rand.New(rand.NewPCG(seed, 3)), NewContext()) })
	}
}

func compare(t *testing.T, got *Tensor, want naive) {
	t.Helper()
	near(t, got, 1e-11, want.shape, want.list()...)
}

func TestMatMulValues(t *testing.T) {
	eachSeed(t, 40, func(t *testing.T, r *rand.Rand, c *Context) {
		b1, b2, m, k, n := r.IntN(3)+1, r.IntN(3)+1, r.IntN(20)+1, r.IntN(40), r.IntN(20)+1
		x, xa := randomTensor(r, c, b1, 1, m, k)
		y, ya := randomTensor(r, c, b2, k, n)
		compare(t, must(MatMul(x, y)), naive{[]int{b1, b2, m, n}, func(ix []int) (sum float64) {
			for j := range k {
				sum += xa(ix[0], 0, ix[2], j) * ya(ix[1], j, ix[3])
			}
			return sum
		}})
	})
}

func TestConvolutionValues(t *testing.T) {
	eachSeed(t, 40, func(t *testing.T, r *rand.Rand, c *Context) {
		n, ch, h, w, f := r.IntN(3)+1, r.IntN(3)+1, r.IntN(6)+3, r.IntN(6)+3, r.IntN(4)+1
		size := [2]int{r.IntN(3) + 1, r.IntN(3) + 1}
		stride := [2]int{r.IntN(2) + 1, r.IntN(3) + 1}
		padding := [2]int{r.IntN(size[0]/2 + 1), r.IntN(size[1]/2 + 1)}
		x, xa := randomTensor(r, c, n, ch, h, w)
		k, ka := randomTensor(r, c, f, ch, size[0], size[1])
		b, ba := randomTensor(r, c, f)
		oh, ow := (h+2*padding[0]-size[0])/stride[0]+1, (w+2*padding[1]-size[1])/stride[1]+1
		// cells calls visit for each kernel cell that lies inside the image.
		cells := func(ix []int, visit func(i, j, y, x int)) {
			for i := range size[0] {
				for j := range size[1] {
					y, x := ix[2]*stride[0]+i-padding[0], ix[3]*stride[1]+j-padding[1]
					if y >= 0 && y < h && x >= 0 && x < w {
						visit(i, j, y, x)
					}
				}
			}
		}
		compare(t, must(conv2d(x, k, b, stride, padding)), naive{[]int{n, f, oh, ow}, func(ix []int) float64 {
			sum := ba(ix[1])
			cells(ix, func(i, j, y, x int) {
				for c := range ch {
					sum += xa(ix[0], c, y, x) * ka(ix[1], c, i, j)
				}
			})
			return sum
		}})
		compare(t, must(MaxPool2d(x, size, stride, padding)), naive{[]int{n, ch, oh, ow}, func(ix []int) float64 {
			top := math.Inf(-1)
			cells(ix, func(_, _, y, x int) { top = max(top, xa(ix[0], ix[1], y, x)) })
			return top
		}})
		compare(t, must(AvgPool2d(x, size, stride, padding)), naive{[]int{n, ch, oh, ow}, func(ix []int) (sum float64) {
			cells(ix, func(_, _, y, x int) { sum += xa(ix[0], ix[1], y, x) })
			return sum / float64(size[0]*size[1])
		}})
	})
}

func TestNormValues(t *testing.T) {
	eachSeed(t, 20, func(t *testing.T, r *rand.Rand, c *Context) {
		rows, n := r.IntN(5)+1, r.IntN(40)+1
		x, xa := randomTensor(r, c, rows, n)
		w, wa := randomTensor(r, c, n)
		b, ba := randomTensor(r, c, n)
		stats := func(i int) (mean, variance, square float64) {
			for j := range n {
				mean += xa(i, j) / float64(n)
				square += xa(i, j) * xa(i, j) / float64(n)
			}
			for j := range n {
				variance += (xa(i, j) - mean) * (xa(i, j) - mean) / float64(n)
			}
			return
		}
		compare(t, must(LayerNorm(x, w, b, 1, 1e-3)), naive{[]int{rows, n}, func(ix []int) float64 {
			mean, variance, _ := stats(ix[0])
			return (xa(ix...)-mean)/math.Sqrt(variance+1e-3)*wa(ix[1]) + ba(ix[1])
		}})
		compare(t, must(RMSNorm(x, w, 1e-3)), naive{[]int{rows, n}, func(ix []int) float64 {
			_, _, square := stats(ix[0])
			return xa(ix...) / math.Sqrt(square+1e-3) * wa(ix[1])
		}})
		total := func(i int) (sum float64) {
			for j := range n {
				sum += math.Exp(xa(i, j))
			}
			return
		}
		compare(t, must(Softmax(x, 1)), naive{[]int{rows, n}, func(ix []int) float64 { return math.Exp(xa(ix...)) / total(ix[0]) }})
		compare(t, must(LogSoftmax(x, -1)), naive{[]int{rows, n}, func(ix []int) float64 { return xa(ix...) - math.Log(total(ix[0])) }})
	})
}

func TestAttentionValues(t *testing.T) {
	eachSeed(t, 20, func(t *testing.T, r *rand.Rand, c *Context) {
		h, l, d, e := r.IntN(3)+1, r.IntN(9)+1, r.IntN(5)+1, r.IntN(5)+1
		causal := r.IntN(2) == 0
		q, qa := randomTensor(r, c, h, l, d)
		k, ka := randomTensor(r, c, h, l, d)
		v, va := randomTensor(r, c, h, l, e)
		compare(t, must(Attention(q, k, v, causal)), naive{[]int{h, l, e}, func(ix []int) float64 {
			sum, weights := 0.0, 0.0
			for s := range l {
				if causal && s > ix[1] {
					break
				}
				dot := 0.0
				for i := range d {
					dot += qa(ix[0], ix[1], i) * ka(ix[0], s, i)
				}
				w := math.Exp(dot / math.Sqrt(float64(d)))
				weights += w
				sum += w * va(ix[0], s, ix[2])
			}
			return sum / weights
		}})
	})
}

func TestGatherScatterValues(t *testing.T) {
	eachSeed(t, 40, func(t *testing.T, r *rand.Rand, c *Context) {
		shape := []int{r.IntN(4) + 1, r.IntN(4) + 1, r.IntN(4) + 1}
		dim := r.IntN(3)
		small := []int{r.IntN(shape[0]) + 1, r.IntN(shape[1]) + 1, r.IntN(shape[2]) + 1}
		small[dim] = r.IntN(6) + 1
		x, xa := randomTensor(r, c, shape...)
		src, sa := randomTensor(r, c, small...)
		picks := make([]int64, product(small))
		for i := range picks {
			picks[i] = int64(r.IntN(shape[dim]))
		}
		at := func(ix []int) int { return int(picks[(ix[0]*small[1]+ix[1])*small[2]+ix[2]]) }
		idx := ints(c, small, picks...)
		compare(t, must(Gather(x, dim, idx)), naive{small, func(ix []int) float64 {
			ix, k := clone(ix), at(ix)
			ix[dim] = k
			return xa(ix...)
		}})
		compare(t, must(ScatterAdd(x, dim, idx, src)), naive{shape, func(ix []int) float64 {
			sum := xa(ix...)
			for j := range small[dim] {
				from := clone(ix)
				from[dim] = j
				if from[0] < small[0] && from[1] < small[1] && from[2] < small[2] && at(from) == ix[dim] {
					sum += sa(from...)
				}
			}
			return sum
		}})
		row := ints(c, []int{3}, picks[0], picks[0]-int64(shape[dim]), picks[len(picks)-1])
		want := clone(shape)
		want[dim] = 3
		compare(t, must(IndexSelect(x, dim, row)), naive{want, func(ix []int) float64 {
			ix = clone(ix)
			ix[dim] = []int{int(picks[0]), int(picks[0]), int(picks[len(picks)-1])}[ix[dim]]
			return xa(ix...)
		}})
	})
}
