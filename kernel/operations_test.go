package kernel_test

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"drun/kernel"
	"drun/kernel/dtype"
)

// floorMod is Python's % on floats.
func floorMod(x, y float64) float64 {
	m := math.Mod(x, y)
	if m != 0 && (m < 0) != (y < 0) {
		m += y
	}
	return m
}

func TestBinaryReal(t *testing.T) {
	pick := func(x, y float64, less bool) float64 {
		if math.IsNaN(x) || math.IsNaN(y) {
			return math.NaN()
		}
		if (x < y) == less {
			return x
		}
		return y
	}
	ops := map[kernel.BinaryOp]func(x, y float64) float64{
		kernel.Add: func(x, y float64) float64 { return x + y }, kernel.Sub: func(x, y float64) float64 { return x - y },
		kernel.Mul: func(x, y float64) float64 { return x * y }, kernel.Div: func(x, y float64) float64 { return x / y },
		kernel.Min: func(x, y float64) float64 { return pick(x, y, true) }, kernel.Max: func(x, y float64) float64 { return pick(x, y, false) },
		kernel.Mod: floorMod, kernel.Pow: math.Pow,
		kernel.FloorDiv: func(x, y float64) float64 {
			if y == 0 || math.IsInf(x, 0) {
				return x / y
			}
			return math.Floor((x-floorMod(x, y))/y + 0.25)
		},
	}
	var as, bs []float64
	values := append(specials()[:14], 3, 7, -3, 0.25, 10, -7.5)
	for _, x := range values {
		for _, y := range values {
			as, bs = append(as, x), append(bs, y)
		}
	}
	n := []int{len(as)}
	a32, b32 := make([]float32, len(as)), make([]float32, len(as))
	kernel.Cast(dtype.Float32, dtype.Float64, n, row(a32), row(as))
	kernel.Cast(dtype.Float32, dtype.Float64, n, row(b32), row(bs))
	for op, exact := range ops {
		got := written(t, len(as), func(out []float64) { kernel.Binary(op, dtype.Float64, n, row(out), row(as), row(bs)) })
		got32 := written(t, len(as), func(out []float32) { kernel.Binary(op, dtype.Float32, n, row(out), row(a32), row(b32)) })
		for i := range as {
			// Infinite divisors: Python and C disagree; only finite ones are compared.
			if (op == kernel.Mod || op == kernel.FloorDiv) && (math.IsInf(bs[i], 0) || math.IsInf(as[i], 0) || math.Abs(as[i]) < 1e-20 && as[i] != 0) {
				continue
			}
			want, want32 := exact(as[i], bs[i]), exact(float64(a32[i]), float64(b32[i]))
			bound := 2.0
			if op == kernel.Pow {
				bound = 20 // math.Pow's own error: TestAccuracy measures ours
			}
			if u := ulps(got[i], want, 53, -1074); u > bound {
				t.Errorf("op %d of %v and %v: %v, want %v", op, as[i], bs[i], got[i], want)
			}
			if u := ulps(float64(got32[i]), float64(float32(want32)), 24, -149); u > 1 {
				t.Errorf("op %d of float32 %v and %v: %v, want %v", op, a32[i], b32[i], got32[i], float32(want32))
			}
		}
	}
}

func TestBinaryInt(t *testing.T) {
	testInts(t, dtype.Int64, []int64{0, 1, -1, 2, 7, -7, math.MaxInt64, math.MinInt64, 1 << 40})
	testInts(t, dtype.Int32, []int32{0, 1, -1, 2, 7, -7, math.MaxInt32, math.MinInt32, 1 << 20})
	testInts(t, dtype.Int8, []int8{0, 1, -1, 2, 7, -7, 127, -128, 100})
	testInts(t, dtype.Uint8, []uint8{0, 1, 2, 7, 100, 200, 255})
}

