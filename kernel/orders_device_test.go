package kernel_test

import (
	"os"
	"testing"
	"unsafe"

	"drun/kernel"
	"drun/kernel/dtype"
	"drun/kernel/opencl"
)

// What the orders are computed by: the processor's kernels, or a device's.
var (
	onReduce           = kernel.Reduce
	onCumSum           = kernel.CumSum
	onCumProd          = kernel.CumProd
	onCumProdGrad      = kernel.CumProdGrad
	onSquareSum        = kernel.SquareSum
	onMoments          = kernel.Moments
	onSquareSums       = kernel.SquareSums
	onScaleLines       = kernel.ScaleLines
	onBatchNormGrad    = kernel.BatchNormGrad
	onSoftmax          = kernel.Softmax
	onSoftmaxGrad      = kernel.SoftmaxGrad
	onCrossEntropy     = kernel.CrossEntropy
	onCrossEntropyGrad = kernel.CrossEntropyGrad
	onLayerNorm        = kernel.LayerNorm
	onLayerNormGrad    = kernel.LayerNormGrad
	onGemm             = kernel.Gemm
	onConv2d           = kernel.Conv2d
	onConv2dGradInput  = kernel.Conv2dGradInput
	onConv2dGradWeight = kernel.Conv2dGradWeight
	onAvgPool2d        = kernel.AvgPool2d
	onAvgPool2dGrad    = kernel.AvgPool2dGrad
	onForward          = (*kernel.Attention).Forward
	onBackward         = (*kernel.Attention).Backward
	onAddRows          = kernel.AddRows
	onScatterAdd       = kernel.ScatterAdd
	onScale            = kernel.Scale
	onSGD              = kernel.SGD.Step
	onAdam             = kernel.Adam.Step
	onUniform          = kernel.Stream.Uniform
	onDropout          = kernel.Stream.Dropout
)

// mirror is memory that a device has a copy of.
type mirror struct {
	*opencl.Device
	host   []uint64
	bytes  int // in use
	buffer opencl.Buffer
}

// mirrored, if set, is where the orders' memory is.
var mirrored *mirror

// made makes n zeros.
func made[E float32 | float64](n int) []E {
	m := mirrored
	if m == nil {
		return make([]E, n)
	}
	at := m.bytes / 8
	m.bytes += (n*int(unsafe.Sizeof(E(0))) + 63) / 64 * 64
	clear(m.host[at : m.bytes/8])
	return unsafe.Slice((*E)(unsafe.Pointer(&m.host[at])), n)
}

// run has a device's method compute with what is on the host, and brings its results back.
func (m *mirror) run(dt dtype.Type, compute func(at func(unsafe.Pointer) opencl.Place)) {
	start := unsafe.Pointer(&m.host[0])
	m.Write(m.buffer, 0, start, m.bytes)
	compute(func(p unsafe.Pointer) opencl.Place {
		if p == nil {
			return opencl.Place{}
		}
		return opencl.Place{Buffer: m.buffer, At: int(uintptr(p)-uintptr(start)) / dt.Size()}
	})
	m.Read(start, m.buffer, 0, m.bytes)
}

// indices are on the device while f runs.
func (m *mirror) indices(v []int64, f func(opencl.Place)) {
	b := m.Get("test", 8*len(v))
	defer m.Put(b)
	m.Write(b, 0, ptr(v), 8*len(v))
	f(opencl.Place{Buffer: b})
}

type place = func(unsafe.Pointer) opencl.Place

func swap[F any](t *testing.T, to *F, by F) {
	before := *to
	*to = by
	t.Cleanup(func() { *to = before })
}

