package opencl

import (
	"bytes"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"unsafe"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

// Check computes the golden cases: each operation that kernels are made of, and one case of each family of kernels. It
// returns the first case in which the device's bits are not the processor's, "" if there is none. The error is that of a device that
// cannot compute them.
func (d *Device) Check() (difference string, err error) {
	defer try.Caught(&err)
	g := &golden{d: d, rng: rand.New(rand.NewPCG(36, 1))}
	for _, check := range []func(*golden){(*golden).primitives, (*golden).elementwise, (*golden).moves, (*golden).rows, (*golden).products, (*golden).attention,
		(*golden).images, (*golden).lines, (*golden).places, (*golden).updates} {
		if check(g); g.difference != "" {
			break
		}
	}
	for _, b := range g.buffers {
		d.Put(b)
	}
	return g.difference, nil
}

type golden struct {
	d          *Device
	rng        *rand.Rand
	buffers    []Buffer
	difference string
}

// put copies values to the device.
func put[T any](g *golden, values []T) Place {
	bytes := len(values) * int(unsafe.Sizeof(values[0]))
	b := g.d.Get("golden cases", bytes, func() {})
	g.buffers = append(g.buffers, b)
	g.d.Write(b, 0, unsafe.Pointer(&values[0]), bytes)
	return Place{Buffer: b}
}

// compare notes the first of n results, of which each operation has as many as it has names, that differs from want.
func compareWith[T any](g *golden, at Place, want []T, names ...string) {
	if g.difference != "" {
		return
	}
	got := make([]T, len(want))
	size := int(unsafe.Sizeof(got[0]))
	g.d.Read(unsafe.Pointer(&got[0]), at.Buffer, 0, len(got)*size)
	raw := func(v []T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*size) }
	a, b := raw(got), raw(want)
	if bytes.Equal(a, b) {
		return
	}
	each := len(want) / len(names)
	for i := range want {
		if !bytes.Equal(a[i*size:(i+1)*size], b[i*size:(i+1)*size]) {
			g.difference = fmt.Sprintf("%s, case %d: %v instead of %v (bits %x instead of %x)", names[i/each], i%each, got[i], want[i],
				reversed(a[i*size:(i+1)*size]), reversed(b[i*size:(i+1)*size]))
			return
		}
	}
}

func reversed(b []byte) []byte {
	var out []byte
	for i := range b {
		out = append(out, b[len(b)-1-i])
	}
	return out
}

// reals are numbers of all sizes, among them zeros, infinities, NaN and denormals.
func (g *golden) reals(n int) []float64 {
	v := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 1, -1, 3, 1.0 / 3, 1e-40, -1e-44, 1.1754944e-38, 3.4028235e38, 1e-310}
	for len(v) < n {
		x := g.rng.NormFloat64()
		switch len(v) % 4 {
		case 0:
			x *= math.Pow(2, float64(g.rng.IntN(60)-30))
		case 1:
			x *= math.Pow(2, float64(g.rng.IntN(40)-148)) // about where float32 becomes denormal
		}
		v = append(v, x)
	}
	return v
}

func canon32(x float32) float32 {
	if x != x {
		return math.Float32frombits(0x7fc00000)
	}
	return x
}

func canon64(x float64) float64 {
	if x != x {
		return math.Float64frombits(0x7ff8000000000000)
	}
	return x
}

// fma32 rounds a·b + c once: the product is exact in float64, and the sum is rounded to odd before the last rounding.
func fma32(a, b, c float32) float32 {
	p := float64(a) * float64(b)
	s := p + float64(c)
	t := s - p
	rest := (p - (s - t)) + (float64(c) - t)
	if rest != 0 && !math.IsInf(s, 0) && !math.IsNaN(s) && math.Float64bits(s)&1 == 0 {
		s = math.Nextafter(s, s+math.Copysign(math.Inf(1), rest))
	}
	return float32(s)
}

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
	var f [9][n]float32
	var d [8][n]float64
	var l [8][n]int64
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
	in := [3]Place{put(g, x), put(g, y), put(g, z)}
	out := [3]Place{put(g, make([]float32, len(f)*n)), put(g, make([]float64, len(d)*n)), put(g, make([]int64, len(l)*n))}
	k := g.d.kernel(kernelKey{file: "golden.cl", name: "primitives"}, func() string { return "" })
	c := g.d.begin().long(n)
	for _, p := range append(in[:], out[:]...) {
		c.buffer(p.Buffer)
	}
	g.d.line(k, n)
	compareWith(g, out[0], flat(f[:]), "float32 +", "float32 -", "float32 *", "float32 /", "float32 root", "float32 fused multiply-add",
		"float32 multiplication and addition, each rounded", "float64 to float32", "int64 to float32")
	compareWith(g, out[1], flat(d[:]), "float64 +", "float64 *", "float64 /", "float64 root", "float64 fused multiply-add",
		"float64 multiplication and addition, each rounded", "float32 to float64", "int64 to float64")
	compareWith(g, out[2], flat(l[:]), "int64 /", "int64 remainder", "int64 >>", "int64 <<", "the upper half of a product", "uint32 *", "comparisons", "float64 to int64")
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

