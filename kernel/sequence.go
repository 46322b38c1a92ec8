package kernel

// #define DRUN_MEM char
// #include "kernel.h"
// #cgo noescape drun_attention
// #cgo nocallback drun_attention
// #cgo noescape drun_attention_grad
// #cgo nocallback drun_attention_grad
// #cgo noescape drun_cell_step
// #cgo nocallback drun_cell_step
import "C"

import (
	"unsafe"

	"drun/kernel/dtype"
)

// Attention describes softmax(Scale q kᵀ) v for several products: q [Rows, Width], k [Cols, Width] and v
// [Cols, Depth], of rows of adjacent elements. At holds, for each product, the offsets in elements of q, k, v
// and the result's gradient; Stride the distance between their rows. With Causal, row i sees only the keys up to i.
type Attention struct {
	Causal                   bool
	Rows, Cols, Width, Depth int
	Scale                    float64
	At                       [][4]int
	Stride                   [4]int

	// Where Backward writes dq, dk and dv: for each product their offsets in elements, and the distance between their
	// rows. Nil: each is contiguous, with the shape of q, k or v.
	To       [][3]int
	ToStride [3]int
}

func (a *Attention) at() *C.int64_t { return (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(a.At))) }

// Forward computes out [len(At), Rows, Depth] and, if lse is not nil, the logarithm of each row's sum [len(At),
// Rows], which the gradient needs. Cols is at least 1. The error of Forward and Backward is an OutOfMemory.
func (a *Attention) Forward(dt dtype.Type, out, lse, q, k, v unsafe.Pointer) error {
	c := begin("attention")
	for c.again(whole(dt, out, len(a.At)*a.Rows*a.Depth), whole(dt, lse, len(a.At)*a.Rows)) {
		c.err = had(C.drun_attention(C.int(dt), flag(a.Causal), long(len(a.At)), long(a.Rows), long(a.Cols), long(a.Width), long(a.Depth),
			C.double(a.Scale), mem(out), mem(lse), mem(q), mem(k), mem(v), a.at(), ints(a.Stride[:])))
	}
	return c.err
}

// Backward computes dq, dk and dv from the result's gradient dy.
func (a *Attention) Backward(dt dtype.Type, dq, dk, dv, dy, lse, q, k, v unsafe.Pointer) error {
	ld := [7]int{a.Stride[0], a.Stride[1], a.Stride[2], a.Stride[3], a.ToStride[0], a.ToStride[1], a.ToStride[2]}
	to := (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(a.To)))
	c := begin("attention's gradient")
	for c.again(a.written(dt, 0, dq, a.Rows, a.Width), a.written(dt, 1, dk, a.Cols, a.Width), a.written(dt, 2, dv, a.Cols, a.Depth)) {
		c.err = had(C.drun_attention_grad(C.int(dt), flag(a.Causal), long(len(a.At)), long(a.Rows), long(a.Cols), long(a.Width),
			long(a.Depth), C.double(a.Scale), mem(dq), mem(dk), mem(dv), mem(dy), mem(lse), mem(q), mem(k), mem(v), a.at(),
			ints(ld[:]), to))
	}
	return c.err
}

// written is where Backward writes gradient i, with that many rows for each product.
func (a *Attention) written(dt dtype.Type, i int, at unsafe.Pointer, rows, width int) output {
	n := len(a.At) * rows * width
	if a.To != nil && n > 0 {
		n = 0
		for _, to := range a.To {
			n = max(n, to[i]+(rows-1)*a.ToStride[i]+width)
		}
	}
	return array(dt, at, n)
}

// A Cell is a kind of recurrent layer.
type Cell int

// The cells.
const (
	LSTM    Cell = C.LSTM
	GRU     Cell = C.GRU
	RNNTanh Cell = C.RNN_TANH
	RNNRelu Cell = C.RNN_RELU
)

// CellStep is one step of a recurrent layer: n sequences, a state of Width. Fields that a cell does not have are nil. From
// Gates, the gates' sums [n, gates·Width], and the state before, H0 and C0 [n, Width], a step computes H, C and
// Out, and leaves the gates' values in Gates. For a GRU, Hidden [n, 3·Width] has the hidden sums, and a row of
// Gates is 4·Width wide. Backward computes DGates (for a GRU also DHidden), DH0 and DC0 from DOut, DH and DC. Rows
// of Out and DOut are OutStep apart. Lengths, if any, are those of the sequences: beyond them the state does not change
// and Out is 0.
type CellStep struct {
	N, Width, T, OutStep      int
	Lengths                   []int64
	Gates, H, C, Out          unsafe.Pointer
	Hidden, H0, C0            unsafe.Pointer
	DOut, DH, DC              unsafe.Pointer
	DGates, DHidden, DH0, DC0 unsafe.Pointer
}

// outputs are where a step writes.
func (s *CellStep) outputs(dt dtype.Type, cell Cell, backward bool) [4]output {
	wide, state := [...]int{LSTM: 4, GRU: 3, RNNTanh: 1, RNNRelu: 1}[cell], s.N*s.Width
	if backward {
		return [4]output{array(dt, s.DGates, wide*state), array(dt, s.DHidden, wide*state), array(dt, s.DH0, state), array(dt, s.DC0, state)}
	}
	if cell == GRU {
		wide = 4
	}
	out := Matrix{Data: s.Out, Stride: s.OutStep}.output(dt, 1, s.N, s.Width, false)
	return [4]output{array(dt, s.Gates, wide*state), array(dt, s.H, state), array(dt, s.C, state), out}
}

// Run computes the step of a cell, or its gradients.
func (s *CellStep) Run(dt dtype.Type, cell Cell, backward bool) {
	outs := s.outputs(dt, cell, backward)
	for c := begin("step of a recurrent layer"); c.again(outs[:]...); {
		C.drun_cell_step(C.int(dt), C.int(cell), flag(backward), long(s.N), long(s.Width), long(s.T), long(s.OutStep), index(s.Lengths),
			(*C.uintptr_t)(unsafe.Pointer(&s.Gates)))
	}
}
