package kernel_test

import (
	"math"
	"testing"

	"drun/kernel"
	"drun/kernel/dtype"
)

var (
	inf, nan  = math.Inf(1), math.NaN()
	minusZero = math.Copysign(0, -1)
)

// specials are the arguments where functions go wrong.
func specials() []float64 {
	s := []float64{0, minusZero, 1, -1, 0.5, -0.5, 2, -2, inf, -inf, nan, 1e-45, -1e-45, 1e-40,
		1e-30, -1e-30, 88, 89, -88, -104, 700, -745, 710, 1e30, -1e30, math.MaxFloat32, math.Pi, 0.57, 0.927734375, 1.25, 6}
	return s
}

// ulps is the distance of got from the exact value in units of got's last place at that value.
func ulps(got, want float64, bits int, low int) float64 {
	if math.IsNaN(want) || math.IsInf(want, 0) || got == want {
		if got == want || math.IsNaN(got) && math.IsNaN(want) {
			return 0
		}
		return math.Inf(1)
	}
	_, e := math.Frexp(want)
	return math.Abs(got-want) / math.Ldexp(1, max(e-bits, low))
}

// What functions are at zeros, infinities, NaN and the ends of their domains, signs of zeros included.
func TestSpecialValues(t *testing.T) {
	for op, cases := range map[kernel.UnaryOp][]float64{ // argument and value in turn
		kernel.Exp:        {0, 1, minusZero, 1, inf, inf, -inf, 0, 800, inf, -800, 0},
		kernel.Expm1:      {0, 0, minusZero, minusZero, inf, inf, -inf, -1, -800, -1},
		kernel.Log:        {1, 0, 0, -inf, minusZero, -inf, inf, inf, -1, nan, -inf, nan},
		kernel.Log1p:      {0, 0, minusZero, minusZero, -1, -inf, inf, inf, -2, nan, -inf, nan},
		kernel.Sqrt:       {0, 0, minusZero, minusZero, inf, inf, -1, nan, -inf, nan},
		kernel.Reciprocal: {0, inf, minusZero, -inf, inf, 0, -inf, minusZero},
		kernel.Tanh:       {0, 0, minusZero, minusZero, inf, 1, -inf, -1},
		kernel.Erf:        {0, 0, minusZero, minusZero, inf, 1, -inf, -1},
		kernel.Sigmoid:    {0, 0.5, inf, 1, -inf, 0},
		kernel.Silu:       {0, 0, inf, inf, -inf, 0},
		kernel.Gelu:       {0, 0, inf, inf, -inf, 0},
		kernel.Relu:       {0, 0, -1, 0, inf, inf, -inf, 0},
		kernel.Sin:        {0, 0, minusZero, minusZero, inf, nan, -inf, nan},
		kernel.Cos:        {0, 1, minusZero, 1, inf, nan, -inf, nan},
		kernel.Tan:        {0, 0, minusZero, minusZero, inf, nan, -inf, nan},
		kernel.Asin:       {0, 0, minusZero, minusZero, 2, nan, -inf, nan},
		kernel.Acos:       {1, 0, 1.5, nan, -1.5, nan, inf, nan},
		kernel.Atan:       {0, 0, minusZero, minusZero},
		kernel.Trunc:      {-0.5, minusZero, 0.5, 0, -1.5, -1, 2.5, 2, minusZero, minusZero, inf, inf, -inf, -inf},
		kernel.Abs:        {minusZero, 0, -inf, inf},
		kernel.Neg:        {0, minusZero, inf, -inf},
		kernel.Square:     {-inf, inf, minusZero, 0},
		kernel.Sign:       {0, 0, inf, 1, -inf, -1},
		kernel.Floor:      {-0.5, -1, minusZero, minusZero, inf, inf},
		kernel.Ceil:       {-0.5, minusZero, 0.5, 1, -inf, -inf},
		kernel.Round:      {0.5, 0, -0.5, minusZero, 1.5, 2, 2.5, 2, inf, inf},
	} {
		cases = append(cases, nan, nan)
		var in, want []float64
		for i := 0; i < len(cases); i += 2 {
			in, want = append(in, cases[i]), append(want, cases[i+1])
		}
		n := []int{len(in)}
		x, y := make([]float32, len(in)), make([]float32, len(in))
		kernel.Cast(dtype.Float32, dtype.Float64, n, row(x), row(in))
		got := written(t, 2*len(in), func(out []float64) {
			kernel.Unary(op, dtype.Float64, n, row(out), row(in))
			kernel.Unary(op, dtype.Float32, n, row(y), row(x))
			kernel.Cast(dtype.Float64, dtype.Float32, n, row(out[len(in):]), row(y))
		})
		for i, g := range got {
			arg, w := in[i%len(in)], want[i%len(in)]
			bits := math.Float64bits(w)
			if math.IsNaN(w) {
				bits = 0x7ff8 << 48 // the NaN that every kernel stores
			}
			if math.Float64bits(g) != bits {
				t.Errorf("op %d of %v (%d) is %v (%x), want %v", op, arg, i/len(in), g, math.Float64bits(g), w)
			}
		}
	}
}

