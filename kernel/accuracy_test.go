package kernel_test

import (
	cmd "flag"
	"fmt"
	"math"
	"math/big"
	"os"
	"strings"
	"testing"

	"drun/kernel"
	"drun/kernel/dtype"
)

var update = cmd.Bool("update", false, "write the table of docs/numerics.md anew")

// function is a row of the table. Arguments are normal numbers times spread, and numbers of all magnitudes.
type function struct {
	name    string
	run     func(dt dtype.Type, n int, out, in kernel.View)
	exact   func(exact) exact
	bounds  [2]float64 // in ULP of float32 and of float64
	spread  float64
	domain  func(x float64) bool // nil: all
	ofInput bool                 // in ULP of the argument rather than of the result
}

// measured are the functions of docs/numerics.md, with the bounds that they must keep.
var measured = []function{
	{"exp", unary(kernel.Exp), exactExp, [2]float64{1.1, 1.5}, 20, nil, false},
	{"expm1", unary(kernel.Expm1), exactExpm1, [2]float64{1.5, 2.5}, 5, nil, false},
	{"log", unary(kernel.Log), exactLog, [2]float64{1, 1.5}, 5, positive, false},
	{"log1p", unary(kernel.Log1p), exactLog1p, [2]float64{2, 2.5}, 5, func(x float64) bool { return x > -1 }, false},
	{"tanh", unary(kernel.Tanh), exactTanh, [2]float64{2, 3.5}, 2, nil, false},
	{"erf", unary(kernel.Erf), exactErf, [2]float64{1.1, 1.5}, 2, nil, false},
	{"sigmoid", unary(kernel.Sigmoid), exactSigmoid, [2]float64{3, 3}, 10, nil, false},
	{"silu, x > -87", unary(kernel.Silu), exactSilu, [2]float64{3.5, 3.5}, 10, func(x float64) bool { return x > -87 }, false},
	{"gelu, x ≥ -1", unary(kernel.Gelu), exactGelu, [2]float64{4, 4}, 2, func(x float64) bool { return x >= -1 }, false},
	{"gelu, x < -1, in ULP of x", unary(kernel.Gelu), exactGelu, [2]float64{0.5, 0.5}, 4, func(x float64) bool { return x < -1 }, true},
	{"sin", unary(kernel.Sin), func(x exact) exact { return exactSine(x, 0) }, [2]float64{1.5, 2}, 20, nil, false},
	{"cos", unary(kernel.Cos), func(x exact) exact { return exactSine(x, 1) }, [2]float64{1.5, 2}, 20, nil, false},
	{"tan", unary(kernel.Tan), exactTan, [2]float64{0.51, 4}, 20, nil, false},
	{"asin", unary(kernel.Asin), exactAsin, [2]float64{0.51, 3}, 0.4, within1, false},
	{"acos", unary(kernel.Acos), exactAcos, [2]float64{0.51, 3}, 0.4, within1, false},
	{"atan", unary(kernel.Atan), exactAtan, [2]float64{0.51, 1.5}, 3, nil, false},
	{"atan2(x, 2.5)", angle(2.5), func(x exact) exact { return exactAtan(over(x, number64(2.5))) }, [2]float64{0.51, 2}, 5, nil, false},
	{"atan2(x, -2.5)", angle(-2.5), func(x exact) exact {
		y := exactAtan(over(x, number64(-2.5)))
		if x.Sign() < 0 {
			return minus(y, exactPi)
		}
		return plus(y, exactPi)
	}, [2]float64{0.51, 2}, 5, nil, false},
	{"sqrt", unary(kernel.Sqrt), func(x exact) exact { return fresh().Sqrt(x) }, [2]float64{0.5, 0.5}, 5, positive, false},
	{"reciprocal", unary(kernel.Reciprocal), func(x exact) exact { return over(number64(1), x) }, [2]float64{0.5, 0.5}, 5, nil, false},
	{"x^2.5", raise(2.5), func(x exact) exact { return exactPow(x, number64(2.5)) }, [2]float64{0.51, 0.75}, 5, positive, false},
	{"x^-7", raise(-7), func(x exact) exact { return exactPow(x, number64(-7)) }, [2]float64{0.51, 0.75}, 5, positive, false},
	{"1.75^x", base(1.75), func(x exact) exact { return exactPow(number64(1.75), x) }, [2]float64{0.51, 0.75}, 100, nil, false},
}