func testInts[E int64 | int32 | int8 | uint8](t *testing.T, dt dtype.Type, values []E) {
	var as, bs []E
	for _, x := range values {
		for _, y := range values {
			as, bs = append(as, x), append(bs, y)
		}
	}
	n := []int{len(as)}
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(8*dt.Size()))
	// wrap brings an exact result into E.
	wrap := func(x *big.Int) E { return E(new(big.Int).Mod(x, modulus).Uint64()) }
	floor := func(x, y *big.Int) (*big.Int, *big.Int) {
		q, m := new(big.Int).QuoRem(x, y, new(big.Int))
		if m.Sign() != 0 && m.Sign() != y.Sign() {
			q.Sub(q, big.NewInt(1))
			m.Add(m, y)
		}
		return q, m
	}
	for op, exact := range map[kernel.BinaryOp]func(x, y *big.Int) *big.Int{
		kernel.Add: func(x, y *big.Int) *big.Int { return new(big.Int).Add(x, y) },
		kernel.Sub: func(x, y *big.Int) *big.Int { return new(big.Int).Sub(x, y) },
		kernel.Mul: func(x, y *big.Int) *big.Int { return new(big.Int).Mul(x, y) },
		kernel.Div: func(x, y *big.Int) *big.Int { return new(big.Int).Quo(x, y) },
		kernel.FloorDiv: func(x, y *big.Int) *big.Int {
			q, _ := floor(x, y)
			return q
		},
		kernel.Mod: func(x, y *big.Int) *big.Int {
			_, m := floor(x, y)
			return m
		},
		kernel.And: func(x, y *big.Int) *big.Int { return new(big.Int).And(x, y) },
		kernel.Xor: func(x, y *big.Int) *big.Int { return new(big.Int).Xor(x, y) },
	} {
		got := written(t, len(as), func(out []E) { kernel.Binary(op, dt, n, row(out), row(as), row(bs)) })
		for i := range as {
			x, y := big.NewInt(int64(as[i])), big.NewInt(int64(bs[i]))
			want := E(0)
			if y.Sign() != 0 || op == kernel.Add || op == kernel.Sub || op == kernel.Mul || op == kernel.And || op == kernel.Xor {
				want = wrap(exact(x, y))
			}
			if got[i] != want {
				t.Errorf("%v op %d of %v and %v: %v, want %v", dt, op, as[i], bs[i], got[i], want)
			}
		}
	}
}

func TestCompare(t *testing.T) {
	nan := float32(math.NaN())
	a, b := []float32{1, 2, 2, nan, nan, 0}, []float32{2, 1, 2, 1, nan, float32(math.Copysign(0, -1))}
	for op, want := range map[kernel.CompareOp][]uint8{
		kernel.Eq: {0, 0, 1, 0, 0, 1}, kernel.Ne: {1, 1, 0, 1, 1, 0}, kernel.Lt: {1, 0, 0, 0, 0, 0},
		kernel.Le: {1, 0, 1, 0, 0, 1}, kernel.Gt: {0, 1, 0, 0, 0, 0}, kernel.Ge: {0, 1, 1, 0, 0, 1},
	} {
		got := written(t, len(a), func(out []uint8) { kernel.Compare(op, dtype.Float32, []int{len(a)}, row(out), row(a), row(b)) })
		if !slices.Equal(got, want) {
			t.Errorf("op %d: %v, want %v", op, got, want)
		}
	}
}

// Every gradient against the central difference of its own forward, in double.
func TestUnaryGrad(t *testing.T) {
	for _, op := range []kernel.UnaryOp{kernel.Neg, kernel.Abs, kernel.Square, kernel.Sqrt, kernel.Reciprocal, kernel.Exp, kernel.Expm1, kernel.Log, kernel.Log1p, kernel.Tanh, kernel.Sigmoid, kernel.Erf, kernel.Sin, kernel.Cos, kernel.Tan, kernel.Asin, kernel.Acos, kernel.Atan, kernel.Relu} {
		x := real64(5, 100)
		for i := range x {
			if op == kernel.Asin || op == kernel.Acos {
				x[i] = math.Tanh(x[i])
			}
			if op == kernel.Sqrt || op == kernel.Log || op == kernel.Log1p || op == kernel.Reciprocal {
				x[i] = math.Abs(x[i]) + 0.1
			}
		}
		forward := func(shift float64) []float64 {
			in, out := make([]float64, len(x)), make([]float64, len(x))
			for i := range x {
				in[i] = x[i] + shift
			}
			kernel.Unary(op, dtype.Float64, []int{len(x)}, row(out), row(in))
			return out
		}
		up, down, dy, want := forward(1e-6), forward(-1e-6), real64(6, len(x)), make([]float64, len(x))
		for i := range want {
			want[i] = dy[i] * (up[i] - down[i]) / 2e-6
		}
		saved := x
		if op.SavesOutput() {
			saved = forward(0)
		}
		got := written(t, len(x), func(out []float64) {
			kernel.UnaryGrad(op, dtype.Float64, []int{len(x)}, row(out), row(dy), row(saved))
		})
		near(t, "gradient", got, want, 1e-7)
	}
}

