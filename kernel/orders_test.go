package kernel_test

import (
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"drun/kernel"
	"drun/kernel/dtype"
)

// order is a computation whose bits depend on the order of its operations, in sizes beyond all the places
// where that order is cut: rows of several cuts and parts, columns of several blocks, odd ends everywhere.
type order[E float32 | float64] struct {
	name string
	run  func(dt dtype.Type, draw func(n int) []E) []E
}

// nearOne makes factors of normal numbers, whose product stays in range.
func nearOne[E float32 | float64](x []E) {
	for i := range x {
		x[i] = 1 + x[i]/256
	}
}

func orders[E float32 | float64]() []order[E] {
	var all []order[E]
	add := func(name string, run func(dt dtype.Type, draw func(n int) []E) []E) {
		all = append(all, order[E]{name, run})
	}
	for _, s := range [][3]int{{1, 4096 + 17, 1}, {3, 9001, 1}, {1, 300001, 1}, {1, 700, 37}, {2, 1030, 301}, {5, 301, 2}, {1, 70001, 3}} {
		for name, op := range map[string]kernel.ReduceOp{"sum": kernel.Sum, "max": kernel.MaxOver, "min": kernel.MinOver, "prod": kernel.Prod} {
			add(fmt.Sprint(name, s), func(dt dtype.Type, draw func(n int) []E) []E {
				x, y := draw(s[0]*s[1]*s[2]), made[E](s[0]*s[2])
				if op == kernel.Prod {
					nearOne(x)
				}
				onReduce(op, dt, s[0], s[1], s[2], ptr(y), ptr(x))
				return y
			})
		}
	}
	add("cumsum", func(dt dtype.Type, draw func(n int) []E) []E {
		x, y := draw(3*1001*5), made[E](3*1001*5)
		onCumSum(dt, 3, 1001, 5, ptr(y), ptr(x))
		return y
	})
	add("cumprod", func(dt dtype.Type, draw func(n int) []E) []E {
		n := 3 * 301 * 5
		x, dy, y := draw(n), draw(n), made[E](2*n)
		nearOne(x)
		onCumProd(dt, 3, 301, 5, ptr(y), ptr(x))
		onCumProdGrad(dt, 3, 301, 5, ptr(y[n:]), ptr(dy), ptr(x))
		return y
	})
	add("square sum", func(dt dtype.Type, draw func(n int) []E) []E {
		var y []E
		for _, n := range []int{17, 4113, 9001, 300001} {
			y = append(y, E(onSquareSum(dt, n, ptr(draw(n)))))
		}
		return y
	})
	for _, l := range lineShapes {
		add(fmt.Sprint("lines", l), func(dt dtype.Type, draw func(n int) []E) []E {
			x, n := draw(l.size()), l.lines()
			y := made[E](4 * n)
			onMoments(dt, kernel.Lines(l), 1, ptr(y), ptr(y[n:]), ptr(y[2*n:]), ptr(x))
			onSquareSums(dt, kernel.Lines(l), ptr(y[3*n:]), ptr(x))
			return y
		})
		if l.Outer != 1 {
			continue
		}
		for _, training := range []bool{true, false} {
			add(fmt.Sprint("batch norm", l, training), func(dt dtype.Type, draw func(n int) []E) []E {
				n, c := l.size(), l.Side
				x, dy, gamma, beta, mean, rstd := draw(n), draw(n), draw(c), draw(c), draw(c), draw(c)
				a := kernel.Affine{Mean: ptr(mean), Low: ptr(made[E](c)), Scale: ptr(rstd), Gamma: ptr(gamma), Beta: ptr(beta)}
				y, sums := made[E](2*n+2*c), made[E](2*c)
				onScaleLines(dt, kernel.Lines(l), a, ptr(y), ptr(x))
				onBatchNormGrad(dt, kernel.Lines(l), a, training, ptr(y[n:]), ptr(y[2*n:]), ptr(y[2*n+c:]), ptr(sums), ptr(dy), ptr(x))
				return y
			})
		}
	}
	for _, s := range [][2]int{{3, 17}, {2, 9001}, {700, 37}} {
		rows, n := s[0], s[1]
		for _, logarithm := range []bool{false, true} {
			add(fmt.Sprint("softmax", s, logarithm), func(dt dtype.Type, draw func(n int) []E) []E {
				x, dy, y := draw(rows*n), draw(rows*n), made[E](2*rows*n)
				onSoftmax(dt, logarithm, rows, n, ptr(y), ptr(x))
				onSoftmaxGrad(dt, logarithm, rows, n, ptr(y[rows*n:]), ptr(dy), ptr(y))
				return y
			})
		}
		add(fmt.Sprint("cross entropy", s), func(dt dtype.Type, draw func(n int) []E) []E {
			x, d, y, target := draw(rows*n), draw(rows), made[E](2*rows+rows*n), make([]int64, rows)
			for i := range target {
				target[i] = int64(i % n)
			}
			onCrossEntropy(dt, rows, n, ptr(y), ptr(y[rows:]), ptr(x), target)
			onCrossEntropyGrad(dt, rows, n, ptr(y[2*rows:]), ptr(d), 1, 1.0/3, ptr(x), ptr(y[rows:]), target)
			return y
		})
		for _, mean := range []bool{true, false} {
			add(fmt.Sprint("layer norm", s, mean), func(dt dtype.Type, draw func(n int) []E) []E {
				x, dy, gamma, beta, m, rstd := draw(rows*n), draw(rows*n), draw(n), draw(n), made[E](rows), made[E](rows)
				at := ptr(m)
				if !mean {
					at = nil
				}
				y := made[E](2*rows*n + 2*n)
				onLayerNorm(dt, rows, n, 1e-5, ptr(y), at, ptr(rstd), ptr(x), ptr(gamma), ptr(beta))
				onLayerNormGrad(dt, rows, n, false, ptr(y[rows*n:]), ptr(y[2*rows*n:]), ptr(y[2*rows*n+n:]), ptr(dy), ptr(x), ptr(gamma), at, ptr(rstd))
				return slices.Concat(y, m, rstd)
			})
		}
	}
	for _, s := range [][4]int{{1, 37, 45, 1027}, {3, 5, 300, 257}, {1, 1, 7, 5000}, {1, 130, 1, 770}, {1, 200, 190, 600}} {
		batch, m, n, k := s[0], s[1], s[2], s[3]
		for turned := range 4 {
			add(fmt.Sprint("gemm", s, turned), func(dt dtype.Type, draw func(n int) []E) []E {
				a, b, y := draw(batch*m*k), draw(batch*k*n), made[E](batch*m*n)
				left, right := kernel.Matrix{Data: ptr(a), Stride: k, Batch: m * k}, kernel.Matrix{Data: ptr(b), Stride: n, Batch: k * n}
				if turned&1 != 0 {
					left.Stride, left.Trans = m, true
				}
				if turned&2 != 0 {
					right.Stride, right.Trans = k, true
				}
				_ = onGemm(dt, batch, m, n, k, kernel.Matrix{Data: ptr(y), Stride: n, Batch: m * n}, left, right, false, ptr(draw(n)))
				return y
			})
		}
	}
	for _, w := range []kernel.Window{
		{Batch: 2, Channels: 31, Height: 9, Width: 11, Filters: 13, KernelH: 3, KernelW: 3, StrideH: 1, StrideW: 1, PadH: 1, PadW: 1},
		{Batch: 19, Channels: 33, Height: 7, Width: 6, Filters: 70, KernelH: 3, KernelW: 2, StrideH: 2, StrideW: 1, PadH: 0, PadW: 1},
		{Batch: 3, Channels: 33, Height: 14, Width: 13, Filters: 37, KernelH: 3, KernelW: 3, StrideH: 1, StrideW: 1, PadH: 1, PadW: 1},
		{Batch: 17, Channels: 16, Height: 9, Width: 40, Filters: 31, KernelH: 5, KernelW: 2, StrideH: 1, StrideW: 1, PadH: 2, PadW: 0},
		{Batch: 3, Channels: 2, Height: 33, Width: 300, Filters: 5, KernelH: 5, KernelW: 7, StrideH: 1, StrideW: 3, PadH: 2, PadW: 3},
	} {
		add(fmt.Sprint("conv", w), func(dt dtype.Type, draw func(n int) []E) []E {
			h, v := w.Out()
			nx, ny, nw := w.Batch*w.Channels*w.Height*w.Width, w.Batch*w.Filters*h*v, w.Filters*w.Channels*w.KernelH*w.KernelW
			x, weight, bias, dy := draw(nx), draw(nw), draw(w.Filters), draw(ny)
			y, dx, sums := made[E](ny), made[E](nx), made[E](nw+w.Filters)
			_ = onConv2d(dt, w, ptr(y), ptr(x), ptr(weight), ptr(bias))
			_ = onConv2dGradInput(dt, w, ptr(dx), ptr(dy), ptr(weight))
			_ = onConv2dGradWeight(dt, w, ptr(sums), ptr(sums[nw:]), ptr(dy), ptr(x))
			return slices.Concat(y, dx, sums)
		})
		add(fmt.Sprint("conv, most of dy zero", w), func(dt dtype.Type, draw func(n int) []E) []E {
			h, v := w.Out()
			nx, nw := w.Batch*w.Channels*w.Height*w.Width, w.Filters*w.Channels*w.KernelH*w.KernelW
			x, weight, dy := draw(nx), draw(nw), draw(w.Batch*w.Filters*h*v)
			thin(dy)
			dx, sums := made[E](nx), made[E](nw+w.Filters)
			_ = onConv2dGradInput(dt, w, ptr(dx), ptr(dy), ptr(weight))
			_ = onConv2dGradWeight(dt, w, ptr(sums), ptr(sums[nw:]), ptr(dy), ptr(x))
			return slices.Concat(dx, sums)
		})
		add(fmt.Sprint("average pool", w), func(dt dtype.Type, draw func(n int) []E) []E {
			h, v := w.Out()
			nx, ny := w.Batch*w.Channels*w.Height*w.Width, w.Batch*w.Channels*h*v
			y, dx := made[E](ny), made[E](nx)
			onAvgPool2d(dt, w, ptr(y), ptr(draw(nx)))
			onAvgPool2dGrad(dt, w, ptr(dx), ptr(draw(ny)))
			return slices.Concat(y, dx)
		})
	}
	for _, causal := range []bool{false, true} {
		add(fmt.Sprint("attention ", causal), func(dt dtype.Type, draw func(n int) []E) []E {
			const rows, cols, width, depth = 150, 301, 17, 19
			a := kernel.Attention{Causal: causal, Rows: rows, Cols: cols, Width: width, Depth: depth, Scale: 0.25, Stride: [4]int{width, width, depth, depth},
				At: [][4]int{{}, {rows * width, cols * width, cols * depth, rows * depth}}}
			q, k, v, dy := draw(2*rows*width), draw(2*cols*width), draw(2*cols*depth), draw(2*rows*depth)
			y, lse := made[E](2*rows*depth), made[E](2*rows)
			dq, dk, dv := made[E](len(q)), made[E](len(k)), made[E](len(v))
			_ = onForward(&a, dt, ptr(y), ptr(lse), ptr(q), ptr(k), ptr(v))
			_ = onBackward(&a, dt, ptr(dq), ptr(dk), ptr(dv), ptr(dy), ptr(lse), ptr(q), ptr(k), ptr(v))
			return slices.Concat(y, lse, dq, dk, dv)
		})
	}
	// All scores lie below what stands beyond a row's last key.
	add("attention below zero", func(dt dtype.Type, draw func(n int) []E) []E {
		const n, width = 77, 5
		a := kernel.Attention{Causal: true, Rows: n, Cols: n, Width: width, Depth: width, Scale: 0.25, Stride: [4]int{width, width, width, width}, At: [][4]int{{}}}
		q, k, v := draw(n*width), draw(n*width), draw(n*width)
		for i := range q {
			q[i], k[i] = E(math.Abs(float64(q[i]))), -E(math.Abs(float64(k[i])))
		}
		y, lse := made[E](n*width), made[E](n)
		_ = onForward(&a, dt, ptr(y), ptr(lse), ptr(q), ptr(k), ptr(v))
		return append(y, lse...)
	})
	add("rows", func(dt dtype.Type, draw func(n int) []E) []E {
		const rows, n, into = 700, 37, 5
		index := make([]int64, rows*n)
		for i := range index {
			index[i] = int64(i * i % into)
		}
		y := made[E](2 * into * n)
		onAddRows(dt, n, ptr(y), ptr(draw(rows*n)), index[:rows])
		onScatterAdd(dt, 1, rows, into, n, ptr(y[into*n:]), ptr(draw(rows*n)), index)
		return y
	})
	for name, op := range map[string]dtype.ReduceOp{"sum": dtype.Sum, "average": dtype.Avg, "product": dtype.Product} {
		add("ranks: "+name, func(dt dtype.Type, draw func(n int) []E) []E {
			const n = 5001
			y := made[E](n)
			kernel.ReduceRanks(op, dt, ptr(y), pointers(draw(n), draw(n), draw(n), draw(n), draw(n)), n)
			return y
		})
	}
	add("optimizers", func(dt dtype.Type, draw func(n int) []E) []E {
		const n = 3001
		var y []E
		for _, nesterov := range []bool{false, true} {
			p, m := draw(n), draw(n)
			for step := range 3 {
				onSGD(kernel.SGD{LR: 0.1, Momentum: 0.9, WeightDecay: 0.03, Nesterov: nesterov, First: step == 0}, dt, n, ptr(p), ptr(draw(n)), ptr(m))
			}
			y = append(append(y, p...), m...)
		}
		for _, decoupled := range []bool{false, true} {
			p, m, v := draw(n), made[E](n), made[E](n)
			for step := range 3 {
				onAdam(kernel.Adam{LR: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.03, Decoupled: decoupled, Count: step + 1}, dt, n, ptr(p), ptr(draw(n)), ptr(m), ptr(v))
			}
			y = append(append(append(y, p...), m...), v...)
		}
		scaled := made[E](len(y))
		copy(scaled, y)
		onScale(dt, len(y), ptr(scaled), 1.0/3)
		return scaled
	})
	add("random", func(dt dtype.Type, draw func(n int) []E) []E {
		const n = 3001
		y := made[E](2 * n)
		onUniform(kernel.Stream{Seed: 5, Stream: 6, At: 7}, dt, n, ptr(y))
		onDropout(kernel.Stream{Seed: 5, Stream: 6, At: 8}, dt, n, ptr(y[n:]), ptr(draw(n)), 0.7)
		return y
	})
	return all
}

