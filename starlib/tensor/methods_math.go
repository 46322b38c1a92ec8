package tensor

import (
	"fmt"
	"math"
	"strings"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/tensor"
	"drun/tensor/linalg"
)

// mathDefs are the elementwise methods and the matrix product.
var mathDefs = []*starlib.Def{
	elementwise("neg", "Each element with its sign changed, as -t.", tensor.OpNeg),
	elementwise("reciprocal", "1 / x of each element x.", tensor.OpReciprocal),
	elementwise("exp", "e to the power of each element.", tensor.OpExp),
	elementwise("log", "The natural logarithm of each element.", tensor.OpLog),
	elementwise("expm1", "exp(x) - 1 of each element x, accurate for small x, too.", tensor.OpExpm1),
	elementwise("log1p", "log(1 + x) of each element x, accurate for small x, too.", tensor.OpLog1p),
	elementwise("sqrt", "The square root of each element.", tensor.OpSqrt),
	elementwise("square", "The square of each element.", tensor.OpSquare),
	elementwise("tanh", "The hyperbolic tangent of each element.", tensor.OpTanh),
	elementwise("sin", "The sine of each element.", tensor.OpSin),
	elementwise("cos", "The cosine of each element.", tensor.OpCos),
	elementwise("tan", "The tangent of each element.", tensor.OpTan),
	elementwise("asin", "The angle from -π/2 to π/2 whose sine is the element; NaN beyond ±1.", tensor.OpAsin),
	elementwise("acos", "The angle from 0 to π whose cosine is the element; NaN beyond ±1.", tensor.OpAcos),
	elementwise("atan", "The angle from -π/2 to π/2 whose tangent is the element.", tensor.OpAtan),
	binary("atan2", "The angle from -π to π of the point (other, element), broadcast.", tensor.OpAtan2),
	elementwise("erf", "The error function of each element.", tensor.OpErf),
	elementwise("erfc", "1 - erf(x) of each element x, accurate for large x, too.", tensor.OpErfc),
	elementwise("erfinv", "The number whose error function is the element; infinite at ±1, NaN beyond (Wichura 1988).", tensor.OpErfinv),
	elementwise("sinh", "The hyperbolic sine of each element.", tensor.OpSinh),
	elementwise("cosh", "The hyperbolic cosine of each element.", tensor.OpCosh),
	elementwise("asinh", "The number whose hyperbolic sine is the element.", tensor.OpAsinh),
	elementwise("acosh", "The number of at least 0 whose hyperbolic cosine is the element; NaN below 1.", tensor.OpAcosh),
	elementwise("atanh", "The number whose hyperbolic tangent is the element; NaN beyond ±1.", tensor.OpAtanh),
	elementwise("exp2", "2 to the power of each element.", tensor.OpExp2),
	elementwise("log2", "The logarithm of each element to base 2.", tensor.OpLog2),
	elementwise("log10", "The logarithm of each element to base 10.", tensor.OpLog10),
	elementwise("rsqrt", "1 / √x of each element x.", tensor.OpRsqrt),
	elementwise("lgamma", "The logarithm of |Γ(x)| of each element x.", tensor.OpLgamma),
	elementwise("digamma", "The derivative of lgamma of each element.", tensor.OpDigamma),
	elementwise("sigmoid", "1 / (1 + exp(-x)) of each element x.", tensor.OpSigmoid),
	elementwise("relu", "max(x, 0) of each element x.", tensor.OpRelu),
	elementwise("gelu", "x·Φ(x) of each element x, where Φ is the exact normal distribution function.", tensor.OpGelu),
	elementwise("silu", "x·sigmoid(x) of each element x.", tensor.OpSilu),
	elementwise("abs", "The magnitude of each element.", tensor.OpAbs),
	elementwise("sign", "-1, 0 or 1 for each element.", tensor.OpSign),
	elementwise("floor", "Each element rounded down.", tensor.OpFloor),
	elementwise("ceil", "Each element rounded up.", tensor.OpCeil),
	method("round(*, decimals: int = 0) -> Tensor", "Each element rounded to the nearest integer, half to even, or to decimals digits behind the point; before it if negative.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			d := c.Int("decimals")
			if d == 0 {
				return Result(tensor.Unary(tensor.OpRound, t))
			}
			try.FailIf(d < -300 || d > 300, "decimals = %d: want -300 to 300", d)
			up, down := tensor.OpMul, tensor.OpDiv
			if d < 0 {
				up, down, d = down, up, -d
			}
			scale := tensor.Float(math.Pow10(d))
			return Result(tensor.BinaryScalar(down, try.To(tensor.Unary(tensor.OpRound, try.To(tensor.BinaryScalar(up, t, scale, false)))), scale, false))
		}),
	method("matmul(other: Tensor) -> Tensor", "The matrix product, (…, n, k) by (…, k, m) to (…, n, m); leading dimensions are broadcast, and one-dimensional operands are vectors, as in NumPy.", withOther(tensor.MatMul)),
	elementwise("trunc", "Each element rounded toward zero.", tensor.OpTrunc),
	binary("remainder", "The remainder of the division by other, with other's sign, as t % other. Dividing integers by zero is an error.", tensor.OpMod),
	classifier("isnan", "NaN", tensor.IsNaN),
	classifier("isinf", "infinite", tensor.IsInf),
	classifier("isfinite", "neither infinite nor NaN", tensor.IsFinite),
	method("outer(other: Tensor) -> Tensor", "The products of each element with each of other: (n,) and (m,) give (n, m).", withOther(tensor.Outer)),
	method("dot(other: Tensor) -> Tensor", "The sum of the products of two vectors' elements; both have shape (n,).", withOther(tensor.Dot)),
	method("trace() -> Tensor", "The sum of a matrix's diagonal.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) { return Result(tensor.Trace(t)) }),
	binary("minimum", "The smaller of each pair of elements, broadcast; NaN where either is.", tensor.OpMinimum),
	binary("maximum", "The greater of each pair of elements, broadcast; NaN where either is.", tensor.OpMaximum),
	method("pow(exponent: Tensor | number) -> Tensor", "Each element to the power of the exponent. Integers to negative powers are an error.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return (*Value)(t).compute(tensor.OpPow, c.Arg("exponent"), false)
		}),
	method("clamp(min: Tensor | number = None, max: Tensor | number = None) -> Tensor", "Each element limited to at least min and at most max, numbers or tensors, broadcast.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			_, low := c.Arg("min").(*Value)
			_, high := c.Arg("max").(*Value)
			if low || high {
				return clampTo(c, t)
			}
			var bounds [2]*tensor.Scalar
			for i, v := range [2]starlark.Value{c.Arg("min"), c.Arg("max")} {
				if v != starlark.None {
					bounds[i] = new(number(v))
				}
			}
			try.FailIf(bounds[0] == nil && bounds[1] == nil, "min or max must be given")
			return Result(tensor.Clamp(t, bounds[0], bounds[1]))
		}),
	converted(method("softmax(dim: int) -> Tensor", "exp(x) divided by its sum along dim.", alongDim(tensor.Softmax))),
	converted(method("log_softmax(dim: int) -> Tensor", "The logarithm of softmax along dim, computed without overflow.", alongDim(tensor.LogSoftmax))),
}

