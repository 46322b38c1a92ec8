package nccl

// #include "shim.h"
import "C"

import (
	"fmt"
	"os"
	"sync"
	"unsafe"
)

// hostMemory is the arena, whose blocks are prepared for DMA when a call first uses them: only what is used gets locked.
type hostMemory struct {
	device *C.device
	base   uintptr
	end    uintptr

	mu     sync.Mutex
	blocks map[uintptr]bool // by number: whether it is ready
	tried  bool             // and failed: no more is locked
}

const blockSize = 4 << 20

func newHostMemory(d *C.device, arena []byte) *hostMemory {
	m := &hostMemory{device: d, blocks: map[uintptr]bool{}}
	m.base = uintptr(unsafe.Pointer(unsafe.SliceData(arena)))
	m.end = m.base + uintptr(len(arena))
	return m
}

// ready prepares data for DMA and reports whether that worked.
func (m *hostMemory) ready(data []byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	if len(data) == 0 || at < m.base || at+uintptr(len(data)) > m.end {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for n := (at - m.base) / blockSize; n <= (at-m.base+uintptr(len(data))-1)/blockSize; n++ {
		if !m.blocks[n] && !m.register(n) {
			return false
		}
	}
	return true
}

func (m *hostMemory) register(n uintptr) bool {
	if m.tried {
		return false
	}
	from := m.base + n*blockSize
	var why [C.ERR_SIZE]C.char
	if C.drun_register(m.device, C.uintptr_t(from), C.size_t(min(blockSize, m.end-from)), &why[0]) != C.DONE {
		m.tried = true
		fmt.Fprintf(os.Stderr, "host memory cannot be locked for DMA, so tensors are copied once more: %s (see ulimit -l)\n", C.GoString(&why[0]))
		return false
	}
	m.blocks[n] = true
	return true
}

// cut returns how much of n bytes at data lies in its first block: a copy must not cross blocks.
func (m *hostMemory) cut(data []byte) int {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	return min(len(data), int(blockSize-(at-m.base)%blockSize))
}

// release undoes what ready did.
func (m *hostMemory) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n := range m.blocks {
		C.drun_unregister(m.device, C.uintptr_t(m.base+n*blockSize))
	}
	clear(m.blocks)
}