// elementwise has a function of float32, and conversions to and from 16 bits.
func (g *golden) elementwise() {
	const n = 512
	x := make([]float32, n)
	for i, v := range g.reals(n) {
		x[i] = float32(v)
	}
	shape, in := []int{n}, put(g, x)
	on := func(p Place) Operand { return Operand{Place: p, Strides: []int{1}} }
	want := make([]float32, n)
	out := put(g, want)
	kernel.Unary(kernel.Tanh, dtype.Float32, shape, view(want, 1), view(x, 1))
	g.d.Unary(kernel.Tanh, dtype.Float32, shape, on(out), on(in))
	compareWith(g, out, want, "tanh")

	for _, dt := range []dtype.Type{dtype.Float16, dtype.BFloat16} {
		half := make([]uint16, n)
		narrow := put(g, half)
		kernel.Cast(dt, dtype.Float32, shape, view(half, 1), view(x, 1))
		g.d.Cast(dt, dtype.Float32, shape, on(narrow), on(in))
		compareWith(g, narrow, half, "float32 to "+dt.String())
		kernel.Cast(dtype.Float32, dt, shape, view(want, 1), view(half, 1))
		g.d.Cast(dtype.Float32, dt, shape, on(out), on(narrow))
		compareWith(g, out, want, dt.String()+" to float32")
	}
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
	g.d.Copy(dtype.Int32, shape, Operand{Place: out, Strides: []int{63, 7, 1}}, Operand{Place: in, Strides: strides})
	compareWith(g, out, want, "copy")
}

func ptr[T any](v []T) unsafe.Pointer { return unsafe.Pointer(&v[0]) }

// tame are random numbers of float32.
func (g *golden) tame(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(g.rng.NormFloat64())
	}
	return v
}

// rows has a sum of more than one cut, columns of more than one block, a softmax and a layer norm.
func (g *golden) rows() {
	const dt, rows, n = dtype.Float32, 3, 5001
	x, want, mean, rstd := g.tame(rows*n), make([]float32, rows*n), make([]float32, rows), make([]float32, rows)
	in, out, m, r := put(g, x), put(g, want), put(g, mean), put(g, rstd)
	for _, s := range [][3]int{{rows, n, 1}, {1, n, rows}} {
		kernel.Reduce(kernel.Sum, dt, s[0], s[1], s[2], ptr(want), ptr(x))
		g.d.Reduce(kernel.Sum, dt, s[0], s[1], s[2], out, in)
		compareWith(g, out, want[:rows], "sum")
	}
	kernel.Softmax(dt, false, rows, n, ptr(want), ptr(x))
	g.d.Softmax(dt, false, rows, n, out, in)
	compareWith(g, out, want, "softmax")
	kernel.LayerNorm(dt, rows, n, 1e-5, ptr(want), ptr(mean), ptr(rstd), ptr(x), nil, nil)
	g.d.LayerNorm(dt, rows, n, 1e-5, out, m, r, in, Place{}, Place{})
	compareWith(g, out, want, "layer norm")
}

// products has one of more than one block of k, whose sizes are no multiples of a tile's, with B as it is and transposed.
func (g *golden) products() {
	const dt, m, n, k = dtype.Float32, 9, 37, 301
	a, b, want := g.tame(m*k), g.tame(k*n), make([]float32, m*n)
	x, y, out := put(g, a), put(g, b), put(g, want)
	for _, trans := range []bool{false, true} {
		ld := n
		if trans {
			ld = k
		}
		try.Ok(kernel.Gemm(dt, 1, m, n, k, kernel.Matrix{Data: ptr(want), Stride: n}, kernel.Matrix{Data: ptr(a), Stride: k},
			kernel.Matrix{Data: ptr(b), Stride: ld, Trans: trans}, false, nil))
		g.d.Gemm(dt, 1, m, n, k, Matrix{Place: out, Stride: n}, Matrix{Place: x, Stride: k}, Matrix{Place: y, Stride: ld, Trans: trans}, false, Place{})
		compareWith(g, out, want, "product")
	}
	try.Ok(kernel.GemmHalf(1, m, n, k, dt, kernel.Matrix{Data: ptr(want), Stride: n}, dt, kernel.Matrix{Data: ptr(a), Stride: k}, dt, kernel.Matrix{Data: ptr(b), Stride: n}, false, nil))
	g.d.GemmHalf(1, m, n, k, dt, Matrix{Place: out, Stride: n}, dt, Matrix{Place: x, Stride: k}, dt, Matrix{Place: y, Stride: n}, false, Place{})
	compareWith(g, out, want, "product in bfloat16")
}

