package opencl

import (
	"math/rand/v2"
	"os"
	"testing"

	"drun/kernel"
	"drun/kernel/dtype"
)

// strided makes operands that are dense, transposed, broadcast, or have gaps.
func strided(rng *rand.Rand, shape []int, out bool) (strides []int, size int) {
	strides = make([]int, len(shape))
	order := rng.Perm(len(shape))
	if rng.IntN(2) == 0 {
		for i := range order {
			order[i] = len(shape) - 1 - i
		}
	}
	step := 1
	for _, i := range order {
		if !out && rng.IntN(6) == 0 {
			continue // broadcast
		}
		if rng.IntN(6) == 0 {
			step *= 2
		}
		strides[i] = step
		step *= shape[i]
	}
	return strides, step
}

func shape(rng *rand.Rand) []int {
	s := make([]int, rng.IntN(5))
	for i := range s {
		s[i] = 1 + rng.IntN(9)
	}
	if rng.IntN(5) == 0 {
		return []int{1 + rng.IntN(3000)}
	}
	return s
}

type operand struct {
	*memory
	strides []int
}

func (o operand) view() kernel.View { return kernel.View{Data: o.ptr(), Strides: o.strides} }
func (o operand) on() Operand       { return Operand{Place: o.place(), Strides: o.strides} }

func operandOf(d *Device, rng *rand.Rand, shape []int, dt dtype.Type, out bool) operand {
	strides, size := strided(rng, shape, out)
	return operand{upload(d, random(rng, dt, size, false)), strides}
}

// some reports whether to try one of many kernels: each takes PoCL's compiler half a second. make test-opencl tries all.
func some(rng *rand.Rand) bool { return os.Getenv("DRUN_TEST_LONG") != "" || rng.IntN(9) == 0 }

var computedTypes = []dtype.Type{dtype.Float32, dtype.Float64, dtype.Int64, dtype.Int32, dtype.Int8, dtype.Uint8}

// eachKernel calls f for the operations from first to last in the types that they have, or for some of them.
func eachKernel[Op ~int32](t *testing.T, seed uint64, first, last Op, types []dtype.Type, has func(Op, dtype.Type) bool,
	f func(d *Device, rng *rand.Rand, op Op, dt dtype.Type)) {
	d := open(t)
	rng := rand.New(rand.NewPCG(seed, 2))
	for op := first; op <= last; op++ {
		for _, dt := range types {
			if has(op, dt) && some(rng) {
				attempt(t, func() { f(d, rng, op, dt) })
			}
		}
	}
}

func TestBinary(t *testing.T) {
	has := func(op kernel.BinaryOp, dt dtype.Type) bool {
		if dt.IsFloat() {
			return op < kernel.And || op > kernel.Xor
		}
		return op != kernel.Atan2
	}
	eachKernel(t, 1, kernel.Add, kernel.Atan2, computedTypes, has, func(d *Device, rng *rand.Rand, op kernel.BinaryOp, dt dtype.Type) {
		for range 4 {
			s := shape(rng)
			out, a, b := operandOf(d, rng, s, dt, true), operandOf(d, rng, s, dt, false), operandOf(d, rng, s, dt, false)
			kernel.Binary(op, dt, s, out.view(), a.view(), b.view())
			d.Binary(op, dt, s, out.on(), a.on(), b.on())
			same(t, d, dt, out.memory, "%s of %s, shape %v", binaryNames[op], dt, s)
		}
	})
}

func TestCompare(t *testing.T) {
	all := func(kernel.CompareOp, dtype.Type) bool { return true }
	eachKernel(t, 3, kernel.Eq, kernel.Ge, computedTypes, all, func(d *Device, rng *rand.Rand, op kernel.CompareOp, dt dtype.Type) {
		s := shape(rng)
		out, a, b := operandOf(d, rng, s, dtype.Bool, true), operandOf(d, rng, s, dt, false), operandOf(d, rng, s, dt, false)
		kernel.Compare(op, dt, s, out.view(), a.view(), b.view())
		d.Compare(op, dt, s, out.on(), a.on(), b.on())
		same(t, d, dtype.Bool, out.memory, "%s of %s, shape %v", compareNames[op], dt, s)
	})
}

func TestUnary(t *testing.T) {
	has := func(op kernel.UnaryOp, dt dtype.Type) bool {
		switch {
		case dt == dtype.Bool || op == kernel.Not:
			return dt == dtype.Bool && op == kernel.Not
		case dt.IsFloat():
			return true
		}
		return op == kernel.Neg || op == kernel.Abs || op == kernel.Sign || op == kernel.Square || op == kernel.Relu
	}
	eachKernel(t, 5, kernel.Neg, kernel.Not, append([]dtype.Type{dtype.Bool}, computedTypes...), has, func(d *Device, rng *rand.Rand, op kernel.UnaryOp, dt dtype.Type) {
		for range 4 {
			s := []int{1 + rng.IntN(3000)}
			if rng.IntN(2) == 0 {
				s = shape(rng)
			}
			out, a := operandOf(d, rng, s, dt, true), operandOf(d, rng, s, dt, false)
			kernel.Unary(op, dt, s, out.view(), a.view())
			d.Unary(op, dt, s, out.on(), a.on())
			same(t, d, dt, out.memory, "%s of %s, shape %v", unaryNames[op], dt, s)
		}
	})
}

func TestUnaryGrad(t *testing.T) {
	has := func(op kernel.UnaryOp, dt dtype.Type) bool {
		return op != kernel.Sign && op != kernel.Gelu && op != kernel.Silu
	}
	eachKernel(t, 7, kernel.Neg, kernel.Atan, reals, has, func(d *Device, rng *rand.Rand, op kernel.UnaryOp, dt dtype.Type) {
		s := shape(rng)
		out, a, b := operandOf(d, rng, s, dt, true), operandOf(d, rng, s, dt, false), operandOf(d, rng, s, dt, false)
		kernel.UnaryGrad(op, dt, s, out.view(), a.view(), b.view())
		d.UnaryGrad(op, dt, s, out.on(), a.on(), b.on())
		same(t, d, dt, out.memory, "gradient of %s of %s, shape %v", unaryNames[op], dt, s)
	})
}

func TestCasts(t *testing.T) {
	d := open(t)
	rng := rand.New(rand.NewPCG(9, 2))
	for _, to := range dtype.Types() {
		for _, from := range dtype.Types() {
			if !some(rng) {
				continue
			}
			attempt(t, func() {
				s := []int{700}
				if rng.IntN(2) == 0 {
					s = shape(rng)
				}
				out, a := operandOf(d, rng, s, to, true), operandOf(d, rng, s, from, false)
				kernel.Cast(to, from, s, out.view(), a.view())
				d.Cast(to, from, s, out.on(), a.on())
				same(t, d, to, out.memory, "%s to %s, shape %v", from, to, s)
			})
		}
	}
}

func TestWhere(t *testing.T) {
	d := open(t)
	rng := rand.New(rand.NewPCG(11, 2))
	for _, dt := range dtype.Types() {
		if !some(rng) && dt != dtype.Float32 {
			continue
		}
		attempt(t, func() {
			s := shape(rng)
			out, c, a, b := operandOf(d, rng, s, dt, true), operandOf(d, rng, s, dtype.Bool, false), operandOf(d, rng, s, dt, false), operandOf(d, rng, s, dt, false)
			kernel.Where(dt, s, out.view(), c.view(), a.view(), b.view())
			d.Where(dt, s, out.on(), c.on(), a.on(), b.on())
			same(t, d, dt, out.memory, "where of %s, shape %v", dt, s)
		})
	}
}