// computes has the orders be computed by the device until the test ends.
func (m *mirror) computes(t *testing.T) {
	matrix := func(at place, x kernel.Matrix) opencl.Matrix {
		return opencl.Matrix{Place: at(x.Data), Stride: x.Stride, Trans: x.Trans, Batch: x.Batch}
	}
	affine := func(at place, a kernel.Affine) opencl.Affine {
		return opencl.Affine{Mean: at(a.Mean), Low: at(a.Low), Scale: at(a.Scale), Gamma: at(a.Gamma), Beta: at(a.Beta)}
	}
	swap(t, &onReduce, func(op kernel.ReduceOp, dt dtype.Type, outer, n, inner int, out, in unsafe.Pointer) {
		m.run(dt, func(at place) { m.Reduce(op, dt, outer, n, inner, at(out), at(in)) })
	})
	cumulate := func(product bool) func(dt dtype.Type, outer, n, inner int, out, in unsafe.Pointer) {
		return func(dt dtype.Type, outer, n, inner int, out, in unsafe.Pointer) {
			m.run(dt, func(at place) { m.Cumulate(product, dt, outer, n, inner, at(out), at(in)) })
		}
	}
	swap(t, &onCumSum, cumulate(false))
	swap(t, &onCumProd, cumulate(true))
	swap(t, &onCumProdGrad, func(dt dtype.Type, outer, n, inner int, dx, dy, x unsafe.Pointer) {
		m.run(dt, func(at place) { m.CumProdGrad(dt, outer, n, inner, at(dx), at(dy), at(x)) })
	})
	swap(t, &onSquareSum, func(dt dtype.Type, n int, in unsafe.Pointer) (sum float64) {
		room := m.Get("test", 8)
		defer m.Put(room)
		m.run(dt, func(at place) { m.SquareSum(dt, n, room, 0, at(in)) })
		m.Read(unsafe.Pointer(&sum), room, 0, 8)
		return sum
	})
	swap(t, &onMoments, func(dt dtype.Type, l kernel.Lines, correction int, mean, low, variance, in unsafe.Pointer) {
		m.run(dt, func(at place) { m.Moments(dt, l, correction, at(mean), at(low), at(variance), at(in)) })
	})
	swap(t, &onSquareSums, func(dt dtype.Type, l kernel.Lines, out, in unsafe.Pointer) {
		m.run(dt, func(at place) { m.SquareSums(dt, l, at(out), at(in)) })
	})
	swap(t, &onScaleLines, func(dt dtype.Type, l kernel.Lines, a kernel.Affine, y, x unsafe.Pointer) {
		m.run(dt, func(at place) { m.ScaleLines(dt, l, affine(at, a), at(y), at(x)) })
	})
	swap(t, &onBatchNormGrad, func(dt dtype.Type, l kernel.Lines, a kernel.Affine, training bool, dx, dgamma, dbeta, _, dy, x unsafe.Pointer) {
		m.run(dt, func(at place) {
			m.BatchNormGrad(dt, l, affine(at, a), training, at(dx), at(dgamma), at(dbeta), at(dy), at(x))
		})
	})
	swap(t, &onSoftmax, func(dt dtype.Type, logarithm bool, rows, n int, out, in unsafe.Pointer) {
		m.run(dt, func(at place) { m.Softmax(dt, logarithm, rows, n, at(out), at(in)) })
	})
	swap(t, &onSoftmaxGrad, func(dt dtype.Type, logarithm bool, rows, n int, dx, dy, y unsafe.Pointer) {
		m.run(dt, func(at place) { m.SoftmaxGrad(dt, logarithm, rows, n, at(dx), at(dy), at(y)) })
	})
	swap(t, &onCrossEntropy, func(dt dtype.Type, rows, n int, loss, lse, logits unsafe.Pointer, target []int64) {
		m.indices(target, func(target opencl.Place) {
			m.run(dt, func(at place) { m.CrossEntropy(dt, rows, n, at(loss), at(lse), at(logits), target) })
		})
	})
	swap(t, &onCrossEntropyGrad, func(dt dtype.Type, rows, n int, dlogits, dloss unsafe.Pointer, stride int, scale float64, logits, lse unsafe.Pointer, target []int64) {
		m.indices(target, func(target opencl.Place) {
			m.run(dt, func(at place) {
				m.CrossEntropyGrad(dt, rows, n, at(dlogits), at(dloss), stride, scale, at(logits), at(lse), target)
			})
		})
	})
	swap(t, &onLayerNorm, func(dt dtype.Type, rows, n int, eps float64, y, mean, rstd, x, gamma, beta unsafe.Pointer) {
		m.run(dt, func(at place) { m.LayerNorm(dt, rows, n, eps, at(y), at(mean), at(rstd), at(x), at(gamma), at(beta)) })
	})
	swap(t, &onLayerNormGrad, func(dt dtype.Type, rows, n int, add bool, dx, dgamma, dbeta, dy, x, gamma, mean, rstd unsafe.Pointer) {
		m.run(dt, func(at place) {
			m.LayerNormGrad(dt, rows, n, add, at(dx), at(dgamma), at(dbeta), at(dy), at(x), at(gamma), at(mean), at(rstd))
		})
	})
	swap(t, &onGemm, func(dt dtype.Type, batch, r, n, k int, c, a, b kernel.Matrix, accumulate bool, bias unsafe.Pointer) error {
		m.run(dt, func(at place) {
			m.Gemm(dt, batch, r, n, k, matrix(at, c), matrix(at, a), matrix(at, b), accumulate, at(bias))
		})
		return nil
	})
	swap(t, &onConv2d, func(dt dtype.Type, w kernel.Window, y, x, weight, bias unsafe.Pointer) error {
		m.run(dt, func(at place) { m.Conv2d(dt, w, at(y), at(x), at(weight), at(bias)) })
		return nil
	})
	swap(t, &onConv2dGradInput, func(dt dtype.Type, w kernel.Window, dx, dy, weight unsafe.Pointer) error {
		m.run(dt, func(at place) { m.ConvTranspose2d(dt, w, at(dx), at(dy), at(weight), opencl.Place{}) })
		return nil
	})
	swap(t, &onConv2dGradWeight, func(dt dtype.Type, w kernel.Window, dweight, dbias, dy, x unsafe.Pointer) error {
		m.run(dt, func(at place) { m.Conv2dGradWeight(dt, w, at(dweight), at(dbias), at(dy), at(x)) })
		return nil
	})
	swap(t, &onAvgPool2d, func(dt dtype.Type, w kernel.Window, y, x unsafe.Pointer) {
		m.run(dt, func(at place) { m.AvgPool2d(dt, w, at(y), at(x)) })
	})
	swap(t, &onAvgPool2dGrad, func(dt dtype.Type, w kernel.Window, dx, dy unsafe.Pointer) {
		m.run(dt, func(at place) { m.Pool2dGrad(dt, w, at(dx), at(dy), opencl.Place{}) })
	})
	swap(t, &onForward, func(a *kernel.Attention, dt dtype.Type, out, lse, q, k, v unsafe.Pointer) error {
		m.run(dt, func(at place) { m.Attention(a, dt, at(out), at(lse), at(q), at(k), at(v)) })
		return nil
	})
	swap(t, &onBackward, func(a *kernel.Attention, dt dtype.Type, dq, dk, dv, dy, lse, q, k, v unsafe.Pointer) error {
		m.run(dt, func(at place) {
			m.AttentionGrad(a, dt, at(dq), at(dk), at(dv), at(dy), at(lse), at(q), at(k), at(v))
		})
		return nil
	})
	swap(t, &onAddRows, func(dt dtype.Type, n int, out, in unsafe.Pointer, index []int64) {
		m.indices(index, func(i opencl.Place) { m.run(dt, func(at place) { m.AddRows(dt, n, len(index), at(out), at(in), i) }) })
	})
	swap(t, &onScatterAdd, func(dt dtype.Type, outer, from, to, inner int, out, in unsafe.Pointer, index []int64) {
		m.indices(index, func(i opencl.Place) {
			m.run(dt, func(at place) { m.ScatterAdd(dt, outer, from, to, inner, at(out), at(in), i) })
		})
	})
	swap(t, &onScale, func(dt dtype.Type, n int, x unsafe.Pointer, by float64) {
		m.run(dt, func(at place) { m.Scale(dt, n, at(x), by) })
	})
	swap(t, &onSGD, func(s kernel.SGD, dt dtype.Type, n int, p, g, v unsafe.Pointer) {
		m.run(dt, func(at place) { m.SGD(s, dt, n, at(p), at(g), at(v)) })
	})
	swap(t, &onAdam, func(a kernel.Adam, dt dtype.Type, n int, p, g, v, s unsafe.Pointer) {
		m.run(dt, func(at place) { m.Adam(a, dt, n, at(p), at(g), at(v), at(s)) })
	})
	swap(t, &onUniform, func(s kernel.Stream, dt dtype.Type, n int, out unsafe.Pointer) {
		m.run(dt, func(at place) { m.Draw(s, false, dt, n, at(out)) })
	})
	swap(t, &onDropout, func(s kernel.Stream, dt dtype.Type, n int, out, in unsafe.Pointer, keep float64) {
		m.run(dt, func(at place) { m.Dropout(s, dt, n, at(out), at(in), keep) })
	})
}

// OpenCL's first device, which in drun's own tests is PoCL, gives the bits of testdata/orders.txt, too. make test-opencl tries all orders, a test some.
func TestOrdersOnDevice(t *testing.T) {
	found, err := opencl.List()
	if err != nil || len(found) == 0 {
		t.Skip("no OpenCL device", err)
	}
	d, err := opencl.Open(found[0])
	if err != nil {
		t.Fatal(err)
	}
	m := &mirror{Device: d, host: make([]uint64, 4<<20)}
	m.buffer = d.Get("test", 8*len(m.host))
	swap(t, &mirrored, m)
	m.computes(t)
	all, turn := os.Getenv("DRUN_TEST_LONG") != "", 0
	some := func() bool {
		m.bytes = 0
		turn++
		return all || turn%12 == 1
	}
	digests(t, statedOrders(t), func(o order[float32]) []float32 {
		if !some() {
			return nil
		}
		return o.run(dtype.Float32, drawn[float32](dtype.Float32))
	}, func(o order[float64]) []float64 {
		if !all || !some() {
			return nil
		}
		return o.run(dtype.Float64, drawn[float64](dtype.Float64))
	})
}