// Numbers below the smallest normal one are neither flushed nor taken for zero.
func TestDenormals(t *testing.T) {
	const small32, small64 = 0x1p-140, 0x1p-1060
	got := everywhere(t, func() []float64 {
		a, b := []float32{small32, 0x1p-126, small32}, []float32{small32, 0.25, 0x1p20}
		c, d := []float64{small64, 0x1p-1022, small64}, []float64{small64, 0.25, 0x1p20}
		x, out := make([]float32, 3), make([]float64, 12)
		kernel.Binary(kernel.Add, dtype.Float32, []int{3}, row(x), row(a), row(b))
		kernel.Cast(dtype.Float64, dtype.Float32, []int{3}, row(out), row(x))
		kernel.Binary(kernel.Mul, dtype.Float32, []int{3}, row(x), row(a), row(b))
		kernel.Cast(dtype.Float64, dtype.Float32, []int{3}, row(out[3:]), row(x))
		kernel.Binary(kernel.Add, dtype.Float64, []int{3}, row(out[6:]), row(c), row(d))
		kernel.Binary(kernel.Mul, dtype.Float64, []int{3}, row(out[9:]), row(c), row(d))
		return out
	})
	near(t, "denormal sums", got[:3], []float64{2 * small32, 0.25, 0x1p20}, 0)
	near(t, "denormal sums", got[6:9], []float64{2 * small64, 0.25, 0x1p20}, 0)
	for i, want := range map[int]float64{0: 2 * small32, 3: 0, 4: 0x1p-128, 5: 0x1p-120, 6: 2 * small64, 9: 0, 10: 0x1p-1024, 11: 0x1p-1040} {
		if got[i] != want {
			t.Errorf("result %d is %v, want %v", i, got[i], want)
		}
	}
}

// Powers that are numbers of the type come out exact, and C's special cases hold.
func TestPowers(t *testing.T) {
	var as, bs, want []float64
	add := func(a, b, p float64) { as, bs, want = append(as, a), append(bs, b), append(want, p) }
	for base := 2.0; base <= 12; base++ {
		p := 1.0
		for e := 0.0; p < 1<<53; e++ {
			add(base, e, p)
			add(-base, e, math.Copysign(p, math.Pow(-1, e)))
			p *= base
		}
	}
	for e := -1074.0; e < 1024; e++ {
		add(2, e, math.Ldexp(1, int(e)))
	}
	for i := 1.0; i < 200; i++ {
		add(i*i, 0.5, i)
		add(i*i*i*i, 0.25, i)
		add(1.1*i, 1, 1.1*i)
	}
	for _, c := range [][3]float64{{nan, 0, 1}, {1, nan, 1}, {nan, 1, nan}, {2, nan, nan}, {0, -1, inf}, {minusZero, -1, -inf},
		{minusZero, -2, inf}, {minusZero, 3, minusZero}, {minusZero, 2.5, 0}, {-1, inf, 1}, {-1, -inf, 1}, {0.5, inf, 0}, {0.5, -inf, inf},
		{2, inf, inf}, {2, -inf, 0}, {inf, -1, 0}, {inf, 2, inf}, {-inf, 3, -inf}, {-inf, -3, minusZero}, {-inf, 2, inf}, {-inf, 0.5, inf},
		{-8, 1.0 / 3, nan}, {10, 400, inf}, {10, -400, 0}, {-10, 401, -inf}, {-2, 0x1p60, inf}, {0.5, 1e300, 0}} {
		add(c[0], c[1], c[2])
	}
	got := written(t, len(as), func(out []float64) {
		kernel.Binary(kernel.Pow, dtype.Float64, []int{len(as)}, row(out), row(as), row(bs))
	})
	for i, g := range got {
		if g != want[i] && !(g != g && want[i] != want[i]) || g == 0 && math.Signbit(g) != math.Signbit(want[i]) {
			t.Errorf("%v to the power of %v is %v, want %v", as[i], bs[i], g, want[i])
		}
	}
}
