package kernel_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"drun/kernel"
	"drun/kernel/dtype"
)

func TestSGD(t *testing.T) {
	const n = 101
	for _, s := range []kernel.SGD{{LR: 0.1}, {LR: 0.1, Momentum: 0.9}, {LR: 0.1, Momentum: 0.9, Nesterov: true, WeightDecay: 0.01}} {
		start, g := real64(1, n), real64(2, n)
		p, m := append([]float64{}, start...), make([]float64, n)
		for step := range 3 {
			for i := range p {
				d := g[i] + s.WeightDecay*p[i]
				if s.Momentum != 0 {
					if step > 0 {
						m[i] = s.Momentum*m[i] + d
					} else {
						m[i] = d
					}
					if s.Nesterov {
						d += s.Momentum * m[i]
					} else {
						d = m[i]
					}
				}
				p[i] -= s.LR * d
			}
		}
		got := everywhere(t, func() []float64 {
			q, buffer := append([]float64{}, start...), []float64(nil)
			if s.Momentum != 0 {
				buffer = real64(9, n) // must be ignored by the first step
			}
			for step := range 3 {
				u := s
				u.First = step == 0
				u.Step(dtype.Float64, n, ptr(q), ptr(g), ptr(buffer))
			}
			return q
		})
		near(t, "sgd", got, p, 1e-14)
	}
}

func TestAdam(t *testing.T) {
	const n = 77
	for _, a := range []kernel.Adam{{LR: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}, {LR: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8,
		WeightDecay: 0.1}, {LR: 0.01, Beta1: 0.8, Beta2: 0.99, Eps: 1e-6, WeightDecay: 0.1, Decoupled: true}} {
		start, g := real64(1, n), real64(2, n)
		p, m, v := append([]float64{}, start...), make([]float64, n), make([]float64, n)
		for step := 1; step <= 4; step++ {
			for i := range p {
				d := g[i]
				if a.Decoupled {
					p[i] -= a.LR * a.WeightDecay * p[i]
				} else {
					d += a.WeightDecay * p[i]
				}
				m[i] = a.Beta1*m[i] + (1-a.Beta1)*d
				v[i] = a.Beta2*v[i] + (1-a.Beta2)*d*d
				mHat, vHat := m[i]/(1-math.Pow(a.Beta1, float64(step))), v[i]/(1-math.Pow(a.Beta2, float64(step)))
				p[i] -= a.LR * mHat / (math.Sqrt(vHat) + a.Eps)
			}
		}
		got := everywhere(t, func() []float64 {
			q, m, v := append([]float64{}, start...), make([]float64, n), make([]float64, n)
			for step := 1; step <= 4; step++ {
				u := a
				u.Count = step
				u.Step(dtype.Float64, n, ptr(q), ptr(g), ptr(m), ptr(v))
			}
			return q
		})
		near(t, "adam", got, p, 1e-13)
	}
}

func TestScale(t *testing.T) {
	x := real32(1, 100001)
	got := everywhere(t, func() []float32 {
		y := append([]float32{}, x...)
		kernel.Scale(dtype.Float32, len(y), ptr(y), 0.3)
		return y
	})
	for i := range x {
		x[i] *= float32(0.3)
	}
	near(t, "scale", got, x, 0)
}

