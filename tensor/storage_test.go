package tensor

import (
	"bytes"
	"testing"

	"drun/element"
)

// A moved tensor and its views go on as before, and the memory goes back to
// where it came from.
func TestMove(t *testing.T) {
	c := NewContext()
	source := 0
	p := NewPool(64<<20, func(n int) []byte { source += n; return make([]byte, n) })
	x := must(Full(c, []int{300, 100}, Float(3), element.Float32))
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

	pinned := must(Full(c, []int{300, 100}, Float(3), element.Float32))
	Pin(pinned)
	small := must(Full(c, []int{3}, Float(3), element.Float32))
	part := must(Select(must(Full(c, []int{300, 1000}, Float(3), element.Float32)), 0, 1))
	for _, x := range []*Tensor{pinned, small, part} {
		Move(x, p)
		if Move(x, p); x.st.pool == p {
			t.Errorf("%v was moved", x.shape)
		}
	}
}