// digests computes the orders, as `compute` has each of them computed, and returns lines as they stand in testdata/orders.txt, and those that
// do not stand there.
func digests(t *testing.T, stated map[string]bool, of32 func(o order[float32]) []float32, of64 func(o order[float64]) []float64) (lines []string) {
	digest := func(name, bits string) {
		h := fnv.New64a()
		h.Write([]byte(bits))
		line := fmt.Sprintf("%s: %016x", name, h.Sum64())
		lines = append(lines, line)
		if !*update && !stated[line] {
			t.Errorf("other bits than in %s: %s", ordersPath, line)
		}
	}
	for _, o := range orders[float32]() {
		if bits := of32(o); bits != nil {
			digest("float32 "+o.name, bytesOf(bits))
		}
	}
	for _, o := range orders[float64]() {
		if bits := of64(o); bits != nil {
			digest("float64 "+o.name, bytesOf(bits))
		}
	}
	slices.Sort(lines)
	return lines
}

const ordersPath = "testdata/orders.txt"

// statedOrders returns the lines of testdata/orders.txt.
func statedOrders(t *testing.T) map[string]bool {
	content, err := os.ReadFile(ordersPath)
	if err != nil && !*update {
		t.Fatal(err)
	}
	stated := map[string]bool{}
	for line := range strings.Lines(string(content)) {
		stated[strings.TrimSpace(line)] = true
	}
	return stated
}

