package tensor

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"drun/kernel/dtype"
)

// operations are what recipes compute with; each makes its operands.
var operations = map[string]func(d *draw) results{
	"binary": func(d *draw) results {
		s := d.shape(d.rng.IntN(4))
		other := slices.Clone(s)
		for i := range other {
			if d.rng.IntN(4) == 0 {
				other[i] = 1
			}
		}
		ops := []BinaryOp{OpAdd, OpSub, OpMul, OpDiv, OpMinimum, OpMaximum, OpEq, OpLt, OpGe}
		return single(Binary(ops[d.rng.IntN(len(ops))], d.real(s...), d.real(other...)))
	},
	"integers": func(d *draw) results {
		s := d.shape(d.rng.IntN(4))
		ops := []BinaryOp{OpAdd, OpMul, OpMinimum, OpLt}
		return single(Binary(ops[d.rng.IntN(len(ops))], d.whole(s...), d.whole(s...)))
	},
	"unary": func(d *draw) results {
		ops := []UnaryOp{OpTanh, OpGelu, OpRelu, OpExp}
		return single(Unary(ops[d.rng.IntN(len(ops))], d.real(d.shape(d.rng.IntN(4))...)))
	},
	"number": func(d *draw) results {
		return single(BinaryScalar([]BinaryOp{OpAdd, OpMul, OpSub, OpGt}[d.rng.IntN(4)], d.real(d.shape(2)...), Float(0.75), d.coin()))
	},
	"cast": func(d *draw) results {
		to := []dtype.Type{dtype.Float32, dtype.Float64, dtype.Int64, dtype.BFloat16, dtype.Bool, dtype.Uint8}
		return single(Cast(d.real(d.shape(2)...), to[d.rng.IntN(len(to))]))
	},
	"where": func(d *draw) results {
		s := d.shape(d.rng.IntN(4))
		return single(Where(d.truth(s...), d.real(s...), d.real(s...)))
	},
	"masked_fill": func(d *draw) results {
		s := d.shape(2)
		return single(MaskedFill(d.real(s...), d.truth(s...), Float(2)))
	},
	"sum": func(d *draw) results {
		s := d.shape(d.upTo(4))
		return single(Sum(d.real(s...), d.dims(len(s)), d.coin()))
	},
	"sum of integers": func(d *draw) results {
		s := d.shape(d.upTo(3))
		return single(Sum(d.whole(s...), d.dims(len(s)), d.coin()))
	},
	"long sum": func(d *draw) results { return single(Sum(d.real(3, 4000+d.upTo(900)), []int{1}, false)) },
	"mean": func(d *draw) results {
		s := d.shape(d.upTo(4))
		return single(Mean(d.real(s...), d.dims(len(s)), d.coin()))
	},
	"prod": func(d *draw) results {
		s := d.shape(d.upTo(3))
		i := d.rng.IntN(len(s))
		return single(Prod(d.real(s...), &i, d.coin()))
	},
	"product of integers": func(d *draw) results { return single(Prod(d.whole(d.shape(2)...), nil, false)) },
	"any": func(d *draw) results {
		s := d.shape(d.upTo(3))
		if d.coin() {
			return single(Any(d.whole(s...), d.dims(len(s)), false))
		}
		return single(All(d.real(s...), d.dims(len(s)), true))
	},
	"amax": func(d *draw) results {
		s := d.shape(d.upTo(3))
		if d.coin() {
			return single(AMin(d.whole(s...), d.dims(len(s)), d.coin()))
		}
		return single(AMax(d.real(s...), d.dims(len(s)), d.coin()))
	},
	"max": func(d *draw) results { return single(Max(d.real(d.shape(2)...))) },
	"max of a dimension": func(d *draw) results {
		s := d.shape(d.upTo(3))
		return pairOf(MaxDim(d.real(s...), d.rng.IntN(len(s)), d.coin()))
	},
	"argmin": func(d *draw) results {
		s := d.shape(d.upTo(3))
		i := d.rng.IntN(len(s))
		return append(single(ArgMin(d.real(s...), &i, d.coin())), must(ArgMax(d.whole(s...), &i, false)))
	},
	"cumsum": func(d *draw) results {
		s := d.shape(d.upTo(3))
		i := d.rng.IntN(len(s))
		return append(single(CumSum(d.real(s...), i)), must(CumSum(d.whole(s...), i)))
	},
	"cumprod": func(d *draw) results {
		s := d.shape(d.upTo(3))
		i := d.rng.IntN(len(s))
		return append(single(CumProd(d.real(s...), i)), must(CumProd(d.whole(s...), i)))
	},
	"var": func(d *draw) results {
		s := d.shape(d.upTo(4))
		f := Var
		if d.coin() {
			f = Std
		}
		return single(f(d.real(s...), d.dims(len(s)), d.rng.IntN(2), d.coin()))
	},
	"long var": func(d *draw) results { return single(Var(d.leaf(66000+d.upTo(900)), nil, 1, false)) },
	"norm": func(d *draw) results {
		s := d.shape(d.upTo(4))
		return single(Norm(d.real(s...), 2, d.dims(len(s)), d.coin()))
	},
	"long norm": func(d *draw) results { return single(Norm(d.leaf(66000+d.upTo(900)), 2, nil, false)) },
	"logsumexp": func(d *draw) results {
		s := d.shape(d.upTo(3))
		return single(LogSumExp(d.real(s...), d.dims(len(s)), d.coin()))
	},
	"softmax": func(d *draw) results {
		s := d.shape(d.upTo(3))
		f := Softmax
		if d.coin() {
			f = LogSoftmax
		}
		return single(f(d.real(s...), d.rng.IntN(len(s))))
	},
	"matmul": func(d *draw) results {
		m, k, n := d.size(), d.size(), d.size()
		if d.rng.IntN(4) == 0 {
			k += 250
		}
		lead := d.shape(d.rng.IntN(3))
		return single(MatMul(d.real(append(slices.Clone(lead), m, k)...), d.real(append(lead[len(lead)/2:], k, n)...)))
	},
	"matmul of integers": func(d *draw) results {
		m, k, n := d.size(), d.size(), d.size()
		return single(MatMul(must(Cast(d.whole(2, m, k), dtype.Int32)), must(Cast(d.whole(k, n), dtype.Int32))))
	},
	"linear": func(d *draw) results {
		in, out := d.size(), d.size()
		return single(Linear(d.real(append(d.shape(d.upTo(2)), in)...), d.real(out, in), d.maybe(d.real(out))))
	},
	"attention": func(d *draw) results {
		lead, rows, width, depth := d.shape(d.rng.IntN(3)), d.size(), d.size(), d.size()
		if d.rng.IntN(3) == 0 {
			rows = 60 + d.upTo(280)
			lead = lead[:min(len(lead), 1)]
		}
		cols := rows
		if d.rng.IntN(3) == 0 {
			cols = d.upTo(150)
		}
		of := func(n, w int) *Tensor { return d.real(append(slices.Clone(lead), n, w)...) }
		return single(Attention(of(rows, width), of(cols, width), of(cols, depth), d.coin()))
	},
	"attention to parts": func(d *draw) results { // of one product
		batch, length, heads, width := d.upTo(3), d.upTo(140), d.upTo(4), d.upTo(9)
		all := must(View(must(Linear(d.leaf(batch, length, 5), d.leaf(3*heads*width, 5), nil)), []int{batch, length, 3, heads, width}))
		all = must(Permute(all, []int{2, 0, 3, 1, 4}))
		return single(Attention(must(Select(all, 0, 0)), must(Select(all, 0, 1)), must(Select(all, 0, 2)), d.coin()))
	},
	"attention with a mask": func(d *draw) results {
		rows, cols, width := d.size(), d.size(), d.size()
		return pairOf(AttentionWith(d.real(2, rows, width), d.real(2, cols, width), d.real(2, cols, 3),
			AttentionOptions{Mask: d.truth(rows, cols), Dropout: 0.3, Stream: d.g}))
	},
	"conv2d": func(d *draw) results {
		groups := d.upTo(2)
		kh, kw := d.upTo(4), d.upTo(4)
		x, filters := d.real(d.upTo(5), groups*d.upTo(4), 7+d.upTo(9), 7+d.upTo(40)), groups*d.upTo(10)
		return single(Convolve("conv2d", x, d.real(filters, x.shape[1]/groups, kh, kw), d.maybe(d.real(filters)), d.convOptions(groups)))
	},
	"deep conv2d": func(d *draw) results { // of more cells than a block has
		return single(Convolve("conv2d", d.real(2, 31, 5, 6), d.real(3, 31, 3, 3), nil, d.convOptions(1)))
	},
	"conv_transpose2d": func(d *draw) results {
		groups := d.upTo(2)
		filters, channels := groups*d.upTo(4), d.upTo(9)
		return single(ConvTranspose2d(d.real(d.upTo(3), filters, 1+d.upTo(7), 1+d.upTo(7)), d.real(filters, channels, 3, 4), d.maybe(d.real(channels*groups)),
			ConvOptions{Stride: d.pair(1, 3), Padding: d.pair(0, 2), Dilation: d.pair(1, 2), Groups: groups}))
	},
	"max_pool2d": func(d *draw) results {
		k := d.pair(1, 3)
		return single(MaxPool2d(d.real(d.upTo(3), d.upTo(4), 4+d.upTo(9), 4+d.upTo(9)), k, d.pair(1, 3), [2]int{k[0] / 2, 0}))
	},
	"avg_pool2d": func(d *draw) results {
		k := d.pair(1, 3)
		return single(AvgPool2d(d.real(d.upTo(3), d.upTo(4), 4+d.upTo(9), 4+d.upTo(9)), k, d.pair(1, 3), [2]int{0, k[1] / 2}))
	},
	"layer_norm": func(d *draw) results {
		n := d.size()
		return single(LayerNorm(d.real(append(d.shape(d.upTo(2)), n)...), d.maybe(d.real(n)), d.maybe(d.real(n)), 1, 1e-5))
	},
	"rms_norm": func(d *draw) results {
		n := d.size()
		return single(RMSNorm(d.real(d.size(), n), d.maybe(d.real(n)), 1e-5))
	},
	"batch_norm": func(d *draw) results {
		c, training := d.size(), d.coin()
		shape := append([]int{1 + d.size(), c}, d.shape(d.rng.IntN(3))...)
		x, gamma, beta := d.real(shape...), d.maybe(d.real(c)), d.maybe(d.real(c))
		mean, variance := must(Zeros(d.c, []int{c}, x.dtype)), must(Ones(d.c, []int{c}, x.dtype))
		y := must(BatchNorm(x, gamma, beta, mean, variance, training, 0.1, 1e-5))
		return results{y, mean, variance}
	},
	"group_norm": func(d *draw) results {
		groups, each := d.upTo(4), d.upTo(4)
		c := groups * each
		return single(GroupNorm("group_norm", d.real(append([]int{d.upTo(4), c}, d.shape(d.upTo(2))...)...), d.maybe(d.real(c)), d.maybe(d.real(c)), groups, 1e-5))
	},
	"cross_entropy": func(d *draw) results {
		rows, n := d.size(), d.size()
		return single(CrossEntropy(d.real(rows, n), must(fromStart(d.index(n, rows), n)), Reduction(d.rng.IntN(3))))
	},
	"embedding": func(d *draw) results {
		rows := d.size()
		return single(Embedding(d.leaf(rows, d.size()), must(fromStart(d.index(rows, d.shape(d.upTo(2))...), rows))))
	},
	"index_select": func(d *draw) results {
		s := d.shape(d.upTo(3))
		i := d.rng.IntN(len(s))
		return single(IndexSelect(d.real(s...), i, d.index(s[i], d.size())))
	},
	"gather": func(d *draw) results {
		s := d.shape(d.upTo(3))
		i := d.rng.IntN(len(s))
		at := slices.Clone(s)
		at[i] = d.size()
		return single(Gather(d.real(s...), i, d.index(s[i], at...)))
	},
	"scatter": func(d *draw) results {
		s := d.shape(d.upTo(3))
		i := d.rng.IntN(len(s))
		at := slices.Clone(s)
		at[i] = d.size()
		f := Scatter
		if d.coin() {
			f = ScatterAdd
		}
		return single(f(d.real(s...), i, d.index(s[i], at...), d.real(at...)))
	},
	"scatter of integers": func(d *draw) results {
		n, m := d.size(), d.size()
		src := must(Cast(d.whole(m), dtype.Int8))
		return single(ScatterAdd(must(Cast(d.whole(n), dtype.Int8)), 0, d.index(n, m), src))
	},
	"index": func(d *draw) results {
		s := d.shape(2)
		return append(single(Index(d.real(s...), []IndexItem{{Kind: IndexTensor, T: d.index(s[0], d.size())}})),
			must(Index(d.real(s...), []IndexItem{{Kind: IndexTensor, T: d.truth(s...)}})))
	},
	"set_index": func(d *draw) results {
		s := d.shape(2)
		x := must(Clone(d.real(s...)))
		n := d.size()
		if err := SetIndex(x, []IndexItem{{Kind: IndexTensor, T: d.index(s[0], n)}}, d.real(n, s[1])); err != nil {
			panic(err)
		}
		return results{x}
	},
	"index_put": func(d *draw) results {
		s := d.shape(2)
		x := must(Clone(d.real(s...)))
		n := d.size()
		if err := IndexPut("index_put_", x, []*Tensor{d.index(s[0], n)}, d.real(n, s[1]), true); err != nil {
			panic(err)
		}
		return results{x}
	},
	"random": func(d *draw) results {
		s, dt := d.shape(2), []dtype.Type{dtype.Float32, dtype.Float64, dtype.BFloat16}[d.rng.IntN(3)]
		r := results{must(d.g.Rand(d.c, s, dt)), must(d.g.Randn(d.c, s, dt)), must(d.g.RandInt(d.c, -5, 100, s, dtype.Int32))}
		return append(r, must(Dropout(d.real(s...), 0.4, d.g)))
	},
	"joined": func(d *draw) results {
		s := d.shape(2)
		x, y := d.real(s...), d.real(s...)
		return results{must(Cat([]*Tensor{x, y}, d.rng.IntN(2))), must(Stack([]*Tensor{y, x}, 1)), must(Flip(x, []int{0})), must(Roll(y, []int{2}, []int{1}))}
	},
	"in place": func(d *draw) results {
		s := d.shape(2)
		x := must(Clone(d.real(s...)))
		part := must(Narrow(x, 0, 0, max(s[0]/2, 1)))
		for _, err := range []error{BinaryScalarInPlace(OpMul, part, Float(3)), BinaryInPlace(OpAdd, x, d.real(s...)), CopyInto(must(Select(x, 1, 0)), d.real(s[0]))} {
			if err != nil {
				panic(err)
			}
		}
		return results{x}
	},
	"sorted": func(d *draw) results {
		s := d.shape(2)
		i := d.rng.IntN(2)
		r := append(pairOf(Sort(d.real(s...), i, d.coin())), pairOf(TopK(d.real(s...), d.upTo(s[i]), i, d.coin()))...)
		return append(append(r, must(ArgSort(must(Add(d.whole(s...), d.whole(s...))), i, d.coin()))), pairOf(MedianDim(d.real(s...), i, true))...)
	},
	"long sort": func(d *draw) results { return pairOf(Sort(d.leaf(2, 900+d.upTo(300)), 1, d.coin())) },
	"one_hot": func(d *draw) results {
		n := d.size()
		return append(single(OneHot(must(fromStart(d.index(n, d.shape(d.rng.IntN(3))...), n)), n)), must(OneHot(must(ArgMax(d.real(4, n), new(int), false)), 4)))
	},
	"activation": func(d *draw) results {
		x := d.real(d.shape(2)...)
		if d.coin() {
			return single(Elu(x, 0.7))
		}
		return single(GeluTanh(x))
	},
	"huber": func(d *draw) results {
		s := d.shape(2)
		return single(HuberLoss(d.real(s...), d.real(s...), 0.8, Reduction(d.rng.IntN(3))))
	},
	"interpolate": func(d *draw) results {
		return single(Interpolate(d.real(1, 2, 5, 4), []int{7, 9}, nil, []string{"nearest", "bilinear"}[d.rng.IntN(2)], false))
	},
	"conv3d": func(d *draw) results {
		return single(Conv3d(d.real(2, 2, 5, 6, 4), d.real(3, 2, 2, 3, 2), d.maybe(d.real(3)), [3]int{1, 2, 1}, [3]int{1, 0, 1}, [3]int{1, 1, 1}, 1))
	},
	"lstm":              recurrentOf(false, LSTM),
	"gru":               recurrentOf(false, GRU),
	"rnn":               recurrentOf(false, RNNTanh, RNNRelu),
	"lstm with lengths": recurrentOf(true, LSTM),
	"gru with lengths":  recurrentOf(true, GRU),
}

