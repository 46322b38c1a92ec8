package tensor

import (
	"math"
	"testing"

	"drun/kernel/dtype"
)

type function func(xs []*Tensor) (*Tensor, error)

// Each differentiable operation, on inputs of the given shapes. The values
// are spread around zero, or made positive with pos.
var differentiable = []struct {
	name   string
	pos    bool
	shapes [][]int
	f      function
}{
	{"add", false, [][]int{{2, 3}, {3}}, func(x []*Tensor) (*Tensor, error) { return Add(x[0], x[1]) }},
	{"sub", false, [][]int{{2, 1}, {1, 3}}, func(x []*Tensor) (*Tensor, error) { return Sub(x[0], x[1]) }},
	{"mul", false, [][]int{{2, 3}, {}}, func(x []*Tensor) (*Tensor, error) { return Mul(x[0], x[1]) }},
	{"mul self", false, [][]int{{3}}, func(x []*Tensor) (*Tensor, error) { return Mul(x[0], x[0]) }},
	{"div", true, [][]int{{2, 3}, {2, 1}}, func(x []*Tensor) (*Tensor, error) { return Div(x[0], x[1]) }},
	{"mod", true, [][]int{{4}, {4}}, func(x []*Tensor) (*Tensor, error) { return Binary(OpMod, x[0], x[1]) }},
	{"pow", true, [][]int{{2, 3}, {3}}, func(x []*Tensor) (*Tensor, error) { return Binary(OpPow, x[0], x[1]) }},
	{"pow 3", false, [][]int{{4}}, func(x []*Tensor) (*Tensor, error) { return BinaryScalar(OpPow, x[0], Int(3), false) }},
	{"2 ** x", false, [][]int{{4}}, func(x []*Tensor) (*Tensor, error) { return BinaryScalar(OpPow, x[0], Int(2), true) }},
	{"1 / x", true, [][]int{{4}}, func(x []*Tensor) (*Tensor, error) { return BinaryScalar(OpDiv, x[0], Int(1), true) }},
	{"minimum", false, [][]int{{2, 3}, {3}}, func(x []*Tensor) (*Tensor, error) { return Binary(OpMinimum, x[0], x[1]) }},
	{"maximum", false, [][]int{{2, 3}, {3}}, func(x []*Tensor) (*Tensor, error) { return Binary(OpMaximum, x[0], x[1]) }},
	{"neg", false, [][]int{{4}}, unaryOf(OpNeg)}, {"abs", false, [][]int{{4}}, unaryOf(OpAbs)},
	{"square", false, [][]int{{4}}, unaryOf(OpSquare)}, {"sqrt", true, [][]int{{4}}, unaryOf(OpSqrt)},
	{"reciprocal", true, [][]int{{4}}, unaryOf(OpReciprocal)}, {"exp", false, [][]int{{2, 3}}, unaryOf(OpExp)},
	{"expm1", false, [][]int{{4}}, unaryOf(OpExpm1)}, {"log", true, [][]int{{4}}, unaryOf(OpLog)},
	{"log1p", true, [][]int{{4}}, unaryOf(OpLog1p)}, {"tanh", false, [][]int{{4}}, unaryOf(OpTanh)},
	{"sigmoid", false, [][]int{{4}}, unaryOf(OpSigmoid)}, {"erf", false, [][]int{{4}}, unaryOf(OpErf)},
	{"sin", false, [][]int{{4}}, unaryOf(OpSin)}, {"cos", false, [][]int{{4}}, unaryOf(OpCos)},
	{"relu", false, [][]int{{7}}, unaryOf(OpRelu)}, {"gelu", false, [][]int{{7}}, unaryOf(OpGelu)},
	{"silu", false, [][]int{{7}}, unaryOf(OpSilu)},
	{"clamp", false, [][]int{{8}}, func(x []*Tensor) (*Tensor, error) {
		lo, hi := Float(-0.5), Float(0.8)
		return Clamp(x[0], &lo, &hi)
	}},
	{"where", false, [][]int{{2, 3}, {3}}, func(x []*Tensor) (*Tensor, error) {
		return Where(must(BinaryScalar(OpGt, x[0], Float(0), false)), x[0], x[1])
	}},
	{"masked_fill", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) {
		return MaskedFill(x[0], must(BinaryScalar(OpGt, x[0], Float(0), false)), Float(2))
	}},
	{"tril", false, [][]int{{2, 3, 3}}, func(x []*Tensor) (*Tensor, error) { return Tril(x[0], 0) }},
	{"triu", false, [][]int{{3, 4}}, func(x []*Tensor) (*Tensor, error) { return Triu(x[0], 1) }},

	{"sum", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) { return Sum(x[0], nil, false) }},
	{"sum dims", false, [][]int{{2, 3, 4}}, func(x []*Tensor) (*Tensor, error) { return Sum(x[0], []int{0, -1}, false) }},
	{"sum keepdim", false, [][]int{{2, 3, 4}}, func(x []*Tensor) (*Tensor, error) { return Sum(x[0], []int{1}, true) }},
	{"mean", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) { return Mean(x[0], []int{0}, false) }},
	{"var", false, [][]int{{2, 3, 2}}, func(x []*Tensor) (*Tensor, error) { return Var(x[0], []int{1}, 1, false) }},
	{"std", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) { return Std(x[0], nil, 0, true) }},
	{"max", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) { return Max(x[0]) }},
	{"min", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) { return Min(x[0]) }},
	{"max dim", false, [][]int{{2, 3, 2}}, func(x []*Tensor) (*Tensor, error) { return two(MaxDim(x[0], 1, false)) }},
	{"sort", false, [][]int{{2, 4}}, func(x []*Tensor) (*Tensor, error) { return two(Sort(x[0], 1, true)) }},
	{"topk", false, [][]int{{4, 2}}, func(x []*Tensor) (*Tensor, error) { return two(TopK(x[0], 2, 0, true)) }},
	{"tan", false, [][]int{{4}}, unaryOf(OpTan)}, {"atan", false, [][]int{{4}}, unaryOf(OpAtan)},
	{"floor and x", false, [][]int{{4}}, func(x []*Tensor) (*Tensor, error) { return Mul(must(Unary(OpFloor, x[0])), x[0]) }},
	{"atan2", false, [][]int{{2, 3}, {3}}, func(x []*Tensor) (*Tensor, error) { return Binary(OpAtan2, x[0], x[1]) }},
	{"prod", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) { return Prod(x[0], nil, false) }},
	{"prod dim", false, [][]int{{2, 3, 2}}, func(x []*Tensor) (*Tensor, error) { return Prod(x[0], new(1), true) }},
	{"cumprod", false, [][]int{{2, 3, 2}}, func(x []*Tensor) (*Tensor, error) { return CumProd(x[0], 1) }},
	{"logsumexp", false, [][]int{{2, 3, 4}}, func(x []*Tensor) (*Tensor, error) { return LogSumExp(x[0], []int{0, -1}, false) }},
	{"einsum", false, [][]int{{2, 3, 2}, {3, 4}, {2}}, func(x []*Tensor) (*Tensor, error) { return Einsum("bib,ij,b->jb", x) }},
	{"scatter", false, [][]int{{3, 4}, {3, 4}}, func(x []*Tensor) (*Tensor, error) {
		return Scatter(x[0], 0, ints(x[0].ctx, []int{2, 3}, 0, 1, 2, 1, 0, 1), x[1])
	}},
	{"index by tensors", false, [][]int{{2, 3, 4}}, func(x []*Tensor) (*Tensor, error) {
		i := ints(x[0].ctx, []int{3, 1}, 0, 1, -1)
		return Index(x[0], []IndexItem{{Kind: IndexTensor, T: i}, {Kind: IndexSlice}, {Kind: IndexTensor, T: ints(x[0].ctx, []int{2}, 3, 0)}})
	}},
	{"index_put", false, [][]int{{2, 3, 4}, {2, 4}}, func(x []*Tensor) (*Tensor, error) {
		y := must(Clone(x[0]))
		i, j := ints(x[0].ctx, []int{2}, 0, 1), ints(x[0].ctx, []int{2}, 2, 0)
		return y, IndexPut("index_put", y, []*Tensor{i, j}, x[1], false)
	}},
	{"index_put adding", false, [][]int{{2, 3, 4}, {2, 3}}, func(x []*Tensor) (*Tensor, error) {
		y := must(Clone(x[0]))
		j := ints(x[0].ctx, []int{2, 1}, 2, 2)
		return y, IndexPut("index_put", y, []*Tensor{nil, nil, j}, must(Reshape(x[1], []int{2, 3, 1, 1})), true)
	}},
	{"median", false, [][]int{{3, 4}}, func(x []*Tensor) (*Tensor, error) { return Median(x[0]) }},
	{"median dim", false, [][]int{{3, 4}}, func(x []*Tensor) (*Tensor, error) { return two(MedianDim(x[0], 0, true)) }},
	{"quantile", false, [][]int{{3, 4}}, func(x []*Tensor) (*Tensor, error) {
		return Quantile(x[0], floats(x[0].ctx, dtype.Float64, []int{2}, 0.2, 0.9), new(1), false, "linear")
	}},
	{"repeat", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) { return Repeat(x[0], []int{2, 1, 3}) }},
	{"repeat_interleave", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) {
		return RepeatInterleave(x[0], ints(x[0].ctx, []int{3}, 2, 0, 1), new(1))
	}},
	{"roll", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) { return Roll(x[0], []int{1, -2}, []int{0, 1}) }},
	{"diagonal", false, [][]int{{2, 3, 4}}, func(x []*Tensor) (*Tensor, error) { return Diagonal(x[0], 1, 2, 0) }},
	{"diag of a vector", false, [][]int{{3}}, func(x []*Tensor) (*Tensor, error) { return Diag(x[0], -1) }},
	{"diag of a matrix", false, [][]int{{3, 4}}, func(x []*Tensor) (*Tensor, error) { return Diag(x[0], 1) }},
	{"trace", false, [][]int{{3, 4}}, func(x []*Tensor) (*Tensor, error) { return Trace(x[0]) }},
	{"outer", false, [][]int{{3}, {2}}, func(x []*Tensor) (*Tensor, error) { return Outer(x[0], x[1]) }},
	{"dot", false, [][]int{{3}, {3}}, func(x []*Tensor) (*Tensor, error) { return Dot(x[0], x[1]) }},
	{"parts", false, [][]int{{5, 2}}, func(x []*Tensor) (*Tensor, error) {
		p := must(Chunk(x[0], 3, 0))
		return Mul(p[0], must(Unsqueeze(must(Unbind(p[1], 0))[1], 0)))
	}},
	{"norm", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) { return Norm(x[0], 2, []int{1}, false) }},
	{"norm 1", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) { return Norm(x[0], 1, nil, false) }},
	{"norm 3", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) { return Norm(x[0], 3, nil, false) }},
	{"norm inf", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) { return Norm(x[0], math.Inf(1), []int{0}, true) }},
	{"norm -1", true, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) { return Norm(x[0], -1, []int{1}, false) }},
	{"norm -inf", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) { return Norm(x[0], math.Inf(-1), nil, false) }},
	{"norm of channels", false, [][]int{{2, 3, 4}}, func(x []*Tensor) (*Tensor, error) { return Norm(x[0], 2, []int{0, 2}, false) }},
	{"var of channels", false, [][]int{{2, 3, 4}}, func(x []*Tensor) (*Tensor, error) { return Var(x[0], []int{0, 2}, 1, true) }},
	{"std of what alternates", false, [][]int{{2, 2, 3, 2}}, func(x []*Tensor) (*Tensor, error) { return Std(x[0], []int{0, 2}, 0, false) }},
	{"var of all", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) { return Var(x[0], nil, 1, false) }},
	{"batch_norm of images", false, [][]int{{2, 3, 2, 2}, {3}, {3}}, func(x []*Tensor) (*Tensor, error) {
		return BatchNorm(x[0], x[1], x[2], nil, nil, true, 0.1, 1e-5)
	}},
	{"batch_norm plain", false, [][]int{{5, 3}}, func(x []*Tensor) (*Tensor, error) {
		return BatchNorm(x[0], nil, nil, nil, nil, true, 0.1, 1e-5)
	}},
	{"cumsum", false, [][]int{{2, 3, 2}}, func(x []*Tensor) (*Tensor, error) { return CumSum(x[0], 1) }},

	{"reshape", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) { return Reshape(x[0], []int{3, -1}) }},
	{"reshape copy", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) {
		return Reshape(must(Transpose(x[0], 0, 1)), []int{6})
	}},
	{"permute", false, [][]int{{2, 3, 4}}, func(x []*Tensor) (*Tensor, error) { return Permute(x[0], []int{2, 0, 1}) }},
	{"expand", false, [][]int{{3, 1}}, func(x []*Tensor) (*Tensor, error) { return Expand(x[0], []int{2, 3, 4}) }},
	{"narrow", false, [][]int{{4, 3}}, func(x []*Tensor) (*Tensor, error) { return Narrow(x[0], 0, 1, 2) }},
	{"select", false, [][]int{{4, 3}}, func(x []*Tensor) (*Tensor, error) { return Select(x[0], 1, -1) }},
	{"squeeze", false, [][]int{{2, 1, 3}}, func(x []*Tensor) (*Tensor, error) { return Squeeze(x[0], 1) }},
	{"unsqueeze", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) { return Unsqueeze(x[0], -1) }},
	{"flatten", false, [][]int{{2, 3, 2}}, func(x []*Tensor) (*Tensor, error) { return Flatten(x[0], 1, -1) }},
	{"slice step", false, [][]int{{5, 3}}, func(x []*Tensor) (*Tensor, error) { return Index(x[0], must(ParseIndex("1::2, :2"))) }},
	{"index tensor", false, [][]int{{2, 4, 2}}, func(x []*Tensor) (*Tensor, error) {
		ix := must(FromInts(nil, []int64{1, -1, 1}, []int{3}, dtype.Int64))
		return Index(x[0], []IndexItem{{Kind: IndexSlice}, {Kind: IndexTensor, T: ix}})
	}},
	{"index mask", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) {
		return Index(x[0], []IndexItem{{Kind: IndexTensor, T: must(BinaryScalar(OpGt, x[0], Float(0), false))}})
	}},
	{"gather", false, [][]int{{3, 4}}, func(x []*Tensor) (*Tensor, error) {
		return Gather(x[0], 1, must(FromInts(nil, []int64{0, 0, 3, 1}, []int{2, 2}, dtype.Int64)))
	}},
	{"scatter_add", false, [][]int{{3, 4}, {2, 3}}, func(x []*Tensor) (*Tensor, error) {
		return ScatterAdd(x[0], 0, must(FromInts(nil, []int64{0, 2, 2, 0}, []int{2, 2}, dtype.Int64)), x[1])
	}},
	{"cat", false, [][]int{{2, 3}, {2, 1}}, func(x []*Tensor) (*Tensor, error) { return Cat(x, 1) }},
	{"stack", false, [][]int{{2, 3}, {2, 3}}, func(x []*Tensor) (*Tensor, error) { return Stack(x, -1) }},
	{"flip", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) { return Flip(x[0], []int{0, 1}) }},
	{"pad", false, [][]int{{2, 3}}, func(x []*Tensor) (*Tensor, error) { return Pad(x[0], []int{1, 2, 0, 1}, Float(5)) }},
	{"assign", false, [][]int{{3, 4}, {2}}, func(x []*Tensor) (*Tensor, error) {
		y := must(Clone(x[0]))
		must(0, SetIndex(y, must(ParseIndex("1, 1:3")), x[1]))
		return Mul(y, y)
	}},
	{"in place", false, [][]int{{2, 3}, {3}}, func(x []*Tensor) (*Tensor, error) {
		y := must(BinaryScalar(OpAdd, x[0], Float(3), false))
		for _, op := range []BinaryOp{OpMul, OpAdd, OpSub, OpDiv} {
			must(0, BinaryInPlace(op, y, x[1]))
		}
		return y, nil
	}},

	{"matmul", false, [][]int{{2, 3}, {3, 4}}, matmulOf},
	{"matmul vectors", false, [][]int{{3}, {3}}, matmulOf}, {"matmul vector", false, [][]int{{3}, {3, 2}}, matmulOf},
	{"matmul by vector", false, [][]int{{2, 2, 3}, {3}}, matmulOf}, {"matmul batch", false, [][]int{{2, 2, 3}, {2, 3, 2}}, matmulOf},
	{"matmul broadcast", false, [][]int{{2, 1, 2, 3}, {3, 3, 2}}, matmulOf}, {"matmul rows", false, [][]int{{2, 2, 3}, {3, 2}}, matmulOf},
	{"matmul transposed", false, [][]int{{3, 2}, {4, 3}}, func(x []*Tensor) (*Tensor, error) {
		return MatMul(must(Transpose(x[0], 0, 1)), must(Transpose(x[1], 0, 1)))
	}},
	{"linear", false, [][]int{{2, 2, 3}, {4, 3}, {4}}, func(x []*Tensor) (*Tensor, error) { return Linear(x[0], x[1], x[2]) }},
	{"linear no bias", false, [][]int{{3}, {4, 3}}, func(x []*Tensor) (*Tensor, error) { return Linear(x[0], x[1], nil) }},

	{"softmax", false, [][]int{{2, 4}}, func(x []*Tensor) (*Tensor, error) { return Softmax(x[0], -1) }},
	{"softmax 0", false, [][]int{{3, 2}}, func(x []*Tensor) (*Tensor, error) { return Softmax(x[0], 0) }},
	{"log_softmax", false, [][]int{{2, 4}}, func(x []*Tensor) (*Tensor, error) { return LogSoftmax(x[0], 1) }},
	{"cross_entropy", false, [][]int{{3, 4}}, func(x []*Tensor) (*Tensor, error) {
		return CrossEntropy(x[0], must(FromInts(nil, []int64{0, 3, -100}, []int{3}, dtype.Int64)), ReduceMean)
	}},
	{"cross_entropy none", false, [][]int{{3, 4}}, func(x []*Tensor) (*Tensor, error) {
		return CrossEntropy(x[0], must(FromInts(nil, []int64{0, 3, 2}, []int{3}, dtype.Int64)), ReduceNone)
	}},
	{"cross_entropy 3d", false, [][]int{{2, 3, 2}}, func(x []*Tensor) (*Tensor, error) {
		return CrossEntropy(x[0], must(FromInts(nil, []int64{0, 2, 1, 1}, []int{2, 2}, dtype.Int64)), ReduceSum)
	}},
	{"cross_entropy soft", true, [][]int{{2, 3}, {2, 3}}, func(x []*Tensor) (*Tensor, error) { return CrossEntropy(x[0], x[1], ReduceMean) }},
	{"nll", false, [][]int{{3, 4}}, func(x []*Tensor) (*Tensor, error) {
		return NLLLoss(x[0], must(FromInts(nil, []int64{0, 3, 1}, []int{3}, dtype.Int64)), nil, IgnoreTarget, ReduceMean)
	}},
	{"mse", false, [][]int{{2, 3}, {2, 3}}, func(x []*Tensor) (*Tensor, error) { return MSELoss(x[0], x[1], ReduceMean) }},
	{"l1", false, [][]int{{2, 3}, {2, 3}}, func(x []*Tensor) (*Tensor, error) { return L1Loss(x[0], x[1], ReduceSum) }},
	{"bce", false, [][]int{{2, 3}, {2, 3}}, func(x []*Tensor) (*Tensor, error) { return BCEWithLogits(x[0], x[1], ReduceMean) }},

	{"layer_norm", false, [][]int{{3, 4}, {4}, {4}}, func(x []*Tensor) (*Tensor, error) { return LayerNorm(x[0], x[1], x[2], 1, 1e-5) }},
	{"layer_norm plain", false, [][]int{{2, 2, 3}}, func(x []*Tensor) (*Tensor, error) { return LayerNorm(x[0], nil, nil, 2, 1e-5) }},
	{"rms_norm", false, [][]int{{3, 4}, {4}}, func(x []*Tensor) (*Tensor, error) { return RMSNorm(x[0], x[1], 1e-5) }},
	{"batch_norm", false, [][]int{{3, 2, 2}, {2}, {2}}, func(x []*Tensor) (*Tensor, error) {
		return BatchNorm(x[0], x[1], x[2], nil, nil, true, 0.1, 1e-5)
	}},
	{"batch_norm eval", false, [][]int{{3, 2}, {2}, {2}}, func(x []*Tensor) (*Tensor, error) {
		c := x[0].ctx
		return BatchNorm(x[0], x[1], x[2], floats(c, dtype.Float64, []int{2}, 1, 2), floats(c, dtype.Float64, []int{2}, 3, 4), false, 0.1, 1e-5)
	}},
	{"dropout", false, [][]int{{20}}, func(x []*Tensor) (*Tensor, error) { return Dropout(x[0], 0.4, NewGenerator(1, 2)) }},
	{"embedding", false, [][]int{{4, 2}}, func(x []*Tensor) (*Tensor, error) {
		return Embedding(x[0], must(FromInts(nil, []int64{1, 3, 1, 0}, []int{2, 2}, dtype.Int64)))
	}},
	{"conv2d", false, [][]int{{2, 2, 4, 3}, {3, 2, 2, 2}, {3}}, func(x []*Tensor) (*Tensor, error) {
		return conv2d(x[0], x[1], x[2], [2]int{2, 1}, [2]int{1, 0})
	}},
	{"max_pool2d", false, [][]int{{1, 2, 4, 4}}, func(x []*Tensor) (*Tensor, error) {
		return MaxPool2d(x[0], [2]int{2, 2}, [2]int{2, 2}, [2]int{1, 0})
	}},
	{"avg_pool2d", false, [][]int{{1, 2, 4, 4}}, func(x []*Tensor) (*Tensor, error) {
		return AvgPool2d(x[0], [2]int{3, 2}, [2]int{1, 2}, [2]int{1, 1})
	}},
	{"attention", false, [][]int{{2, 3, 4}, {2, 3, 4}, {2, 3, 2}}, func(x []*Tensor) (*Tensor, error) { return Attention(x[0], x[1], x[2], true) }},
}

