package kernel_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"drun/kernel"
	"drun/kernel/dtype"
)

// halves makes n numbers in bfloat16 or float32 whose patterns draw gives, and their values in bfloat16.
func halves(dt dtype.Type, n int, draw func() uint16) (memory []uint32, values []float32) {
	bits := make([]uint16, n)
	memory, values = make([]uint32, n), make([]float32, n)
	for i := range bits {
		bits[i] = draw()
		values[i] = math.Float32frombits(uint32(bits[i]) << 16)
	}
	if dt == dtype.Float32 {
		for i, b := range bits { // less than half a step further from 0
			memory[i] = uint32(b) << 16
			if b&0x7fff < 0x7f80 {
				memory[i] |= 0x7fff
			}
		}
		return memory, values
	}
	for i, b := range bits {
		memory[i/2] |= uint32(b) << (16 * (i % 2))
	}
	return memory, values
}

// halfSum is the sum that gemm_half.h states, of k products.
func halfSum(k int, a, b func(l int) float32) float32 {
	fma := func(x, y, z float32) float32 { // rounded to odd in between, so that the second rounding is the only one
		p := float64(x) * float64(y) // exact: 16 bits
		s := p + float64(z)
		if bb := s - p; !math.IsInf(s, 0) && s == s {
			if rest := (p - (s - bb)) + (float64(z) - bb); rest != 0 && math.Float64bits(s)&1 == 0 {
				if (rest > 0) == (s > 0) {
					s = math.Float64frombits(math.Float64bits(s) + 1)
				} else {
					s = math.Float64frombits(math.Float64bits(s) - 1)
				}
			}
		}
		return float32(s)
	}
	total := float32(0)
	for from := 0; from < k; from += 32 {
		var even, odd float32
		for l := from; l < from+32; l += 2 {
			var x, y [2]float32
			for i := range 2 {
				if l+i < k {
					x[i], y[i] = a(l+i), b(l+i)
				}
			}
			even, odd = fma(x[0], y[0], even), fma(x[1], y[1], odd)
		}
		total += even + odd
	}
	return total
}

// Products of bfloat16 in the stated order, on every path: of ordinary numbers, of tiny ones whose products are
// denormals, of mixtures with tiny ones and with infinities and NaN, and of all patterns.
func TestGemmHalf(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 15))
	pattern := func(low, high int) uint16 { return uint16(r.Uint32())&0x807f | uint16(low+r.IntN(high-low))<<7 }
	kinds := map[string]func() uint16{
		"ordinary": func() uint16 { return pattern(110, 130) },
		"tiny":     func() uint16 { return pattern(50, 75) },
		"bound":    func() uint16 { return pattern(69, 74) },
		"denormal": func() uint16 { return pattern(0, 2) },
		"large":    func() uint16 { return pattern(180, 200) },
		"any":      func() uint16 { return uint16(r.Uint32()) },
		"mixed": func() uint16 {
			if r.IntN(300) == 0 {
				return pattern(1, 40)
			}
			return pattern(110, 130)
		},
		"special": func() uint16 {
			if r.IntN(100) == 0 {
				return pattern(245, 256) & uint16(0xff80|r.IntN(2)*0x7f)
			}
			return pattern(110, 130)
		},
	}
	types := []dtype.Type{dtype.BFloat16, dtype.Float32}
	for _, s := range [][3]int{{1, 1, 1}, {17, 33, 31}, {4, 3, 0}, {33, 5, 70}, {16, 16, 32}, {35, 49, 130}, {19, 34, 290}} {
		m, n, k := s[0], s[1], s[2]
		for name, draw := range kinds {
			for mode := range 16 {
				da, db, dt := types[mode&1], types[mode>>1&1], types[mode>>2&1]
				left, right := kernel.Matrix{Stride: k + 1, Batch: m * (k + 1)}, kernel.Matrix{Stride: n + 3, Batch: k * (n + 3)}
				if mode&8 != 0 {
					left, right = kernel.Matrix{Stride: m + 2, Batch: k * (m + 2), Trans: true}, kernel.Matrix{Stride: k + 5, Batch: n * (k + 5), Trans: true}
				}
				ma, a := halves(da, 2*left.Batch+1, draw)
				mb, b := halves(db, 2*right.Batch+1, draw)
				left.Data, right.Data = ptr(ma), ptr(mb)
				bias, start := real32(3, n), real32(4, 2*m*n)
				at := func(v []float32, x kernel.Matrix, batch, i, j int) float32 {
					if x.Trans {
						i, j = j, i
					}
					return v[batch*x.Batch+i*x.Stride+j]
				}
				accumulate := dt == dtype.Float32 && mode&2 != 0
				got := everywhere(t, func() []uint32 {
					c := make([]uint32, 2*m*n)
					if accumulate {
						for i := range c {
							c[i] = math.Float32bits(start[i])
						}
					}
					if err := kernel.GemmHalf(2, m, n, k, dt, kernel.Matrix{Data: ptr(c), Stride: n, Batch: m * n}, da, left, db, right, accumulate, ptr(bias)); err != nil {
						t.Fatal(err)
					}
					return c
				})
				for i := range 2 * m * n {
					batch, line, column := i/(m*n), i%(m*n)/n, i%n
					sum := halfSum(k, func(l int) float32 { return at(a, left, batch, line, l) }, func(l int) float32 { return at(b, right, batch, l, column) })
					if accumulate {
						sum = start[i] + sum
					}
					sum += bias[column]
					want, have := math.Float32bits(sum), got[i]
					if dt == dtype.BFloat16 {
						var h uint16
						kernel.Cast(dtype.BFloat16, dtype.Float32, []int{1}, kernel.View{unsafe.Pointer(&h), []int{1}}, row([]float32{sum}))
						want, have = uint32(h), got[i/2]>>(16*(i%2))&0xffff
					} else if sum != sum {
						want = 0x7fc00000
					}
					if have != want {
						t.Fatalf("%s, %v, mode %d: element %d is %#x, want %#x (%v)", name, s, mode, i, have, want, sum)
					}
				}
			}
		}
	}
}

