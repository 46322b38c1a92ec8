package opencl

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"drun/kernel"
	"drun/kernel/dtype"
)

var reals = []dtype.Type{dtype.Float32, dtype.Float64}

func values(d *Device, rng *rand.Rand, dt dtype.Type, n int) *memory {
	return upload(d, random(rng, dt, n, rng.IntN(4) > 0))
}

func indices(d *Device, rng *rand.Rand, n, below int) (*memory, []int64) {
	m := upload(d, make([]byte, 8*n))
	v := unsafe.Slice((*int64)(m.ptr()), n)
	for i := range v {
		v[i] = int64(rng.IntN(below))
	}
	d.Write(m.at, 0, m.ptr(), 8*n)
	return m, v
}

func eachReal(t *testing.T, seed uint64, f func(d *Device, rng *rand.Rand, dt dtype.Type)) {
	d := open(t)
	rng := rand.New(rand.NewPCG(seed, 3))
	for _, dt := range reals {
		if dt == dtype.Float64 && !some(rng) {
			continue
		}
		attempt(t, func() { f(d, rng, dt) })
	}
}

func TestReduce(t *testing.T) {
	eachReal(t, 1, func(d *Device, rng *rand.Rand, dt dtype.Type) {
		for _, op := range []kernel.ReduceOp{kernel.Sum, kernel.MinOver, kernel.MaxOver, kernel.Prod} {
			for _, s := range [][3]int{{1, 1, 1}, {7, 19, 1}, {3, 5000, 1}, {1, 70001, 1}, {1, 300000, 1}, {2, 600, 33}, {1, 256, 70}, {3, 0, 1}, {3, 0, 4}} {
				if s[1] == 0 && op != kernel.Sum && op != kernel.Prod || s[1] > 65536 && op == kernel.Prod {
					continue
				}
				in, out := values(d, rng, dt, s[0]*s[1]*s[2]), values(d, rng, dt, s[0]*s[2])
				kernel.Reduce(op, dt, s[0], s[1], s[2], out.ptr(), in.ptr())
				d.Reduce(op, dt, s[0], s[1], s[2], out.place(), in.place())
				same(t, d, dt, out, "reduction %d of %s over the middle of %v", op, dt, s)
			}
		}
		for _, n := range []int{1, 100, 5000, 70001, 300000} {
			in := values(d, rng, dt, n)
			out := upload(d, make([]byte, 16))
			d.SquareSum(dt, n, out.at, 1, in.place())
			var got [2]float64
			d.Read(unsafe.Pointer(&got[0]), out.at, 0, 16)
			if got, want := got[1], kernel.SquareSum(dt, n, in.ptr()); got != want && (got == got || want == want) {
				t.Errorf("the sum of squares of %d elements of %s is %v, not %v", n, dt, got, want)
			}
		}
	})
}

func TestSoftmax(t *testing.T) {
	eachReal(t, 2, func(d *Device, rng *rand.Rand, dt dtype.Type) {
		for _, s := range [][2]int{{1, 1}, {5, 3}, {6, 16}, {4, 65}, {3, 5000}} {
			rows, n := s[0], s[1]
			x, y, dy, dx := values(d, rng, dt, rows*n), values(d, rng, dt, rows*n), values(d, rng, dt, rows*n), values(d, rng, dt, rows*n)
			for _, logarithm := range []bool{false, true} {
				kernel.Softmax(dt, logarithm, rows, n, y.ptr(), x.ptr())
				d.Softmax(dt, logarithm, rows, n, y.place(), x.place())
				same(t, d, dt, y, "softmax(%v) of %s, %v", logarithm, dt, s)
				kernel.SoftmaxGrad(dt, logarithm, rows, n, dx.ptr(), dy.ptr(), y.ptr())
				d.SoftmaxGrad(dt, logarithm, rows, n, dx.place(), dy.place(), y.place())
				same(t, d, dt, dx, "gradient of softmax(%v) of %s, %v", logarithm, dt, s)
			}
			target, at := indices(d, rng, rows, n)
			at[0] = -100
			d.Write(target.at, 0, target.ptr(), 8*rows)
			loss, lse, dloss := values(d, rng, dt, rows), values(d, rng, dt, rows), values(d, rng, dt, rows)
			kernel.CrossEntropy(dt, rows, n, loss.ptr(), lse.ptr(), x.ptr(), at)
			d.CrossEntropy(dt, rows, n, loss.place(), lse.place(), x.place(), target.place())
			same(t, d, dt, loss, "cross entropy of %s, %v", dt, s)
			same(t, d, dt, lse, "cross entropy's logarithm of %s, %v", dt, s)
			for step := range 2 {
				kernel.CrossEntropyGrad(dt, rows, n, dx.ptr(), dloss.ptr(), step, 1.0/3, x.ptr(), lse.ptr(), at)
				d.CrossEntropyGrad(dt, rows, n, dx.place(), dloss.place(), step, 1.0/3, x.place(), lse.place(), target.place())
				same(t, d, dt, dx, "gradient of cross entropy of %s, %v", dt, s)
			}
		}
	})
}

