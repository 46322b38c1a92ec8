package tensor

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"drun/kernel/dtype"
)

// halfTypes are the 16-bit types: how many bits of fraction, and the bias of
// the exponent.
var halfTypes = map[dtype.Type]struct {
	fraction, bias int
}{dtype.Float16: {10, 15}, dtype.BFloat16: {7, 127}}

// value is what 16 bits stand for, from the definition.
func value(bits uint16, fraction, bias int) float64 {
	exp, frac := int(bits&0x7fff)>>fraction, float64(int(bits)&(1<<fraction-1))
	var v float64
	switch {
	case exp == 1<<(15-fraction)-1 && frac != 0:
		return math.NaN()
	case exp == 1<<(15-fraction)-1:
		v = math.Inf(1)
	case exp == 0:
		v = math.Ldexp(frac, 1-bias-fraction)
	default:
		v = math.Ldexp(frac+float64(int(1)<<fraction), exp-bias-fraction)
	}
	if bits>>15 != 0 {
		return -v
	}
	return v
}

// All 65,536 numbers, the ties between neighbours, and what lies just beside a
// tie: rounded to nearest, ties to even, denormals and overflow included, by
// single elements and by the kernels of all paths.
func TestHalfRounding(t *testing.T) {
	for d, h := range halfTypes {
		var in []float32
		var want []uint16
		for b := range 1 << 16 {
			bits := uint16(b)
			v := value(bits, h.fraction, h.bias)
			if v != v {
				in, want = append(in, math.Float32frombits(uint32(0x7f800001+b))), append(want, map[dtype.Type]uint16{dtype.Float16: 0x7e00, dtype.BFloat16: 0x7fc0}[d])
				continue
			}
			in, want = append(in, float32(v)), append(want, bits)
			if math.IsInf(v, 0) {
				continue
			}
			next := value(bits+1, h.fraction, h.bias)
			if math.IsInf(next, 0) { // as far as the step before
				next = v + v - value(bits-1, h.fraction, h.bias)
			}
			tie := (v + next) / 2
			if float64(float32(tie)) != tie {
				continue
			}
			even := bits
			if bits&1 == 1 {
				even++
			}
			beyond, before := float32(math.Inf(1)), float32(math.Inf(-1))
			if tie < 0 {
				beyond, before = before, beyond
			}
			above, below := math.Nextafter32(float32(tie), beyond), math.Nextafter32(float32(tie), before)
			in, want = append(in, float32(tie), above, below), append(want, even, bits+1, bits)
			if below == 0 { // the tie is the smallest float32: below it is zero, of its own sign
				want[len(want)-1] = bits
			}
		}
		c := NewContext()
		x := newTensor("test", c, []int{len(in)}, dtype.Float32)
		copy(Elems[float32](x), in)
		for i, f := range in {
			var got uint16
			if Float(float64(f)).put(unsafe.Pointer(&got), d); got != want[i] {
				t.Fatalf("%s of %v (%#x) is %#04x, want %#04x", d, f, math.Float32bits(f), got, want[i])
			}
		}
		everyPath(t, func(where string) {
			for i, got := range Elems[uint16](must(Cast(x, d))) {
				if got != want[i] {
					t.Fatalf("%s: %s of %v (%#x) is %#04x, want %#04x", where, d, in[i], math.Float32bits(in[i]), got, want[i])
				}
			}
		})
	}
}

