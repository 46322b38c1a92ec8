package tensor

import (
	"math"
	"testing"

	"drun/kernel/dtype"
)

// Sums of integers are int64, functions of them float32.
func TestTypesOfResults(t *testing.T) {
	c := NewContext()
	f, i := floats(c, dtype.Float32, []int{2}, 1, 2), ints(c, []int{2}, 7, -7)
	for _, r := range []struct {
		got  *Tensor
		want dtype.Type
	}{
		{must(Sum(must(Binary(OpEq, f, i)), nil, false)), dtype.Int64}, {must(Unary(OpExp, i)), dtype.Float32},
		{must(Sum(must(Cast(i, dtype.Int8)), []int{0}, false)), dtype.Int64}, {must(BinaryScalar(OpAdd, i, Float(0.5), false)), dtype.Float32},
	} {
		if r.got.dtype != r.want {
			t.Errorf("got %s, want %s", r.got.dtype, r.want)
		}
	}
}

func TestIntegerArithmetic(t *testing.T) {
	c := NewContext()
	a := ints(c, []int{4}, 7, -7, 7, -7)
	b := ints(c, []int{4}, 2, 2, -2, -2)
	equal(t, must(Binary(OpFloorDiv, a, b)), []int{4}, 3, -4, -4, 3)
	equal(t, must(Binary(OpMod, a, b)), []int{4}, 1, 1, -1, -1)
	equal(t, must(Div(a, b)), []int{4}, 3.5, -3.5, -3.5, 3.5)
	zero := ints(c, []int{2}, 1, 0)
	fail[*Tensor](t, "integer division by zero", "floor_divide")(Binary(OpFloorDiv, zero, zero))
	fail[*Tensor](t, "integer division by zero", "remainder")(BinaryScalar(OpMod, a, Int(0), false))
	equal(t, must(Binary(OpFloorDiv, floats(c, dtype.Float32, []int{1}, 1), floats(c, dtype.Float32, []int{1}, 0))), []int{1}, math.Inf(1))
	u := must(Cast(a, dtype.Uint8))
	fail[*Tensor](t, "300 does not fit in uint8")(BinaryScalar(OpAdd, u, Int(300), false))
	equal(t, must(BinaryScalar(OpLt, must(Cast(zero, dtype.Uint8)), Int(300), false)), []int{2}, 1, 1)
	m := ints(c, []int{2, 2}, 1, 2, 3, 4)
	equal(t, must(MatMul(m, m)), []int{2, 2}, 7, 10, 15, 22)
}

func TestComparisonsAndMasks(t *testing.T) {
	c := NewContext()
	x := floats(c, dtype.Float32, []int{3}, 1, math.NaN(), 3)
	equal(t, must(Binary(OpEq, x, x)), []int{3}, 1, 0, 1)
	equal(t, must(BinaryScalar(OpLt, x, Float(2), false)), []int{3}, 1, 0, 0)
	equal(t, must(IsNaN(x)), []int{3}, 0, 1, 0)
	not := must(Unary(OpNot, must(IsNaN(x))))
	equal(t, not, []int{3}, 1, 0, 1)
	equal(t, must(Index(x, []IndexItem{{Kind: IndexTensor, T: not}})), []int{2}, 1, 3)
	check(t, SetIndex(x, []IndexItem{{Kind: IndexTensor, T: must(IsNaN(x))}}, floats(c, dtype.Float32, nil, 9)))
	equal(t, x, []int{3}, 1, 9, 3)
	check(t, SetIndex(x, []IndexItem{{Kind: IndexTensor, T: ints(c, []int{2}, -1, 0)}}, floats(c, dtype.Float32, []int{2}, 5, 6)))
	equal(t, x, []int{3}, 6, 9, 5)
	if !must(must(Any(not, nil, false)).Item()).truth() || must(must(All(not, nil, false)).Item()).truth() {
		t.Error("any and all of (true, false, true)")
	}
}

func (s Scalar) truth() bool { return s.i != 0 }