// The bits of each order, in float32 and float64, are those of testdata/orders.txt on every path with any
// number of threads: they do not change from one version to the next unless somebody means it.
func TestOrders(t *testing.T) {
	stated := statedOrders(t)
	lines := digests(t, stated, func(o order[float32]) []float32 {
		return everywhere(t, func() []float32 { return o.run(dtype.Float32, drawn[float32](dtype.Float32)) })
	}, func(o order[float64]) []float64 {
		return everywhere(t, func() []float64 { return o.run(dtype.Float64, drawn[float64](dtype.Float64)) })
	})
	if *update {
		if err := os.WriteFile(ordersPath, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if len(lines) != len(stated) {
		t.Errorf("%s has %d lines for %d orders", ordersPath, len(stated), len(lines))
	}
}

// drawn gives normal numbers, each time others.
func drawn[E float32 | float64](dt dtype.Type) func(n int) []E {
	stream := uint64(20)
	return func(n int) []E {
		x := made[E](n)
		kernel.Stream{Seed: 2, Stream: stream}.Normal(dt, n, ptr(x))
		stream++
		return x
	}
}

// The orders of sums as docs/numerics.md states them, written down once more.
func TestStatedOrders(t *testing.T) {
	same := func(what string, got, want []float64) {
		t.Helper()
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%s: element %d is %v, in the stated order %v", what, i, got[i], want[i])
			}
		}
	}
	// Along adjacent elements: 16 lanes folded as a tree, cuts of 4,096 added in order, of a very long row
	// parts first.
	lanes := func(x []float64) float64 {
		var lane [16]float64
		for i, v := range x {
			lane[i%16] += v
		}
		for w := 8; w > 0; w /= 2 {
			for j := range w {
				lane[j] += lane[j+w]
			}
		}
		return lane[0]
	}
	cuts := func(x []float64, size int, sum func([]float64) float64) float64 {
		total := 0.0
		for i := 0; i < len(x); i += size {
			total += sum(x[i:min(i+size, len(x))])
		}
		return total
	}
	row4096 := func(x []float64) float64 { return cuts(x, 4096, lanes) }
	for _, n := range []int{1, 15, 16, 17, 4096, 4099, 65536, 65537, 200003} {
		x, y := drawn[float64](dtype.Float64)(n), make([]float64, 1)
		kernel.Reduce(kernel.Sum, dtype.Float64, 1, n, 1, ptr(y), ptr(x))
		want := row4096(x)
		if n > 65536 {
			want = cuts(x, 65536, row4096)
		}
		same(fmt.Sprint("row of ", n), y, []float64{want})
	}
	// Over an outer dimension: row after row, in blocks of 256 that are added in order.
	const rows, width = 1000, 37
	x, y, want := drawn[float64](dtype.Float64)(rows*width), make([]float64, width), make([]float64, width)
	kernel.Reduce(kernel.Sum, dtype.Float64, 1, rows, width, ptr(y), ptr(x))
	for from := 0; from < rows; from += 256 {
		block := make([]float64, width)
		for i := from; i < min(from+256, rows); i++ {
			for j := range block {
				block[j] += x[i*width+j]
			}
		}
		for j := range want {
			want[j] += block[j]
		}
	}
	same("columns", y, want)
	// Matrix products: chains of fused multiply-adds of 256 values of k, added in order.
	const m, n, k = 9, 33, 700
	a, b, c := drawn[float64](dtype.Float64)(m*k), drawn[float64](dtype.Float64)(k*n), make([]float64, m*n)
	_ = kernel.Gemm(dtype.Float64, 1, m, n, k, kernel.Matrix{Data: ptr(c), Stride: n}, kernel.Matrix{Data: ptr(a), Stride: k}, kernel.Matrix{Data: ptr(b), Stride: n}, false, nil)
	want = make([]float64, m*n)
	for i := range m {
		for j := range n {
			for from := 0; from < k; from += 256 {
				chain := 0.0
				for l := from; l < min(from+256, k); l++ {
					chain = math.FMA(a[i*k+l], b[l*n+j], chain)
				}
				if from == 0 {
					want[i*n+j] = chain
				} else {
					want[i*n+j] += chain
				}
			}
		}
	}
	same("matrix product", c, want)
}
