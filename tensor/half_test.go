package tensor

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"drun/kernel/dtype"
)

// bits16 makes a bfloat16 tensor of these patterns.
func bits16(c *Context, bits ...uint16) *Tensor {
	x := newTensor("test", c, []int{len(bits)}, dtype.BFloat16)
	copy(Elems[uint16](x), bits)
	return x
}

// nearest16 is the bfloat16 nearest to f, by the definition: of its two neighbours the nearer one, of
// equally near ones that with an even pattern; beyond the largest by half a step, infinity.
func nearest16(f float32) uint16 {
	if f != f {
		return 0x7fc0
	}
	low := uint16(math.Float32bits(f) >> 16)
	a, v := value(low, 7, 127), float64(f)
	b := value(low+1, 7, 127)
	if math.IsInf(b, 0) && !math.IsInf(a, 0) {
		b = 2*a - value(low-1, 7, 127)
	}
	switch near, far := math.Abs(v-a), math.Abs(b-v); {
	case math.IsInf(a, 0), near < far, near == far && low&1 == 0:
		return low
	}
	return low + 1
}

// Every number with numbers of all sizes, NaN and infinity among them: the result in float32, rounded
// once, on every path.
func TestHalfArithmetic(t *testing.T) {
	c := NewContext()
	r := rand.New(rand.NewPCG(7, 7))
	var all, others []uint16
	for b := range 1 << 16 {
		all, others = append(all, uint16(b)), append(others, uint16(r.Uint32()))
		if b%3 == 0 { // near in size, so that sums round
			others[b] = uint16(b) ^ uint16(r.Uint32()&0x81ff)
		}
	}
	x, y := bits16(c, all...), bits16(c, others...)
	for op, want := range map[BinaryOp]func(a, b float32) float32{
		OpAdd: func(a, b float32) float32 { return a + b },
		OpSub: func(a, b float32) float32 { return a - b },
		OpMul: func(a, b float32) float32 { return a * b },
		OpDiv: func(a, b float32) float32 { return a / b },
	} {
		everyPath(t, func(where string) {
			got := must(Binary(op, x, y))
			inPlace := must(Clone(x))
			check(t, BinaryInPlace(op, inPlace, y))
			for i, v := range Elems[uint16](got) {
				a, b := math.Float32frombits(uint32(all[i])<<16), math.Float32frombits(uint32(others[i])<<16)
				if w := nearest16(want(a, b)); v != w || Elems[uint16](inPlace)[i] != w {
					t.Fatalf("%s: %v %s %v is %#04x, in place %#04x, want %#04x", where, a, op, b, v, Elems[uint16](inPlace)[i], w)
				}
			}
		})
	}
	for op, want := range map[BinaryOp]func(a, b float64) bool{
		OpLt: func(a, b float64) bool { return a < b }, OpEq: func(a, b float64) bool { return a == b }, OpGe: func(a, b float64) bool { return a >= b }} {
		for i, v := range Elems[bool](must(Binary(op, x, y))) {
			if a, b := value(all[i], 7, 127), value(others[i], 7, 127); v != want(a, b) {
				t.Fatalf("%v %s %v is %v", a, op, b, v)
			}
		}
	}
}

// Plain numbers keep their digits as factors and divisors, and are rounded elsewhere, as in PyTorch.
func TestHalfWithNumbers(t *testing.T) {
	c := NewContext()
	x := bits16(c, 0x3f80, 0x3dcd) // 1, 0.1
	tenth := value(0x3dcd, 7, 127)
	equal(t, must(BinaryScalar(OpEq, x, Float(0.1), false)), []int{2}, 0, 1)
	equal(t, must(BinaryScalar(OpMul, bits16(c, 0x42f7), Float(1.003), false)), []int{1}, value(nearest16(float32(123.5)*float32(1.003)), 7, 127))
	equal(t, must(BinaryScalar(OpSub, x, Float(0.1), true)), []int{2}, value(nearest16(float32(tenth)-1), 7, 127), 0)
	y := must(Clone(x))
	check(t, BinaryScalarInPlace(OpMul, y, Float(1.003)))
	equal(t, y, []int{2}, value(nearest16(1.003), 7, 127), value(nearest16(float32(tenth)*1.003), 7, 127))
	for _, got := range []*Tensor{must(BinaryScalar(OpAdd, x, Int(1), false)), must(Add(x, ints(c, []int{2}, 3, 4))), must(Unary(OpExp, x)), must(Sum(x, nil, false))} {
		if got.dtype != dtype.BFloat16 {
			t.Errorf("a result is %s", got.dtype)
		}
	}
}

