package tensor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"drun/kernel/dtype"
)

// randomAny is a tensor of any type, with up to four dimensions, empty ones
// and views included.
func randomAny(r *rand.Rand, c *Context) *Tensor {
	shape := make([]int, r.IntN(5))
	for i := range shape {
		shape[i] = []int{0, 1, 1, 2, 3, 3, 4}[r.IntN(7)]
	}
	values := make([]float64, product(shape))
	for i := range values {
		values[i] = float64(r.IntN(9) - 4)
	}
	dt := []dtype.Type{dtype.Float32, dtype.Float32, dtype.Float64, dtype.Int64, dtype.Int64, dtype.Int32, dtype.Int8, dtype.Uint8, dtype.Bool, dtype.Float16, dtype.BFloat16, dtype.Complex64}[r.IntN(12)]
	t := must(FromFloats(c, values, shape, dt))
	if (dt == dtype.Float32 || dt == dtype.Float64) && r.IntN(2) == 0 {
		t.requiresGrad = true
	}
	if nd := len(shape); nd > 1 && r.IntN(2) == 0 {
		t = must(Transpose(t, r.IntN(nd), r.IntN(nd)))
	}
	return t
}

func two(t, _ *Tensor, err error) (*Tensor, error) { return t, err }

// attempts is every operation with whatever arguments come.
func attempts(r *rand.Rand, a, b, d *Tensor) []func() (*Tensor, error) {
	dim, n := r.IntN(6)-3, r.IntN(6)-2
	keep := r.IntN(2) == 0
	s := []Scalar{Float(1.5), Int(2), Int(300), Truth(true), Int(0)}[r.IntN(5)]
	pair := [2]int{r.IntN(4), r.IntN(4)}
	red := Reduction(r.IntN(3))
	shape := []int{r.IntN(5) - 1, r.IntN(5)}
	g := NewGenerator(1, 1)
	all := []func() (*Tensor, error){
		func() (*Tensor, error) { return Where(a, b, d) },
		func() (*Tensor, error) { return MaskedFill(a, b, s) },
		func() (*Tensor, error) { return Clamp(a, &s, nil) },
		func() (*Tensor, error) { return IsNaN(a) },
		func() (*Tensor, error) { return Tril(a, n) },
		func() (*Tensor, error) { return Sum(a, []int{dim}, keep) },
		func() (*Tensor, error) { return Mean(a, nil, keep) },
		func() (*Tensor, error) { return Var(a, []int{dim}, dim&1, keep) },
		func() (*Tensor, error) { return Std(a, nil, dim&1, keep) },
		func() (*Tensor, error) { return Norm(a, float64(n), []int{dim}, keep) },
		func() (*Tensor, error) { return Max(a) },
		func() (*Tensor, error) { return two(MinDim(a, dim, keep)) },
		func() (*Tensor, error) { return ArgMax(a, &dim, keep) },
		func() (*Tensor, error) { return ArgMin(a, nil, keep) },
		func() (*Tensor, error) { return Any(a, []int{dim}, keep) },
		func() (*Tensor, error) { return All(a, nil, keep) },
		func() (*Tensor, error) { return CumSum(a, dim) },
		func() (*Tensor, error) { return two(Sort(a, dim, keep)) },
		func() (*Tensor, error) { return two(TopK(a, n, dim, keep)) },
		func() (*Tensor, error) { return View(a, shape) },
		func() (*Tensor, error) { return Reshape(a, shape) },
		func() (*Tensor, error) { return Flatten(a, dim, n) },
		func() (*Tensor, error) { return Permute(a, []int{dim, n}) },
		func() (*Tensor, error) { return Squeeze(a, dim) },
		func() (*Tensor, error) { return Unsqueeze(a, dim) },
		func() (*Tensor, error) { return Expand(a, shape) },
		func() (*Tensor, error) { return Narrow(a, dim, n, r.IntN(4)) },
		func() (*Tensor, error) { return Select(a, dim, n) },
		func() (*Tensor, error) {
			return Index(a, []IndexItem{{Kind: IndexEllipsis}, {Kind: IndexTensor, T: b}})
		},
		func() (*Tensor, error) { return Index(a, []IndexItem{{Kind: IndexTensor, T: b}, {Kind: IndexNewAxis}}) },
		func() (*Tensor, error) { return IndexSelect(a, dim, b) },
		func() (*Tensor, error) { return Gather(a, dim, b) },
		func() (*Tensor, error) { return ScatterAdd(a, dim, b, d) },
		func() (*Tensor, error) { return Cat([]*Tensor{a, b}, dim) },
		func() (*Tensor, error) { return Stack([]*Tensor{a, b}, dim) },
		func() (*Tensor, error) { return Flip(a, []int{dim}) },
		func() (*Tensor, error) { return Pad(a, []int{n, 1, 0, 2}, s) },
		func() (*Tensor, error) { return MatMul(a, b) },
		func() (*Tensor, error) { return Linear(a, b, nil) },
		func() (*Tensor, error) { return Softmax(a, dim) },
		func() (*Tensor, error) { return LogSoftmax(a, dim) },
		func() (*Tensor, error) { return CrossEntropy(a, b, red) },
		func() (*Tensor, error) { return NLLLoss(a, b, nil, IgnoreTarget, red) },
		func() (*Tensor, error) { return MSELoss(a, b, red) },
		func() (*Tensor, error) { return BCEWithLogits(a, b, red) },
		func() (*Tensor, error) { return LayerNorm(a, b, nil, n, 1e-5) },
		func() (*Tensor, error) { return RMSNorm(a, nil, 1e-5) },
		func() (*Tensor, error) { return BatchNorm(a, b, nil, nil, nil, keep, 0.1, 1e-5) },
		func() (*Tensor, error) { return Dropout(a, 0.5, g) },
		func() (*Tensor, error) { return Embedding(a, b) },
		func() (*Tensor, error) { return conv2d(a, a, nil, pair, pair) },
		func() (*Tensor, error) { return MaxPool2d(a, pair, [2]int{1, 2}, [2]int{}) },
		func() (*Tensor, error) { return AvgPool2d(a, pair, [2]int{2, 1}, [2]int{1, 1}) },
		func() (*Tensor, error) { return Attention(a, a, a, keep) },
		func() (*Tensor, error) { return OneHot(a, n) },
		func() (*Tensor, error) { return BinCount(a, b, n) },
		func() (*Tensor, error) { return g.Multinomial(a.ctx, a, n, keep) },
		func() (*Tensor, error) { return Cast(a, dtype.Types()[r.IntN(len(dtype.Types()))]) },
		func() (*Tensor, error) { return a, CopyInto(must(Clone(a)), b) },
		func() (*Tensor, error) { return a, must(Clone(a)).Fill(s) },
		func() (*Tensor, error) {
			y := must(Clone(a))
			return y, SetIndex(y, []IndexItem{{Kind: IndexTensor, T: b}}, d)
		},
		func() (*Tensor, error) {
			y := must(Clone(a))
			return y, BinaryInPlace(BinaryOp(r.IntN(5)), y, b)
		},
	}
	for op := OpAdd; op <= OpGe; op++ {
		all = append(all, func() (*Tensor, error) { return Binary(op, a, b) },
			func() (*Tensor, error) { return BinaryScalar(op, a, s, keep) })
	}
	for op := OpNeg; op <= OpNot; op++ {
		all = append(all, func() (*Tensor, error) { return Unary(op, a) })
	}
	return all
}

