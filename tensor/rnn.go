package tensor

import (
	"fmt"
	"unsafe"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
	"drun/kernel/opencl"
)

// A Cell is a kind of recurrent layer.
type Cell = kernel.Cell

// The cells.
const (
	LSTM    = kernel.LSTM
	GRU     = kernel.GRU
	RNNTanh = kernel.RNNTanh
	RNNRelu = kernel.RNNRelu
)

// RNNWeights are one direction of one recurrent layer: WIH (gates·H, I), WHH (gates·H, H),
// and biases (gates·H) that may be nil.
type RNNWeights struct{ WIH, WHH, BIH, BHH *Tensor }

func gatesOf(cell kernel.Cell) int {
	switch cell {
	case kernel.LSTM:
		return 4
	case kernel.GRU:
		return 3
	}
	return 1
}

// recurrent is what a pass over a sequence keeps for the backward pass.
type recurrent struct {
	cell            kernel.Cell
	n, steps, in, w int
	gates, wide     int // the number of gates, and of values kept, each for all units
	lengths         []int64
	ends            *Tensor // lengths, for a device
	backwards       bool
	kept, h, c      *Tensor // gates' values (T, N, wide·H); states (T+1, N, H)
}

// panels holds the columns of a matrix (k, n) that every step multiplies by, in groups of width: a step's product then reads
// memory sequentially, whereas the rows of a wide matrix are a page apart. The sums are the same.
type panels struct {
	data        *Tensor // (n/width, k, width)
	k, n, width int
}

// panelWidth is a multiple of the columns that each kernel processes at once.
const panelWidth = 32

// panels copies the matrix w (k, n) with these strides. It makes a single panel for products with a bias, and for so few or so
// many rows that the kernel has better methods.
func (r *recurrent) panels(b *builder, w *Tensor, k, n, nextRow, nextColumn int, bias bool) panels {
	p := panels{k: k, n: n, width: n}
	if !bias && n%panelWidth == 0 && r.n > 2 && r.n <= 64 && w.on() == nil {
		p.width = panelWidth
	}
	p.data = b.like(n/max(p.width, 1), k, p.width)
	v := viewOf(w, 3)
	copy(v.shape, p.data.shape)
	v.strides[0], v.strides[1], v.strides[2] = p.width*nextColumn, nextRow, nextColumn
	kCopy(p.data, v.seal())
	return p
}

// times computes c (n, p.n) = a (n, p.k) times the matrix in panels, with add plus the contents of c, plus bias.
func (r *recurrent) times(op string, p panels, c *Tensor, cAt int, a *Tensor, aAt int, add bool, bias *Tensor) {
	if r.n == 0 || p.n == 0 {
		return
	}
	kGemm(op, false, factor{t: c, off: cAt, ld: p.n, batchStep: p.width}, factor{t: a, off: aAt, ld: p.k},
		factor{t: p.data, ld: p.width, batchStep: p.k * p.width}, p.n/p.width, r.n, p.width, p.k, bias, add)
}

