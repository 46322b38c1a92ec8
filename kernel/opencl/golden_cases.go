package opencl

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"unsafe"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

func (g *golden) primitives() {
	const n = 256
	y := g.reals(n)
	x, z := make([]float32, n), make([]int64, n)
	for i := range n {
		x[i], z[i] = float32(y[n-1-i]), int64(g.rng.Uint64()>>g.rng.IntN(63))
		if i%2 == 0 {
			z[i] = -z[i]
		}
	}
	z[3], z[7] = math.MinInt64, 0
	var f [11][n]float32
	var d [8][n]float64
	var l [8][n]int64
	var h [2][n]uint16
	for i := range n {
		a, b, c := x[i], x[(i+1)%n], x[(i+5)%n]
		for k, v := range []float32{a + b, a - b, a * b, a / b, float32(math.Sqrt(float64(a))), fma32(a, b, c), float32(a*b) + c, float32(y[i]), float32(z[i])} {
			f[k][i] = canon32(v)
		}
		p, q, r := y[i], y[(i+1)%n], y[(i+5)%n]
		for k, v := range []float64{p + q, p * q, p / q, math.Sqrt(p), math.FMA(p, q, r), float64(p*q) + r, float64(a), float64(z[i])} {
			d[k][i] = canon64(v)
		}
		u, v := z[i], z[(i+1)%n]
		if v != 0 && v != -1 {
			l[0][i], l[1][i] = u/v, u%v
		}
		high, _ := bits.Mul64(uint64(u), uint64(v))
		l[2][i], l[3][i], l[4][i], l[5][i] = u>>(v&63), u<<(v&63), int64(high), int64(uint32(u)*uint32(v))
		for k, is := range []bool{a < b, a == b, p <= q} {
			if is {
				l[6][i] |= 1 << k
			}
		}
		if p == p {
			l[7][i] = int64(min(max(p, -1e9), 1e9))
		}
	}
	for i, dt := range []dtype.Type{dtype.Float16, dtype.BFloat16} {
		kernel.Cast(dt, f32, []int{n}, view(h[i][:], 1), view(x, 1))
		kernel.Cast(f32, dt, []int{n}, view(f[9+i][:], 1), view(h[i][:], 1))
	}
	in := [3]Place{put(g, x), put(g, y), put(g, z)}
	out := [4]Place{put(g, make([]float32, len(f)*n)), put(g, make([]float64, len(d)*n)), put(g, make([]int64, len(l)*n)), put(g, make([]uint16, len(h)*n))}
	k := g.d.kernel(kernelKey{file: "golden.cl", name: "primitives"}, func() string { return "" })
	c := g.d.begin().long(n)
	for _, p := range append(in[:], out[:]...) {
		c.buffer(p.Buffer)
	}
	g.d.line(k, n)
	compareWith(g, out[0], flat(f[:]), "float32 +", "float32 -", "float32 *", "float32 /", "float32 root", "float32 fused multiply-add",
		"float32 multiplication and addition, each rounded", "float64 to float32", "int64 to float32", "float16 to float32",
		"bfloat16 to float32")
	compareWith(g, out[1], flat(d[:]), "float64 +", "float64 *", "float64 /", "float64 root", "float64 fused multiply-add",
		"float64 multiplication and addition, each rounded", "float32 to float64", "int64 to float64")
	compareWith(g, out[2], flat(l[:]), "int64 /", "int64 remainder", "int64 >>", "int64 <<", "the upper half of a product", "uint32 *", "comparisons", "float64 to int64")
	compareWith(g, out[3], flat(h[:]), "float32 to float16", "float32 to bfloat16")
}

func flat[T any](rows [][256]T) (all []T) {
	for i := range rows {
		all = append(all, rows[i][:]...)
	}
	return all
}

func view[T any](v []T, strides ...int) kernel.View {
	return kernel.View{Data: unsafe.Pointer(&v[0]), Strides: strides}
}

func on(p Place, strides ...int) Operand { return Operand{Place: p, Strides: strides} }

