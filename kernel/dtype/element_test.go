package dtype

import (
	"strings"
	"testing"
)

// Plugins of other builds know these numbers.
func TestNumbersOfThePluginProtocol(t *testing.T) {
	for want, got := range []Type{None, Float32, Float64, Int64, Int32, Int8, Uint8, Bool, Float16, BFloat16, Complex64} {
		if int(got) != want {
			t.Errorf("%v is %d, was %d", got, got, want)
		}
	}
	for want, got := range []ReduceOp{Sum, Avg, Product, Min, Max, BAnd, BOr, BXor} {
		if int(got) != want {
			t.Errorf("%v is %d, was %d", got, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, d := range Types() {
		if got, err := Parse(d.String()); got != d || err != nil || !d.Valid() {
			t.Errorf("%v parses as %v, %v", d, got, err)
		}
	}
	for _, name := range []string{"float8", "", "-"} {
		if _, err := Parse(name); err == nil || !strings.Contains(err.Error(), "float32, float64") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestEveryOpIsValidSomewhere(t *testing.T) {
	for _, op := range ReduceOps() {
		if parsed, ok := ParseReduceOp(op.String()); !ok || parsed != op || !op.Valid(Int32) {
			t.Errorf("%v: parsed as %v %v", op, parsed, ok)
		}
	}
	for _, bad := range []struct {
		op    ReduceOp
		dtype Type
	}{{BAnd, Float32}, {Sum, Bool}, {Min, Complex64}, {Sum, None}, {99, Int32}} {
		if bad.op.Valid(bad.dtype) {
			t.Errorf("%v of %v is said to be defined", bad.op, bad.dtype)
		}
	}
	if _, ok := ParseReduceOp("mean"); ok {
		t.Error("mean was parsed")
	}
}