// halfCases are functions of a matrix, and one each that float32 computes on the same numbers.
var halfCases = map[string]func(x *Tensor) (*Tensor, error){
	"gelu":        func(x *Tensor) (*Tensor, error) { return Unary(OpGelu, x) },
	"leaky_relu":  func(x *Tensor) (*Tensor, error) { return LeakyRelu(x, 0.1) },
	"softmax":     func(x *Tensor) (*Tensor, error) { return Softmax(x, 0) },
	"log_softmax": func(x *Tensor) (*Tensor, error) { return LogSoftmax(x, -1) },
	"logsumexp":   func(x *Tensor) (*Tensor, error) { return LogSumExp(x, []int{1}, false) },
	"sum":         func(x *Tensor) (*Tensor, error) { return Sum(x, []int{0}, true) },
	"mean":        func(x *Tensor) (*Tensor, error) { return Mean(x, nil, false) },
	"prod":        func(x *Tensor) (*Tensor, error) { return Prod(x, new(1), false) },
	"cumsum":      func(x *Tensor) (*Tensor, error) { return CumSum(x, 1) },
	"cumprod":     func(x *Tensor) (*Tensor, error) { return CumProd(x, 0) },
	"max":         Max,
	"var":         func(x *Tensor) (*Tensor, error) { return Var(x, []int{1}, 1, false) },
	"norm":        func(x *Tensor) (*Tensor, error) { return Norm(x, 2, nil, false) },
	"layer_norm":  func(x *Tensor) (*Tensor, error) { return LayerNorm(x, nil, nil, 1, 1e-5) },
	"group_norm":  func(x *Tensor) (*Tensor, error) { return GroupNorm("group_norm", x, nil, nil, 3, 1e-5) },
	"pow":         func(x *Tensor) (*Tensor, error) { return BinaryScalar(OpPow, x, Int(2), false) },
	"cross_entropy": func(x *Tensor) (*Tensor, error) {
		return CrossEntropy(x, ints(x.ctx, []int{4}, 0, 1, 2, 5), ReduceMean)
	},
	"mse_loss": func(x *Tensor) (*Tensor, error) {
		return MSELoss(x, must(Zeros(x.ctx, x.shape, x.dtype)), ReduceMean)
	},
	"rotary_embedding": func(x *Tensor) (*Tensor, error) { return Rotary(x, 10000, 0, false) },
	"index":            func(x *Tensor) (*Tensor, error) { return IndexSelect(x, 0, ints(x.ctx, []int{3}, 2, 0, 2)) },
	"slices": func(x *Tensor) (*Tensor, error) { // parts of one gradient are added to each other
		return Add(must(Narrow(x, 0, 0, 3)), must(Narrow(x, 0, 1, 3)))
	},
	"sort": func(x *Tensor) (*Tensor, error) {
		values, _, err := Sort(x, 1, true)
		return values, err
	},
	"where": func(x *Tensor) (*Tensor, error) {
		return Where(must(BinaryScalar(OpGt, x, Int(0), false)), x, must(BinaryScalar(OpMul, x, Float(0.25), false)))
	},
	"dropout": func(x *Tensor) (*Tensor, error) { return Dropout(x, 0.5, NewGenerator(1, 2)) },
}

