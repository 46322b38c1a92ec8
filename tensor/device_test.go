package tensor

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"drun/kernel/dtype"
	"drun/kernel/opencl"
)

// onFirstDevice returns a context whose tensors are computed on OpenCL's first device; in drun's own tests that is PoCL.
func onFirstDevice(t *testing.T) *Context {
	t.Helper()
	found, err := opencl.List()
	if err != nil || len(found) == 0 {
		t.Skip("no OpenCL device", err)
	}
	c := NewContext()
	c.UseDevice(must(opencl.Open(found[0])))
	return c
}

func sameBytes(t *testing.T, what string, a, b *Tensor) {
	t.Helper()
	if a.dtype != b.dtype || !sameShape(a.shape, b.shape) || !bytes.Equal(contiguous(a.Detach()).Bytes(), contiguous(b.Detach()).Bytes()) {
		t.Errorf("%s: the device's %v differs from the processor's %v", what, b, a)
	}
}

// A program of many kinds of operations, of views and changes in place, with and without kernels on the device.
func deviceProgram(t *testing.T, c *Context, rng *rand.Rand) (results []*Tensor) {
	leaf := func(shape ...int) *Tensor {
		n := 1
		for _, d := range shape {
			n *= d
		}
		values := make([]float64, n)
		for i := range values {
			values[i] = rng.NormFloat64()
		}
		x := floats(c, dtype.Float32, shape, values...)
		check(t, x.SetRequiresGrad(true))
		return x
	}
	x, w, b := leaf(33, 40), leaf(40, 17), leaf(17)
	h := must(Add(must(MatMul(x, w)), b))
	y := must(Unary(OpTanh, h))
	half := must(Cast(y, dtype.BFloat16))
	z := must(Add(y, must(Cast(half, dtype.Float32))))
	big := must(BinaryScalar(OpGt, z, Float(0.5), false))
	z = must(Where(big, must(Mul(z, z)), z))
	part := must(Narrow(must(Transpose(z, 0, 1)), 0, 3, 9))
	loss := must(Sum(must(Mul(part, part)), nil, false))
	results = append(results, h, y, half, z, big, part, loss)
	check(t, loss.Backward(nil, false))
	results = append(results, x.Grad(), w.Grad(), b.Grad())
	c.BeginNoGrad()
	check(t, BinaryInPlace(OpSub, w, must(BinaryScalar(OpMul, w.Grad(), Float(0.1), false))))
	check(t, must(Narrow(w, 1, 2, 5)).Fill(Float(3)))
	c.EndNoGrad()
	return append(results, w, must(MatMul(x, w)))
}

func TestDeviceHasTheSameBits(t *testing.T) {
	c := onFirstDevice(t)
	there := deviceProgram(t, c, rand.New(rand.NewPCG(1, 1)))
	here := deviceProgram(t, NewContext(), rand.New(rand.NewPCG(1, 1)))
	for i := range here {
		sameBytes(t, []string{"h", "y", "half", "z", "big", "part", "loss", "x.grad", "w.grad", "b.grad", "w", "product"}[i], here[i], there[i])
	}
	if c.Device().Uploads.Count == 0 {
		t.Error("nothing was computed on the device")
	}
}

// Both copies of a tensor's memory know which is current.
func TestCurrentCopy(t *testing.T) {
	c := onFirstDevice(t)
	x := floats(c, dtype.Float32, []int{3}, 1, 2, 3)
	double := func() *Tensor { return must(Add(x, x)) }
	equal(t, double(), []int{3}, 2, 4, 6)
	Elems[float32](x)[1] = 7 // on the host
	equal(t, double(), []int{3}, 2, 14, 6)
	check(t, BinaryScalarInPlace(OpMul, x, Float(10))) // on the device
	equal(t, x, []int{3}, 10, 70, 30)
	equal(t, double(), []int{3}, 20, 140, 60)

	// Memory whose address others have is written while the device reads its own copy.
	raw := x.Bytes()
	equal(t, double(), []int{3}, 20, 140, 60)
	copy(raw, []byte{0, 0, 0x80, 0x3f})
	x.Touched()
	equal(t, double(), []int{3}, 2, 140, 60)

	// Memory that is pinned stays where it is.
	before := &x.Bytes()[0]
	Pin(x)
	check(t, BinaryScalarInPlace(OpMul, x, Float(2)))
	equal(t, x, []int{3}, 2, 140, 60)
	equal(t, double(), []int{3}, 4, 280, 120)
	if &x.Bytes()[0] != before {
		t.Error("pinned memory has moved")
	}

	// A write to a part keeps the rest.
	y := floats(c, dtype.Float32, []int{4}, 1, 2, 3, 4)
	check(t, must(Narrow(y, 0, 1, 2)).Fill(Float(9)))
	equal(t, y, []int{4}, 1, 9, 9, 4)
	Elems[float32](y)[3] = 5 // the host's copy alone is current
	check(t, must(Narrow(y, 0, 1, 2)).Fill(Float(8)))
	equal(t, y, []int{4}, 1, 8, 8, 5)

	// What is read on the host stays current on the device.
	uploads := c.Device().Uploads.Count
	_ = Values[float32](y)
	equal(t, must(Add(y, y)), []int{4}, 2, 16, 16, 10)
	if more := c.Device().Uploads.Count - uploads; more > 1 {
		t.Errorf("reading %d times led to a copy to the device", more)
	}

	// A part of what the device alone has is copied alone.
	downloaded := c.Device().Downloads.Bytes
	if part := ContentsOf(must(Add(y, y))).Bytes(4, 12); !bytes.Equal(part, floats(NewContext(), dtype.Float32, []int{2}, 16, 16).Bytes()) {
		t.Errorf("a part is %x", part)
	}
	if copied := c.Device().Downloads.Bytes - downloaded; copied != 8 {
		t.Errorf("8 bytes were read, and %d copied", copied)
	}
}

// Memory on the device comes back when it is discarded, and when it is garbage.
func TestDeviceMemoryComesBack(t *testing.T) {
	c := onFirstDevice(t)
	d := c.Device()
	x := must(Ones(c, []int{1 << 18}, dtype.Float32))
	y := must(Add(x, x))
	used, _ := d.InUse()
	Discard(y)
	if now, _ := d.InUse(); now != used-1<<20 {
		t.Errorf("%d bytes are in use after %d", now, used)
	}
	d.Limit(16 << 20)
	for range 100 {
		x = must(Add(x, x))
	}
	d.Limit(1 << 20)
	if _, err := Add(x, x); err == nil || !strings.Contains(err.Error(), "cannot allocate 1048576 bytes on opencl:0") {
		t.Errorf("a device that is full: %v", err)
	}
	if v := Elems[float32](x)[0]; v != 0x1p100 {
		t.Errorf("the sum is %v", v)
	}
}