func TestLayerNorm(t *testing.T) {
	eachReal(t, 3, func(d *Device, rng *rand.Rand, dt dtype.Type) {
		for _, s := range [][2]int{{1, 1}, {5, 3}, {70, 33}, {3, 5000}} {
			for variant := range 4 {
				rows, n := s[0], s[1]
				v := func(n int) *memory { return upload(d, random(rng, dt, n, true)) }
				x, y, dy, dx, gamma, beta, mean, rstd, dgamma, dbeta := v(rows*n), v(rows*n), v(rows*n), v(rows*n), v(n), v(n), v(rows), v(rows), v(n), v(n)
				center, affine, none := variant&1 == 0, variant&2 == 0, Place{}
				host := func(m *memory, on bool) unsafe.Pointer {
					if on {
						return m.ptr()
					}
					return nil
				}
				there := func(m *memory, on bool) Place {
					if on {
						return m.place()
					}
					return none
				}
				kernel.LayerNorm(dt, rows, n, 1e-5, y.ptr(), host(mean, center), rstd.ptr(), x.ptr(), host(gamma, affine), host(beta, affine))
				d.LayerNorm(dt, rows, n, 1e-5, y.place(), there(mean, center), rstd.place(), x.place(), there(gamma, affine), there(beta, affine))
				same(t, d, dt, y, "layer norm %d of %s, %v", variant, dt, s)
				same(t, d, dt, rstd, "layer norm's scale %d of %s, %v", variant, dt, s)
				same(t, d, dt, mean, "layer norm's mean %d of %s, %v", variant, dt, s)
				for _, add := range []bool{false, true} {
					kernel.LayerNormGrad(dt, rows, n, add, dx.ptr(), host(dgamma, affine), host(dbeta, affine), dy.ptr(), x.ptr(), host(gamma, affine), host(mean, center), rstd.ptr())
					d.LayerNormGrad(dt, rows, n, add, dx.place(), there(dgamma, affine), there(dbeta, affine), dy.place(), x.place(), there(gamma, affine), there(mean, center), rstd.place())
					same(t, d, dt, dx, "layer norm's gradient %d of %s, %v", variant, dt, s)
					same(t, d, dt, dgamma, "layer norm's gamma %d of %s, %v", variant, dt, s)
					same(t, d, dt, dbeta, "layer norm's beta %d of %s, %v", variant, dt, s)
				}
			}
		}
	})
}

func TestGemm(t *testing.T) {
	eachReal(t, 4, func(d *Device, rng *rand.Rand, dt dtype.Type) {
		for range 40 {
			batch, m, n, k := 1+rng.IntN(3), 1+rng.IntN(40), 1+rng.IntN(40), rng.IntN(700)
			ta, tb, add, biased, shared := rng.IntN(2) == 0, rng.IntN(2) == 0, rng.IntN(2) == 0, rng.IntN(2) == 0, rng.IntN(2) == 0
			gap := rng.IntN(3)
			ld := func(rows, columns int, trans bool) (int, int) {
				if trans {
					rows, columns = columns, rows
				}
				return columns + gap, rows * (columns + gap)
			}
			lda, sa := ld(m, k, ta)
			ldb, sb := ld(k, n, tb)
			ldc, sc := ld(m, n, false)
			a, b, c, bias := values(d, rng, dt, batch*sa+1), values(d, rng, dt, batch*sb+1), values(d, rng, dt, batch*sc), values(d, rng, dt, n)
			if shared {
				sb = 0
			}
			var beta unsafe.Pointer
			there := Place{}
			if biased {
				beta, there = bias.ptr(), bias.place()
			}
			if err := kernel.Gemm(dt, batch, m, n, k, kernel.Matrix{Data: c.ptr(), Stride: ldc, Batch: sc}, kernel.Matrix{Data: a.ptr(), Stride: lda, Trans: ta, Batch: sa},
				kernel.Matrix{Data: b.ptr(), Stride: ldb, Trans: tb, Batch: sb}, add, beta); err != nil {
				t.Fatal(err)
			}
			d.tiles = rng.IntN(2) == 0 // as on a GPU
			d.Gemm(dt, batch, m, n, k, Matrix{Place: c.place(), Stride: ldc, Batch: sc}, Matrix{Place: a.place(), Stride: lda, Trans: ta, Batch: sa},
				Matrix{Place: b.place(), Stride: ldb, Trans: tb, Batch: sb}, add, there)
			d.tiles = d.GPU
			same(t, d, dt, c, "product of %s, %d of %d x %d x %d, transposed %v %v, add %v, bias %v", dt, batch, m, n, k, ta, tb, add, biased)
		}
	})
}

