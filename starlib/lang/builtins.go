package lang

import (
	"fmt"
	"math"
	"math/big"
	"strconv"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"drun/internal/try"
)

// Builtins returns the builtins of the language itself: sum and round, which Starlark lacks, and versions of
// Starlark's own that handle values without a truth value, values nested too deeply, and sizes beyond any memory.
func Builtins() starlark.StringDict {
	dict := starlark.StringDict{
		"sum":   starlark.NewBuiltin("sum", sum),
		"round": starlark.NewBuiltin("round", round),
		"all":   starlark.NewBuiltin("all", quantifier(false)),
		"any":   starlark.NewBuiltin("any", quantifier(true)),
		"bool":  starlark.NewBuiltin("bool", toBool),
	}
	for _, name := range []string{"str", "repr", "print", "fail"} {
		dict[name] = Shallow(starlark.Universe[name].(*starlark.Builtin))
	}
	for _, name := range spreading {
		b, ok := dict[name].(*starlark.Builtin)
		if !ok {
			b = starlark.Universe[name].(*starlark.Builtin)
		}
		dict[name] = spreads(b)
	}
	dict["int"] = ofItem(number(starlark.Universe["int"].(*starlark.Builtin)))
	dict["float"] = ofItem(starlark.Universe["float"].(*starlark.Builtin))
	return dict
}

// scalar is starlib.Scalar: a tensor, which stands for its only element as in PyTorch.
type scalar interface {
	Item() (starlark.Value, error) // an error unless there is exactly one
}

// ofItem gives a builtin the number that a tensor holds.
func ofItem(b *starlark.Builtin) *starlark.Builtin {
	return starlark.NewBuiltin(b.Name(), func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		if len(args) > 0 {
			if t, ok := args[0].(scalar); ok {
				v, err := t.Item()
				if err != nil {
					return nil, fmt.Errorf("%s: %w", b.Name(), err)
				}
				args = append(starlark.Tuple{v}, args[1:]...)
			}
		}
		return b.CallInternal(thread, args, kwargs)
	})
}

// sum(iterable, start = 0) is start + x + …, with the + of the elements.
func sum(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var items starlark.Iterable
	var total starlark.Value = starlark.MakeInt(0)
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "iterable", &items, "start?", &total); err != nil {
		return nil, err
	}
	iter := items.Iterate()
	defer iter.Done()
	var x starlark.Value
	for i := 0; iter.Next(&x); i++ {
		next, err := starlark.Binary(syntax.PLUS, total, x)
		if err != nil {
			return nil, fmt.Errorf("sum: element %d: %w", i, err)
		}
		total = next
	}
	return total, nil
}

// round(x, ndigits = None) rounds half to even, as Python's does: to an int
// without ndigits, else to a value of x's type.
func round(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var x, ndigits starlark.Value
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "x", &x, "ndigits?", &ndigits); err != nil {
		return nil, err
	}
	digits, given := 0, ndigits != nil && ndigits != starlark.None
	if given {
		var err error
		if digits, err = starlark.AsInt32(ndigits); err != nil {
			return nil, fmt.Errorf("round: ndigits: %w", err)
		}
	}
	switch x := x.(type) {
	case starlark.Int:
		return roundInt(x, digits), nil
	case starlark.Float:
		if given {
			return roundFloat(x, digits), nil
		}
		i, err := starlark.NumberToInt(starlark.Float(math.RoundToEven(float64(x))))
		if err != nil {
			return nil, fmt.Errorf("round: %w", err)
		}
		return i, nil
	}
	return nil, fmt.Errorf("round: got %s, want int or float", x.Type())
}

// roundInt rounds to a multiple of ten to the -digits.
func roundInt(x starlark.Int, digits int) starlark.Value {
	if digits >= 0 {
		return x
	}
	i := x.BigInt()
	if -digits > len(i.Text(10)) {
		return starlark.MakeInt(0)
	}
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-digits)), nil)
	return starlark.MakeBigInt(roundTo(i, unit, unit))
}

// roundTo returns the number of units in i, rounded half to even, times scale.
func roundTo(i, unit, scale *big.Int) *big.Int {
	n, rest := new(big.Int).DivMod(i, unit, new(big.Int))
	switch rest.Lsh(rest, 1).Cmp(unit) {
	case 1:
		n.Add(n, big.NewInt(1))
	case 0:
		n.Add(n, big.NewInt(int64(n.Bit(0))))
	}
	return n.Mul(n, scale)
}

// roundFloat rounds the exact value of x, not that of x times a power of ten:
// round(2.675, 2) is 2.67, as the float nearest to 2.675 is below it.
func roundFloat(x starlark.Float, digits int) starlark.Value {
	f := float64(x)
	if math.IsNaN(f) || math.IsInf(f, 0) || digits > 323 {
		return x
	}
	if digits < -308 {
		return starlark.Float(math.Copysign(0, f))
	}
	if digits < 0 {
		return roundTens(f, -digits)
	}
	// strconv rounds the exact value, half to even.
	r, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
	return starlark.Float(r)
}

// roundTens rounds to a multiple of ten to the n. Twice the value, with any fraction counted as a half, distinguishes
// ties from values above them.
func roundTens(f float64, n int) starlark.Value {
	whole, fraction := math.Modf(math.Abs(f))
	i, _ := big.NewFloat(whole).Int(nil)
	i.Lsh(i, 1)
	if fraction != 0 {
		i.SetBit(i, 0, 1)
	}
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
	r, _ := new(big.Float).SetInt(roundTo(i, new(big.Int).Lsh(unit, 1), unit)).Float64()
	return starlark.Float(math.Copysign(r, f))
}

// toBool is bool(x), where x may have no truth value.
func toBool(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	var x starlark.Value = starlark.False
	try.Ok(starlark.UnpackPositionalArgs(b.Name(), args, kwargs, 0, &x))
	try.Ok(checkTruth(x))
	return x.Truth(), nil
}

// quantifier is any (which stops at True) or all (at False).
func quantifier(stop starlark.Bool) func(*starlark.Thread, *starlark.Builtin, starlark.Tuple, []starlark.Tuple) (starlark.Value, error) {
	return func(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (_ starlark.Value, err error) {
		defer try.Caught(&err)
		var items starlark.Iterable
		try.Ok(starlark.UnpackPositionalArgs(b.Name(), args, kwargs, 1, &items))
		iter := items.Iterate()
		defer iter.Done()
		var x starlark.Value
		for iter.Next(&x) {
			try.Ok(checkTruth(x))
			if x.Truth() == stop {
				return stop, nil
			}
		}
		return !stop, nil
	}
}
