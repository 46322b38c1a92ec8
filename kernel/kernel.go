// Package kernel holds the numeric kernels under tensors (package tensor) and rank reductions
// (collective/shm): C through cgo, one source compiled for several instruction sets, chosen at run time.
//
// The same call gives the same bits on every path (scalar, AVX2, AVX-512, NEON) and with any number of
// threads:
//
//   - Every fused multiply-add is explicit; nothing is left to the compiler (-std=c11 never contracts).
//   - An element of a matrix product is one chain of fused multiply-adds in increasing k for each block of
//     256 values of k; the blocks are added in order.
//   - A sum along contiguous elements uses 16 lanes folded as a tree, cut every 4096 elements, the cuts
//     added in double. Sums over an outer dimension add row after row in each column.
//   - exp, log, tanh, erf, sin and cos are polynomials of this package, not the C library's.
//   - Every NaN that a kernel computes is the positive quiet NaN without payload.
//
// docs/numerics.md has the largest errors of the functions.
//
// Nothing here checks its arguments, and the only error is an OutOfMemory: callers pass pointers to enough
// aligned memory, valid indices and nonnegative sizes. In elementwise operations an output may be the same
// memory as an input (same strides); otherwise outputs never overlap inputs. Kernels allocate nothing in steady
// state and may be called from any number of goroutines at once.
package kernel

// #cgo CFLAGS: -std=c11 -O3 -Wall -Wno-psabi -Wno-unknown-pragmas
// #cgo race CFLAGS: -Og -w -DSCALAR_ONLY
// #cgo LDFLAGS: -lm -lpthread
// #define DRUN_MEM char
// #include "kernel.h"
import "C"

import (
	"fmt"
	"os"
	"unsafe"

	"drun/kernel/dtype"
)

// The C side numbers types and operations as package dtype does; otherwise this does not compile, since
// a map literal cannot repeat a key.
var _ = map[bool]string{false: "", C.F32 == dtype.Float32 && C.F64 == dtype.Float64 && C.I64 == dtype.Int64 &&
	C.I32 == dtype.Int32 && C.I8 == dtype.Int8 && C.U8 == dtype.Uint8 && C.BOOL == dtype.Bool &&
	C.F16 == dtype.Float16 && C.BF16 == dtype.BFloat16 && C.C64 == dtype.Complex64 &&
	C.RANK_SUM == dtype.Sum && C.RANK_AVG == dtype.Avg && C.RANK_PRODUCT == dtype.Product && C.RANK_MIN == dtype.Min &&
	C.RANK_MAX == dtype.Max && C.RANK_BAND == dtype.BAnd && C.RANK_BOR == dtype.BOr && C.RANK_BXOR == dtype.BXor: "agree"}

// View is memory viewed with strides, counted in elements; a stride of 0 broadcasts. Data is aligned to its element.
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

// OutOfMemory is the error of a kernel that could not allocate this many bytes of working memory. Its outputs are
// undefined.
type OutOfMemory int

func (n OutOfMemory) Error() string {
	return fmt.Sprintf("cannot allocate %d bytes of working memory", int(n))
}

// had returns the error of a kernel that could not get this many bytes of scratch memory; nil for 0.
func had(missing C.int64_t) error {
	if missing != 0 {
		return OutOfMemory(missing)
	}
	return nil
}

// Path returns the name of the instruction-set path in use: scalar, avx2, avx512, avx512bf16, amx or neon. It is
// the best the machine has, or what the environment variable DRUN_KERNEL asks for.
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

// SetPath switches all kernels to another path; no kernel may run meanwhile. It is for tests that compare paths.
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