func (g *golden) elementwise() {
	x, want := g.singles(512), make([]float32, 512)
	in, out := put(g, x), put(g, want)
	kernel.Unary(kernel.Tanh, dtype.Float32, []int{512}, view(want, 1), view(x, 1))
	g.d.Unary(kernel.Tanh, dtype.Float32, []int{512}, on(out, 1), on(in, 1))
	compareWith(g, out, want, "tanh")
}

func (g *golden) casts() {
	x, want := make([]int64, 512), make([]float32, 512)
	for i := range x {
		x[i] = int64(g.rng.Uint64()) >> g.rng.IntN(63)
	}
	in, out := put(g, x), put(g, want)
	kernel.Cast(dtype.Float32, dtype.Int64, []int{512}, view(want, 1), view(x, 1))
	g.d.Cast(dtype.Float32, dtype.Int64, []int{512}, on(out, 1), on(in, 1))
	compareWith(g, out, want, "int64 to float32")
}

// moves has a copy of a transposed matrix with a broadcast dimension.
func (g *golden) moves() {
	x, want := make([]int32, 7*9), make([]int32, 3*9*7)
	for i := range x {
		x[i] = int32(i)
	}
	shape, strides := []int{3, 9, 7}, []int{0, 1, 9}
	in, out := put(g, x), put(g, want)
	kernel.Copy(dtype.Int32, shape, view(want, 63, 7, 1), view(x, strides...))
	g.d.Copy(dtype.Int32, shape, on(out, 63, 7, 1), on(in, strides...))
	compareWith(g, out, want, "copy")
}

func ptr[T any](v []T) unsafe.Pointer { return unsafe.Pointer(&v[0]) }

// singles are reals of float32.
func (g *golden) singles(n int) []float32 {
	v := make([]float32, n)
	for i, x := range g.reals(n) {
		v[i] = float32(x)
	}
	return v
}

// tame are random numbers of float32.
func (g *golden) tame(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(g.rng.NormFloat64())
	}
	return v
}

// indices are random numbers below an end.
func (g *golden) indices(n, below int) []int64 {
	v := make([]int64, n)
	for i := range v {
		v[i] = g.rng.Int64N(int64(below))
	}
	return v
}

const f32 = dtype.Float32

func (g *golden) activations() {
	x, y, slope := g.singles(512), make([]float32, 512), make([]float32, 512)
	in, out, to := put(g, x), put(g, y), put(g, slope)
	kernel.Activate(f32, kernel.GeluSlope, len(x), 0, 0, ptr(y), ptr(slope), ptr(x))
	g.d.Activate(f32, kernel.GeluSlope, len(x), 0, 0, out, to, in)
	compareWith(g, out, y, "gelu")
	compareWith(g, to, slope, "gelu's slope")
}

// sums has rows of more than one cut, and columns of more than one block.
func (g *golden) sums() {
	const rows, n = 3, 5001
	x, want := g.tame(rows*n), make([]float32, rows)
	in, out := put(g, x), put(g, want)
	for _, s := range [][3]int{{rows, n, 1}, {1, n, rows}} {
		kernel.Reduce(kernel.Sum, f32, s[0], s[1], s[2], ptr(want), ptr(x))
		g.d.Reduce(kernel.Sum, f32, s[0], s[1], s[2], out, in)
		compareWith(g, out, want, "sum")
	}
}

func (g *golden) softmax() {
	const rows, n = 3, 501
	x, want := g.tame(rows*n), make([]float32, rows*n)
	in, out := put(g, x), put(g, want)
	kernel.Softmax(f32, false, rows, n, ptr(want), ptr(x))
	g.d.Softmax(f32, false, rows, n, out, in)
	compareWith(g, out, want, "softmax")
}

func (g *golden) norms() {
	const rows, n = 3, 5001
	x, want, mean, rstd := g.tame(rows*n), make([]float32, rows*n), make([]float32, rows), make([]float32, rows)
	in, out, m, r := put(g, x), put(g, want), put(g, mean), put(g, rstd)
	kernel.LayerNorm(f32, rows, n, 1e-5, ptr(want), ptr(mean), ptr(rstd), ptr(x), nil, nil)
	g.d.LayerNorm(f32, rows, n, 1e-5, out, m, r, in, Place{}, Place{})
	compareWith(g, out, want, "layer norm")
}

