package kernel_test

import (
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"drun/kernel"
)

type number interface {
	~float32 | ~float64 | ~int64 | ~int32 | ~int8 | ~uint8 | ~uint16
}

// ptr is where a slice's elements are.
func ptr[E any](s []E) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s)) }

// row views a slice as one dense dimension.
func row[E any](s []E) kernel.View { return kernel.View{ptr(s), []int{1}} }

// real32 and real64 give n normal numbers that depend on the seed alone.
func real32(seed uint64, n int) []float32 {
	r, s := rand.New(rand.NewPCG(seed, 1)), make([]float32, n)
	for i := range s {
		s[i] = float32(r.NormFloat64())
	}
	return s
}

func real64(seed uint64, n int) []float64 {
	r, s := rand.New(rand.NewPCG(seed, 2)), make([]float64, n)
	for i := range s {
		s[i] = r.NormFloat64()
	}
	return s
}

// bytesOf is the memory of a slice, for comparing bits.
func bytesOf[E any](s []E) string {
	var e E
	return string(unsafe.Slice((*byte)(ptr(s)), len(s)*int(unsafe.Sizeof(e))))
}

// everywhere runs a computation on every path with one and with three threads, checks that the bits it
// returns are the same each time, and returns the last.
func everywhere[E any](t *testing.T, compute func() []E) []E {
	t.Helper()
	var result []E
	best := kernel.Path()
	defer func() {
		kernel.SetThreads(1)
		kernel.SetPath(best)
	}()
	want, from := "", ""
	for _, path := range kernel.Paths() {
		if err := kernel.SetPath(path); err != nil {
			t.Fatal(err)
		}
		if kernel.Path() != path {
			t.Fatalf("path %s did not become %s", kernel.Path(), path)
		}
		for _, threads := range []int{1, 3} {
			kernel.SetThreads(threads)
			if result = compute(); path == best && threads > 1 { // and every call twice
				if found := audited(1, nil, func() { result = compute() }); len(found) > 0 {
					t.Fatal(found[0])
				}
			}
			got := bytesOf(result)
			if from == "" {
				want, from = got, path
			}
			if got != want {
				for i := range result {
					size := len(got) / len(result)
					if got[i*size:][:size] != want[i*size:][:size] {
						t.Fatalf("%s with %d threads: element %d of %d differs from %s with 1: bits %x, want %x (%v)", path, threads,
							i, len(result), from, got[i*size:][:size], want[i*size:][:size], result[i])
					}
				}
			}
		}
	}
	return result
}

// written is everywhere for a computation that writes n elements.
func written[E any](t *testing.T, n int, compute func(out []E)) []E {
	t.Helper()
	return everywhere(t, func() []E {
		out := make([]E, n)
		compute(out)
		return out
	})
}

// near checks got against a reference to a relative or absolute tolerance.
func near[A, B float32 | float64](t *testing.T, what string, got []A, want []B, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range got {
		g, w := float64(got[i]), float64(want[i])
		if g != w && !(math.Abs(g-w) <= tolerance*math.Max(1, math.Abs(w))) && !(math.IsNaN(g) && math.IsNaN(w)) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, g, w)
		}
	}
}

func TestPaths(t *testing.T) {
	if err := kernel.SetPath("abacus"); err == nil {
		t.Error("an unknown path was accepted")
	}
	if paths := kernel.Paths(); len(paths) == 0 || paths[0] != "scalar" {
		t.Errorf("paths %v: the first must be scalar", paths)
	}
	if flags, _ := os.ReadFile("/proc/cpuinfo"); runtime.GOARCH == "amd64" && len(kernel.Paths()) > 1 && strings.Contains(string(flags), " avx512_bf16 ") && !slices.Contains(kernel.Paths(), "avx512bf16") {
		t.Error("this processor has AVX512-BF16 and does not add as is assumed of it")
	}
	t.Setenv("DRUN_KERNEL", "abacus")
	if err := kernel.CheckPath(); err == nil {
		t.Error("a forced path that does not exist went unnoticed")
	}
	t.Setenv("DRUN_KERNEL", kernel.Path())
	if err := kernel.CheckPath(); err != nil {
		t.Error(err)
	}
}

// pointers are the places of several slices.
func pointers[E any](s ...[]E) []unsafe.Pointer {
	p := make([]unsafe.Pointer, len(s))
	for i := range s {
		p[i] = ptr(s[i])
	}
	return p
}