func TestReductions(t *testing.T) {
	c := NewContext()
	x := floats(c, dtype.Float32, []int{2, 3}, 1, 5, 2, 8, 0, 8)
	equal(t, must(Sum(x, []int{0}, true)), []int{1, 3}, 9, 5, 10)
	equal(t, must(Mean(x, nil, false)), nil, 4)
	near(t, must(Var(x, []int{1}, 1, false)), 1e-5, []int{2}, 13./3, 64./3)
	near(t, must(Var(x, []int{1}, 0, false)), 1e-5, []int{2}, 26./9, 128./9)
	v, i, err := MaxDim(x, 1, false)
	check(t, err)
	equal(t, v, []int{2}, 5, 8)
	equal(t, i, []int{2}, 1, 0)
	equal(t, must(ArgMin(x, nil, false)), nil, 4)
	equal(t, must(Max(x)), nil, 8)
	equal(t, must(CumSum(x, 1)), []int{2, 3}, 1, 6, 8, 8, 8, 16)
	near(t, must(Norm(floats(c, dtype.Float32, []int{2}, 3, 4), 2, nil, false)), 0, nil, 5)
	v, i, err = TopK(x, 2, -1, true)
	check(t, err)
	equal(t, v, []int{2, 2}, 5, 2, 8, 8)
	equal(t, i, []int{2, 2}, 1, 2, 0, 2)
	v, _, err = Sort(floats(c, dtype.Float32, []int{3}, math.NaN(), 2, 1), 0, false)
	check(t, err)
	equal(t, v, []int{3}, 1, 2, math.NaN())
	empty := must(Zeros(c, []int{0, 3}, dtype.Float32))
	equal(t, must(Sum(empty, nil, false)), nil, 0)
	fail[*Tensor](t, "max", "(0, 3)")(Max(empty))
	equal(t, must(Mean(empty, []int{0}, false)), []int{3}, math.NaN(), math.NaN(), math.NaN())
	fail[*Tensor](t, "argmax", "empty")(ArgMax(empty, new(int), false))
	fail[*Tensor](t, "mean", "int64", ".to(")(Mean(ints(c, []int{1}, 1), nil, false))
	fail[*Tensor](t, "sum", "dimension 2", "-2 to 1")(Sum(x, []int{2}, false))
}

func TestLosses(t *testing.T) {
	c := NewContext()
	x := floats(c, dtype.Float64, []int{2, 2}, 0, 0, 0, math.Log(3))
	y := ints(c, []int{2}, 0, 1)
	near(t, must(CrossEntropy(x, y, ReduceNone)), 1e-12, []int{2}, math.Ln2, -math.Log(0.75))
	near(t, must(NLLLoss(must(LogSoftmax(x, 1)), y, nil, IgnoreTarget, ReduceSum)), 1e-12, nil, math.Ln2-math.Log(0.75))
	near(t, must(CrossEntropy(x, ints(c, []int{2}, -100, 1), ReduceMean)), 1e-12, nil, -math.Log(0.75))
	near(t, must(BCEWithLogits(floats(c, dtype.Float64, []int{2}, 1000, -1000), floats(c, dtype.Float64, []int{2}, 1, 1), ReduceNone)), 0, []int{2}, 0, 1000)
	if a := must(Accuracy(x, ints(c, []int{2}, 0, 0))); a != 0.5 {
		t.Errorf("accuracy %v, want 0.5", a)
	}
	fail[*Tensor](t, "target 2", "0 to 1")(CrossEntropy(x, ints(c, []int{2}, 0, 2), ReduceMean))
	fail[*Tensor](t, "(3,)", "(2, 2)")(CrossEntropy(x, ints(c, []int{3}, 0, 0, 0), ReduceMean))
	fail[*Tensor](t, "mse_loss", "(2, 2)", "(2,)")(MSELoss(x, floats(c, dtype.Float64, []int{2}, 1, 2), ReduceMean))
}

func TestBatchNormStatistics(t *testing.T) {
	c := NewContext()
	x := floats(c, dtype.Float32, []int{4, 1}, 1, 2, 3, 4)
	mean, va := must(Zeros(c, []int{1}, dtype.Float32)), must(Ones(c, []int{1}, dtype.Float32))
	out := must(BatchNorm(x, nil, nil, mean, va, true, 0.1, 0))
	near(t, out, 1e-5, []int{4, 1}, -1.3416408, -0.4472136, 0.4472136, 1.3416408)
	near(t, mean, 1e-6, []int{1}, 0.25)
	near(t, va, 1e-6, []int{1}, 0.9+0.1*5./3)
	near(t, must(BatchNorm(x, nil, nil, mean, va, false, 0.1, 0)), 1e-5, []int{4, 1},
		0.75/math.Sqrt(0.9+0.5/3), 1.75/math.Sqrt(0.9+0.5/3), 2.75/math.Sqrt(0.9+0.5/3), 3.75/math.Sqrt(0.9+0.5/3))
}