// clampTo limits t by tensors. Where a limit is NaN, so is the result.
func clampTo(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
	for i, name := range []string{"min", "max"} { // in this order: max wins where it is less than min
		op := []tensor.BinaryOp{tensor.OpLt, tensor.OpGt}[i]
		if c.IsNone(name) {
			continue
		}
		limit := operand(c.Arg(name), (*Value)(t), t)
		beyond := try.To(tensor.Binary(op, t, limit))
		beyond = try.To(tensor.Binary(tensor.OpOr, beyond, try.To(tensor.IsNaN(limit))))
		t = try.To(tensor.Where(beyond, limit, t))
	}
	return (*Value)(t), nil
}

func elementwise(name, doc string, op tensor.UnaryOp) *starlib.Def {
	return method(name+"() -> Tensor", doc, func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
		return Result(tensor.Unary(op, t))
	})
}

// classifier declares a method that tests each element.
func classifier(name, what string, fn func(*tensor.Tensor) (*tensor.Tensor, error)) *starlib.Def {
	return method(name+"() -> Tensor", "Where elements are "+what+", as bools.", func(_ *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
		return Result(fn(t))
	})
}

// binary declares an elementwise method of two operands.
func binary(name, doc string, op tensor.BinaryOp) *starlib.Def {
	return method(name+"(other: Tensor | number) -> Tensor", doc, func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
		return (*Value)(t).compute(op, c.Arg("other"), false)
	})
}

