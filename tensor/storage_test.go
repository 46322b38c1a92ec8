package tensor

import (
	"bytes"
	"runtime"
	"slices"
	"testing"
	"time"

	"drun/kernel/dtype"
)

// A moved tensor and its views go on as before, and the memory goes back to
// where it came from.
func TestMove(t *testing.T) {
	c := NewContext()
	source := 0
	p := NewPool(64<<20, func(n int) []byte { source += n; return make([]byte, n) })
	x := must(Full(c, []int{300, 100}, Float(3), dtype.Float32))
	view := must(Select(x, 0, 7))
	before := bytes.Clone(x.Bytes())
	Move(x, p)
	if source != 0 || x.st.pool != pool {
		t.Fatal("moved for a single use")
	}
	Move(x, p)
	if source == 0 || x.st.pool != p {
		t.Fatal("not moved")
	}
	if !bytes.Equal(before, x.Bytes()) {
		t.Error("the bytes differ")
	}
	view.Bytes()[0] = 77
	if x.Bytes()[7*100*4] != 77 {
		t.Error("a view was left behind")
	}
	used := p.used
	Discard(x)
	if x.st.ptr != nil || p.used != used-classBytes(300*100*4) {
		t.Error("the memory did not go back")
	}

	c = NewContext() // which knows no sizes
	pinned := must(Full(c, []int{300, 100}, Float(3), dtype.Float32))
	Pin(pinned)
	small := must(Full(c, []int{3}, Float(3), dtype.Float32))
	part := must(Select(must(Full(c, []int{300, 1000}, Float(3), dtype.Float32)), 0, 1))
	for _, x := range []*Tensor{pinned, small, part} {
		Move(x, p)
		if Move(x, p); x.st.pool == p {
			t.Errorf("%v was moved", x.shape)
		}
	}
}

// Tensors of a size that was reduced come to lie in the pool, as far as it has room, with the same elements, and give it back.
func TestReducedSizes(t *testing.T) {
	c := NewContext()
	const bytes = 1 << 20
	p := NewPool(8*bytes, func(n int) []byte { return make([]byte, n) })
	make1 := func() *Tensor { return must(Full(c, []int{bytes / 4}, Float(3), dtype.Float32)) }
	first := make1()
	Move(first, p)
	if first.st.pool != pool {
		t.Fatal("the first was moved")
	}
	other := must(Full(c, []int{bytes / 2}, Float(3), dtype.Float32))
	if other.st.pool != pool {
		t.Error("a tensor of another size lies in the pool")
	}
	if stranger := must(Full(NewContext(), []int{bytes / 4}, Float(3), dtype.Float32)); stranger.st.pool != pool {
		t.Error("a tensor of another context lies in the pool")
	}
	// Half of the pool at most.
	var held []*Tensor
	for i := range 8 {
		x := make1()
		held = append(held, x)
		if got, want := x.st.pool == p, i < 4; got != want {
			t.Fatalf("tensor %d lies in the pool: %v, want %v", i, got, want)
		}
		if !slices.Equal(first.Bytes(), x.Bytes()) {
			t.Fatalf("tensor %d has other elements", i)
		}
	}
	// What is discarded, and what is collected, is used again.
	Discard(held[0])
	if held[0] = make1(); held[0].st.pool != p {
		t.Error("what was discarded is not used again")
	}
	runtime.KeepAlive(held)
	held = nil
	for end := time.Now().Add(10 * time.Second); ; {
		runtime.GC()
		p.mu.Lock()
		used := p.used
		p.mu.Unlock()
		if used == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d bytes did not come back", used)
		}
	}
	for i := range 4 {
		x := make1()
		if held = append(held, x); x.st.pool != p {
			t.Errorf("tensor %d after the collection does not lie in the pool", i)
		}
	}
	runtime.KeepAlive(held)
	if p.mapped > p.maxUsed/2 {
		t.Errorf("%d bytes were taken from the source", p.mapped)
	}

	// A source that is exhausted is no error.
	empty := NewPool(1<<30, func(int) []byte { return nil })
	Move(other, empty)
	if x := must(Full(c, []int{bytes / 2}, Float(3), dtype.Float32)); x.st.pool != pool || !slices.Equal(x.Bytes(), other.Bytes()) {
		t.Error("a tensor of a size for which the pool has no memory")
	}
}