func TestCreation(t *testing.T) {
	c := NewContext()
	equal(t, must(Arange(c, Int(0), Int(5), Int(2), dtype.Int64)), []int{3}, 0, 2, 4)
	equal(t, must(Arange(c, Float(1), Float(0), Float(-0.5), dtype.Float32)), []int{2}, 1, 0.5)
	equal(t, must(Linspace(c, 0, 1, 3, dtype.Float32)), []int{3}, 0, 0.5, 1)
	equal(t, must(Eye(c, 2, 3, dtype.Int64)), []int{2, 3}, 1, 0, 0, 0, 1, 0)
	equal(t, must(OneHot(ints(c, []int{2}, 2, 0), -1)), []int{2, 3}, 0, 0, 1, 1, 0, 0)
	equal(t, must(BinCount(ints(c, []int{3}, 1, 3, 1), nil, 0)), []int{4}, 0, 2, 0, 1)
	equal(t, must(Pad(ints(c, []int{1, 2}, 1, 2), []int{1, 0, 0, 1}, Int(9))), []int{2, 3}, 9, 1, 2, 9, 9, 9)
	equal(t, must(Flip(ints(c, []int{3}, 1, 2, 3), []int{0})), []int{3}, 3, 2, 1)
	fail[*Tensor](t, "step")(Arange(c, Int(0), Int(5), Int(0), dtype.Int64))
	fail[*Tensor](t, "does not lead")(Arange(c, Int(0), Int(5), Int(-1), dtype.Int64))
	fail[*Tensor](t, "256 does not fit in uint8")(Full(c, []int{1}, Int(256), dtype.Uint8))
}

// Every finite half and brain float survives the way to float32 and back.
func TestHalfTypes(t *testing.T) {
	c := NewContext()
	for _, d := range []dtype.Type{dtype.Float16, dtype.BFloat16} {
		x := newTensor("test", c, []int{1 << 16}, d)
		for i := range Elems[uint16](x) {
			Elems[uint16](x)[i] = uint16(i)
		}
		back := must(Cast(must(Cast(x, dtype.Float32)), d))
		for i, v := range Elems[uint16](back) {
			one := must(Select(x, 0, i))
			f := one.Element(0).f
			if f == f && v != uint16(i) {
				t.Fatalf("%s %#x became %#x", d, i, v)
			}
			if kernelValue := must(Cast(one, dtype.Float32)); kernelValue.Element(0).f != f && f == f {
				t.Fatalf("%s %#x is %v to Item and %v to Cast", d, i, f, kernelValue.Element(0).f)
			}
			if f == f {
				if again := must(Full(c, []int{1}, Float(f), d)); Elems[uint16](again)[0] != uint16(i) {
					t.Fatalf("%v as %s is %#x, want %#x", f, d, Elems[uint16](again)[0], i)
				}
			}
		}
	}
	equal(t, must(Full(c, []int{1}, Float(65520), dtype.Float16)), []int{1}, math.Inf(1))
	equal(t, must(Full(c, []int{1}, Float(1+1./2048), dtype.Float16)), []int{1}, 1)
}

func TestShapeErrors(t *testing.T) {
	c := NewContext()
	a, b := must(Zeros(c, []int{2, 3}, dtype.Float32)), must(Zeros(c, []int{4, 5}, dtype.Float32))
	fail[*Tensor](t, "matmul: shapes (2, 3) and (4, 5) do not match")(MatMul(a, b))
	fail[*Tensor](t, "add: shapes (2, 3) and (4, 5)")(Add(a, b))
	fail[*Tensor](t, "reshape", "(2, 3)", "(4,)")(Reshape(a, []int{4}))
	fail[*Tensor](t, "view", "reshape")(View(must(Transpose(a, 0, 1)), []int{6}))
	fail[*Tensor](t, "index 3 is out of range", "-3 to 2")(Select(a, 1, 3))
	fail[*Tensor](t, "3 indices", "2 dimensions")(Index(a, must(ParseIndex("0,0,0"))))
	fail[*Tensor](t, "linear", "(2, 3)", "(4, 5)")(Linear(a, b, nil))
	fail[*Tensor](t, "conv2d", "(2, 3)")(conv2d(a, b, nil, [2]int{1, 1}, [2]int{}))
	fail[*Tensor](t, "cat", "(2, 3)", "(4, 5)")(Cat([]*Tensor{a, b}, 0))
	fail[*Tensor](t, "embedding", "index 9", "4 rows", "0 to 3")(Embedding(b, ints(c, []int{1}, 9)))
	fail[*Tensor](t, "permute", "twice")(Permute(a, []int{0, 0}))
	fail[*Tensor](t, "expand", "(2, 3)", "(2, 4)")(Expand(a, []int{2, 4}))
	fail[[]IndexItem](t, `"x"`)(ParseIndex("x, 1"))
	fail[Scalar](t, "6 elements", "(2, 3)")(a.Item())
	fails(t, SetIndex(a, must(ParseIndex("0")), must(Zeros(c, []int{4}, dtype.Float32))), "(4,)", "(3,)")
}

