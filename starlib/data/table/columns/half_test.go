package columns

import (
	"math"
	"testing"
)

// Every float16 is the number that its bits say.
func TestHalf(t *testing.T) {
	for bits := range 1 << 16 {
		exponent, fraction := bits>>10&31, float64(bits&1023)
		want := math.Ldexp(1024+fraction, exponent-25)
		switch {
		case exponent == 0:
			want = math.Ldexp(fraction, -24)
		case exponent == 31 && fraction != 0:
			want = math.NaN()
		case exponent == 31:
			want = math.Inf(1)
		}
		if bits>>15 != 0 && !math.IsNaN(want) {
			want = -want
		}
		if got := half(uint16(bits)); math.Float64bits(got) != math.Float64bits(want) {
			t.Fatalf("%04x: %v, want %v", bits, got, want)
		}
	}
}
