package sharedmem

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// Stream copies src to dst, of the same length, bypassing the caches: for memory too large to stay there until it is
// used. It saves the processor from reading what it overwrites.
func Stream(dst, src []byte) {
	const block, aligned = 128, 32
	head := int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst))) % aligned)
	if !cpu.X86.HasAVX || len(dst) < head+block {
		copy(dst, src)
		return
	}
	body := (len(dst) - head) / block * block
	copy(dst[:head], src)
	stream(unsafe.Pointer(&dst[head]), unsafe.Pointer(&src[head]), body)
	copy(dst[head+body:], src[head+body:])
}

//go:noescape
func stream(dst, src unsafe.Pointer, n int)
