package tensor

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"drun/kernel"
	"drun/kernel/dtype"
)

// must unwraps a result or fails the test by panicking with its error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// floats makes a tensor from values in row-major order.
func floats(c *Context, dt dtype.Type, shape []int, values ...float64) *Tensor {
	return must(FromFloats(c, values, shape, dt))
}

// plain is a convolution without dilation or groups.
func plain(stride, padding [2]int) ConvOptions {
	return ConvOptions{Stride: stride, Padding: padding, Dilation: [2]int{1, 1}, Groups: 1}
}

// conv2d is a plain convolution.
func conv2d(x, weight, bias *Tensor, stride, padding [2]int) (*Tensor, error) {
	return Convolve("conv2d", x, weight, bias, plain(stride, padding))
}

func ints(c *Context, shape []int, values ...int64) *Tensor {
	return must(FromInts(c, values, shape, dtype.Int64))
}

// list gives all elements in row-major order.
func list(t *Tensor) []float64 {
	x := cast("list", contiguous(t.Detach()), dtype.Float64)
	return append([]float64{}, Elems[float64](x)...)
}

func equal(t *testing.T, got *Tensor, shape []int, want ...float64) {
	t.Helper()
	near(t, got, 0, shape, want...)
}

func near(t *testing.T, got *Tensor, tol float64, shape []int, want ...float64) {
	t.Helper()
	if !sameShape(got.shape, shape) {
		t.Fatalf("shape %v, want %v", got.shape, shape)
	}
	values := list(got)
	if len(values) != len(want) {
		t.Fatalf("%d elements, want %d", len(values), len(want))
	}
	for i, v := range values {
		if !(math.Abs(v-want[i]) <= tol) && !(v != v && want[i] != want[i]) && v != want[i] {
			t.Fatalf("element %d: got %v, want %v (all: %v)", i, v, want[i], values)
		}
	}
}

// fails checks for an error that holds all of parts.
func fails(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Fatalf("error %q lacks %q", err, p)
		}
	}
}

func fail[T any](t *testing.T, parts ...string) func(T, error) {
	return func(_ T, err error) {
		t.Helper()
		fails(t, err, parts...)
	}
}

func scalar(t *Tensor) float64 { return must(t.Item()).Float() }

func bitsOf(ts ...*Tensor) (bits []uint32) {
	for _, t := range ts {
		for _, v := range Elems[float32](contiguous(t)) {
			bits = append(bits, math.Float32bits(v))
		}
	}
	return bits
}

// everyPath runs f on all paths that the machine has, with 1 to 3 threads.
func everyPath(t *testing.T, f func(where string)) {
	path, threads := kernel.Path(), kernel.Threads()
	defer func() {
		check(t, kernel.SetPath(path))
		kernel.SetThreads(threads)
	}()
	for _, p := range kernel.Paths() {
		for n := 1; n <= 3; n++ {
			check(t, kernel.SetPath(p))
			kernel.SetThreads(n)
			if kernel.Path() != p || kernel.Threads() != n {
				t.Fatalf("%s with %d threads runs, not %s with %d", kernel.Path(), kernel.Threads(), p, n)
			}
			f(fmt.Sprintf("%s with %d threads", p, n))
		}
	}
}
