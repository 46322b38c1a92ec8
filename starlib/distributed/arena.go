package distributed

import (
	"unsafe"

	"drun/collective"
	"drun/kernel/element"
	"drun/tensor"
)

// A large tensor moves into the backend's arena when it is reduced again, to be reduced there without a copy. Later ones of
// its size are allocated there. The part of the arena for tensors (the rest is for gradients), and the size from which a
// move pays, in bytes:
const (
	sharedMost = 1 << 30
	movedBytes = 64 << 10
)

// callMemory is where the data of calls lies.
type callMemory struct {
	shared  *tensor.Pool // for tensors, in the backend's arena; nil if it has none
	staging []byte       // where scattered gradients are collected; kept for the next step
}

// useArena lets optimizers keep their gradients where the backend can reduce
// them without a copy, if it has such memory.
func (m *callMemory) useArena(w *World) {
	arena, ok := w.all.comm.(collective.Arena)
	if !ok {
		return
	}
	m.shared = tensor.NewPool(sharedMost, func(bytes int) []byte {
		buf, err := arena.Alloc(element.Uint8, bytes)
		if err != nil {
			return nil
		}
		return buf.Data
	})
	w.tensors.GradStorage = func(bytes int) (*tensor.Storage, error) {
		buf, err := arena.Alloc(element.Uint8, bytes)
		if err != nil || bytes == 0 { // the arena is full: ordinary memory works too, with a copy
			words := make([]uint64, bytes/8+1)
			return tensor.FromMemory(unsafe.Pointer(&words[0]), bytes, words), nil
		}
		return tensor.FromMemory(unsafe.Pointer(&buf.Data[0]), bytes, arena), nil
	}
}

// stage returns memory for a call, aligned for any element type.
func (m *callMemory) stage(size int) []byte {
	if cap(m.staging) < size {
		m.staging = nil
		if m.shared != nil {
			m.staging = m.shared.Bytes(size)
		}
		if m.staging == nil {
			words := make([]uint64, (size+7)/8)
			m.staging = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
		}
	}
	return m.staging[:size]
}
