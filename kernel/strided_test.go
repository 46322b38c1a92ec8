package kernel_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"drun/kernel"
	"drun/kernel/dtype"
)

// layout is a random view: a shape, and for each operand strides into a buffer of its own, some dimensions
// transposed, broadcast or with gaps.
type layout struct {
	shape   []int
	strides [][]int
	sizes   []int // elements each buffer needs
}

func randomLayout(r *rand.Rand, operands int) layout {
	l := layout{shape: make([]int, r.IntN(5))}
	for d := range l.shape {
		l.shape[d] = []int{0, 1, 2, 3, 5, 17, 40}[min(6, 1+r.IntN(6)-r.IntN(30)/29)]
	}
	for k := range operands {
		order, strides, size := r.Perm(len(l.shape)), make([]int, len(l.shape)), 1
		for _, d := range order {
			if k > 0 && r.IntN(4) == 0 {
				continue // broadcast
			}
			strides[d] = size
			size *= max(1, l.shape[d]) + r.IntN(2)
		}
		l.strides, l.sizes = append(l.strides, strides), append(l.sizes, size)
	}
	return l
}

// each calls visit with every operand's offset at each element.
func (l layout) each(visit func(at []int)) {
	at := make([]int, len(l.strides))
	var walk func(d int)
	walk = func(d int) {
		if d == len(l.shape) {
			visit(at)
			return
		}
		for range l.shape[d] {
			walk(d + 1)
			for k := range at {
				at[k] += l.strides[k][d]
			}
		}
		for k := range at {
			at[k] -= l.shape[d] * l.strides[k][d]
		}
	}
	walk(0)
}

func TestStrided(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		l := randomLayout(r, 4)
		a, b, want := real32(1, l.sizes[1]), real32(2, l.sizes[2]), make([]float32, l.sizes[0])
		cond := make([]uint8, l.sizes[3])
		for i := range cond {
			cond[i] = uint8(r.IntN(2))
		}
		view := func(k int, s []float32) kernel.View { return kernel.View{ptr(s), l.strides[k]} }
		check := func(what string, run func(out kernel.View), exact func(at []int) float32) {
			t.Helper()
			got := written(t, l.sizes[0], func(out []float32) { run(view(0, out)) })
			l.each(func(at []int) { want[at[0]] = exact(at) })
			if !slices.Equal(got, want) {
				t.Fatalf("%s, shape %v, strides %v: %v, want %v", what, l.shape, l.strides, got, want)
			}
		}
		check("sub", func(out kernel.View) {
			kernel.Binary(kernel.Sub, dtype.Float32, l.shape, out, view(1, a), view(2, b))
		},
			func(at []int) float32 { return a[at[1]] - b[at[2]] })
		check("neg", func(out kernel.View) { kernel.Unary(kernel.Neg, dtype.Float32, l.shape, out, view(1, a)) }, func(at []int) float32 { return -a[at[1]] })
		check("copy", func(out kernel.View) { kernel.Copy(dtype.Float32, l.shape, out, view(2, b)) }, func(at []int) float32 { return b[at[2]] })
		check("where", func(out kernel.View) {
			kernel.Where(dtype.Float32, l.shape, out, kernel.View{ptr(cond), l.strides[3]}, view(1, a), view(2, b))
		},
			func(at []int) float32 {
				if cond[at[3]] != 0 {
					return a[at[1]]
				}
				return b[at[2]]
			})
		check("cast", func(out kernel.View) {
			kernel.Cast(dtype.Float32, dtype.Uint8, l.shape, out, kernel.View{ptr(cond), l.strides[3]})
		},
			func(at []int) float32 { return float32(cond[at[3]]) })
	}
}

func TestCopySizes(t *testing.T) {
	testCopySize[uint8](t, dtype.Uint8)
	testCopySize[uint16](t, dtype.Float16)
	testCopySize[int32](t, dtype.Int32)
	testCopySize[int64](t, dtype.Complex64)
}

// Transposes big enough for tiles, with odd edges.
func testCopySize[E number](t *testing.T, dt dtype.Type) {
	for _, s := range [][2]int{{1, 1}, {3, 50}, {64, 64}, {131, 77}} {
		in := make([]E, s[0]*s[1])
		for i := range in {
			in[i] = E(i * 7)
		}
		got := written(t, len(in), func(out []E) {
			kernel.Copy(dt, []int{s[1], s[0]}, kernel.View{ptr(out), []int{s[0], 1}}, kernel.View{ptr(in), []int{1, s[1]}})
		})
		for i := range s[0] {
			for j := range s[1] {
				if got[j*s[0]+i] != in[i*s[1]+j] {
					t.Fatalf("%v transposed %v: (%d, %d) is wrong", dt, s, i, j)
				}
			}
		}
	}
}