// Products in bfloat16, of operands that are bfloat16 or float32.
func TestGemmHalf(t *testing.T) {
	d := open(t)
	rng := rand.New(rand.NewPCG(8, 3))
	types := []dtype.Type{dtype.Float32, dtype.BFloat16}
	for range 24 {
		attempt(t, func() {
			batch, m, n, k := 1+rng.IntN(3), 1+rng.IntN(40), 1+rng.IntN(40), rng.IntN(300)
			da, db, dt, add := types[rng.IntN(2)], types[rng.IntN(2)], types[rng.IntN(2)], false
			if dt == dtype.Float32 {
				add = rng.IntN(2) == 0
			}
			ta, tb, biased := rng.IntN(2) == 0, rng.IntN(2) == 0, rng.IntN(2) == 0
			ld := func(rows, columns int, trans bool) int {
				if trans {
					return rows
				}
				return columns
			}
			lda, ldb := ld(m, k, ta), ld(k, n, tb)
			a, b, c, bias := values(d, rng, da, batch*m*k+1), values(d, rng, db, batch*k*n+1), values(d, rng, dt, batch*m*n), values(d, rng, dtype.Float32, n)
			var beta unsafe.Pointer
			there := Place{}
			if biased {
				beta, there = bias.ptr(), bias.place()
			}
			if err := kernel.GemmHalf(batch, m, n, k, dt, kernel.Matrix{Data: c.ptr(), Stride: n, Batch: m * n}, da, kernel.Matrix{Data: a.ptr(), Stride: lda, Trans: ta, Batch: m * k},
				db, kernel.Matrix{Data: b.ptr(), Stride: ldb, Trans: tb, Batch: k * n}, add, beta); err != nil {
				t.Fatal(err)
			}
			d.tiles = rng.IntN(2) == 0
			d.GemmHalf(batch, m, n, k, dt, Matrix{Place: c.place(), Stride: n, Batch: m * n}, da, Matrix{Place: a.place(), Stride: lda, Trans: ta, Batch: m * k},
				db, Matrix{Place: b.place(), Stride: ldb, Trans: tb, Batch: k * n}, add, there)
			d.tiles = d.GPU
			same(t, d, dt, c, "product of %s and %s in bfloat16, %d of %d x %d x %d, transposed %v %v, add %v, bias %v", da, db, batch, m, n, k, ta, tb, add, biased)
		})
	}
}