// The known answers of Random123 for Philox4x32-10: counter and key all zeros, all ones.
func TestPhilox(t *testing.T) {
	for _, c := range []struct {
		s    kernel.Stream
		want []uint64
	}{
		{kernel.Stream{}, []uint64{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
	} {
		words := make([]int64, 2)
		c.s.Bounded(words, 0, 0)
		for i, w := range words {
			if uint64(w) != c.want[2*i+1]<<32|c.want[2*i] {
				t.Errorf("words %x, want %x", words, c.want)
			}
		}
	}
}

func TestDraws(t *testing.T) {
	const n = 50001
	s := kernel.Stream{Seed: 42, Stream: 7, At: 5}
	kinds := map[string]func(s kernel.Stream, n int) []float64{
		"uniform": func(s kernel.Stream, n int) []float64 {
			x := make([]float64, n)
			s.Uniform(dtype.Float64, n, ptr(x))
			return x
		},
		"uniform32": func(s kernel.Stream, n int) []float64 {
			x, y := make([]float32, n), make([]float64, n)
			s.Uniform(dtype.Float32, n, ptr(x))
			kernel.Cast(dtype.Float64, dtype.Float32, []int{n}, row(y), row(x))
			return y
		},
		"normal": func(s kernel.Stream, n int) []float64 {
			x := make([]float64, n)
			s.Normal(dtype.Float64, n, ptr(x))
			return x
		},
		"bounded": func(s kernel.Stream, n int) []float64 {
			x, y := make([]int64, n), make([]float64, n)
			s.Bounded(x, -2, 5)
			kernel.Cast(dtype.Float64, dtype.Int64, []int{n}, row(y), row(x))
			return y
		},
	}
	moments := map[string][2]float64{"uniform": {0.5, 1.0 / 12}, "uniform32": {0.5, 1.0 / 12}, "normal": {0, 1}, "bounded": {0, 2}}
	for name, draw := range kinds {
		all := everywhere(t, func() []float64 { return draw(s, n) })
		// Any split gives the same numbers.
		var parts []float64
		for _, size := range []int{1, 2, 3, 250, 7, 1000} {
			at := s
			at.At += uint64(len(parts))
			parts = append(parts, draw(at, size)...)
		}
		if !slices.Equal(parts, all[:len(parts)]) {
			t.Errorf("%s: a split draw differs", name)
		}
		mean, square := 0.0, 0.0
		for _, v := range all {
			mean += v / n
			square += v * v / n
		}
		want := moments[name]
		if math.Abs(mean-want[0]) > 0.02 || math.Abs(square-mean*mean-want[1]) > 0.04 {
			t.Errorf("%s: mean %v, variance %v, want %v", name, mean, square-mean*mean, want)
		}
		other := s
		other.Seed++
		if slices.Equal(draw(other, 10), all[:10]) {
			t.Errorf("%s: another seed gives the same numbers", name)
		}
	}
}

func TestDropout(t *testing.T) {
	const n, keep = 100000, 0.8
	x := real32(1, n)
	y := everywhere(t, func() []float32 {
		y := make([]float32, n)
		kernel.Stream{Seed: 1}.Dropout(dtype.Float32, n, ptr(y), ptr(x), keep)
		return y
	})
	kept := 0
	for i := range y {
		if y[i] != 0 {
			kept++
			near(t, "dropout", y[i:i+1], []float64{float64(x[i]) / keep}, 1e-6)
		}
	}
	if math.Abs(float64(kept)/n-keep) > 0.01 {
		t.Errorf("kept %d of %d", kept, n)
	}
}

func TestReduceRanks(t *testing.T) {
	const n = 5000
	a, b, c := real32(1, n), real32(2, n), real32(3, n)
	for op, exact := range map[dtype.ReduceOp]func(a, b, c float32) float32{
		dtype.Sum:     func(a, b, c float32) float32 { return a + b + c },
		dtype.Avg:     func(a, b, c float32) float32 { return (a + b + c) / 3 },
		dtype.Product: func(a, b, c float32) float32 { return a * b * c },
		dtype.Min:     func(a, b, c float32) float32 { return min(a, b, c) },
		dtype.Max:     func(a, b, c float32) float32 { return max(a, b, c) },
	} {
		want := make([]float32, n)
		for i := range want {
			want[i] = exact(a[i], b[i], c[i])
		}
		near(t, "ranks", everywhere(t, func() []float32 {
			out := append([]float32{}, b...) // the output is a source
			kernel.ReduceRanks(op, dtype.Float32, ptr(out), pointers(a, out, c), n)
			return out
		}), want, 0)
	}
	out := make([]float32, n)
	kernel.ReduceRanks(dtype.Avg, dtype.Float32, ptr(out), pointers(a), n)
	near(t, "one rank", out, a, 0)

	// Half precision is rounded once, at the end: 1 + 2^-9 + 2^-9 is 1 + 2^-8 + nothing lost.
	h := make([]uint16, 1)
	kernel.ReduceRanks(dtype.Sum, dtype.BFloat16, ptr(h), pointers([]uint16{0x3f80}, []uint16{0x3b00}, []uint16{0x3b80}, []uint16{0x3b00}), 1)
	if h[0] != 0x3f81 {
		t.Errorf("bfloat16 sum %04x", h[0])
	}
	z := make([]float32, 4)
	kernel.ReduceRanks(dtype.Sum, dtype.Complex64, ptr(z), pointers([]float32{1, 2, 3, 4}, []float32{10, 20, 30, 40}), 2)
	if !slices.Equal(z, []float32{11, 22, 33, 44}) {
		t.Errorf("complex sum %v", z)
	}
	bits := make([]uint8, 2)
	for op, want := range map[dtype.ReduceOp][]uint8{dtype.BAnd: {0, 4}, dtype.BOr: {7, 6}, dtype.BXor: {7, 2}} {
		kernel.ReduceRanks(op, dtype.Uint8, ptr(bits), pointers([]uint8{1, 6}, []uint8{6, 4}), 2)
		if !slices.Equal(bits, want) {
			t.Errorf("op %d: %v, want %v", op, bits, want)
		}
	}
}

// The average is a quotient; where it is computed as a product, for 2, 4 or 8 ranks, it has the same bits, those of the smallest
// numbers included.
func TestAverageOfRanks(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	const n = 5003
	for _, ranks := range []int{2, 4, 6, 8} {
		sources, want32, want64 := make([][]float32, ranks), make([]float32, n), make([]float64, n)
		wide := make([][]float64, ranks)
		for k := range sources {
			sources[k], wide[k] = make([]float32, n), make([]float64, n)
			for i := range n {
				sources[k][i], wide[k][i] = math.Float32frombits(g.Uint32()), math.Float64frombits(g.Uint64())
				if i%3 == 0 { // numbers whose quotients are subnormal
					sources[k][i], wide[k][i] = math.Float32frombits(g.Uint32()%(1<<25)|g.Uint32()<<31), math.Float64frombits(g.Uint64()%(1<<54))
				}
				if k == 0 {
					want32[i], want64[i] = sources[k][i], wide[k][i]
				} else {
					want32[i], want64[i] = want32[i]+sources[k][i], want64[i]+wide[k][i]
				}
			}
		}
		for i := range n {
			want32[i], want64[i] = want32[i]/float32(ranks), want64[i]/float64(ranks)
		}
		near(t, "float32", everywhere(t, func() []float32 {
			out := slices.Clone(sources[ranks-1]) // the output is a source
			kernel.ReduceRanks(dtype.Avg, dtype.Float32, ptr(out), append(pointers(sources[:ranks-1]...), ptr(out)), n)
			return out
		}), want32, 0)
		near(t, "float64", everywhere(t, func() []float64 {
			out := make([]float64, n)
			kernel.ReduceRanks(dtype.Avg, dtype.Float64, ptr(out), pointers(wide...), n)
			return out
		}), want64, 0)
	}
}

// Many goroutines share one pool, more threads than cores included.
func TestConcurrentCalls(t *testing.T) {
	defer kernel.SetThreads(1)
	kernel.SetThreads(1)
	x, want := real32(1, 300000), make([]float32, 300000)
	kernel.Unary(kernel.Exp, dtype.Float32, []int{len(x)}, row(want), row(x))
	for _, threads := range []int{2, 8} {
		kernel.SetThreads(threads)
		if kernel.Threads() != threads {
			t.Fatalf("%d threads, want %d", kernel.Threads(), threads)
		}
		var group sync.WaitGroup
		for range 6 {
			group.Go(func() {
				for range 20 {
					out := make([]float32, len(x))
					kernel.Unary(kernel.Exp, dtype.Float32, []int{len(x)}, row(out), row(x))
					if !slices.Equal(out, want) {
						t.Error("a concurrent call gave something else")
						return
					}
				}
			})
		}
		group.Wait()
	}
}
