package kernel_test

import (
	"math"
	"math/big"
)

// Elementary functions to some 200 bits, of finite arguments: what float64 results are measured against.

const exactBits = 256

type exact = *big.Float

func number64(x float64) exact { return new(big.Float).SetPrec(exactBits).SetFloat64(x) }
func fresh() exact             { return new(big.Float).SetPrec(exactBits) }
func plus(a, b exact) exact    { return fresh().Add(a, b) }
func minus(a, b exact) exact   { return fresh().Sub(a, b) }
func times(a, b exact) exact   { return fresh().Mul(a, b) }
func over(a, b exact) exact    { return fresh().Quo(a, b) }
func half(a exact) exact       { return fresh().SetMantExp(a, -1) }

// series adds term(0), term(1), … until they no longer count beside the first.
func series(term func(k int) exact) exact {
	sum := fresh()
	for k := 0; ; k++ {
		t := term(k)
		sum.Add(sum, t)
		if t.Sign() == 0 || t.MantExp(nil) < sum.MantExp(nil)-exactBits {
			return sum
		}
	}
}

// atanh is s + s³/3 + s⁵/5 + …
func atanh(s exact) exact {
	power, square := fresh().Set(s), times(s, s)
	return series(func(k int) exact {
		t := over(power, number64(float64(2*k+1)))
		power = times(power, square)
		return t
	})
}

var (
	exactLn2 = times(number64(2), atanh(over(number64(1), number64(3))))
	exactPi  = fresh().SetMantExp(fresh().SetInt(pi), -1500)
)

// exactScaled is y and n with e^x = 2^n (1 + y): the series x + x²/2 + … of what is left of x beyond a multiple
// of ln 2. What is out of any type's range stops at e^±3000.
func exactScaled(x exact) (y exact, n int) {
	if v, _ := x.Float64(); math.Abs(v) > 3000 {
		x = number64(math.Copysign(3000, v))
	}
	q, _ := over(x, exactLn2).Float64()
	n = int(math.Round(q))
	r := minus(x, times(number64(float64(n)), exactLn2))
	term := number64(1)
	return series(func(k int) exact {
		term = over(times(term, r), number64(float64(k+1)))
		return term
	}), n
}

func exactExp(x exact) exact {
	y, n := exactScaled(x)
	return fresh().SetMantExp(plus(y, number64(1)), n)
}

func exactExpm1(x exact) exact {
	if y, n := exactScaled(x); n == 0 {
		return y
	}
	return minus(exactExp(x), number64(1))
}

// exactLog1p of small x keeps its digits.
func exactLog1p(x exact) exact {
	if v, _ := x.Float64(); math.Abs(v) < 0.25 {
		return times(number64(2), atanh(over(x, plus(x, number64(2)))))
	}
	return exactLog(plus(x, number64(1)))
}

func exactLog(x exact) exact {
	m := fresh()
	e := x.MantExp(m)
	if v, _ := m.Float64(); v < math.Sqrt2/2 {
		m, e = times(m, number64(2)), e-1
	}
	s := over(minus(m, number64(1)), plus(m, number64(1)))
	return plus(times(number64(2), atanh(s)), times(number64(float64(e)), exactLn2))
}

func exactTanh(x exact) exact {
	e := exactExpm1(times(number64(2), x))
	return over(e, plus(e, number64(2)))
}

func exactSigmoid(x exact) exact {
	return over(number64(1), plus(number64(1), exactExp(fresh().Neg(x))))
}

// exactErf is 2/√π (x - x³/3 + x⁵/(5·2!) - …), 1 where it rounds to that.
func exactErf(x exact) exact {
	if v, _ := x.Float64(); math.Abs(v) > 7 {
		return number64(math.Copysign(1, v))
	}
	power, square := fresh().Set(x), fresh().Neg(times(x, x))
	sum := fresh()
	for k := 0; k < 40 || power.Sign() != 0 && power.MantExp(nil) > -exactBits; k++ {
		sum.Add(sum, over(power, number64(float64(2*k+1))))
		power = over(times(power, square), number64(float64(k+1)))
	}
	return over(times(number64(2), sum), fresh().Sqrt(exactPi))
}

func exactGelu(x exact) exact {
	return half(times(x, plus(number64(1), exactErf(over(x, fresh().Sqrt(number64(2)))))))
}

func exactSilu(x exact) exact { return times(x, exactSigmoid(x)) }

func exactPow(x, y exact) exact { return exactExp(times(y, exactLog(x))) }

// exactSine is the sine for quadrant 0 and the cosine for 1.
func exactSine(x exact, quadrant int64) exact {
	r, q := exactReduced(x)
	quadrant = (q + quadrant) & 3
	square := fresh().Neg(times(r, r))
	term, from := number64(1), 1.0
	if quadrant&1 == 0 {
		term, from = r, 2
	}
	y := series(func(int) exact {
		t := term
		term = over(times(term, square), number64(from*(from+1)))
		from += 2
		return t
	})
	if quadrant >= 2 {
		y.Neg(y)
	}
	return y
}

func exactTan(x exact) exact { return over(exactSine(x, 0), exactSine(x, 1)) }

// exactAtan halves the angle until its tangent is small: x - x³/3 + x⁵/5 - …
func exactAtan(x exact) exact {
	if v, _ := x.Float64(); math.Abs(v) > 1 {
		right := fresh().SetMantExp(exactPi, -1)
		if v < 0 {
			right.Neg(right)
		}
		return minus(right, exactAtan(over(number64(1), x)))
	}
	n := 0
	for ; x.Sign() != 0 && x.MantExp(nil) > -10; n++ {
		x = over(x, plus(number64(1), fresh().Sqrt(plus(number64(1), times(x, x)))))
	}
	power, square := fresh().Set(x), fresh().Neg(times(x, x))
	y := series(func(k int) exact {
		t := over(power, number64(float64(2*k+1)))
		power = times(power, square)
		return t
	})
	return fresh().SetMantExp(y, n)
}

func exactAsin(x exact) exact {
	rest := minus(number64(1), times(x, x))
	if rest.Sign() == 0 {
		right := fresh().SetMantExp(exactPi, -1)
		if x.Sign() < 0 {
			right.Neg(right)
		}
		return right
	}
	return exactAtan(over(x, fresh().Sqrt(rest)))
}

func exactAcos(x exact) exact {
	sum := plus(number64(1), x)
	if sum.Sign() == 0 {
		return exactPi
	}
	return fresh().SetMantExp(exactAtan(fresh().Sqrt(over(minus(number64(1), x), sum))), 1)
}

// exactReduced is x modulo π/2, nearest to zero, and the quadrant.
func exactReduced(x exact) (r exact, quadrant int64) {
	if v, _ := x.Float64(); math.Abs(v) < 0.7 {
		return x, 0
	}
	scaled, _ := new(big.Float).SetMantExp(x, 1501).Int(nil) // twice the scale: multiples of pi
	q, m := new(big.Int).DivMod(scaled, pi, new(big.Int))
	if twice := new(big.Int).Lsh(m, 1); twice.Cmp(pi) > 0 {
		m.Sub(m, pi)
		q.Add(q, big.NewInt(1))
	}
	return fresh().SetMantExp(fresh().SetInt(m), -1501), new(big.Int).And(q, big.NewInt(3)).Int64()
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