func within1(x float64) bool { return math.Abs(x) <= 1 }

func positive(x float64) bool { return x > 0 }

func unary(op kernel.UnaryOp) func(dtype.Type, int, kernel.View, kernel.View) {
	return func(dt dtype.Type, n int, out, in kernel.View) { kernel.Unary(op, dt, []int{n}, out, in) }
}

// constant is one number seen as many.
func constant(dt dtype.Type, x float64) kernel.View {
	number := make([]float64, 1)
	kernel.Cast(dt, dtype.Float64, nil, row(number), row([]float64{x}))
	return kernel.View{ptr(number), []int{0}}
}

func raise(y float64) func(dtype.Type, int, kernel.View, kernel.View) {
	return func(dt dtype.Type, n int, out, in kernel.View) {
		kernel.Binary(kernel.Pow, dt, []int{n}, out, in, constant(dt, y))
	}
}

func angle(x float64) func(dtype.Type, int, kernel.View, kernel.View) {
	return func(dt dtype.Type, n int, out, in kernel.View) {
		kernel.Binary(kernel.Atan2, dt, []int{n}, out, in, constant(dt, x))
	}
}

func base(x float64) func(dtype.Type, int, kernel.View, kernel.View) {
	return func(dt dtype.Type, n int, out, in kernel.View) {
		kernel.Binary(kernel.Pow, dt, []int{n}, out, constant(dt, x), in)
	}
}

// arguments are the same on every machine: normal numbers from this package's generator, and bit patterns.
func arguments(spread float64, dt dtype.Type) []float64 {
	x := make([]float64, 1500)
	kernel.Stream{Seed: 11}.Normal(dtype.Float64, len(x), ptr(x))
	for i := range x {
		x[i] *= spread
		if dt == dtype.Float32 {
			x[i] = float64(float32(x[i]))
		}
	}
	for _, v := range specials() {
		x = append(x, float64(float32(v)))
	}
	for i := range 1000 {
		bits := make([]int64, 1)
		kernel.Stream{Seed: 12, At: uint64(i)}.Bounded(bits, 0, 0)
		if dt == dtype.Float32 {
			x = append(x, float64(math.Float32frombits(uint32(bits[0]))))
		} else {
			x = append(x, math.Float64frombits(uint64(bits[0])))
		}
	}
	return x
}

// errorOf is how far got lies from the exact value, in units of the last of its bits digits, which near zero
// is 2^low.
func errorOf(got float64, want, unit exact, bits, low int) float64 {
	if math.IsNaN(got) {
		return math.Inf(1)
	}
	ulp := low
	if unit.Sign() != 0 {
		ulp = max(unit.MantExp(nil)-bits, low)
	}
	if math.IsInf(got, 0) { // right where rounding gives it
		most := fresh().SetMantExp(number64(1), map[int]int{24: 128, 53: 1024}[bits])
		if want.Sign() != int(math.Copysign(1, got)) || fresh().Abs(want).Cmp(minus(most, fresh().SetMantExp(number64(1), ulp))) < 0 {
			return math.Inf(1)
		}
		return 0
	}
	d, _ := fresh().SetMantExp(fresh().Abs(minus(number64(got), want)), -ulp).Float64()
	return d
}