// products has one of more than one block of k, whose sizes are no multiples of a tile's, with B as it is and transposed.
func (g *golden) products() {
	const m, n, k = 19, 37, 301
	a, b, want := g.tame(m*k), g.tame(k*n), make([]float32, m*n)
	x, y, out := put(g, a), put(g, b), put(g, want)
	for _, trans := range []bool{false, true} {
		ld := n
		if trans {
			ld = k
		}
		try.Ok(kernel.Gemm(f32, 1, m, n, k, kernel.Matrix{Data: ptr(want), Stride: n}, kernel.Matrix{Data: ptr(a), Stride: k},
			kernel.Matrix{Data: ptr(b), Stride: ld, Trans: trans}, false, nil))
		g.d.Gemm(f32, 1, m, n, k, Matrix{Place: out, Stride: n}, Matrix{Place: x, Stride: k}, Matrix{Place: y, Stride: ld, Trans: trans}, false, Place{})
		compareWith(g, out, want, "product")
	}
}

func (g *golden) halfProducts() {
	const m, n, k = 9, 37, 301
	a, b, want := g.tame(m*k), g.tame(k*n), make([]float32, m*n)
	x, y, out := put(g, a), put(g, b), put(g, want)
	try.Ok(kernel.GemmHalf(1, m, n, k, f32, kernel.Matrix{Data: ptr(want), Stride: n}, f32, kernel.Matrix{Data: ptr(a), Stride: k}, f32, kernel.Matrix{Data: ptr(b), Stride: n}, false, nil))
	g.d.GemmHalf(1, m, n, k, f32, Matrix{Place: out, Stride: n}, f32, Matrix{Place: x, Stride: k}, f32, Matrix{Place: y, Stride: n}, false, Place{})
	compareWith(g, out, want, "product in bfloat16")
}

// attention is causal, of more than one block of queries, two heads side by side; and its gradient.
func (g *golden) attention() {
	const rows, width = 70, 5
	a := &kernel.Attention{Causal: true, Rows: rows, Cols: rows, Width: width, Depth: width, Scale: 0.4, At: [][4]int{{}, {width, width, width, width}},
		Stride: [4]int{2 * width, 2 * width, 2 * width, 2 * width}}
	var in, grad [4][]float32
	var there, to [4]Place
	for i := range in {
		in[i], grad[i] = g.tame(2*rows*width), make([]float32, 2*rows*width)
		there[i], to[i] = put(g, in[i]), put(g, grad[i])
	}
	lse := make([]float32, 2*rows)
	sums := put(g, lse)
	try.Ok(a.Forward(f32, ptr(grad[3]), ptr(lse), ptr(in[0]), ptr(in[1]), ptr(in[2])))
	g.d.Attention(a, f32, to[3], sums, there[0], there[1], there[2])
	compareWith(g, to[3], grad[3], "attention")
	try.Ok(a.Backward(f32, ptr(grad[0]), ptr(grad[1]), ptr(grad[2]), ptr(in[3]), ptr(lse), ptr(in[0]), ptr(in[1]), ptr(in[2])))
	g.d.AttentionGrad(a, f32, to[0], to[1], to[2], there[3], sums, there[0], there[1], there[2])
	for i, name := range []string{"queries", "keys", "values"} {
		compareWith(g, to[i], grad[i], "attention's gradient of "+name)
	}
}

// recurrent is a step of an LSTM for three sequences, of which one is over.
func (g *golden) recurrent() {
	const n, width = 3, 5
	lengths := []int64{2, 1, 2}
	state := func() []float32 { return make([]float32, n*width) }
	parts := [...][]float32{0: g.tame(4 * n * width), 1: state(), 2: state(), 3: state(), 5: g.tame(n * width), 6: g.tame(n * width)}
	var places [14]Place
	for i, p := range parts {
		if p != nil {
			places[i] = put(g, p)
		}
	}
	s := kernel.CellStep{N: n, Width: width, T: 1, OutStep: width, Lengths: lengths, Gates: ptr(parts[0]), H: ptr(parts[1]), C: ptr(parts[2]),
		Out: ptr(parts[3]), H0: ptr(parts[5]), C0: ptr(parts[6])}
	s.Run(f32, kernel.LSTM, false)
	g.d.CellStep(&s, f32, kernel.LSTM, false, places, put(g, lengths))
	for i, name := range []string{"gates", "state", "cell", "output"} {
		compareWith(g, places[i], parts[i], "lstm's "+name)
	}
}