// recurrentOf is a layer of one of these cells, on sequences with lengths of their own or none.
func recurrentOf(lengths bool, cells ...Cell) func(d *draw) results {
	return func(d *draw) results {
		steps, n, in, w := 1+d.upTo(3), d.upTo(4), d.upTo(5), d.upTo(5)
		cell := cells[d.rng.IntN(len(cells))]
		gates := gatesOf(cell) * w
		var c0 *Tensor
		if cell == LSTM {
			c0 = d.leaf(n, w)
		}
		var ends []int64
		for i := range n {
			if lengths {
				ends = append(ends, int64(1+i%steps))
			}
		}
		y, h, c, err := Recurrent(cell, d.leaf(steps, n, in), d.leaf(n, w), c0,
			RNNWeights{d.leaf(gates, in), d.leaf(gates, w), d.leaf(gates), d.leaf(gates)}, ends, d.coin())
		out := append(single(y, err), h)
		if c != nil {
			out = append(out, c)
		}
		return out
	}
}

// fromStart makes indices that count from the end count from the start.
func fromStart(t *Tensor, n int) (*Tensor, error) {
	return BinaryScalar(OpMod, t, Int(int64(n)), false)
}

// computed runs an operation with a seed, backward too, and returns the bytes of all results and gradients, or the error.
func computed(c *Context, name string, seed uint64, dense bool) (out []string, err error) {
	defer func() {
		if e := recover(); e != nil {
			if as, ok := e.(error); ok && !errors.As(as, new(interface{ RuntimeError() })) {
				err = as
				return
			}
			panic(e)
		}
	}()
	d := &draw{c: c, rng: rand.New(rand.NewPCG(seed, 1)), g: NewGenerator(seed, 1), dt: dtype.Float32, dense: dense}
	switch d.rng.IntN(8) {
	case 0, 1:
		d.dt = dtype.Float64
	case 2:
		d.dt = dtype.BFloat16
	}
	of := func(t *Tensor) string {
		x := contiguous(t.Detach())
		return fmt.Sprintf("%s %v %x", x.dtype, x.shape, x.Bytes())
	}
	made := operations[name](d)
	for _, t := range made {
		out = append(out, of(t))
	}
	for _, t := range made {
		if !t.RequiresGrad() {
			continue
		}
		seed := must(Cast(must(d.g.Randn(c, t.shape, dtype.Float32)), t.dtype))
		if err := t.Backward(seed, true); err != nil {
			return nil, err
		}
	}
	for _, t := range d.leaves {
		if t.Grad() != nil {
			out = append(out, "gradient "+of(t.Grad()))
		}
	}
	return out, nil
}