func withOther(fn func(t, other *tensor.Tensor) (*tensor.Tensor, error)) func(*starlib.Call, *tensor.Tensor) (starlark.Value, error) {
	return func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) { return Result(fn(t, Arg(c, "other"))) }
}

var reduceDefs = []*starlib.Def{
	converted(reducer("sum", "The sum", tensor.Sum)),
	converted(reducer("mean", "The mean", tensor.Mean)),
	reducer("amax", "The greatest element, whose equals share the gradient", tensor.AMax),
	reducer("amin", "The least element, whose equals share the gradient", tensor.AMin),
	reducer("logsumexp", "log(sum(exp(x))), without overflow", tensor.LogSumExp),
	converted(method("prod(dim: int = None, keepdim: bool = False) -> Tensor", "The product of all elements, or along dim; keepdim keeps dim with size 1. Integers and bools give int64.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return Result(tensor.Prod(t, optionalDim(c), c.Bool("keepdim")))
		})),
	reducer("any", "Whether any element is nonzero", tensor.Any),
	reducer("all", "Whether all elements are nonzero", tensor.All),
	spread("var", "The variance", tensor.Var),
	spread("std", "The standard deviation", tensor.Std),
	method("norm(p: number | string = 2, dim: int | tuple | list = None, keepdim: bool = False) -> Tensor", "The p-norm of all elements or along dimensions; p may be infinite, and 0 counts the elements that are not 0. \"fro\" is 2, and \"nuc\" the sum of matrices' singular values.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			if name, named := starlark.AsString(c.Arg("p")); named && name == "nuc" {
				over := dims(c)
				if over == nil {
					over = []int{-2, -1}
				}
				return Result(linalg.MatrixNorm(t, name, math.NaN(), over, c.Bool("keepdim")))
			} else if named {
				try.FailIf(name != "fro", `p = %s: want a number, "fro" or "nuc"`, c.Arg("p"))
				return Result(tensor.Norm(t, 2, dims(c), c.Bool("keepdim")))
			}
			return Result(tensor.Norm(t, c.Float("p"), dims(c), c.Bool("keepdim")))
		}),
	extreme("max", "greatest", "", tensor.Max, tensor.MaxDim),
	extreme("min", "least", "", tensor.Min, tensor.MinDim),
	argument("argmax", "greatest", tensor.ArgMax),
	argument("argmin", "least", tensor.ArgMin),
	converted(method("cumsum(dim: int) -> Tensor", "The running sum of the elements along dim.", alongDim(tensor.CumSum))),
	converted(method("cumprod(dim: int) -> Tensor", "The running product of the elements along dim.", alongDim(tensor.CumProd))),
}

func reducer(name, doc string, fn func(*tensor.Tensor, []int, bool) (*tensor.Tensor, error)) *starlib.Def {
	return method(name+"(dim: int | tuple | list = None, keepdim: bool = False) -> Tensor", doc+", over all elements or along dimensions; keepdim keeps those with size 1.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return Result(fn(t, dims(c), c.Bool("keepdim")))
		})
}

// converted adds to a method the parameter dtype, in which it computes.
func converted(d *starlib.Def) *starlib.Def {
	head, returns, _ := strings.Cut(d.Sig, ") -> ")
	d.Sig = head + ", *, dtype: string = None) -> " + returns
	d.Doc += " dtype converts the elements before."
	fn := d.Fn
	d.Fn = func(c *starlib.Call) (starlark.Value, error) {
		if name, given := starlark.AsString(c.At(-1)); given {
			c.Recv = (*Value)(try.To(tensor.Cast(c.Recv.(*Value).Tensor(), try.To(dtype.Parse(name)))))
		}
		return fn(c)
	}
	return d
}