// convolutions has one with a stride, of more than one block of cells, and its gradients.
func (g *golden) convolutions() {
	w := kernel.Window{Batch: 3, Channels: 30, Height: 6, Width: 7, Filters: 5, KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 1, PadH: 1, PadW: 1}
	h, v := w.Out()
	x, weight, bias, y := g.tame(3*30*6*7), g.tame(5*30*9), g.tame(5), make([]float32, 3*5*h*v)
	in, filters, beta, out := put(g, x), put(g, weight), put(g, bias), put(g, y)
	try.Ok(kernel.Conv2d(f32, w, ptr(y), ptr(x), ptr(weight), ptr(bias)))
	g.d.Conv2d(f32, w, out, in, filters, beta)
	compareWith(g, out, y, "convolution")
	dx, dw := make([]float32, len(x)), make([]float32, len(weight))
	toX, toW := put(g, dx), put(g, dw)
	try.Ok(kernel.Conv2dGradInput(f32, w, ptr(dx), ptr(y), ptr(weight)))
	g.d.ConvTranspose2d(f32, w, toX, out, filters, Place{})
	compareWith(g, toX, dx, "convolution's gradient of its input")
	try.Ok(kernel.Conv2dGradWeight(f32, w, ptr(dw), ptr(bias), ptr(y), ptr(x)))
	g.d.Conv2dGradWeight(f32, w, toW, beta, out, in)
	compareWith(g, toW, dw, "convolution's gradient of its weight")
	compareWith(g, beta, bias, "convolution's gradient of its bias")
}

// poolings have windows that overlap, at the edge too.
func (g *golden) poolings() {
	w := kernel.Window{Batch: 3, Channels: 30, Height: 6, Width: 7, KernelH: 2, KernelW: 3, StrideH: 2, StrideW: 2, PadW: 1}
	h, v := w.Out()
	x, most, at, dx := g.tame(3*30*6*7), make([]float32, 3*30*h*v), make([]int32, 3*30*h*v), make([]float32, 3*30*6*7)
	in, toMost, toAt, toX := put(g, x), put(g, most), put(g, at), put(g, dx)
	kernel.MaxPool2d(f32, w, ptr(most), at, ptr(x))
	g.d.MaxPool2d(f32, w, toMost, toAt, in)
	compareWith(g, toMost, most, "pooling")
	compareWith(g, toAt, at, "pooling's places")
	kernel.MaxPool2dGrad(f32, w, ptr(dx), ptr(most), at)
	g.d.Pool2dGrad(f32, w, toX, toMost, toAt)
	compareWith(g, toX, dx, "pooling's gradient")
}

// lines has the variance of rows and of columns, and a group norm.
func (g *golden) lines() {
	const rows, n = 6, 4500
	x, mean, variance := g.tame(rows*n), make([]float32, n), make([]float32, n)
	in, m, v := put(g, x), put(g, mean), put(g, variance)
	for _, l := range []kernel.Lines{{Outer: rows, N: 1, Side: 1, Run: n}, {Outer: 1, N: rows, Side: n, Run: 1}} {
		kernel.Moments(f32, l, 1, ptr(mean), nil, ptr(variance), ptr(x))
		g.d.Moments(f32, l, 1, m, Place{}, v, in)
		compareWith(g, m, mean[:l.Outer*l.Side], "mean")
		compareWith(g, v, variance[:l.Outer*l.Side], "variance")
	}
	groups, y := kernel.Groups{Rows: rows, Groups: 2, Each: 3, Run: n / 3}, make([]float32, rows*n)
	out := put(g, y)
	groups.Norm(f32, 1e-5, ptr(y), ptr(mean), ptr(variance), ptr(x), nil, nil)
	g.d.GroupNorm(groups, f32, 1e-5, out, m, v, in, Place{}, Place{})
	compareWith(g, out, y, "group norm")
}