// Statistics over any choice of dimensions against the definition, with an
// offset beside which the values are small; and what there is of nothing.
func TestStatisticsOverDimensions(t *testing.T) {
	c := NewContext()
	shape := []int{3, 4, 2, 5}
	g := NewGenerator(3, 1)
	x := must(BinaryScalar(OpAdd, must(g.Randn(c, shape, dtype.Float32)), Float(1e6), false))
	for mask := 1; mask < 16; mask++ {
		var dims []int
		for d := range shape {
			if mask>>d&1 == 1 {
				dims = append(dims, d)
			}
		}
		wide := must(Cast(x, dtype.Float64))
		mean := must(Mean(wide, dims, true))
		square := must(Unary(OpSquare, must(Sub(wide, mean))))
		total := must(Sum(square, dims, false))
		count := float64(x.n / total.n)
		want := list(must(BinaryScalar(OpDiv, total, Float(count-1), false)))
		near(t, must(Var(x, dims, 1, false)), 1e-4, total.shape, want...)
		near(t, must(Unary(OpSquare, must(Std(x, dims, 1, true)))), 1e-4, ReducedShape(shape, dims, true), want...)
		norm := list(must(Unary(OpSqrt, must(Sum(must(Unary(OpSquare, wide)), dims, false)))))
		near(t, must(Norm(x, 2, dims, false)), 2, total.shape, norm...)
	}
	empty := must(Zeros(c, []int{0, 3}, dtype.Float32))
	check(t, empty.SetRequiresGrad(true))
	nan := math.NaN()
	v := must(Var(empty, []int{0}, 1, false))
	equal(t, v, []int{3}, nan, nan, nan)
	check(t, v.Backward(must(Ones(c, []int{3}, dtype.Float32)), false))
	equal(t, must(Std(empty, nil, 0, false)), nil, nan)
	equal(t, must(Norm(empty, 2, []int{0}, false)), []int{3}, 0, 0, 0)
	equal(t, must(Norm(empty, 1, nil, false)), nil, 0)
	equal(t, must(Var(empty, []int{1}, 1, false)), []int{0})
	fail[*Tensor](t, "norm", "(0, 3)")(Norm(empty, math.Inf(1), nil, false))
	equal(t, must(Var(floats(c, dtype.Float32, []int{1}, 4), nil, 1, false)), nil, nan)
	equal(t, must(Var(floats(c, dtype.Float32, []int{1}, 4), nil, 0, false)), nil, 0)
	y := floats(c, dtype.Float32, []int{2}, 3, 3)
	check(t, y.SetRequiresGrad(true))
	check(t, must(Std(y, nil, 1, false)).Backward(nil, false))
	equal(t, y.Grad(), []int{2}, 0, 0)
	zeros := floats(c, dtype.Float32, []int{3}, 0, -2, 0)
	equal(t, must(Norm(zeros, 0, nil, false)), nil, 1)
	equal(t, must(Norm(zeros, math.Inf(-1), nil, false)), nil, 0)
}

// Integers to negative powers, and what else has no result, say so.
func TestIntegerPowers(t *testing.T) {
	c := NewContext()
	x := ints(c, []int{3}, 2, -3, 0)
	equal(t, must(BinaryScalar(OpPow, x, Int(3), false)), []int{3}, 8, -27, 0)
	near(t, must(BinaryScalar(OpPow, x, Float(-1), false)), 1e-7, []int{3}, 0.5, -1./3, math.Inf(1))
	equal(t, must(BinaryScalar(OpPow, ints(c, []int{2}, 0, 5), Int(2), true)), []int{2}, 1, 32)
	fail[*Tensor](t, "pow", "negative", `.to("float32")`)(BinaryScalar(OpPow, x, Int(-1), false))
	fail[*Tensor](t, "pow", "negative")(Binary(OpPow, x, x))
	fail[*Tensor](t, "pow", "negative")(BinaryScalar(OpPow, x, Int(2), true))
	fail[*Tensor](t, "embedding", "index -1", "0 to 1")(Embedding(must(Ones(c, []int{2, 2}, dtype.Float32)), ints(c, []int{1}, -1)))
	fail[*Tensor](t, "embedding", "without rows")(Embedding(must(Ones(c, []int{0, 2}, dtype.Float32)), ints(c, []int{1}, 0)))
	equal(t, must(Embedding(must(Ones(c, []int{0, 2}, dtype.Float32)), ints(c, []int{0}))), []int{0, 2})
}