// Whatever the arguments, an operation gives a result or an error, and so
// does going back through it.
func TestNothingPanics(t *testing.T) {
	worked := map[int]bool{}
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 2))
		c := NewContext()
		c.CreateGraph = seed%2 == 0
		a, b, d := randomAny(r, c), randomAny(r, c), randomAny(r, c)
		if r.IntN(3) == 0 {
			b = must(Cast(must(Clone(a)), []dtype.Type{dtype.Float32, dtype.Int64, dtype.Bool}[r.IntN(3)]))
		}
		for i, f := range attempts(r, a, b, d) {
			func() {
				defer func() {
					if p := recover(); p != nil {
						t.Fatalf("seed %d, operation %d on %s, %s, %s: panic: %v", seed, i, describe(a), describe(b), describe(d), p)
					}
				}()
				out, err := f()
				if err != nil {
					return
				}
				worked[i] = true
				_ = out.String()
				if out.RequiresGrad() && out.node != nil {
					seedGrad := must(Ones(c, out.shape, out.dtype))
					if err := out.Backward(seedGrad, true); err != nil && !strings.Contains(err.Error(), "it has no gradient") {
						t.Fatalf("seed %d, operation %d on %s, %s, %s: %v", seed, i, describe(a), describe(b), describe(d), err)
					}
					if c.CreateGraph {
						sameGradients(t, fmt.Sprintf("seed %d, operation %d", seed, i), out, seedGrad)
					}
				}
			}()
		}
	}
	for i := range attempts(rand.New(rand.NewPCG(0, 0)), nil, nil, nil) {
		if !worked[i] {
			t.Errorf("operation %d never had fitting arguments", i)
		}
	}
}

// sameGradients compares the gradients of a pass that is recorded with those of one that is not.
func sameGradients(t *testing.T, name string, out, seed *Tensor) {
	t.Helper()
	leaves := out.leaves()
	plain, err := Grad([]*Tensor{out}, leaves, []*Tensor{seed}, GradOptions{Retain: true})
	if err != nil {
		return // as Backward
	}
	created, err := Grad([]*Tensor{out}, leaves, []*Tensor{seed}, GradOptions{Create: true})
	if err != nil {
		if !strings.Contains(err.Error(), "has no gradient itself") {
			t.Fatalf("%s: %v", out.node.op, err)
		}
		return
	}
	for i, g := range plain {
		if (g == nil) != (created[i] == nil) {
			t.Fatalf("%s: %v and with a graph %v", out.node.op, g, created[i])
		}
		if g == nil {
			continue
		}
		want, got := floatsOf(g), floatsOf(created[i])
		most := 1.0
		for _, v := range want {
			if a := math.Abs(v); a < math.MaxFloat32 {
				most = max(most, a)
			}
		}
		for j := range want {
			if d := math.Abs(want[j] - got[j]); want[j] != got[j] && !(d <= 1e-4*most) && (want[j] == want[j] || got[j] == got[j]) {
				t.Fatalf("%s: %s: input %d: %v, with a graph %v", name, out.node.op, i, want, got)
			}
		}
	}
}

func floatsOf(t *Tensor) []float64 { return list(must(Cast(t.Detach(), dtype.Float64))) }

func describe(t *Tensor) string { return fmt.Sprintf("%s%s", t.dtype, ShapeString(t.shape)) }