func (g *golden) indexed() {
	const outer, rows, count, inner = 2, 7, 40, 3
	x, y, index := g.tame(outer*rows*inner), make([]float32, outer*count*inner), g.indices(count, rows)
	in, out, at := put(g, x), put(g, y), put(g, index)
	kernel.Take(f32, outer, rows, inner, ptr(y), ptr(x), index)
	g.d.Take(f32, outer, rows, inner, count, out, in, at)
	compareWith(g, out, y, "index_select")
}

func (g *golden) rows() {
	const rows, into, n = 40, 7, 5
	x, y, index := g.tame(rows*n), make([]float32, into*n), g.indices(rows, into)
	in, out, at := put(g, x), put(g, y), put(g, index)
	kernel.AddRows(f32, n, ptr(y), ptr(x), index)
	g.d.AddRows(f32, n, rows, out, in, at)
	compareWith(g, out, y, "sums of indexed rows")
}

// scans has additions at indexed places, and running sums.
func (g *golden) scans() {
	const from, to, inner = 40, 7, 3
	x, y, index := g.tame(from*inner), make([]float32, from*inner), g.indices(from*inner, to)
	in, out, at := put(g, x), put(g, y), put(g, index)
	kernel.ScatterAdd(f32, 1, from, to, inner, ptr(y), ptr(x), index)
	g.d.ScatterAdd(f32, 1, from, to, inner, out, in, at)
	compareWith(g, out, y[:to*inner], "scatter_add")
	kernel.CumSum(f32, 1, from, inner, ptr(y), ptr(x))
	g.d.Cumulate(false, f32, 1, from, inner, out, in)
	compareWith(g, out, y, "cumsum")
}

// wholes has sums of integers, and the positions of maxima.
func (g *golden) wholes() {
	const n, inner = 140, 3
	x, index, whole := g.tame(n*inner), g.indices(n*inner, 7), make([]int64, inner)
	in, at, sums := put(g, x), put(g, index), put(g, whole)
	kernel.Reduce(kernel.Sum, dtype.Int64, 1, n, inner, ptr(whole), ptr(index))
	g.d.Reduce(kernel.Sum, dtype.Int64, 1, n, inner, sums, at)
	compareWith(g, sums, whole, "sum of integers")
	kernel.ArgReduce(kernel.MaxOver, f32, 1, n, inner, whole, ptr(x))
	g.d.ArgReduce(kernel.MaxOver, f32, 1, n, inner, sums, in)
	compareWith(g, sums, whole, "argmax")
	order, at := index[:n], put(g, index)
	for i := range order {
		order[i] = int64(i)
	}
	slices.SortStableFunc(order, func(i, j int64) int { return cmp.Compare(x[i], x[j]) })
	g.d.Order(f32, n, n, false, at, in)
	compareWith(g, at, order, "sort")
}

func (g *golden) updates() {
	const n = 300
	p, grad, m, v := g.tame(n), g.tame(n), g.tame(n), make([]float32, n)
	places := [4]Place{put(g, p), put(g, grad), put(g, m), put(g, v)}
	a := kernel.Adam{LR: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1, Decoupled: true, Count: 3}
	a.Step(f32, n, ptr(p), ptr(grad), ptr(m), ptr(v))
	g.d.Adam(a, f32, n, places[0], places[1], places[2], places[3])
	compareWith(g, places[0], p, "adam")
}

func (g *golden) random() {
	const n = 300
	x, y := g.tame(n), make([]float32, n)
	in, out := put(g, x), put(g, y)
	s := kernel.Stream{Seed: 1 << 40, Stream: 7, At: 5}
	s.Dropout(f32, n, ptr(y), ptr(x), 0.7)
	g.d.Dropout(s, f32, n, out, in, 0.7)
	compareWith(g, out, y, "dropout")
	s.Normal(f32, n, ptr(y))
	g.d.Draw(s, true, f32, n, out)
	compareWith(g, out, y, "normal")
}