// What is wider than the way there is rounded once: a float64 or int64 just beside a tie of the
// narrow type would become the tie in between. As an element of a tensor, as a tensor without
// dimensions, and as a plain number.
func TestRoundedOnce(t *testing.T) {
	c := NewContext()
	for _, tc := range []struct {
		to   dtype.Type
		v    Scalar
		want uint64 // bits
	}{
		{dtype.Float16, Float(1 + 0x1p-11), 0x3c00},
		{dtype.Float16, Float(1 + 0x1p-11 + 0x1p-40), 0x3c01},
		{dtype.Float16, Float(1 + 0x3p-11 - 0x1p-40), 0x3c01},
		{dtype.Float16, Float(-1 - 0x1p-11 - 0x1p-40), 0xbc01},
		{dtype.Float16, Float(65504), 0x7bff},
		{dtype.Float16, Float(65519.999999), 0x7bff},
		{dtype.Float16, Float(65520), 0x7c00},
		{dtype.Float16, Float(-1e300), 0xfc00},
		{dtype.Float16, Float(0x1p-25), 0},
		{dtype.Float16, Float(0x1.0000000001p-25), 1},
		{dtype.Float16, Float(0x1.8p-25), 1},
		{dtype.Float16, Float(math.Inf(-1)), 0xfc00},
		{dtype.Float16, Int(1<<62 + 1), 0x7c00},
		{dtype.BFloat16, Float(1 + 0x1p-8 + 0x1p-50), 0x3f81},
		{dtype.BFloat16, Float(1 + 0x3p-8 - 0x1p-50), 0x3f81},
		{dtype.BFloat16, Int(1<<62 + 1<<54), 0x5e80},
		{dtype.BFloat16, Int(1<<62 + 1<<54 + 1), 0x5e81},
		{dtype.BFloat16, Int(-1<<62 - 1<<54 - 1), 0xde81},
		{dtype.BFloat16, Int(1<<62 + 3<<54 - 1), 0x5e81},
		{dtype.Float32, Float(1 + 0x1p-24 + 0x1p-52), 0x3f800001},
		{dtype.Float32, Int(1<<62 + 1<<38), 0x5e800000},
		{dtype.Float32, Int(1<<62 + 1<<38 + 1), 0x5e800001},
		{dtype.Complex64, Int(1<<62 + 1<<38 + 1), 0x5e800001},
		{dtype.Complex64, Int(-1<<62 - 1<<38 - 1), 0xde800001},
		{dtype.Float64, Int(1<<53 + 1), math.Float64bits(1 << 53)},
		{dtype.Float64, Int(1<<53 + 3), math.Float64bits(1<<53 + 4)},
		{dtype.Int64, Float(0x1p63), math.MaxInt64},
		{dtype.Int64, Float(math.NaN()), 0},
		{dtype.Int8, Float(300), 127},
		{dtype.Int8, Float(-1e300), 0x80},
		{dtype.Uint8, Float(-7), 0},
		{dtype.Int32, Float(-3e9), 1 << 31},
		{dtype.Bool, Float(0.3), 1},
		{dtype.Bool, Float(math.NaN()), 1},
	} {
		bits := func(x *Tensor) (v uint64) {
			for i := range tc.to.Size() {
				v |= uint64(*(*byte)(unsafe.Add(x.ptr(), i))) << (8 * i)
			}
			return v
		}
		for _, shape := range [][]int{{}, {1}, {3}} {
			everyPath(t, func(where string) {
				x := must(Full(c, shape, tc.v, tc.v.Kind()))
				if got := bits(must(Cast(x, tc.to))); got != tc.want {
					t.Fatalf("%s: %s of %v in shape %v is %#x, want %#x", where, tc.to, tc.v, shape, got, tc.want)
				}
			})
		}
		if tc.v.fits("test", tc.to) != nil {
			continue // is an error as a plain number
		}
		for _, n := range []int{1, 3} {
			if got := bits(must(Full(c, []int{n}, tc.v, tc.to))); got != tc.want {
				t.Errorf("%d numbers %v in %s are %#x, want %#x", n, tc.v, tc.to, got, tc.want)
			}
		}
	}
}