// A function of bfloat16 is that of float32 on the same numbers, rounded once, and its gradient that of
// float32, not rounded.
func TestHalfFunctions(t *testing.T) {
	for name, f := range halfCases {
		t.Run(name, func(t *testing.T) {
			everyPath(t, func(where string) {
				c := NewContext()
				leaf := func() *Tensor {
					x := must(Cast(must(Cast(floats(c, dtype.Float32, []int{4, 6}, spread24()...), dtype.BFloat16)), dtype.Float32))
					check(t, x.SetRequiresGrad(true))
					return x
				}
				a, b := leaf(), leaf()
				got, want := must(f(must(Cast(a, dtype.BFloat16)))), must(f(b))
				if got.dtype != dtype.BFloat16 || want.dtype != dtype.Float32 {
					t.Fatalf("%s: %s and %s", where, got.dtype, want.dtype)
				}
				rounded := Elems[uint16](contiguous(must(Cast(want.Detach(), dtype.BFloat16))))
				for i, v := range Elems[uint16](contiguous(got.Detach())) {
					if v != rounded[i] {
						t.Fatalf("%s: element %d is %#04x, want %#04x", where, i, v, rounded[i])
					}
				}
				seed := must(Full(c, got.shape, Float(0.7), dtype.Float32))
				check(t, got.Backward(seed, false))
				check(t, want.Backward(seed, false))
				if a.grad.dtype != dtype.Float32 {
					t.Fatalf("a gradient is %s", a.grad.dtype)
				}
				equal(t, a.grad, a.shape, list(b.grad)...)
			})
		})
	}
}

func spread24() []float64 {
	x := make([]float64, 24)
	for i := range x {
		x[i] = math.Sin(float64(3*i+1)) * 1.3
	}
	return x
}

// What does not take bfloat16 says so; nothing reads its bits as another type's.
func TestHalfRefused(t *testing.T) {
	c := NewContext()
	x := must(Ones(c, []int{3, 3}, dtype.BFloat16))
	for name, f := range map[string]func() error{
		"histogram": func() error { _, _, err := Histogram(x, 3, nil, nil, false); return err },
		"quantile": func() error {
			_, err := Quantile(x, floats(c, dtype.Float32, nil, 0.5), nil, false, "linear")
			return err
		},
		"multinomial": func() error { _, err := NewGenerator(1, 2).Multinomial(c, x, 1, true); return err },
		"bincount": func() error {
			_, err := BinCount(ints(c, []int{2}, 0, 1), must(Ones(c, []int{2}, dtype.BFloat16)), 0)
			return err
		},
		"requires_grad": func() error { return x.SetRequiresGrad(true) },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), "bfloat16") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// Products under autocast: operands rounded to bfloat16 by whichever way they come, float32 gradients that are added
// to those there are, with the bits of a product of rounded operands.
func TestHalfProducts(t *testing.T) {
	everyPath(t, func(where string) {
		c := NewContext()
		g := NewGenerator(4, 1)
		leaf := func(shape ...int) *Tensor {
			x := must(g.Randn(c, shape, dtype.Float32))
			check(t, x.SetRequiresGrad(true))
			return x
		}
		round := func(x *Tensor) *Tensor { return must(Cast(must(Cast(x.Detach(), dtype.BFloat16)), dtype.Float32)) }
		x, w, bias := leaf(5, 3, 37), leaf(21, 37), leaf(21)
		c.Autocast(true)
		y := must(Linear(x, w, bias))
		if y.dtype != dtype.BFloat16 {
			t.Fatalf("%s: %s", where, y.dtype)
		}
		if same := must(Linear(must(Cast(x, dtype.BFloat16)), w, must(Cast(bias, dtype.BFloat16)))); !slices.Equal(Elems[uint16](same), Elems[uint16](y)) {
			t.Fatalf("%s: operands in bfloat16 make other bits", where)
		}
		// Against float32 on the rounded numbers: a chain of 37 differs in the last digits.
		c.Autocast(false)
		near(t, y, 0.13, y.shape, list(must(Linear(round(x), round(w), round(bias))))...)
		seed := must(g.Randn(c, y.shape, dtype.Float32))
		check(t, y.Backward(seed, true))
		dx := must(MatMul(round(seed), round(w)))
		dw := must(MatMul(must(Transpose(must(Reshape(round(seed), []int{15, 21})), 0, 1)), must(Reshape(round(x), []int{15, 37}))))
		near(t, x.grad, 1e-4, x.shape, list(dx)...)
		near(t, w.grad, 1e-4, w.shape, list(dw)...)
		near(t, bias.grad, 1e-4, bias.shape, list(must(Sum(must(Reshape(seed, []int{15, 21})), []int{0}, false)))...)
		once := list(w.grad)
		check(t, y.Backward(seed, false))
		for i := range once {
			once[i] *= 2
		}
		equal(t, w.grad, w.shape, once...)

		// Batches that broadcast, and transposed operands.
		a, b := leaf(4, 1, 3, 35), leaf(2, 35, 6)
		c.Autocast(true)
		p := must(MatMul(a, b))
		c.Autocast(false)
		near(t, p, 0.13, []int{4, 2, 3, 6}, list(must(MatMul(round(a), round(b))))...)
		check(t, p.Backward(must(Ones(c, p.shape, dtype.BFloat16)), false))
		near(t, a.grad, 1e-3, a.shape, list(sumTo(must(MatMul(must(Ones(c, p.shape, dtype.Float32)), must(Transpose(round(b), 1, 2)))), a.shape))...)
		turned := must(Transpose(must(Cast(a.Detach(), dtype.BFloat16)), 2, 3))
		if q := must(MatMul(turned, must(Cast(a.Detach(), dtype.BFloat16)))); q.dtype != dtype.BFloat16 {
			t.Fatalf("%s", q.dtype)
		}
		fail[*Tensor](t, "dtypes bfloat16 and float32 differ")(MatMul(turned, a))
		fail[*Tensor](t, "dtypes bfloat16 and float32 differ")(Linear(must(Cast(x, dtype.BFloat16)), w, nil))
	})
}