// Every slope against the central difference of its own values, in double, and the value with it against the one without.
func TestActivationSlopes(t *testing.T) {
	for _, f := range []kernel.Activation{kernel.LeakyRelu, kernel.Elu, kernel.Softplus, kernel.Mish, kernel.GeluTanh, kernel.Huber, kernel.GeluSlope, kernel.SiluSlope} {
		x := real64(5, 100)
		values := func(shift float64) []float64 {
			in := make([]float64, len(x))
			for i := range x {
				in[i] = x[i] + shift
			}
			return written(t, len(x), func(out []float64) { kernel.Activate(dtype.Float64, f, len(x), 0.7, 20, ptr(out), nil, ptr(in)) })
		}
		up, down, want := values(1e-6), values(-1e-6), make([]float64, len(x))
		for i := range want {
			want[i] = (up[i] - down[i]) / 2e-6
		}
		value := make([]float64, len(x))
		slope := written(t, len(x), func(out []float64) {
			kernel.Activate(dtype.Float64, f, len(x), 0.7, 20, ptr(value), ptr(out), ptr(x))
		})
		near(t, "slope", slope, want, 1e-7)
		if !slices.Equal(value, values(0)) {
			t.Errorf("activation %d: another value with its slope than without", f)
		}
		narrow := make([]float32, len(x))
		kernel.Cast(dtype.Float32, dtype.Float64, []int{len(x)}, row(narrow), row(x))
		single := written(t, len(x), func(out []float32) {
			kernel.Activate(dtype.Float32, f, len(x), 0.7, 20, ptr(make([]float32, len(x))), ptr(out), ptr(narrow))
		})
		for i, v := range single {
			if d := math.Abs(float64(v) - slope[i]); d > 1e-6*(1+math.Abs(slope[i])) {
				t.Errorf("activation %d: a slope of %v at %v in float32, %v in float64", f, v, x[i], slope[i])
			}
		}
	}
	in := real32(7, 1000)
	for i := range in {
		in[i] *= 8
	}
	for f, op := range map[kernel.Activation]kernel.UnaryOp{kernel.GeluSlope: kernel.Gelu, kernel.SiluSlope: kernel.Silu} {
		for _, x := range [][]float32{in, {float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 0, -1e38}} {
			want := written(t, len(x), func(out []float32) { kernel.Unary(op, dtype.Float32, []int{len(x)}, row(out), row(x)) })
			got := written(t, len(x), func(out []float32) {
				kernel.Activate(dtype.Float32, f, len(x), 0, 0, ptr(out), ptr(make([]float32, len(x))), ptr(x))
			})
			if bytesOf(got) != bytesOf(want) {
				t.Errorf("op %d has other bits with its slope than alone", op)
			}
		}
	}
}

