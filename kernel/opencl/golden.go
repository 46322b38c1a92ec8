package opencl

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"unsafe"

	"drun/internal/exit"
	"drun/internal/try"
)

type goldenCase struct {
	file    string
	compute func(*golden)
}

// cases returns the golden cases of each file in cl/, in the order of [Device.Check].
func cases() []goldenCase {
	return []goldenCase{
		{"golden.cl", (*golden).primitives}, {"elementwise.cl", (*golden).elementwise}, {"cast.cl", (*golden).casts}, {"move.cl", (*golden).moves},
		{"activate.cl", (*golden).activations}, {"reduce.cl", (*golden).sums}, {"softmax.cl", (*golden).softmax}, {"norm.cl", (*golden).norms},
		{"product.cl", (*golden).products}, {"widen.cl", (*golden).halfProducts}, {"attention.cl", (*golden).attention},
		{"recurrent.cl", (*golden).recurrent}, {"conv.cl", (*golden).convolutions}, {"pool.cl", (*golden).poolings}, {"lines.cl", (*golden).lines},
		{"index.cl", (*golden).indexed}, {"rows.cl", (*golden).rows}, {"scan.cl", (*golden).scans}, {"whole.cl", (*golden).wholes},
		{"update.cl", (*golden).updates}, {"random.cl", (*golden).random},
	}
}

// Check computes all golden cases: each operation that kernels are made of, and one case of each family of kernels. It returns the first
// case in which the device's bits are not the processor's, "" if there is none. The error is that of a device that cannot compute them.
func (d *Device) Check() (difference string, err error) {
	defer try.Caught(&err)
	for _, c := range cases() {
		if difference = d.differs(c); difference != "" {
			break
		}
	}
	return difference, nil
}

// Prove computes the golden cases of what all kernels are made of, and lets those of each family of kernels be computed before the first of
// its kernels is used, since the device's compiler may take long for all families. A device whose bits are not the processor's is refused
// with an error here, or where the family is used.
func (d *Device) Prove() (err error) {
	defer try.Caught(&err)
	d.proved = map[string]bool{}
	d.prove("golden.cl")
	return nil
}

// prove computes a file's golden cases before the first of its kernels is used.
func (d *Device) prove(file string) {
	if d.proved == nil || d.proved[file] {
		return
	}
	d.proved[file] = true
	passed := false
	defer func() {
		if !passed { // whoever tries again is refused again
			delete(d.proved, file)
			clear(d.kernels)
		}
	}()
	for _, c := range cases() {
		if c.file != file {
			continue
		}
		if difference := d.differs(c); difference != "" {
			err := exit.Errorf(exit.Requirement, "%s (%s, driver %s) does not compute the processor's bits: %s", d.Device, d.Name, d.Driver, difference)
			try.Ok(exit.Permanent(exit.WithHint(err, "--device-bits any computes on it all the same; its runs have bits of their own")))
		}
	}
	passed = true
}

// differs returns the first result of golden cases that is not the processor's. Arguments of another kernel may have been collected already.
func (d *Device) differs(c goldenCase) string {
	g := &golden{d: d, rng: rand.New(rand.NewPCG(36, 1))}
	arguments, uncounted := d.call, d.uncounted
	d.uncounted = true
	defer func() {
		d.call, d.uncounted = arguments, uncounted
		for _, b := range g.buffers {
			d.Put(b)
		}
	}()
	c.compute(g)
	return g.difference
}

type golden struct {
	d          *Device
	rng        *rand.Rand
	buffers    []Buffer
	difference string
}

// put copies values to the device.
func put[T any](g *golden, values []T) Place {
	bytes := len(values) * int(unsafe.Sizeof(values[0]))
	b := g.d.Get("golden cases", bytes)
	g.buffers = append(g.buffers, b)
	g.d.Write(b, 0, unsafe.Pointer(&values[0]), bytes)
	return Place{Buffer: b}
}

// compare notes the first of n results, of which each operation has as many as it has names, that differs from want.
func compareWith[T any](g *golden, at Place, want []T, names ...string) {
	if g.difference != "" {
		return
	}
	got := make([]T, len(want))
	size := int(unsafe.Sizeof(got[0]))
	g.d.Read(unsafe.Pointer(&got[0]), at.Buffer, 0, len(got)*size)
	raw := func(v []T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*size) }
	a, b := raw(got), raw(want)
	if bytes.Equal(a, b) {
		return
	}
	each := len(want) / len(names)
	for i := range want {
		if !bytes.Equal(a[i*size:(i+1)*size], b[i*size:(i+1)*size]) {
			g.difference = fmt.Sprintf("%s, case %d: %v instead of %v (bits %x instead of %x)", names[i/each], i%each, got[i], want[i],
				reversed(a[i*size:(i+1)*size]), reversed(b[i*size:(i+1)*size]))
			return
		}
	}
}

func reversed(b []byte) []byte {
	var out []byte
	for i := range b {
		out = append(out, b[len(b)-1-i])
	}
	return out
}

// reals are numbers of all sizes, among them zeros, infinities, NaN and denormals.
func (g *golden) reals(n int) []float64 {
	v := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 1, -1, 3, 1.0 / 3, 1e-40, -1e-44, 1.1754944e-38, 3.4028235e38, 1e-310}
	for len(v) < n {
		x := g.rng.NormFloat64()
		switch len(v) % 4 {
		case 0:
			x *= math.Pow(2, float64(g.rng.IntN(60)-30))
		case 1:
			x *= math.Pow(2, float64(g.rng.IntN(40)-148)) // about where float32 becomes denormal
		}
		v = append(v, x)
	}
	return v
}

func canon32(x float32) float32 {
	if x != x {
		return math.Float32frombits(0x7fc00000)
	}
	return x
}

func canon64(x float64) float64 {
	if x != x {
		return math.Float64frombits(0x7ff8000000000000)
	}
	return x
}

// fma32 rounds a·b + c once: the product is exact in float64, and the sum is rounded to odd before the last rounding.
func fma32(a, b, c float32) float32 {
	p := float64(a) * float64(b)
	s := p + float64(c)
	t := s - p
	rest := (p - (s - t)) + (float64(c) - t)
	if rest != 0 && !math.IsInf(s, 0) && !math.IsNaN(s) && math.Float64bits(s)&1 == 0 {
		s = math.Nextafter(s, s+math.Copysign(math.Inf(1), rest))
	}
	return float32(s)
}