func unaryOf(op UnaryOp) function {
	return func(x []*Tensor) (*Tensor, error) { return Unary(op, x[0]) }
}

func matmulOf(x []*Tensor) (*Tensor, error) { return MatMul(x[0], x[1]) }

// Distinct values without ties or zeros, in an order of no pattern.
func spreadValues(n, salt int, pos bool) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = math.Mod(float64((i+1)*(salt+3))*0.6180339887+0.137*float64(salt), 1)*3 - 1.5
		if pos {
			v[i] = math.Abs(v[i]) + 0.3
		}
	}
	return v
}

// Inputs come as plain tensors and as views of larger ones, whose layout has
// gaps and swapped dimensions.
func TestGradients(t *testing.T) {
	for _, op := range differentiable {
		for _, layout := range []string{"plain", "strided"} {
			t.Run(op.name+"/"+layout, func(t *testing.T) {
				c := NewContext()
				var leaves []*Tensor
				var values [][]float64
				for i, shape := range op.shapes {
					v := spreadValues(product(shape), i, op.pos)
					values = append(values, v)
					leaf := floats(c, dtype.Float64, shape, v...)
					if layout == "strided" {
						leaf = strided(c, leaf)
					}
					check(t, leaf.SetRequiresGrad(true))
					leaves = append(leaves, leaf)
				}
				loss := func() *Tensor {
					y := must(op.f(leaves))
					w := floats(c, dtype.Float64, y.shape, spreadValues(y.n, 7, false)...)
					return must(Sum(must(Mul(y, w)), nil, false))
				}
				check(t, loss().Backward(nil, false))
				for i, leaf := range leaves {
					if leaf.grad == nil {
						t.Fatalf("input %d got no gradient", i)
					}
					got := list(leaf.grad)
					for j := range values[i] {
						want := slope(c, loss, leaf, j)
						if math.Abs(got[j]-want) > 1e-5*max(1, math.Abs(want)) {
							t.Fatalf("input %d, element %d: gradient %v, finite difference %v", i, j, got[j], want)
						}
					}
				}
			})
		}
	}
}

// strided is a leaf of the same values that is a transposed part of a larger
// tensor.
func strided(c *Context, x *Tensor) *Tensor {
	wide := []int{}
	for i := len(x.shape) - 1; i >= 0; i-- {
		wide = append(wide, x.shape[i]*2+1)
	}
	v := must(Full(c, wide, Float(math.NaN()), dtype.Float64))
	order := []int{}
	for i := range x.shape {
		v = part(v, i, 1, x.shape[len(x.shape)-1-i])
		order = append(order, len(x.shape)-1-i)
	}
	v = must(Permute(v, order))
	assign("test", v, x)
	return v
}

// slope is the finite difference of loss in element j of leaf.
func slope(c *Context, loss func() *Tensor, leaf *Tensor, j int) float64 {
	c.BeginNoGrad()
	defer c.EndNoGrad()
	off := 0
	for d, rest := len(leaf.shape)-1, j; d >= 0; d-- {
		off += rest % leaf.shape[d] * leaf.strides[d]
		rest /= leaf.shape[d]
	}
	p := &Elems[float64](leaf)[off]
	old, h := *p, 1e-5
	*p = old + h
	up := scalar(loss())
	*p = old - h
	down := scalar(loss())
	*p = old
	return (up - down) / (2 * h)
}
