package kernel

import (
	"math"
	"math/big"
	"testing"
)

// specials are the arguments where functions go wrong.
func specials() []float64 {
	s := []float64{0, math.Copysign(0, -1), 1, -1, 0.5, -0.5, 2, -2, math.Inf(1), math.Inf(-1), math.NaN(), 1e-45, -1e-45, 1e-40,
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

// pi is 2^1500 times pi, by Machin's formula.
var pi = func() *big.Int {
	arctan := func(n int64) *big.Int {
		term := new(big.Int).Quo(new(big.Int).Lsh(big.NewInt(1), 1500), big.NewInt(n))
		sum := new(big.Int).Set(term)
		for k := int64(3); term.Sign() != 0; k += 2 {
			term.Quo(term, big.NewInt(-n*n))
			sum.Add(sum, new(big.Int).Quo(term, big.NewInt(k)))
		}
		return sum
	}
	p := new(big.Int).Mul(arctan(5), big.NewInt(4))
	return p.Sub(p, arctan(239)).Lsh(p, 2)
}()

// reduced returns x modulo pi/2, nearest to zero, and the quadrant: math.Sin loses digits near multiples.
func reduced(x float64) (r float64, quadrant int64) {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) || math.Abs(x) < 0.7 {
		return x, 0
	}
	scaled, _ := new(big.Float).SetMantExp(big.NewFloat(x), 1501).Int(nil) // twice the scale: multiples of pi
	q, m := new(big.Int).DivMod(scaled, pi, new(big.Int))
	if twice := new(big.Int).Lsh(m, 1); twice.Cmp(pi) > 0 {
		m.Sub(m, pi)
		q.Add(q, big.NewInt(1))
	}
	r, _ = new(big.Float).SetMantExp(new(big.Float).SetInt(m), -1501).Float64()
	return r, new(big.Int).And(q, big.NewInt(3)).Int64()
}

func sin(x float64) float64 {
	r, quadrant := reduced(x)
	return [4]float64{math.Sin(r), math.Cos(r), -math.Sin(r), -math.Cos(r)}[quadrant]
}

func cos(x float64) float64 {
	r, quadrant := reduced(x)
	return [4]float64{math.Cos(r), -math.Sin(r), -math.Cos(r), math.Sin(r)}[quadrant]
}

// functions with the bounds that doc.go states, in ULP of float32.
var functions32 = []struct {
	name  string
	op    UnaryOp
	exact func(float64) float64
	bound float64
	scale float64
}{
	{"exp", Exp, math.Exp, 1.1, 20}, {"expm1", Expm1, math.Expm1, 2, 5}, {"log", Log, math.Log, 1, 5},
	{"log1p", Log1p, math.Log1p, 2.5, 5}, {"tanh", Tanh, math.Tanh, 2, 2}, {"erf", Erf, math.Erf, 1.2, 2},
	{"sqrt", Sqrt, math.Sqrt, 0.5, 5}, {"sigmoid", Sigmoid, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }, 3, 10},
	{"sin", Sin, sin, 1.5, 20}, {"cos", Cos, cos, 1.5, 20},
}

func TestFunctions32(t *testing.T) {
	for _, f := range functions32 {
		t.Run(f.name, func(t *testing.T) {
			in := real32(7, 1<<18)
			for i := range in {
				in[i] *= float32(f.scale)
			}
			for _, s := range specials() {
				in = append(in, float32(s))
			}
			for i := range 4096 { // all magnitudes
				in = append(in, math.Float32frombits(uint32(i)<<20|uint32(i)))
			}
			got := everywhere(t, func() []float32 {
				out := make([]float32, len(in))
				Unary(f.op, Float32, []int{len(in)}, row(out), row(in))
				return out
			})
			worst, at := 0.0, 0
			for i := range in {
				want := f.exact(float64(in[i]))
				if math.Abs(want) > math.MaxFloat32 {
					want = float64(float32(want))
				}
				if u := ulps(float64(got[i]), want, 24, -149); u > worst {
					worst, at = u, i
				}
			}
			t.Logf("%.2f ULP at %v", worst, in[at])
			if worst > f.bound {
				t.Errorf("%.2f ULP at %v (got %v, want %v): above %v", worst, in[at], got[at], f.exact(float64(in[at])), f.bound)
			}
		})
	}
}

var functions64 = []struct {
	name  string
	op    UnaryOp
	exact func(float64) float64
	bound float64
	scale float64
}{
	{"exp", Exp, math.Exp, 2, 20}, {"expm1", Expm1, math.Expm1, 3, 5}, {"log", Log, math.Log, 2, 5},
	{"log1p", Log1p, math.Log1p, 3, 5}, {"tanh", Tanh, math.Tanh, 4, 2}, {"erf", Erf, math.Erf, 2, 2},
	{"sqrt", Sqrt, math.Sqrt, 0.5, 5}, {"sin", Sin, sin, 2, 20}, {"cos", Cos, cos, 2, 20},
}

func TestFunctions64(t *testing.T) {
	for _, f := range functions64 {
		t.Run(f.name, func(t *testing.T) {
			in := real64(8, 1<<16)
			for i := range in {
				in[i] *= f.scale
			}
			for _, s := range specials() {
				in = append(in, s)
			}
			for i := range 4096 { // all magnitudes
				in = append(in, math.Float64frombits(uint64(i)<<52|uint64(i)<<20))
			}
			got := everywhere(t, func() []float64 {
				out := make([]float64, len(in))
				Unary(f.op, Float64, []int{len(in)}, row(out), row(in))
				return out
			})
			worst, at := 0.0, 0
			for i := range in {
				if u := ulps(got[i], f.exact(in[i]), 53, -1074); u > worst {
					worst, at = u, i
				}
			}
			t.Logf("%.2f ULP at %v", worst, in[at])
			if worst > f.bound {
				t.Errorf("%.2f ULP at %v (got %v, want %v): above %v", worst, in[at], got[at], f.exact(in[at]), f.bound)
			}
		})
	}
}
