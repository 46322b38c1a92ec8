package tensor

import (
	"slices"
	"strings"
	"testing"

	"drun/kernel/dtype"
)

func TestFromScalars(t *testing.T) {
	c := NewContext()
	x := must(FromScalars(c, []Scalar{Int(1), Float(2.9), Truth(true)}, []int{3}, dtype.Int8))
	equal(t, x, []int{3}, 1, 2, 1)
	if s := must(x.Scalars()); !slices.Equal(s, []Scalar{Int(1), Int(2), Int(1)}) {
		t.Errorf("Scalars gave %v", s)
	}
	// 2⁶³-1 survives: integers do not pass through floats.
	const top = 1<<63 - 1
	if v := must(must(FromScalars(c, []Scalar{Int(top)}, nil, dtype.Int64)).Item()); v.Int() != top || v.Kind() != dtype.Int64 {
		t.Errorf("2⁶³-1 became %v", v)
	}
	fail[*Tensor](t, "-1 does not fit in uint8")(FromScalars(c, []Scalar{Int(-1)}, nil, dtype.Uint8))
	fail[*Tensor](t, "2 values", "(3,)")(FromScalars(c, make([]Scalar, 2), []int{3}, dtype.Float32))
	fail[*Tensor](t, "3 bytes", "takes 4")(FromBytes(c, make([]byte, 3), []int{1}, dtype.Float32))
}

// A shape that the bytes do not make takes no memory.
func TestFromBytesOfAnyShape(t *testing.T) {
	for _, shape := range [][]int{{1 << 40}, {1 << 62}, {1 << 32, 1 << 32}, {3}, {-1}} {
		_, err := FromBytes(NewContext(), make([]byte, 8), shape, dtype.Float32)
		if err == nil || strings.Contains(err.Error(), "memory") {
			t.Errorf("%v: %v", shape, err)
		}
	}
	if _, err := FromBytes(NewContext(), make([]byte, 8), []int{2, 1}, dtype.Float32); err != nil {
		t.Error(err)
	}
}

// Who writes through Bytes and says so is found out by the backward pass.
func TestBytesAndTouched(t *testing.T) {
	c := NewContext()
	x := leaf(c, 1, 2)
	if b := must(Transpose(must(Zeros(c, []int{2, 3}, dtype.Float32)), 0, 1)).Bytes(); b != nil {
		t.Error("Bytes of a tensor with gaps must be nil")
	}
	y := must(Unary(OpExp, x))
	clear(y.Bytes())
	y.Touched()
	equal(t, y, []int{2}, 0, 0)
	fails(t, must(Sum(y, nil, false)).Backward(nil, false), "modified in place")
}

func TestScalarInPlace(t *testing.T) {
	c := NewContext()
	x := ints(c, []int{2}, 4, 6)
	check(t, BinaryScalarInPlace(OpMul, x, Int(3)))
	check(t, BinaryScalarInPlace(OpSub, x, Truth(true)))
	equal(t, x, []int{2}, 11, 17)
	fails(t, BinaryScalarInPlace(OpAdd, x, Float(0.5)), "add_", "0.5", "int64")
	fails(t, BinaryScalarInPlace(OpPow, x, Int(2)), "pow_", "no such operation")
}

func TestFrozenAndPrivate(t *testing.T) {
	c := NewContext()
	x := floats(c, dtype.Float32, []int{1, 2, 1}, 1, 2)
	if s := SqueezeAll(x); !sameShape(s.Shape(), []int{2}) || s.Storage() != x.Storage() || s.Context() != c {
		t.Errorf("SqueezeAll gave shape %v", s.Shape())
	}
	x.Freeze()
	if !x.Frozen() || !must(Select(x, 0, 0)).Frozen() || must(Clone(x)).Frozen() {
		t.Error("views of a frozen tensor are frozen, copies are not")
	}
	if same := must(Contiguous(x)); same != x {
		t.Error("Contiguous copied a contiguous tensor")
	}
	if !x.IsLeaf() || x.Dim() != 3 || x.Len() != 2 || x.DType() != dtype.Float32 || !x.IsContiguous() || x.Storage().Bytes() != 8 {
		t.Error("the attributes are wrong")
	}
}

func TestIndexSyntax(t *testing.T) {
	c := NewContext()
	x := must(Reshape(must(Arange(c, Int(0), Int(24), Int(1), dtype.Int64)), []int{2, 3, 4}))
	for _, tc := range []struct {
		index string
		shape []int
		first float64
	}{
		{":, 0", []int{2, 4}, 0}, {"1", []int{3, 4}, 12}, {"-1, -1, -1", nil, 23}, {"..., 1", []int{2, 3}, 1},
		{"1, ..., 2:", []int{3, 2}, 14}, {":, None, 1:", []int{2, 1, 2, 4}, 4}, {"::1, ::2, ::3", []int{2, 2, 2}, 0},
		{"0, 5:, :", []int{0, 4}, 0}, {"1,", []int{3, 4}, 12}, {"-9:9", []int{2, 3, 4}, 0}, {"...", []int{2, 3, 4}, 0},
	} {
		got := must(Index(x, must(ParseIndex(tc.index))))
		if !sameShape(got.shape, tc.shape) || got.n > 0 && list(got)[0] != tc.first {
			t.Errorf("x[%s]: shape %v, elements %v", tc.index, got.shape, list(got))
		}
		if !SharesStorage(got, x) {
			t.Errorf("x[%s] is a copy", tc.index)
		}
	}
	for _, bad := range []string{"", "1,,2", "1:2:3:4", "a", "1.5"} {
		fail[[]IndexItem](t, "index \""+bad+"\"")(ParseIndex(bad))
	}
	fail[*Tensor](t, "step", "flip")(Index(x, must(ParseIndex("::-1"))))
	fail[*Tensor](t, "only one ...")(Index(x, must(ParseIndex("..., ..."))))
	fail[*Tensor](t, "index 2", "dimension 0 of size 2", "-2 to 1")(Index(x, must(ParseIndex("2"))))
}