func sameResults(t *testing.T, what string, seed uint64, got, want []string, e, err error) {
	t.Helper()
	if fmt.Sprint(err) != fmt.Sprint(e) {
		t.Fatalf("seed %d: %v of %s, not %v", seed, e, what, err)
	}
	for j := range want {
		if got[j] != want[j] {
			t.Fatalf("seed %d: result %d of %s is\n%.300s\nnot\n%.300s", seed, j, what, got[j], want[j])
		}
	}
}

// Random operations give views the bits that they give copies of them.
func TestRandomOperationsOnViews(t *testing.T) {
	c := NewContext()
	for _, name := range slices.Sorted(maps.Keys(operations)) {
		if name == "interpolate" { // reads a tensor several times: the parts of a leaf's gradient are added where it is, those of a copy's aside
			continue
		}
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(30) {
				want, err := computed(c, name, seed, true)
				got, e := computed(c, name, seed, false)
				sameResults(t, "the views", seed, got, want, e, err)
			}
		})
	}
}

// Random operations on odd shapes, views and special values, in all types, and their gradients: the device's bits are the processor's.
// make test-opencl tries 10,000. In every second one, what is garbage is used again at once.
func TestRandomOperationsOnDevice(t *testing.T) {
	defer func() { collectAlways = false }()
	there, here := onFirstDevice(t), NewContext()
	rounds := 2
	if os.Getenv("DRUN_TEST_LONG") != "" {
		rounds = 10_000/len(operations) + 1
	}
	for _, name := range slices.Sorted(maps.Keys(operations)) {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(rounds) {
				want, err := computed(here, name, seed, false)
				collectAlways = seed%2 == 1
				got, e := computed(there, name, seed, false)
				sameResults(t, "the device", seed, got, want, e, err)
			}
		})
	}
}
