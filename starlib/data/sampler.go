package data

import (
	"fmt"
	"math"
	"sort"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/random"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// sampler draws an epoch's samples at random, by weight.
type sampler struct {
	starlib.Opaque
	sums        []float64 // of the weights up to each sample
	weights     []float64
	n           int
	replacement bool
}

func (s *sampler) String() string       { return fmt.Sprintf("<sampler of %d samples>", s.n) }
func (s *sampler) Truth() starlark.Bool { return s.n > 0 }
func (s *sampler) Len() int             { return s.n }

var samplerType = &starlib.Methods{Type: "Sampler", Doc: "Picks the samples of each epoch, for data.loader."}

func weightedSampler(c *starlib.Call) (starlark.Value, error) {
	s := &sampler{Opaque: "Sampler", replacement: c.Bool("replacement")}
	list, ok := c.Arg("weights").(starlark.Iterable)
	t, is := list.(*startensor.Value)
	try.FailIf(!ok || is && t.Tensor().Dim() != 1, "argument weights: want a list or a one-dimensional tensor")
	positive, total := 0, 0.0
	iter := list.Iterate()
	defer iter.Done()
	for v := starlark.Value(nil); iter.Next(&v); {
		w, err := starlib.AsNumber(v)
		if err != nil || !(w >= 0) || math.IsInf(w, 1) {
			return nil, fmt.Errorf("argument weights: element %d is %s: want a finite number of 0 or more", len(s.sums), v)
		}
		if w > 0 {
			positive++
		}
		total += w
		s.weights, s.sums = append(s.weights, w), append(s.sums, total)
	}
	if s.n = len(s.weights); !c.IsNone("samples") {
		s.n = c.Int("samples")
	}
	switch {
	case positive == 0 || math.IsInf(total, 1):
		return nil, fmt.Errorf("argument weights: their sum is %v", total)
	case s.n < 1 || s.n > math.MaxInt32:
		return nil, fmt.Errorf("samples = %d: want from 1 to %d", s.n, math.MaxInt32)
	case !s.replacement && s.n > positive:
		return nil, fmt.Errorf("samples = %d without replacement, but only %d weights are more than 0", s.n, positive)
	}
	return s, nil
}

// order draws one epoch.
func (s *sampler) order(ctx *tensor.Context, g *random.Generator) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	u := try.To(g.Stream.Rand(ctx, []int{s.n}, dtype.Float64))
	draws := view[float64](u.Content())
	out := make([]int64, s.n)
	if s.replacement {
		for i := range out {
			out[i] = int64(above(s.sums, draws[i]*s.sums[len(s.sums)-1]))
			for s.weights[out[i]] == 0 { // the product was rounded up to the whole sum
				out[i]--
			}
		}
	} else {
		out = drawEach(s.weights, draws, s.n)
	}
	return tensor.FromBytes(ctx, bytesOf(out), []int{s.n}, dtype.Int64)
}

// above returns the first index whose sum is more than x, or the last index.
func above(sums []float64, x float64) int {
	return min(sort.Search(len(sums), func(i int) bool { return sums[i] > x }), len(sums)-1)
}

// drawEach draws n different indices: after each draw its weight is removed.
func drawEach(weights, draws []float64, n int) []int64 {
	tree := newSumTree(weights)
	out := make([]int64, n)
	for i := range out {
		k := tree.find(float64(draws[i] * tree.total()))
		out[i] = int64(k)
		tree.remove(k)
	}
	return out
}

// sumTree holds sums of weights, so that a weight is found and removed in logarithmic time.
type sumTree struct {
	leaves int
	node   []float64 // node[1] is the whole sum; the leaves come last
}

func newSumTree(weights []float64) *sumTree {
	t := &sumTree{leaves: 1}
	for t.leaves < len(weights) {
		t.leaves *= 2
	}
	t.node = make([]float64, 2*t.leaves)
	copy(t.node[t.leaves:], weights)
	for i := t.leaves - 1; i >= 1; i-- {
		t.node[i] = t.node[2*i] + t.node[2*i+1]
	}
	return t
}

func (t *sumTree) total() float64 { return t.node[1] }

// find returns the leaf that x falls in, never one of weight 0.
func (t *sumTree) find(x float64) int {
	i := 1
	for i < t.leaves {
		i *= 2
		if left := t.node[i]; t.node[i+1] > 0 && (x >= left || left == 0) {
			x -= left
			i++
		}
	}
	return i - t.leaves
}

func (t *sumTree) remove(leaf int) {
	i := leaf + t.leaves
	t.node[i] = 0
	for i /= 2; i >= 1; i /= 2 {
		t.node[i] = t.node[2*i] + t.node[2*i+1]
	}
}

var sampling = &starlib.Def{
	Sig: "weighted_sampler(weights: iterable, samples: int = None, replacement: bool = True) -> Sampler",
	Doc: "Draws an epoch's samples at random, for data.loader(sampler = ...): sample i with a probability proportional to weights[i]. samples is how many an epoch has, by default as many as weights; without replacement none appears twice. The draw depends only on the run's seed and the epoch; the ranks divide it as with shuffle.",
	Fn:  weightedSampler,
}

// share is what one rank takes of one epoch: its sample indices, batch after batch.
//
// With shuffle, an epoch is cut into global batches of size·batch samples; rank r takes the r-th part of each. What
// is left is shared to within one sample, or dropped if it is smaller than the group (always with dropLast): every
// rank gets equally many batches. Without shuffle, rank r takes the r-th of size nearly equal ranges of the data, so
// that each sample comes exactly once; dropLast takes equally many full batches of each. With padLast the first samples
// come again at the end, so that all ranks have equally many.
type share struct {
	batch int
	full  int // batches of batch samples
	tail  int // samples of the last, smaller batch; 0 if there is none

	// rank r's part of global batch i begins at i·stride + first; that of the tail at tailAt.
	first, stride, tailAt int
}

// lastPart is what becomes of samples that do not fill a batch of each rank. Its numbers are saved.
type lastPart int

const (
	keepLast lastPart = iota
	dropLast
	padLast
)

// padded is how many samples n are with those that come again.
func (e lastPart) padded(n, size int) int {
	if e == padLast {
		return (n + size - 1) / size * size
	}
	return n
}

func newShare(n, batch, rank, size int, shuffle bool, last lastPart) share {
	n = last.padded(n, size)
	batch = min(batch, n+1) // any batch larger than n is never full; this one cannot overflow
	if !shuffle {
		lo, hi := rank*n/size, (rank+1)*n/size
		s := share{batch: batch, full: (hi - lo) / batch, tail: (hi - lo) % batch, first: lo, stride: batch}
		s.tailAt = lo + s.full*batch
		if last == dropLast {
			s.full, s.tail = n/size/batch, 0
		}
		return s
	}
	global := batch * size
	s := share{batch: batch, full: n / global, first: rank * batch, stride: global}
	if rest := n - s.full*global; rest >= size && last != dropLast {
		lo, hi := rank*rest/size, (rank+1)*rest/size
		s.tail, s.tailAt = hi-lo, s.full*global+lo
	}
	return s
}

func (s *share) batches() int {
	if s.tail > 0 {
		return s.full + 1
	}
	return s.full
}

// bounds returns batch i as positions lo up to hi in the epoch's order.
func (s *share) bounds(i int) (lo, hi int) {
	if i < s.full {
		lo = s.first + i*s.stride
		return lo, lo + s.batch
	}
	return s.tailAt, s.tailAt + s.tail
}
