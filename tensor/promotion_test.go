package tensor

import (
	"os"
	"strings"
	"testing"

	"drun/kernel/dtype"
)

// promotions reads the table of docs/numerics.md.
func promotions(t *testing.T) map[[2]dtype.Type]dtype.Type {
	raw, err := os.ReadFile("../docs/numerics.md")
	check(t, err)
	table := map[[2]dtype.Type]dtype.Type{}
	var columns []dtype.Type
	for line := range strings.Lines(string(raw)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(cells[i], " *")
		}
		if len(cells) != 9 {
			continue
		}
		if cells[0] == "" {
			for _, name := range cells[1:] {
				columns = append(columns, must(dtype.Parse(name)))
			}
			continue
		}
		row, err := dtype.Parse(cells[0])
		if err != nil {
			continue
		}
		for i, name := range cells[1:] {
			table[[2]dtype.Type{row, columns[i]}] = must(dtype.Parse(name))
		}
	}
	if len(table) != 64 {
		t.Fatalf("the table has %d entries, not 8×8", len(table))
	}
	return table
}

// Every pair of types, as tensors with and without dimensions, and with numbers.
func TestPromotionTable(t *testing.T) {
	c := NewContext()
	rank := dtype.Type.Kind
	for pair, want := range promotions(t) {
		a, b := pair[0], pair[1]
		if got := Promote(a, b); got != want || Promote(b, a) != want {
			t.Errorf("%s and %s meet in %s, want %s", a, b, got, want)
		}
		wide := func(d dtype.Type) *Tensor { return must(Zeros(c, []int{2}, d)) }
		flat := func(d dtype.Type) *Tensor { return must(Zeros(c, nil, d)) }
		if got := must(Binary(OpMul, wide(a), wide(b))); got.dtype != want {
			t.Errorf("%s · %s is %s, want %s", a, b, got.dtype, want)
		}
		if got := must(Binary(OpMul, flat(a), flat(b))); got.dtype != want {
			t.Errorf("%s · %s without dimensions is %s, want %s", a, b, got.dtype, want)
		}
		weak := a // a tensor without dimensions counts by its category only
		if rank(b) > rank(a) {
			weak = b
		}
		for _, x := range []*Tensor{must(Binary(OpMul, wide(a), flat(b))), must(Binary(OpMul, flat(b), wide(a)))} {
			if x.dtype != weak {
				t.Errorf("%s with dimensions and %s without make %s, want %s", a, b, x.dtype, weak)
			}
		}
		if got := must(Binary(OpEq, wide(a), wide(b))); got.dtype != dtype.Bool {
			t.Errorf("%s == %s is %s", a, b, got.dtype)
		}
		quotient := want
		if !want.IsFloat() {
			quotient = dtype.Float32
		}
		if got := must(Div(wide(a), must(Ones(c, []int{2}, b)))); got.dtype != quotient {
			t.Errorf("%s / %s is %s, want %s", a, b, got.dtype, quotient)
		}
		if got := must(Where(must(Zeros(c, []int{2}, dtype.Bool)), wide(a), wide(b))); got.dtype != want {
			t.Errorf("where of %s and %s is %s, want %s", a, b, got.dtype, want)
		}
		if got := must(Cat([]*Tensor{wide(a), wide(b)}, 0)); got.dtype != want {
			t.Errorf("cat of %s and %s is %s, want %s", a, b, got.dtype, want)
		}
	}
	for _, n := range []struct {
		number Scalar
		kind   dtype.Type
	}{{Float(0.5), dtype.Float32}, {Int(1), dtype.Int64}, {Truth(true), dtype.Bool}} {
		for d := dtype.Float32; d <= dtype.Bool; d++ {
			want := d
			if rank(n.kind) > rank(d) {
				want = n.kind
			}
			for _, swapped := range []bool{false, true} {
				if got := must(BinaryScalar(OpMul, must(Zeros(c, []int{2}, d)), n.number, swapped)); got.dtype != want {
					t.Errorf("%s · %v is %s, want %s", d, n.number, got.dtype, want)
				}
			}
		}
	}
}

// The types for storage join the others by the same rule, and compute nothing; bfloat16 computes.
func TestPromotionOfStorageTypes(t *testing.T) {
	c := NewContext()
	for _, s := range []dtype.Type{dtype.Float16, dtype.BFloat16, dtype.Complex64} {
		for _, d := range dtype.Types() {
			want := s
			switch {
			case d == s:
			case s != dtype.Complex64 && (d == dtype.Float32 || d == dtype.Float64 || d == dtype.Complex64):
				want = d
			case s != dtype.Complex64 && (d == dtype.Float16 || d == dtype.BFloat16):
				want = dtype.Float32
			}
			if got := Promote(s, d); got != want || Promote(d, s) != want {
				t.Errorf("%s and %s meet in %s, want %s", s, d, got, want)
			}
			x, y := must(Zeros(c, []int{2}, s)), must(Zeros(c, []int{2}, d))
			out, err := Add(x, y)
			if want == dtype.Float16 || want == dtype.Complex64 {
				fails(t, err, "add", "storage", "cast with .to")
			} else if err != nil || out.dtype != want {
				t.Errorf("%s + %s: %v, %v", s, d, out, err)
			}
		}
	}
}