// attention is causal, of more than one block of queries, two heads side by side; and its gradient.
func (g *golden) attention() {
	const dt, rows, width = dtype.Float32, 70, 5
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
	try.Ok(a.Forward(dt, ptr(grad[3]), ptr(lse), ptr(in[0]), ptr(in[1]), ptr(in[2])))
	g.d.Attention(a, dt, to[3], sums, there[0], there[1], there[2])
	compareWith(g, to[3], grad[3], "attention")
	try.Ok(a.Backward(dt, ptr(grad[0]), ptr(grad[1]), ptr(grad[2]), ptr(in[3]), ptr(lse), ptr(in[0]), ptr(in[1]), ptr(in[2])))
	g.d.AttentionGrad(a, dt, to[0], to[1], to[2], there[3], sums, there[0], there[1], there[2])
	for i, name := range []string{"queries", "keys", "values"} {
		compareWith(g, to[i], grad[i], "attention's gradient of "+name)
	}
}

// images has a convolution with a stride, of more than one block of cells, its gradients, and a pooling.
func (g *golden) images() {
	const dt = dtype.Float32
	w := kernel.Window{Batch: 3, Channels: 30, Height: 6, Width: 7, Filters: 5, KernelH: 3, KernelW: 3, StrideH: 2, StrideW: 1, PadH: 1, PadW: 1}
	h, v := w.Out()
	x, weight, bias, y := g.tame(3*30*6*7), g.tame(5*30*9), g.tame(5), make([]float32, 3*5*h*v)
	in, filters, beta, out := put(g, x), put(g, weight), put(g, bias), put(g, y)
	try.Ok(kernel.Conv2d(dt, w, ptr(y), ptr(x), ptr(weight), ptr(bias)))
	g.d.Conv2d(dt, w, out, in, filters, beta)
	compareWith(g, out, y, "convolution")
	dx, dw := make([]float32, len(x)), make([]float32, len(weight))
	toX, toW := put(g, dx), put(g, dw)
	try.Ok(kernel.Conv2dGradInput(dt, w, ptr(dx), ptr(y), ptr(weight)))
	g.d.ConvTranspose2d(dt, w, toX, out, filters, Place{})
	compareWith(g, toX, dx, "convolution's gradient of its input")
	try.Ok(kernel.Conv2dGradWeight(dt, w, ptr(dw), ptr(bias), ptr(y), ptr(x)))
	g.d.Conv2dGradWeight(dt, w, toW, beta, out, in)
	compareWith(g, toW, dw, "convolution's gradient of its weight")
	compareWith(g, beta, bias, "convolution's gradient of its bias")
	pool := kernel.Window{Batch: 3, Channels: 30, Height: 6, Width: 7, KernelH: 2, KernelW: 3, StrideH: 2, StrideW: 2, PadW: 1}
	h, v = pool.Out()
	most, at := make([]float32, 3*30*h*v), make([]int32, 3*30*h*v)
	toMost, toAt := put(g, most), put(g, at)
	kernel.MaxPool2d(dt, pool, ptr(most), at, ptr(x))
	g.d.MaxPool2d(dt, pool, toMost, toAt, in)
	compareWith(g, toMost, most, "pooling")
	compareWith(g, toAt, at, "pooling's places")
}

// lines has the variance of rows and of columns, and a group norm.
func (g *golden) lines() {
	const dt, rows, n = dtype.Float32, 6, 4500
	x, mean, variance := g.tame(rows*n), make([]float32, n), make([]float32, n)
	in, m, v := put(g, x), put(g, mean), put(g, variance)
	for _, l := range []kernel.Lines{{Outer: rows, N: 1, Side: 1, Run: n}, {Outer: 1, N: rows, Side: n, Run: 1}} {
		kernel.Moments(dt, l, 1, ptr(mean), nil, ptr(variance), ptr(x))
		g.d.Moments(dt, l, 1, m, Place{}, v, in)
		compareWith(g, m, mean[:l.Outer*l.Side], "mean")
		compareWith(g, v, variance[:l.Outer*l.Side], "variance")
	}
	groups, y := kernel.Groups{Rows: rows, Groups: 2, Each: 3, Run: n / 3}, make([]float32, rows*n)
	out := put(g, y)
	groups.Norm(dt, 1e-5, ptr(y), ptr(mean), ptr(variance), ptr(x), nil, nil)
	g.d.GroupNorm(groups, dt, 1e-5, out, m, v, in, Place{}, Place{})
	compareWith(g, out, y, "group norm")
}

