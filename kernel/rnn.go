package kernel

// #define DRUN_MEM char
// #include "kernel.h"
// #cgo noescape drun_cell_step
// #cgo nocallback drun_cell_step
import "C"

import (
	"unsafe"

	"drun/kernel/dtype"
)

// A Cell is a kind of recurrent layer.
type Cell int

// The cells.
const (
	LSTM    Cell = C.LSTM
	GRU     Cell = C.GRU
	RNNTanh Cell = C.RNN_TANH
	RNNRelu Cell = C.RNN_RELU
)

// CellStep is one step of a recurrent layer: n sequences, a state of Width. What a cell does not have is nil. From
// Gates, the gates' sums [n, gates·Width], and the state before, H0 and C0 [n, Width], a step computes H, C and
// Out, and leaves the gates' values in Gates. For a GRU, Hidden [n, 3·Width] has the hidden sums, and a row of
// Gates is 4·Width wide. Backward computes DGates (for a GRU also DHidden), DH0 and DC0 from DOut, DH and DC. Rows
// of Out and DOut are OutStep apart. Lengths, if any, are those of the sequences: beyond them the state stays and
// Out is 0.
type CellStep struct {
	N, Width, T, OutStep      int
	Lengths                   []int64
	Gates, H, C, Out          unsafe.Pointer
	Hidden, H0, C0            unsafe.Pointer
	DOut, DH, DC              unsafe.Pointer
	DGates, DHidden, DH0, DC0 unsafe.Pointer
}

// Run computes the step of a cell, or its gradients.
func (s *CellStep) Run(dt dtype.Type, cell Cell, backward bool) {
	C.drun_cell_step(C.int(dt), C.int(cell), flag(backward), long(s.N), long(s.Width), long(s.T), long(s.OutStep), index(s.Lengths),
		(*C.uintptr_t)(unsafe.Pointer(&s.Gates)))
}
