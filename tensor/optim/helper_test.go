package optim

import (
	"math"
	"slices"
	"strings"
	"testing"

	"drun/kernel/dtype"
	. "drun/tensor"
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

func equal(t *testing.T, got *Tensor, shape []int, want ...float64) {
	t.Helper()
	near(t, got, 0, shape, want...)
}

func near(t *testing.T, got *Tensor, tol float64, shape []int, want ...float64) {
	t.Helper()
	if !slices.Equal(got.Shape(), shape) {
		t.Fatalf("shape %v, want %v", got.Shape(), shape)
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

// list gives all elements in row-major order.
func list(t *Tensor) (values []float64) {
	for _, s := range must(t.Detach().Scalars()) {
		values = append(values, s.Float())
	}
	return values
}

func scalar(t *Tensor) float64 { return must(t.Item()).Float() }

func bitsOf(ts ...*Tensor) (bits []uint32) {
	for _, t := range ts {
		for _, v := range Elems[float32](must(Contiguous(t.Detach()))) {
			if v != v {
				panic("a parameter became NaN")
			}
			bits = append(bits, math.Float32bits(v))
		}
	}
	return bits
}
