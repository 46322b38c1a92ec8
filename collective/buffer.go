package collective

import (
	"unsafe"

	"drun/kernel/dtype"
)

// A Buffer is typed memory: Data holds whole elements of DType, contiguous and
// aligned to the element.
type Buffer struct {
	DType dtype.Type
	Data  []byte
}

// Element is a Go type whose slices can be used as buffers.
type Element interface {
	float32 | float64 | int64 | int32 | int8 | uint8 | bool | complex64
}

// Of returns a buffer that shares s's memory.
func Of[T Element](s []T) Buffer {
	var zero T
	b := Buffer{DType: dtypeOf(any(zero))}
	if len(s) > 0 {
		b.Data = unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(zero)))
	}
	return b
}

func dtypeOf(v any) dtype.Type {
	switch v.(type) {
	case float32:
		return dtype.Float32
	case float64:
		return dtype.Float64
	case int64:
		return dtype.Int64
	case int32:
		return dtype.Int32
	case int8:
		return dtype.Int8
	case uint8:
		return dtype.Uint8
	case bool:
		return dtype.Bool
	}
	return dtype.Complex64
}

// Slice returns the elements of b as a Go slice over the same memory; T must be the Go type of b's element type.
func Slice[T Element](b Buffer) []T {
	var zero T
	n := len(b.Data) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b.Data[0])), n)
}

func (b Buffer) Count() int { return len(b.Data) / b.DType.Size() }

// Part returns the elements [from, to), over the same memory.
func (b Buffer) Part(from, to int) Buffer {
	size := b.DType.Size()
	return Buffer{DType: b.DType, Data: b.Data[from*size : to*size : to*size]}
}