func TestInPlaceAndReverse(t *testing.T) {
	x := real32(1, 1000)
	want := make([]float32, len(x))
	for i := range x {
		want[i] = x[i] + x[len(x)-1-i]
	}
	got := everywhere(t, func() []float32 {
		y := append([]float32{}, x...)
		backwards := kernel.View{ptr(x[len(x)-1:]), []int{-1}}
		kernel.Binary(kernel.Add, dtype.Float32, []int{len(y)}, row(y), row(y), backwards)
		return y
	})
	near(t, "x + reversed x", got, want, 0)
}

func TestCast(t *testing.T) {
	in := []float64{0, 1, -1, 1.5, -2.7, 300, -300, 1e20, -1e20, math.NaN(), math.Inf(1), 65504, 65520, 1e-8, 6e-8, 1 + 1.0/2048,
		1 + 3.0/2048, 0.1, 3.4e38, 1e39}
	check := func(what string, got, want any) {
		t.Helper()
		switch g := got.(type) {
		case []int8:
			if !slices.Equal(g, want.([]int8)) {
				t.Errorf("%s: %v, want %v", what, g, want)
			}
		case []int64:
			if !slices.Equal(g, want.([]int64)) {
				t.Errorf("%s: %v, want %v", what, g, want)
			}
		case []uint16:
			if !slices.Equal(g, want.([]uint16)) {
				t.Errorf("%s: %04x, want %04x", what, g, want)
			}
		}
	}
	n := []int{len(in)}
	i8, i64, f16, bf16 := make([]int8, len(in)), make([]int64, len(in)), make([]uint16, len(in)), make([]uint16, len(in))
	kernel.Cast(dtype.Int8, dtype.Float64, n, row(i8), row(in))
	check("int8", i8, []int8{0, 1, -1, 1, -2, 127, -128, 127, -128, 0, 127, 127, 127, 0, 0, 1, 1, 0, 127, 127})
	kernel.Cast(dtype.Int64, dtype.Float64, n, row(i64), row(in))
	check("int64", i64, []int64{0, 1, -1, 1, -2, 300, -300, math.MaxInt64, math.MinInt64, 0, math.MaxInt64, 65504, 65520, 0, 0, 1, 1,
		0, math.MaxInt64, math.MaxInt64})
	kernel.Cast(dtype.Float16, dtype.Float64, n, row(f16), row(in))
	check("float16", f16, []uint16{0, 0x3c00, 0xbc00, 0x3e00, 0xc166, 0x5cb0, 0xdcb0, 0x7c00, 0xfc00, 0x7e00, 0x7c00, 0x7bff, 0x7c00,
		0, 1, 0x3c00, 0x3c02, 0x2e66, 0x7c00, 0x7c00})
	kernel.Cast(dtype.BFloat16, dtype.Float64, n, row(bf16), row(in))
	check("bfloat16", bf16, []uint16{0, 0x3f80, 0xbf80, 0x3fc0, 0xc02d, 0x4396, 0xc396, 0x60ad, 0xe0ad, 0x7fc0, 0x7f80, 0x4780, 0x4780,
		0x322c, 0x3381, 0x3f80, 0x3f80, 0x3dcd, 0x7f80, 0x7f80})

	// Every half there is survives the way to float32 and back.
	halves, wide := make([]uint16, 1<<16), make([]float32, 1<<16)
	for i := range halves {
		halves[i] = uint16(i)
	}
	for dt, infinity := range map[dtype.Type]uint16{dtype.Float16: 0x7c00, dtype.BFloat16: 0x7f80} {
		back := make([]uint16, 1<<16)
		kernel.Cast(dtype.Float32, dt, []int{1 << 16}, row(wide), row(halves))
		kernel.Cast(dt, dtype.Float32, []int{1 << 16}, row(back), row(wide))
		for i, h := range halves {
			if back[i] != h && h&0x7fff <= infinity {
				t.Fatalf("%v %04x came back as %04x", dt, h, back[i])
			}
		}
	}
}