// Recurrent runs one direction of a recurrent layer over x (T, N, I), from the states h0 and, of an LSTM, c0 (N, H).
// It returns the outputs (T, N, H) and the last states. lengths (nil: all T) are those of the sequences: beyond them
// outputs are 0 and the state does not change. With backwards it runs from the end to the beginning of each sequence.
func Recurrent(cell kernel.Cell, x, h0, c0 *Tensor, w RNNWeights, lengths []int64, backwards bool) (out, hn, cn *Tensor, err error) {
	defer try.Caught(&err)
	op := [...]string{kernel.LSTM: "lstm", kernel.GRU: "gru", kernel.RNNTanh: "rnn", kernel.RNNRelu: "rnn"}[cell]
	narrow(&x, &h0, &c0, &w.WIH, &w.WHH, &w.BIH, &w.BHH) // its results stay float32
	sameFloat(op, x, h0, c0, w.WIH, w.WHH, w.BIH, w.BHH)
	r := &recurrent{cell: cell, gates: gatesOf(cell), lengths: lengths, backwards: backwards}
	r.w = w.WHH.shape[1]
	r.wide = r.gates
	if cell == kernel.GRU {
		r.wide = 4
	}
	if len(x.shape) != 3 || x.shape[2] != w.WIH.shape[1] {
		return nil, nil, nil, fmt.Errorf("%s: an input of shape %s does not fit: expected (T, N, %d)", op, ShapeString(x.shape), w.WIH.shape[1])
	}
	r.steps, r.n, r.in = x.shape[0], x.shape[1], x.shape[2]
	for _, s := range []*Tensor{h0, c0} {
		if s != nil && !sameShape(s.shape, []int{r.n, r.w}) {
			return nil, nil, nil, fmt.Errorf("%s: a state of shape %s does not fit: expected %s", op, ShapeString(s.shape), ShapeString([]int{r.n, r.w}))
		}
	}
	b := build(op, x)
	in, wih, whh := b.contiguous(x), b.contiguous(w.WIH), b.contiguous(w.WHH)
	// The results are in one tensor, the outputs followed by the last states, so that one recorded operation's
	// backward function gets all gradients.
	rows := r.steps + 1
	if cell == kernel.LSTM {
		rows++
	}
	all := b.like(rows, r.n, r.w)
	r.kept = b.like(r.steps, r.n, r.wide*r.w)
	r.h = b.like(r.steps+1, r.n, r.w)
	if cell == kernel.LSTM {
		r.c = b.like(r.steps+1, r.n, r.w)
	}
	var hidden *Tensor
	if cell == kernel.GRU {
		hidden = b.like(r.n, 3*r.w)
	}
	// The inputs' sums, for all steps at once, with the biases except the GRU's hidden ones.
	bias, hiddenBias := b.contiguous(w.BIH), b.contiguous(w.BHH)
	back := r.panels(&b, whh, r.w, r.gates*r.w, 1, r.w, cell == kernel.GRU && hiddenBias != nil)
	if hiddenBias != nil && cell != kernel.GRU {
		bias = try.To(Add(bias.Detach(), hiddenBias.Detach()))
	}
	wide := r.wide * r.w
	r.product(op, r.kept, 0, wide, in, 0, r.in, wih, r.in, true, r.steps*r.n, r.gates*r.w, r.in, false, bias)
	kCopy(r.state(r.h, r.first()), h0)
	if cell == kernel.LSTM {
		kCopy(r.state(r.c, r.first()), c0)
	}
	if lengths != nil && all.on() != nil {
		r.ends = try.To(FromInts(x.ctx, lengths, []int{r.n}, dtype.Int64))
	}
	size := r.n * r.w
	for i := range r.steps {
		t, before, after := r.at(i)
		if cell == kernel.GRU {
			r.times(op, back, hidden, 0, r.h, before*r.n*r.w, false, hiddenBias)
		} else {
			r.times(op, back, r.kept, t*r.n*wide, r.h, before*r.n*r.w, true, nil)
		}
		r.run(t, false, [14]portion{{r.kept, t * r.n * wide}, {r.h, after * size}, {r.c, after * size}, {all, t * size}, {hidden, 0}, {r.h, before * size}, {r.c, before * size}})
	}
	alive(in, wih, hidden, bias, hiddenBias)
	kCopy(r.state(all, r.steps), r.state(r.h, r.last()))
	if cell == kernel.LSTM {
		kCopy(r.state(all, r.steps+1), r.state(r.c, r.last()))
	}
	if recordsAny(x, h0, c0, w.WIH, w.WHH, w.BIH, w.BHH) {
		record(all, op, r.backward, x, h0, c0, w.WIH, w.WHH, w.BIH, w.BHH).save(in, wih, whh, r.kept, r.h, r.c)
	}
	discardAll(r.kept, r.h, r.c, hidden, back.data) // what the backward pass needs stays until it is done
	out = try.To(Narrow(all, 0, 0, r.steps))
	if hn, err = Select(all, 0, r.steps); err != nil || cell != kernel.LSTM {
		return
	}
	cn, err = Select(all, 0, r.steps+1)
	return
}

// at returns the step of the i-th turn, and the rows of the states before and after it.
func (r *recurrent) at(i int) (t, before, after int) {
	if r.backwards {
		t = r.steps - 1 - i
		return t, t + 1, t
	}
	return i, i, i + 1
}

func (r *recurrent) first() int {
	if r.backwards {
		return r.steps
	}
	return 0
}

func (r *recurrent) last() int { return r.steps - r.first() }

// state returns row i of a tensor (T+1, N, H).
func (r *recurrent) state(t *Tensor, i int) *Tensor {
	v := viewOf(t, 2)
	v.shape[0], v.shape[1] = r.n, r.w
	setContiguous(v.strides, v.shape)
	v.off += i * r.n * r.w
	v.view = false
	return v.seal()
}

// portion is what a tensor, which may be nil, has from an element on.
type portion struct {
	t  *Tensor
	at int
}

// run computes a step, or its gradient; the parts are in the order of the fields of kernel.CellStep from Gates on.
func (r *recurrent) run(t int, backward bool, parts [14]portion) {
	s := kernel.CellStep{N: r.n, Width: r.w, T: t, OutStep: r.w, Lengths: r.lengths}
	if r.n == 0 {
		return
	}
	if d := r.kept.on(); d != nil {
		var places [14]opencl.Place
		for i, p := range parts {
			switch {
			case p.t == nil:
			case i >= 4 && i < 10: // only read
				places[i] = d.read(p.t).Plus(p.at)
			default:
				places[i] = d.change(p.t).Plus(p.at)
			}
		}
		d.CellStep(&s, r.kept.dtype, r.cell, backward, places, maybe(d.read, r.ends))
		return
	}
	memory := (*[14]unsafe.Pointer)(unsafe.Pointer(&s.Gates))
	for i, p := range parts {
		if p.t != nil {
			memory[i] = p.t.ptrAt(p.at)
		}
	}
	s.Run(r.kept.dtype, r.cell, backward)
}