// worst is the largest error in float32 or float64, and where it is.
func (m *function) worst(t *testing.T, which int) (ulp, at float64) {
	dt, bits, low := []dtype.Type{dtype.Float32, dtype.Float64}[which], []int{24, 53}[which], []int{-149, -1074}[which]
	var in []float64
	for _, x := range arguments(m.spread, dt) {
		if x == x && !math.IsInf(x, 0) && x != 0 && (m.domain == nil || m.domain(x)) {
			in = append(in, x)
		}
	}
	n := len(in)
	got := written(t, n, func(out []float64) {
		if dt == dtype.Float64 {
			m.run(dt, n, row(out), row(in))
			return
		}
		x, y := make([]float32, n), make([]float32, n)
		kernel.Cast(dtype.Float32, dtype.Float64, []int{n}, row(x), row(in))
		m.run(dt, n, row(y), row(x))
		kernel.Cast(dtype.Float64, dtype.Float32, []int{n}, row(out), row(y))
	})
	for i, x := range in {
		want := m.exact(number64(x))
		unit := want
		if m.ofInput {
			unit = number64(x)
		}
		if e := errorOf(got[i], want, unit, bits, low); e > ulp {
			ulp, at = e, x
		}
	}
	return ulp, at
}

// The largest errors, and the table of docs/numerics.md that states them.
func TestAccuracy(t *testing.T) {
	var table strings.Builder
	table.WriteString("| function | float32: worst | bound | float64: worst | bound |\n|---|---|---|---|---|\n")
	for _, m := range measured {
		fmt.Fprintf(&table, "| %s |", m.name)
		for which, bound := range m.bounds {
			ulp, at := m.worst(t, which)
			if ulp > bound {
				t.Errorf("%s in %v: %.2f ULP at %v (%x), above %v", m.name, []dtype.Type{dtype.Float32, dtype.Float64}[which], ulp, at, at, bound)
			}
			fmt.Fprintf(&table, " %.2f | %v |", ulp, bound)
		}
		table.WriteString("\n")
	}
	const path, begin, end = "../docs/numerics.md", "<!-- accuracy -->\n", "<!-- /accuracy -->"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	stated, tail, ok2 := strings.Cut(rest, end)
	switch {
	case !ok || !ok2:
		t.Fatalf("%s has no table between %q and %q", path, begin, end)
	case *update:
		if err := os.WriteFile(path, []byte(head+begin+table.String()+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	case stated != table.String():
		t.Errorf("%s states other errors than were measured; go test ./kernel -run TestAccuracy -update writes:\n%s", path, table.String())
	}
}

// The reference itself, where float64 knows better.
func TestExact(t *testing.T) {
	for _, c := range []struct {
		name string
		got  exact
		want string
	}{
		{"e", exactExp(number64(1)), "2.71828182845904523536028747135266249775724709369995957"},
		{"ln 10", exactLog(number64(10)), "2.30258509299404568401799145468436420760110148862877298"},
		{"tanh 1", exactTanh(number64(1)), "0.761594155955764888119458282604793590412768597257936551"},
		{"erf 0.5", exactErf(number64(0.5)), "0.520499877813046537682746653891964528736451575757963701"},
		{"sin 1", exactSine(number64(1), 0), "0.841470984807896506652502321630298999622563060798371065"},
		{"cos 1e22", exactSine(number64(1e22), 1), "0.5232147853951389454975944"},
		{"2^0.5", exactPow(number64(2), number64(0.5)), "1.41421356237309504880168872420969807856967187537694807"},
		{"atan 3", exactAtan(number64(3)), "1.24904577239825442582991707728109012307782940412989671"},
		{"asin -1", exactAsin(number64(-1)), "-1.57079632679489661923132169163975144209858469968755291"},
		{"acos 0.5", exactAcos(number64(0.5)), "1.04719755119659774615421446109316762806572313312503527"},
		{"tan 2", exactTan(number64(2)), "-2.18503986326151899164330610231368254343201774622766316"},
		{"expm1", exactExpm1(number64(0x1p-60)), "8.67361737988403547582120432959e-19"},
	} {
		want, _, err := big.ParseFloat(c.want, 10, exactBits, big.ToNearestEven)
		if err != nil {
			t.Fatal(err)
		}
		if d := minus(c.got, want); d.Sign() != 0 && d.MantExp(nil) > want.MantExp(nil)-3*strings.Count(c.want, "")+12 {
			t.Errorf("%s is %.55g, want %s", c.name, c.got, c.want)
		}
	}
}
