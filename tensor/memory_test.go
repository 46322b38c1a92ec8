package tensor

import (
	"runtime"
	"testing"
	"time"
	"unsafe"

	"drun/kernel/dtype"
)

// A training loop must not take ever more memory from the system.
func TestMemoryIsSteady(t *testing.T) {
	c := NewContext()
	g := NewGenerator(1, 0)
	w1, w2 := must(g.Randn(c, []int{256, 128}, dtype.Float32)), must(g.Randn(c, []int{10, 256}, dtype.Float32))
	check(t, w1.SetRequiresGrad(true))
	check(t, w2.SetRequiresGrad(true))
	must(NewFlat([]*Tensor{w1, w2}))
	x := must(g.Randn(c, []int{512, 128}, dtype.Float32))
	y := must(g.RandInt(c, 0, 10, []int{512}, dtype.Int64))
	step := func() {
		h := must(Unary(OpRelu, must(Linear(x, w1, nil))))
		check(t, must(CrossEntropy(must(Linear(h, w2, nil)), y, ReduceMean)).Backward(nil, false))
		check(t, w1.SetGrad(nil))
		check(t, w2.SetGrad(nil))
	}
	more := func() int {
		before := pool.mapped
		for range 400 { // each step's tensors take over a megabyte
			step()
		}
		return pool.mapped - before
	}
	more() // until there is as much garbage as there may be; on a busy machine a collection may end late once more
	if grown := min(more(), more()); grown > 16<<20 {
		t.Errorf("each 400 steps map %d bytes more", grown)
	}
}

// The memory that parameters had before an optimizer moved them comes back, though the parameters live on.
func TestMovedParametersLeaveNothing(t *testing.T) {
	const n, end = 10 << 20, 10 * time.Second
	c := NewContext()
	runtime.GC()
	before := Memory().InUse
	w := must(Zeros(c, []int{n}, dtype.Float32))
	check(t, w.SetRequiresGrad(true))
	flat := must(NewFlat([]*Tensor{w}))
	Reclaim(w.n * 4)
	for started := time.Now(); Memory().InUse-before > 2*4*n; time.Sleep(time.Millisecond) {
		if runtime.GC(); time.Since(started) > end {
			t.Fatalf("%d bytes are in use, of which parameters and gradients are %d", Memory().InUse-before, 2*4*n)
		}
	}
	runtime.KeepAlive(w)
	runtime.KeepAlive(flat)
}

func TestDiscardReusesMemory(t *testing.T) {
	c := NewContext()
	a := must(Zeros(c, []int{100000}, dtype.Float32))
	p := a.st.ptr
	Discard(a)
	if b := must(Empty(c, []int{100000}, dtype.Float32)); b.st.ptr != p {
		t.Error("the next tensor of this size did not get the discarded memory")
	}
	// What the backward pass needs stays until it is done.
	x := must(Ones(c, []int{100000}, dtype.Float32))
	check(t, x.SetRequiresGrad(true))
	y := must(Unary(OpExp, x))
	z := must(Sum(must(Unary(OpExp, y)), nil, false))
	Discard(y)
	if y.st.ptr == nil {
		t.Fatal("discard freed what exp's gradient needs")
	}
	check(t, z.Backward(nil, false))
	if y.st.ptr != nil {
		t.Error("the backward pass did not free the discarded tensor")
	}
	near(t, must(Narrow(x.Grad(), 0, 0, 1)), 1e-4, []int{1}, 41.193556) // e·e^e
}

// What an operation keeps for its gradient alone comes back with the backward pass, not with a collection.
func TestSavedMemoryComesBack(t *testing.T) {
	const rows = 5000
	for name, op := range map[string]func(x *Tensor) (*Tensor, error){
		"gelu":       GeluTanh,
		"layer_norm": func(x *Tensor) (*Tensor, error) { return LayerNorm(x, nil, nil, 1, 1e-5) },
		"rms_norm":   func(x *Tensor) (*Tensor, error) { return RMSNorm(x, nil, 1e-5) },
		"attention":  func(x *Tensor) (*Tensor, error) { return Attention(x, x, x, true) },
	} {
		t.Run(name, func(t *testing.T) {
			x := must(Ones(NewContext(), []int{rows, 1, 4}, dtype.Float32))
			check(t, x.SetRequiresGrad(true))
			y := must(op(x))
			var own []*Storage
			for _, s := range y.node.saved {
				if s.t != nil && s.t.st != x.st {
					own = append(own, s.t.st)
				}
			}
			if len(own) == 0 {
				t.Fatal("it keeps nothing")
			}
			z := must(Sum(y, nil, false))
			check(t, z.Backward(nil, true))
			for _, s := range own {
				if s.ptr == nil {
					t.Error("a pass that retains the graph has freed what it keeps")
				}
			}
			check(t, z.Backward(nil, false))
			for _, s := range own {
				if s.ptr != nil {
					t.Errorf("%d bytes stay", s.bytes)
				}
			}
		})
	}
}

func TestAllocationErrors(t *testing.T) {
	c := NewContext()
	fail[*Tensor](t, "cannot allocate", "bytes")(Zeros(c, []int{1 << 20, 1 << 20}, dtype.Float32))
	fail[*Tensor](t, "too many elements")(Zeros(c, []int{1 << 40, 1 << 40}, dtype.Float32))
	fail[*Tensor](t, "too many elements")(Zeros(c, []int{0, 1 << 40, 1 << 40}, dtype.Float32))
	fail[*Tensor](t, "33 dimensions", "at most 32")(Zeros(c, make([]int, 33), dtype.Float32))
	fail[*Tensor](t, "negative size", "(2, -1)")(Zeros(c, []int{2, -1}, dtype.Float32))
	one := must(Expand(floats(c, dtype.Float32, nil, 1), []int{1 << 30, 1 << 20}))
	fail[*Tensor](t, "cannot allocate")(Clone(one))
	fail[*Tensor](t, "cannot allocate")(Add(one, one))
}

func TestOnStorage(t *testing.T) {
	c := NewContext()
	raw := new([1]float32)
	s := FromMemory(unsafe.Pointer(raw), 4, raw)
	fail[*Tensor](t, "do not fit in 4 bytes")(OnStorage(c, s, 0, []int{2}, dtype.Float32))
	x := must(OnStorage(c, s, 0, []int{1}, dtype.Float32))
	check(t, x.Fill(Float(7)))
	equal(t, must(OnStorage(c, s, 0, []int{1, 1}, dtype.Float32)), []int{1, 1}, 7)
	if raw[0] != 7 {
		t.Error("the tensor does not use the owner's memory")
	}
}