func spread(name, doc string, fn func(*tensor.Tensor, []int, int, bool) (*tensor.Tensor, error)) *starlib.Def {
	return method(name+"(dim: int | tuple | list = None, unbiased: bool = True, keepdim: bool = False, *, correction: number = None) -> Tensor",
		doc+", over all elements or along dimensions; divides by n - 1, by n if not unbiased, or by n - correction.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			over, keepdim, correction := dims(c), c.Bool("keepdim"), 0.0
			if !c.IsNone("correction") {
				correction = c.Float("correction")
			} else if c.Bool("unbiased") {
				correction = 1
			}
			if correction == math.Trunc(correction) && math.Abs(correction) < 1<<31 {
				return Result(fn(t, over, int(correction), keepdim))
			}
			n := 1.0
			for _, d := range try.To(tensor.DimList(name, over, t.Dim())) {
				n *= float64(t.Shape()[d])
			}
			scale := n / max(n-correction, 0)
			if name == "std" {
				scale = math.Sqrt(scale)
			}
			return Result(tensor.BinaryScalar(tensor.OpMul, try.To(fn(t, over, 0, keepdim)), tensor.Float(scale), false))
		})
}

func extreme(name, word, more string, all func(*tensor.Tensor) (*tensor.Tensor, error), along func(*tensor.Tensor, int, bool) (*tensor.Tensor, *tensor.Tensor, error)) *starlib.Def {
	types, doc := "int", ""
	if op, other := map[string]tensor.BinaryOp{"max": tensor.OpMaximum, "min": tensor.OpMinimum}[name]; other {
		types, doc = "Tensor | int", "; with a tensor, the "+word+" of each pair, as "+op.String()
	}
	return method(name+"(dim: "+types+" = None, keepdim: bool = False) -> Tensor | (values, indices)", "The "+word+" element; with a dim, the "+word+" ones along it and their indices"+more+doc+".",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			if other, is := c.Arg("dim").(*Value); is {
				return (*Value)(t).compute(map[string]tensor.BinaryOp{"max": tensor.OpMaximum, "min": tensor.OpMinimum}[name], other, false)
			}
			if c.IsNone("dim") {
				return Result(all(t))
			}
			return pair(along(t, c.Int("dim"), c.Bool("keepdim")))
		})
}

func argument(name, word string, fn func(*tensor.Tensor, *int, bool) (*tensor.Tensor, error)) *starlib.Def {
	return method(name+"(dim: int = None, keepdim: bool = False) -> Tensor", "The index of the first "+word+" element along dim; of all elements, flattened, by default. int64.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return Result(fn(t, optionalDim(c), c.Bool("keepdim")))
		})
}

func pair(values, indices *tensor.Tensor, err error) (starlark.Value, error) {
	if err != nil {
		return nil, err
	}
	return starlark.Tuple{(*Value)(values), (*Value)(indices)}, nil
}

// dims reads the argument dim: None, one dimension, or several.
func dims(c *starlib.Call) []int {
	switch v := c.Arg("dim").(type) {
	case starlark.NoneType:
		return nil
	case starlark.Iterable:
		return try.To(Ints(v)) // an empty one means all dimensions
	}
	return []int{c.Int("dim")}
}