// Casts between all types: to the nearest number there is, NaN as 0 among
// integers, anything but 0 as True.
func TestCasts(t *testing.T) {
	c := NewContext()
	values := []float64{0, 1, -1, 2.5, -2.5, 127, 128, -129, 255, 256, 1e5, -1e5, 3e9, -3e9, 1e19, -1e19, math.Inf(1), math.Inf(-1), math.NaN()}
	limits := map[dtype.Type][2]float64{dtype.Int64: {math.MinInt64, math.MaxInt64}, dtype.Int32: {math.MinInt32, math.MaxInt32}, dtype.Int8: {-128, 127}, dtype.Uint8: {0, 255}}
	for _, from := range []dtype.Type{dtype.Float32, dtype.Float64} {
		x := floats(c, from, []int{len(values)}, values...)
		for d, l := range limits {
			everyPath(t, func(where string) {
				for i, got := range list(must(Cast(x, d))) {
					want := min(max(math.Trunc(values[i]), l[0]), l[1])
					if want != want {
						want = 0
					}
					if got != want {
						t.Fatalf("%s: %v from %s is %v in %s, want %v", where, values[i], from, got, d, want)
					}
				}
			})
		}
		for i, got := range list(must(Cast(x, dtype.Bool))) {
			if (got != 0) != (values[i] != 0) {
				t.Errorf("%v is %v as bool", values[i], got)
			}
		}
	}
}

// complex64 keeps both parts through everything that moves elements, and gives
// its real part to real types.
func TestComplexStorage(t *testing.T) {
	c := NewContext()
	r := rand.New(rand.NewPCG(1, 1))
	z := newTensor("test", c, []int{4, 5}, dtype.Complex64)
	for i := range Elems[complex64](z) {
		Elems[complex64](z)[i] = complex(float32(r.NormFloat64()), float32(r.NormFloat64()))
	}
	Elems[complex64](z)[3] = complex(float32(math.NaN()), float32(math.Inf(-1)))
	at := func(x *Tensor, i, j int) complex64 { return Elems[complex64](x)[i*x.strides[0]+j*x.strides[1]] }
	same := func(what string, x *Tensor, pick func(i, j int) (int, int)) {
		t.Helper()
		for i := range x.shape[0] {
			for j := range x.shape[1] {
				a, b := pick(i, j)
				if got, want := at(x, i, j), at(z, a, b); got != want && got == got && want == want { //nolint:staticcheck // not a NaN
					t.Fatalf("%s: element %d, %d is %v, want %v", what, i, j, got, want)
				}
			}
		}
	}
	turned := must(Transpose(z, 0, 1))
	same("clone of a transpose", must(Clone(turned)), func(i, j int) (int, int) { return j, i })
	same("cat", must(Cat([]*Tensor{z, z}, 0)), func(i, j int) (int, int) { return i % 4, j })
	same("index_select", must(IndexSelect(z, 1, ints(c, []int{2}, 4, 0))), func(i, j int) (int, int) { return i, 4 - 4*j })
	same("flip", must(Flip(z, []int{0})), func(i, j int) (int, int) { return 3 - i, j })
	same("where", must(Where(must(Ones(c, []int{4, 5}, dtype.Bool)), z, z)), func(i, j int) (int, int) { return i, j })
	real32 := must(Cast(z, dtype.Float32))
	for i, v := range Elems[float32](real32) {
		if want := real(Elems[complex64](z)[i]); v != want && v == v {
			t.Fatalf("the real part of element %d is %v, want %v", i, v, want)
		}
	}
	back := Elems[complex64](must(Cast(real32, dtype.Complex64)))
	if back[0] != complex(real(Elems[complex64](z)[0]), 0) {
		t.Errorf("a real number became %v", back[0])
	}
	truth := newTensor("test", c, []int{3}, dtype.Complex64)
	copy(Elems[complex64](truth), []complex64{0, 1, 1i})
	if got := Elems[bool](must(Cast(truth, dtype.Bool))); got[0] || !got[1] || !got[2] {
		t.Errorf("0, 1 and 1j are %v as bool", got)
	}
}