// Attention in parts of its batch, with and without tiles.
func TestAttention(t *testing.T) {
	eachReal(t, 9, func(d *Device, rng *rand.Rand, dt dtype.Type) {
		for i := range 12 {
			batch, heads, rows, width, depth := 1+rng.IntN(3), 1+rng.IntN(3), 1+rng.IntN(150), 1+rng.IntN(9), 1+rng.IntN(9)
			cols := rows
			switch i % 4 {
			case 1:
				cols = 1 + rng.IntN(200)
			case 2:
				rows, cols = 300, 280+rng.IntN(30)
			}
			n := batch * heads
			a := &kernel.Attention{Causal: i%3 != 0, Rows: rows, Cols: cols, Width: width, Depth: depth, Scale: 0.3}
			sizes := [4]int{rows * width, cols * width, cols * depth, rows * depth}
			widths := [4]int{width, width, depth, depth}
			for b := range n {
				var at [4]int
				for j := range at { // heads side by side
					at[j] = b/heads*heads*sizes[j] + b%heads*widths[j]
				}
				a.At = append(a.At, at)
			}
			if i%2 == 0 && rows == cols && width == depth { // gradients among each other
				for b := range n {
					first := b * 3 * rows * width
					a.To = append(a.To, [3]int{first, first + width, first + 2*width})
				}
				a.ToStride = [3]int{3 * width, 3 * width, 3 * width}
			}
			var in, grad [4]*memory
			for j := range in {
				a.Stride[j] = heads * widths[j]
				in[j], grad[j] = values(d, rng, dt, n*sizes[j]), values(d, rng, dt, n*sizes[j])
			}
			if a.To != nil {
				grad[0] = values(d, rng, dt, 3*n*sizes[0])
				grad[1], grad[2] = grad[0], grad[0]
			}
			lse := values(d, rng, dt, n*rows)
			before := mostScores
			mostScores, d.tiles = []int{mostScores, 1, 2 * rows * cols * dt.Size() * (heads + 1)}[rng.IntN(3)], rng.IntN(3) == 0
			if err := a.Forward(dt, grad[3].ptr(), lse.ptr(), in[0].ptr(), in[1].ptr(), in[2].ptr()); err != nil {
				t.Fatal(err)
			}
			if !d.Attention(a, dt, grad[3].place(), lse.place(), in[0].place(), in[1].place(), in[2].place()) {
				t.Fatal("no kernel")
			}
			what := "attention %d of %s, %d·%d of %d x %d, widths %d and %d"
			same(t, d, dt, grad[3], what, i, dt, batch, heads, rows, cols, width, depth)
			same(t, d, dt, lse, what+": sums", i, dt, batch, heads, rows, cols, width, depth)
			if err := a.Backward(dt, grad[0].ptr(), grad[1].ptr(), grad[2].ptr(), in[3].ptr(), lse.ptr(), in[0].ptr(), in[1].ptr(), in[2].ptr()); err != nil {
				t.Fatal(err)
			}
			d.AttentionGrad(a, dt, grad[0].place(), grad[1].place(), grad[2].place(), in[3].place(), lse.place(), in[0].place(), in[1].place(), in[2].place())
			for j := range 3 {
				same(t, d, dt, grad[j], what+": gradient %d", i, dt, batch, heads, rows, cols, width, depth, j)
			}
			mostScores, d.tiles = before, d.GPU
		}
	})
}

func TestIndexed(t *testing.T) {
	eachReal(t, 5, func(d *Device, rng *rand.Rand, dt dtype.Type) {
		const outer, count, rows, inner = 3, 50, 11, 7
		x, y := values(d, rng, dt, outer*rows*inner), values(d, rng, dt, outer*count*inner)
		index, at := indices(d, rng, count, rows)
		kernel.Take(dt, outer, rows, inner, y.ptr(), x.ptr(), at)
		d.Take(dt, outer, rows, inner, count, y.place(), x.place(), index.place())
		same(t, d, dt, y, "take of %s", dt)
		kernel.AddRows(dt, inner, x.ptr(), y.ptr(), at)
		d.AddRows(dt, inner, count, x.place(), y.place(), index.place())
		same(t, d, dt, x, "add_rows of %s", dt)
	})
}

// order compares with a sort of what is on the host.
func order[T cmp.Ordered](t *testing.T, d *Device, rng *rand.Rand, dt dtype.Type) {
	const rows, n = 3, 200
	in, out := values(d, rng, dt, rows*n), upload(d, make([]byte, 8*rows*n))
	x, want := unsafe.Slice((*T)(in.ptr()), rows*n), unsafe.Slice((*int64)(out.ptr()), rows*n)
	for i := range x {
		if i%3 == 0 {
			x[i] = x[i/7]
		}
	}
	d.Write(in.at, 0, in.ptr(), len(in.host))
	for _, descending := range []bool{false, true} {
		for r := range rows {
			row, o := x[r*n:], want[r*n:(r+1)*n]
			for i := range o {
				o[i] = int64(i)
			}
			slices.SortStableFunc(o, func(i, j int64) int {
				c := cmp.Compare(row[i], row[j])
				if (row[i] != row[i]) != (row[j] != row[j]) { // NaN is the largest
					c = -c
				}
				if descending {
					return -c
				}
				return c
			})
		}
		d.Order(dt, rows*n, n, descending, out.place(), in.place())
		same(t, d, dtype.Int64, out, "order of %s, descending %v", dt, descending)
	}
}

func TestOrder(t *testing.T) {
	d := open(t)
	rng := rand.New(rand.NewPCG(10, 3))
	for _, o := range []struct {
		dt    dtype.Type
		check func(*testing.T, *Device, *rand.Rand, dtype.Type)
	}{{dtype.Float32, order[float32]}, {dtype.Float64, order[float64]}, {dtype.Int64, order[int64]}, {dtype.Int32, order[int32]},
		{dtype.Int8, order[int8]}, {dtype.Uint8, order[uint8]}, {dtype.Bool, order[uint8]}} {
		if o.dt == dtype.Float32 || some(rng) {
			attempt(t, func() { o.check(t, d, rng, o.dt) })
		}
	}
}