// Sums that cancel down to the last bit of their products, on both sides of the smallest normal number: what takes
// denormals for zero must not be used below it.
func TestGemmHalfSmallestSums(t *testing.T) {
	at := func(exponent int, digits uint16) uint16 { return uint16(exponent)<<7 | digits&0x7f | digits&0x8000 }
	for ea := 68; ea <= 74; ea++ {
		for eb := 68; eb <= 74; eb++ {
			for chain := range 2 { // 129·131 - 130·130 = -1, of even and of odd values of k
				a, b := make([]uint16, 32), make([]uint16, 32)
				a[chain], b[chain] = at(ea, 1), at(eb, 3)
				a[4+chain], b[4+chain] = at(ea, 2), at(eb, 0x8002)
				want := float32(-math.Ldexp(1, ea+eb-268))
				got := everywhere(t, func() []float32 {
					c := make([]float32, 1)
					if err := kernel.GemmHalf(1, 1, 1, 32, dtype.Float32, kernel.Matrix{Data: ptr(c), Stride: 1}, dtype.BFloat16, kernel.Matrix{Data: ptr(a), Stride: 32},
						dtype.BFloat16, kernel.Matrix{Data: ptr(b), Stride: 1}, false, nil); err != nil {
						t.Fatal(err)
					}
					return c
				})
				if got[0] != want {
					t.Fatalf("exponents %d and %d, chain %d: %g, want %g", ea, eb, chain, got[0], want)
				}
			}
		}
	}
}

// Large products, whose operands are packed part by part, have the bits of small ones.
func TestGemmHalfParts(t *testing.T) {
	for _, s := range [][3]int{{70, 40, 20000}, {3, 3000, 700}, {9000, 5, 600}} {
		m, n, k := s[0], s[1], s[2]
		a, b := make([]uint16, m*k), make([]uint16, k*n)
		for _, x := range [][]uint16{a, b} {
			kernel.Cast(dtype.BFloat16, dtype.Float32, []int{len(x)}, row(x), row(real32(uint64(len(x)), len(x))))
		}
		best := kernel.Path()
		for _, path := range kernel.Paths() {
			if path == "scalar" {
				continue // its multiply-add is a function
			}
			if err := kernel.SetPath(path); err != nil {
				t.Fatal(err)
			}
			c := make([]float32, m*n)
			if err := kernel.GemmHalf(1, m, n, k, dtype.Float32, kernel.Matrix{Data: ptr(c), Stride: n}, dtype.BFloat16, kernel.Matrix{Data: ptr(a), Stride: k}, dtype.BFloat16, kernel.Matrix{Data: ptr(b), Stride: n}, false, nil); err != nil {
				t.Fatal(err)
			}
			for _, at := range [][2]int{{0, 0}, {m - 1, n - 1}, {m / 2, n / 3}, {m - 2, 0}} {
				one := make([]float32, 1)
				if err := kernel.GemmHalf(1, 1, 1, k, dtype.Float32, kernel.Matrix{Data: ptr(one), Stride: 1}, dtype.BFloat16, kernel.Matrix{Data: ptr(a[at[0]*k:]), Stride: k}, dtype.BFloat16, kernel.Matrix{Data: ptr(b[at[1]:]), Stride: n}, false, nil); err != nil {
					t.Fatal(err)
				}
				if c[at[0]*n+at[1]] != one[0] {
					t.Errorf("%s, %v: element %v is %v, by itself %v", path, s, at, c[at[0]*n+at[1]], one[0])
				}
			}
		}
		kernel.SetPath(best)
	}
}

func BenchmarkGemmHalf(b *testing.B) {
	for _, n := range []int{64, 512, 1024} {
		x, y := make([]uint16, n*n), make([]uint16, n*n)
		for _, v := range [][]uint16{x, y} {
			kernel.Cast(dtype.BFloat16, dtype.Float32, []int{n * n}, row(v), row(real32(1, n*n)))
		}
		c := make([]uint16, n*n)
		side := func(s []uint16) kernel.Matrix { return kernel.Matrix{Data: ptr(s), Stride: n} }
		b.Run(fmt.Sprintf("%s/%d", kernel.Path(), n), func(b *testing.B) {
			for b.Loop() {
				_ = kernel.GemmHalf(1, n, n, n, dtype.BFloat16, side(c), dtype.BFloat16, side(x), dtype.BFloat16, side(y), false, nil)
			}
			b.ReportMetric(2*float64(n)*float64(n)*float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
		})
	}
}
