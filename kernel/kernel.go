package kernel

// #cgo CFLAGS: -std=c11 -O3 -Wall -Wno-psabi -Wno-unknown-pragmas
// #cgo LDFLAGS: -lm -lpthread
// #define DRUN_MEM char
// #include "kernel.h"
import "C"

import (
	"fmt"
	"os"
	"unsafe"
)

// DType is an element type. Float32 to Bool compute; the others are only copied, cast and reduced over ranks.
type DType int32

const (
	Float32   DType = C.F32
	Float64   DType = C.F64
	Int64     DType = C.I64
	Int32     DType = C.I32
	Int8      DType = C.I8
	Uint8     DType = C.U8
	Bool      DType = C.BOOL // one byte, 0 or 1
	Float16   DType = C.F16
	BFloat16  DType = C.BF16
	Complex64 DType = C.C64
)

var dtypes = [...]struct {
	size int
	name string
}{
	Float32: {4, "float32"}, Float64: {8, "float64"}, Int64: {8, "int64"}, Int32: {4, "int32"}, Int8: {1, "int8"},
	Uint8: {1, "uint8"}, Bool: {1, "bool"}, Float16: {2, "float16"}, BFloat16: {2, "bfloat16"}, Complex64: {8, "complex64"},
}

// Size returns the bytes of one element.
func (d DType) Size() int { return dtypes[d].size }

// String returns the type's name as recipes write it.
func (d DType) String() string { return dtypes[d].name }

// Real reports whether d is Float32 or Float64, the types of the kernels for real numbers.
func (d DType) Real() bool { return d == Float32 || d == Float64 }

// MaxDims is the largest number of dimensions a View may have.
const MaxDims = 32

// View is memory seen through strides, counted in elements; a stride of 0 broadcasts. Data is aligned to
// its element.
type View struct {
	Data    unsafe.Pointer
	Strides []int
}

func (v View) mem() *C.mem         { return (*C.mem)(v.Data) }
func (v View) strides() *C.int64_t { return ints(v.Strides) }
func mem(p unsafe.Pointer) *C.mem  { return (*C.mem)(p) }
func ints(s []int) *C.int64_t      { return (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(s))) }
func index(p []int64) *C.int64_t   { return (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(p))) }
func long(n int) C.int64_t         { return C.int64_t(n) }
func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// OutOfMemory is the error of a kernel whose working memory, so many bytes, could not be had. What it should
// have computed is undefined.
type OutOfMemory int

func (n OutOfMemory) Error() string {
	return fmt.Sprintf("cannot allocate %d bytes of working memory", int(n))
}

// had is the error of a kernel that lacked so many bytes of scratch memory.
func had(missing C.int64_t) error {
	if missing != 0 {
		return OutOfMemory(missing)
	}
	return nil
}

// Path returns the name of the instruction-set path in use: scalar, avx2, avx512 or neon. It is the best the
// machine has, or what the environment variable DRUN_KERNEL asks for.
func Path() string { return C.GoString(C.drun_path_name(C.drun_path())) }

// Paths returns the paths that this machine can run, the best last.
func Paths() []string {
	var names []string
	for i := range C.drun_path_count() {
		if C.drun_path_usable(i) != 0 {
			names = append(names, C.GoString(C.drun_path_name(i)))
		}
	}
	return names
}

// SetPath switches all kernels to another path; no kernel may run meanwhile. It is for tests that compare
// paths.
func SetPath(name string) error {
	for i := range C.drun_path_count() {
		if C.GoString(C.drun_path_name(i)) == name && C.drun_path_usable(i) != 0 {
			C.drun_set_path(i)
			return nil
		}
	}
	return fmt.Errorf("no kernel path %q on this machine: it has %v", name, Paths())
}

// CheckPath returns an error when DRUN_KERNEL names a path that this machine does not have; kernels then run
// on the best one.
func CheckPath() error {
	forced := os.Getenv("DRUN_KERNEL")
	if forced == "" || forced == Path() {
		return nil
	}
	return fmt.Errorf("DRUN_KERNEL=%s: no such kernel path on this machine: it has %v", forced, Paths())
}

// SetThreads sets how many threads a kernel may use, the caller's included. Results do not depend on it.
func SetThreads(n int) { C.drun_set_threads(C.int(n)) }

// Threads returns how many threads a kernel may use. It is 1 until SetThreads is called.
func Threads() int { return int(C.drun_threads()) }