func TestUpdates(t *testing.T) {
	eachReal(t, 6, func(d *Device, rng *rand.Rand, dt dtype.Type) {
		const n = 3000
		p, g, m, v, spare := values(d, rng, dt, n), values(d, rng, dt, n), values(d, rng, dt, n), upload(d, make([]byte, n*dt.Size())), values(d, rng, dt, n)
		all := func(what string) {
			for i, x := range []*memory{p, m, v, spare} {
				same(t, d, dt, x, "%s of %s, memory %d", what, dt, i)
			}
		}
		for i := range 4 {
			s := kernel.SGD{LR: 0.1, Momentum: 0.9, WeightDecay: 0.01 * float64(i%2), Nesterov: i > 1, First: i == 0}
			s.Step(dt, n, p.ptr(), g.ptr(), m.ptr())
			d.SGD(s, dt, n, p.place(), g.place(), m.place())
			all("sgd")
			kernel.SGD{LR: 0.1}.Step(dt, n, p.ptr(), g.ptr(), nil)
			d.SGD(kernel.SGD{LR: 0.1}, dt, n, p.place(), g.place(), Place{})
			all("sgd without momentum")
			a := kernel.Adam{LR: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1 * float64(i%2), Decoupled: i > 1, Count: 1 + 7*i}
			a.Step(dt, n, p.ptr(), g.ptr(), m.ptr(), v.ptr())
			d.Adam(a, dt, n, p.place(), g.place(), m.place(), v.place())
			all("adam")
			r := kernel.RMSprop{LR: 0.01, Alpha: 0.99, Eps: 1e-8, WeightDecay: 0.1 * float64(i%2), Momentum: 0.9 * float64(i/2)}
			mean, momentum := Place{}, Place{}
			var meanPtr, momentumPtr unsafe.Pointer
			if i > 1 {
				momentum, momentumPtr = m.place(), m.ptr()
			}
			if i == 2 {
				mean, meanPtr = spare.place(), spare.ptr()
			}
			r.Step(dt, n, p.ptr(), g.ptr(), v.ptr(), momentumPtr, meanPtr)
			d.RMSprop(r, dt, n, p.place(), g.place(), v.place(), momentum, mean)
			all("rmsprop")
			ada := kernel.Adagrad{LR: 0.01, Eps: 1e-10, WeightDecay: 0.1 * float64(i%2)}
			ada.Step(dt, n, p.ptr(), g.ptr(), v.ptr())
			d.Adagrad(ada, dt, n, p.place(), g.place(), v.place())
			all("adagrad")
			lion := kernel.Lion{LR: 0.01, Beta1: 0.9, Beta2: 0.99, WeightDecay: 0.1 * float64(i%2)}
			lion.Step(dt, n, p.ptr(), g.ptr(), m.ptr())
			d.Lion(lion, dt, n, p.place(), g.place(), m.place())
			all("lion")
		}
		kernel.Scale(dt, n, p.ptr(), 0.3)
		d.Scale(dt, n, p.place(), 0.3)
		all("scale")
		s := kernel.Stream{Seed: 5<<40 + 3, Stream: 7<<35 + 1, At: 1<<34 + 3}
		s.Dropout(dt, n, p.ptr(), g.ptr(), 0.7)
		d.Dropout(s, dt, n, p.place(), g.place(), 0.7)
		all("dropout")
		s.Uniform(dt, n, p.ptr())
		d.Draw(s, false, dt, n, p.place())
		all("uniform")
		s.Normal(dt, n, p.ptr())
		d.Draw(s, true, dt, n, p.place())
		all("normal")
	})
}

func TestActivations(t *testing.T) {
	d := open(t)
	rng := rand.New(rand.NewPCG(7, 3))
	for f := range activations {
		for _, dt := range reals {
			if f != kernel.GeluSlope && !some(rng) {
				continue
			}
			attempt(t, func() {
				const n = 2000
				x, y, slope := upload(d, random(rng, dt, n, false)), values(d, rng, dt, n), values(d, rng, dt, n)
				kernel.Activate(dt, f, n, 0.7, 20, y.ptr(), slope.ptr(), x.ptr())
				d.Activate(dt, f, n, 0.7, 20, y.place(), slope.place(), x.place())
				same(t, d, dt, y, "%s of %s", activations[f], dt)
				same(t, d, dt, slope, "slope of %s of %s", activations[f], dt)
			})
		}
	}
}
