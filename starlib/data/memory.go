package data

import (
	"bytes"
	"unsafe"
)

// bytesOf is the memory of the numbers.
func bytesOf[T any](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(*new(T))))
}

// textOf views bytes that nobody will change any more as a string.
func textOf(content []byte) string { return unsafe.String(unsafe.SliceData(content), len(content)) }

// view is raw as numbers, copied first if misaligned.
func view[T any](raw []byte) []T {
	size := int(unsafe.Sizeof(*new(T)))
	p := unsafe.Pointer(unsafe.SliceData(raw))
	if uintptr(p)%unsafe.Alignof(*new(T)) != 0 {
		p = unsafe.Pointer(unsafe.SliceData(bytes.Clone(raw)))
	}
	return unsafe.Slice((*T)(p), len(raw)/size)
}