// What has no kernel of its own rounds its operands and its result.
func TestHalfLowered(t *testing.T) {
	c := NewContext()
	g := NewGenerator(5, 1)
	draw := func(shape ...int) *Tensor { return must(g.Randn(c, shape, dtype.Float32)) }
	round := func(x *Tensor) *Tensor { return must(Cast(must(Cast(x, dtype.BFloat16)), dtype.Float32)) }
	for name, f := range map[string]func(x, y, z *Tensor) (*Tensor, error){
		"conv2d": func(x, y, z *Tensor) (*Tensor, error) {
			return conv2d(x, y, nil, [2]int{1, 1}, [2]int{1, 1})
		},
		"conv_transpose2d": func(x, y, z *Tensor) (*Tensor, error) {
			return ConvTranspose2d(x, y, nil, plain([2]int{1, 1}, [2]int{}))
		},
		"attention": func(x, y, z *Tensor) (*Tensor, error) { return Attention(x, y, z, true) },
		"attention with options": func(x, y, z *Tensor) (*Tensor, error) {
			out, weights, err := AttentionWith(x, y, z, AttentionOptions{Scale: 0.5})
			if err == nil && weights.dtype != out.dtype {
				t.Errorf("weights are %s", weights.dtype)
			}
			return out, err
		},
	} {
		x, y, z := draw(3, 3, 3, 3), draw(3, 3, 3, 3), draw(3, 3, 3, 3)
		want := must(Cast(must(f(round(x), round(y), round(z))), dtype.BFloat16))
		c.Autocast(true)
		got := must(f(x, y, z))
		c.Autocast(false)
		low := must(f(must(Cast(x, dtype.BFloat16)), must(Cast(y, dtype.BFloat16)), must(Cast(z, dtype.BFloat16))))
		for _, v := range []*Tensor{got, low} {
			if v.dtype != dtype.BFloat16 || !slices.Equal(Elems[uint16](v), Elems[uint16](want)) {
				t.Errorf("%s: %s, or other bits than operands rounded before", name, v.dtype)
			}
		}
	}
}

// Under autocast, functions that need float32's precision give float32; the others keep bfloat16.
func TestAutocastOfFunctions(t *testing.T) {
	c := new(Context)
	x := must(Cast(must(FromFloats(c, []float64{0.25, 0.5}, []int{2}, dtype.Float32)), dtype.BFloat16))
	precise := []UnaryOp{OpExp, OpExpm1, OpLog, OpLog1p, OpReciprocal, OpTan, OpAsin, OpAcos}
	for op := range UnaryOp(len(unaryOps)) {
		if op == OpNot {
			continue
		}
		want := dtype.BFloat16
		if slices.Contains(precise, op) {
			want = dtype.Float32
		}
		c.Autocast(true)
		got := must(Unary(op, x)).dtype
		c.Autocast(false)
		if plain := must(Unary(op, x)).dtype; got != want || plain != dtype.BFloat16 {
			t.Errorf("%v gives %v under autocast, want %v; and %v without", op, got, want, plain)
		}
	}
}