// orderDefs are the methods that order elements, and those based on their order.
var orderDefs = []*starlib.Def{
	method("sort(dim: int = -1, descending: bool = False, *, stable: bool = True) -> (values, indices)", "The elements in ascending order along dim, and their original indices. Equal elements keep their order, whatever stable says; NaN counts as the largest.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return pair(tensor.Sort(t, c.Int("dim"), c.Bool("descending")))
		}),
	method("argsort(dim: int = -1, descending: bool = False, *, stable: bool = True) -> Tensor", "The indices that sort() returns, int64.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return Result(tensor.ArgSort(t, c.Int("dim"), c.Bool("descending")))
		}),
	method("topk(k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> (values, indices)", "The k largest (or smallest) elements along dim in order, whatever sorted says, and their indices.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return pair(tensor.TopK(t, c.Int("k"), c.Int("dim"), c.Bool("largest")))
		}),
	method("unique(sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int = None) -> Tensor | tuple", "The distinct elements in ascending order, shape (n,); with a dim, the distinct slices along it. return_inverse also returns each element's index among them, and return_counts how often each occurs, both int64. Every NaN counts as distinct. It has no gradient.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			values, inverse, counts := try.To3(tensor.Unique(t, optionalDim(c)))
			list := []*tensor.Tensor{values}
			if c.Bool("return_inverse") {
				list = append(list, inverse)
			}
			if c.Bool("return_counts") {
				list = append(list, counts)
			}
			if len(list) == 1 {
				return (*Value)(values), nil
			}
			return several(list, nil)
		}),
	method("nonzero(as_tuple: bool = False) -> Tensor | tuple", "The indices of the elements that are not 0, in order: int64 of shape (n, dimensions), or a tuple with one tensor (n,) for each dimension, by which x can be indexed.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			if c.Bool("as_tuple") && t.Dim() == 0 {
				t = try.To(tensor.Unsqueeze(t, 0))
			}
			at, err := tensor.NonZero(t)
			if err != nil || !c.Bool("as_tuple") {
				return Result(at, err)
			}
			return several(tensor.Unbind(at, 1))
		}),
	extreme("median", "middle", "; of an even number, the lower of the two; NaN where any element is", tensor.Median, tensor.MedianDim),
	method(`quantile(q: Tensor | number | list | tuple, dim: int = None, keepdim: bool = False, interpolation: string = "linear") -> Tensor`, "The value below which a fraction q (0 to 1) of all elements, or of those along dim, lies; NaN where any of them is. Several q give the result a first dimension.  interpolation: linear, lower, higher, midpoint or nearest.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			q, ok := c.Arg("q").(*Value)
			if !ok {
				q = (*Value)(try.To(FromData(t.Context(), c.Arg("q"), dtypeNames[t.DType()])))
			}
			return Result(tensor.Quantile(t, q.Tensor(), optionalDim(c), c.Bool("keepdim"), c.String("interpolation")))
		}),
	method("histc(bins: int = 100, min: number = 0, max: number = 0) -> Tensor", "How many elements are in each of bins bins of equal width from min to max, or from the smallest to the largest element if both are 0: shape (bins,), in the tensor's dtype. Elements outside are not counted.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return Result(tensor.HistC(t, c.Int("bins"), c.Float("min"), c.Float("max")))
		}),
	method("histogram(bins: Tensor | int | list | tuple, *, range: tuple | list = None, weight: Tensor = None, density: bool = False) -> (hist, bin_edges)", "The counts of elements in bins, and the bins' edges. bins is a number of bins of equal width over range (by default that of the elements), or the edges themselves. A bin includes its lower edge, and the last one both. weight, of the tensor's shape, weights the elements; density divides the counts by their sum and the bins' widths.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			weight, density := Optional(c, "weight"), c.Bool("density")
			if _, equal := c.Arg("bins").(starlark.Int); !equal {
				try.FailIf(!c.IsNone("range"), "range is for a number of bins: leave it out with edges")
				edges := try.To(source(t, c.Arg("bins")))
				counts, err := tensor.HistogramAt(t, edges, weight, density)
				return pair(counts, edges, err)
			}
			var bounds *[2]float64
			if list, ok := c.Arg("range").(starlark.Indexable); ok {
				try.FailIf(list.Len() != 2, "range: want (min, max), got %d values", list.Len())
				bounds = new([2]float64)
				for i := range bounds {
					f, ok := starlark.AsFloat(list.Index(i))
					if !ok {
						return nil, fmt.Errorf("range: want numbers, got %s", list.Index(i).Type())
					}
					bounds[i] = f
				}
			}
			return pair(tensor.Histogram(t, c.Int("bins"), bounds, weight, density))
		}),
}