// product computes c (m, n) = a (m, k) · b, with add plus the contents of c, plus bias.
func (r *recurrent) product(op string, c *Tensor, cAt, ldc int, a *Tensor, aAt, lda int, b *Tensor, ldb int, trans bool, m, n, k int, add bool, bias *Tensor) {
	if m == 0 || n == 0 {
		return
	}
	kGemm(op, false, factor{t: c, off: cAt, ld: ldc}, factor{t: a, off: aAt, ld: max(lda, 1)}, factor{t: b, ld: max(ldb, 1), trans: trans}, 1, m, n, k, bias, add)
}

func (r *recurrent) backward(nd *node, g *Tensor, outs []*Tensor) {
	in, wih, whh := nd.val(0), nd.val(1), nd.val(2)
	op, wide, size := nd.op, r.gates*r.w, r.n*r.w
	b := build(op, g)
	dy := b.contiguous(g)
	dgates := b.like(r.steps, r.n, wide)
	dhidden := dgates
	if r.cell == kernel.GRU {
		dhidden = b.like(r.steps, r.n, wide)
	}
	dh, dh0 := b.like(r.n, r.w), b.like(r.n, r.w)
	var dc, dc0 *Tensor
	if r.cell == kernel.LSTM {
		dc, dc0 = b.like(r.n, r.w), b.like(r.n, r.w)
	}
	forth := r.panels(&b, whh, wide, r.w, r.w, 1, false)
	kCopy(dh, r.state(dy, r.steps))
	if dc != nil {
		kCopy(dc, r.state(dy, r.steps+1))
	}
	for i := r.steps - 1; i >= 0; i-- {
		t, before, after := r.at(i)
		r.run(t, true, [14]portion{{r.kept, t * r.n * r.wide * r.w}, {r.h, after * size}, {r.c, after * size}, 5: {r.h, before * size}, 6: {r.c, before * size},
			7: {dy, t * size}, 8: {dh, 0}, 9: {dc, 0}, 10: {dgates, t * r.n * wide}, 11: {dhidden, t * r.n * wide}, 12: {dh0, 0}, 13: {dc0, 0}})
		r.times(op, forth, dh0, 0, dhidden, t*r.n*wide, true, nil)
		dh, dh0, dc, dc0 = dh0, dh, dc0, dc
	}
	rows := r.steps * r.n
	if nd.needs(0) {
		outs[0] = b.like(r.steps, r.n, r.in)
		r.product(op, outs[0], 0, r.in, dgates, 0, wide, wih, r.in, false, rows, r.in, wide, false, nil)
	}
	if nd.needs(1) {
		outs[1] = dh
	}
	if nd.needs(2) {
		outs[2] = dc
	}
	states := 0 // the states before the steps are rows 0 … T-1, or 1 … T backwards
	if r.backwards {
		states = size
	}
	weight := func(i int, left, right *Tensor, at, width int) {
		if !nd.needs(i) {
			return
		}
		dw, add := nd.place(i, dy)
		if dw == nil {
			dw = b.like(wide, width)
			outs[i] = dw
		}
		if rows == 0 {
			if !add {
				zero(dw)
			}
			return
		}
		kGemm(op, false, factor{t: dw, ld: width}, factor{t: left, ld: wide, trans: true}, factor{t: right, off: at, ld: width}, 1, wide, width, rows, nil, add)
	}
	weight(3, dgates, in, 0, r.in)
	weight(4, dhidden, r.h, states, r.w)
	for i, d := range []*Tensor{dgates, dhidden} {
		if !nd.needs(5 + i) {
			continue
		}
		if i == 1 && d == dgates && outs[5] != nil { // both biases have the same gradient
			outs[6] = b.like(wide)
			kCopy(outs[6], outs[5])
			continue
		}
		flat := viewOf(d, 2)
		flat.shape[0], flat.shape[1] = rows, wide
		setContiguous(flat.strides, flat.shape)
		sum := reduceDims(op, kernel.Sum, flat.seal(), []int{0}, false)
		outs[5+i] = sum
	}
	alive(dy, dgates, dhidden, dh, dh0, dc, dc0, in, wih, whh)
	discardAll(dgates, dh0, dc0, forth.data)
	if dhidden != dgates {
		Discard(dhidden)
	}
	if outs[1] == nil {
		Discard(dh)
	}
	if outs[2] == nil && dc != nil {
		Discard(dc)
	}
}

// discardAll discards the tensors that are not nil.
func discardAll(tensors ...*Tensor) {
	for _, t := range tensors {
		if t != nil {
			Discard(t)
		}
	}
}