// places has additions at indexed places, a running sum, a sum of integers and the position of a maximum.
func (g *golden) places() {
	const dt, from, to, inner = dtype.Float32, 40, 7, 3
	x, y, index := g.tame(from*inner), make([]float32, from*inner), make([]int64, from*inner)
	for i := range index {
		index[i] = g.rng.Int64N(to)
	}
	in, out, at := put(g, x), put(g, y), put(g, index)
	kernel.ScatterAdd(dt, 1, from, to, inner, ptr(y), ptr(x), index)
	g.d.ScatterAdd(dt, 1, from, to, inner, out, in, at)
	compareWith(g, out, y[:to*inner], "scatter_add")
	kernel.CumSum(dt, 1, from, inner, ptr(y), ptr(x))
	g.d.Cumulate(false, dt, 1, from, inner, out, in)
	compareWith(g, out, y, "cumsum")
	whole := make([]int64, inner)
	sums := put(g, whole)
	kernel.Reduce(kernel.Sum, dtype.Int64, 1, from, inner, ptr(whole), ptr(index))
	g.d.Reduce(kernel.Sum, dtype.Int64, 1, from, inner, sums, at)
	compareWith(g, sums, whole, "sum of integers")
	kernel.ArgReduce(kernel.MaxOver, dt, 1, from, inner, whole, ptr(x))
	g.d.ArgReduce(kernel.MaxOver, dt, 1, from, inner, sums, in)
	compareWith(g, sums, whole, "argmax")
}

// updates has a step of Adam, and random numbers.
func (g *golden) updates() {
	const dt, n = dtype.Float32, 300
	p, grad, m, v := g.tame(n), g.tame(n), g.tame(n), make([]float32, n)
	places := [4]Place{put(g, p), put(g, grad), put(g, m), put(g, v)}
	a := kernel.Adam{LR: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1, Decoupled: true, Count: 3}
	a.Step(dt, n, ptr(p), ptr(grad), ptr(m), ptr(v))
	g.d.Adam(a, dt, n, places[0], places[1], places[2], places[3])
	compareWith(g, places[0], p, "adam")
	s := kernel.Stream{Seed: 1 << 40, Stream: 7, At: 5}
	s.Dropout(dt, n, ptr(p), ptr(grad), 0.7)
	g.d.Dropout(s, dt, n, places[0], places[1], 0.7)
	compareWith(g, places[0], p, "dropout")
	s.Normal(dt, n, ptr(p))
	g.d.Draw(s, true, dt, n, places[0])
	compareWith(g, places[0], p, "normal")
}

// Choose opens the device that --device names, "opencl" or "opencl:N" or "auto", for the rank with this number on its
// machine; nil: the processor. Without a number the ranks take the GPUs in turn; where there is none, "auto" is the processor, and
// "opencl" any device.
func Choose(name string, localRank int) (*Device, error) {
	if name == "" || name == "cpu" {
		return nil, nil
	}
	found, err := List()
	if name == "auto" && err != nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		if name == "auto" {
			return nil, nil
		}
		return nil, fmt.Errorf("OpenCL has no device here: %s", install)
	}
	var gpus []Found
	for _, f := range found {
		if f.Device == name {
			return Open(f)
		}
		if f.GPU {
			gpus = append(gpus, f)
		}
	}
	switch {
	case len(gpus) > 0 && (name == "auto" || name == "opencl"):
		found = gpus
	case name == "auto":
		return nil, nil
	case name != "opencl":
		return nil, fmt.Errorf("there is no device %s: drun devices lists those that there are", name)
	}
	return Open(found[localRank%len(found)])
}

// CheckName returns an error unless --device may have this value.
func CheckName(name string) error {
	var n uint
	switch name {
	case "", "cpu", "auto", "opencl":
		return nil
	}
	if got, _ := fmt.Sscanf(name, "opencl:%d", &n); got == 1 && name == fmt.Sprintf("opencl:%d", n) {
		return nil
	}
	return fmt.Errorf("the device is cpu, opencl, opencl:N or auto, not %q", name)
}