// An activation of bfloat16 is that of float32 on the same numbers, rounded once.
func TestActivationsOfHalf(t *testing.T) {
	const n = 40_001 // more than a block, more than a thread's share
	x, wide := make([]uint16, n), make([]float32, n)
	for i := range x {
		x[i] = uint16(i * 7)
	}
	kernel.Cast(dtype.Float32, dtype.BFloat16, []int{n}, row(wide), row(x))
	for _, f := range []kernel.Activation{kernel.LeakyRelu, kernel.Elu, kernel.Softplus, kernel.Mish, kernel.GeluTanh, kernel.Huber, kernel.GeluSlope, kernel.SiluSlope} {
		values, slopes, want := make([]float32, n), make([]float32, n), make([]uint16, n)
		kernel.Activate(dtype.Float32, f, n, 0.7, 20, ptr(values), ptr(slopes), ptr(wide))
		kernel.Cast(dtype.BFloat16, dtype.Float32, []int{n}, row(want), row(values))
		got := make([]uint16, n)
		slope := written(t, n, func(out []float32) { kernel.Activate(dtype.BFloat16, f, n, 0.7, 20, ptr(got), ptr(out), ptr(x)) })
		alone := written(t, n, func(out []uint16) { kernel.Activate(dtype.BFloat16, f, n, 0.7, 20, ptr(out), nil, ptr(x)) })
		if !slices.Equal(got, want) || !slices.Equal(alone, want) || bytesOf(slope) != bytesOf(slopes) {
			t.Errorf("activation %d differs from float32's", f)
		}
	}
}

// What a NaN's bits are must not depend on where it came from.
func TestCanonicalNaN(t *testing.T) {
	odd := math.Float32frombits(0xffabcdef)
	x, y := []float32{odd, 1, odd, 0, float32(math.Inf(1))}, []float32{1, odd, odd, 0, float32(math.Inf(1))}
	for _, op := range []kernel.BinaryOp{kernel.Add, kernel.Sub, kernel.Div, kernel.Min, kernel.Pow, kernel.Mod} {
		out := written(t, len(x), func(out []float32) { kernel.Binary(op, dtype.Float32, []int{len(x)}, row(out), row(x), row(y)) })
		for i, v := range out {
			if v != v && math.Float32bits(v) != 0x7fc00000 {
				t.Errorf("op %d, element %d: NaN %08x", op, i, math.Float32bits(v))
			}
		}
	}
}

// A NaN that a bias or a scattered row brings into a sum has the same bits as any other.
func TestCanonicalNaNInSums(t *testing.T) {
	odd, inf := math.Float32frombits(0xffabcdef), float32(math.Inf(1))
	check := func(what string, out []float32) {
		t.Helper()
		for i, v := range out {
			if wanted := i%4 >= 2; (v != v) != wanted || wanted && math.Float32bits(v) != 0x7fc00000 {
				t.Fatalf("%s: element %d is %v (%08x)", what, i, v, math.Float32bits(v))
			}
		}
	}
	const n, k = 64, 32
	added, across, down := make([]float32, n), make([]float32, n*k), make([]float32, n*k)
	for i := range n {
		added[i] = []float32{1, inf, odd, -inf}[i%4] // to inf: two of four make a NaN
		across[i*k], down[i] = inf, inf
	}
	for _, m := range []int{1, 3, 16, 32, 48, 64, 100} {
		a := slices.Repeat([]float32{1}, m*k)
		for _, b := range []kernel.Matrix{{Data: ptr(across), Stride: k, Trans: true}, {Data: ptr(down), Stride: n}} {
			check(fmt.Sprintf("a product of %d rows, transposed: %v", m, b.Trans), written(t, m*n, func(out []float32) {
				if err := kernel.Gemm(dtype.Float32, 1, m, n, k, kernel.Matrix{Data: ptr(out), Stride: n}, kernel.Matrix{Data: ptr(a), Stride: k}, b, false, ptr(added)); err != nil {
					t.Error(err)
				}
			}))
		}
	}
	for _, inner := range []int{1, n} {
		check(fmt.Sprintf("rows of %d scattered", inner), written(t, n, func(out []float32) {
			for i := range out {
				out[i] = inf
			}
			index := make([]int64, n)
			for i := range index {
				index[i] = int64(i / inner)
			}
			kernel.ScatterAdd(dtype.Float32, 1, n/inner, n/inner, inner, ptr(out), ptr(added), index)
			if inner == n {
				out[3] = inf // once more, as a whole row
				kernel.AddRows(dtype.Float32, n, ptr(out), ptr(added), []int64{0})
			}
		}))
	}
}
