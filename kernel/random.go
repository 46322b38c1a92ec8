package kernel

// #define DRUN_MEM char
// #include "kernel.h"
import "C"

import (
	"unsafe"

	"drun/kernel/dtype"
)

// Stream is a position in a counter-based random stream (Philox4x32-10). Element i of a kind of draw depends on Seed,
// Stream and At + i alone: however a draw is split, its numbers are the same. Draws do not advance At; callers add
// the number of elements drawn. Different kinds of draws at one position are not independent.
type Stream struct {
	Seed, Stream, At uint64
}

// Uniform draws n reals in [0, 1): 24 bits for Float32, 53 for Float64.
func (s Stream) Uniform(dt dtype.Type, n int, out unsafe.Pointer) {
	for c := begin("draw"); c.again(whole(dt, out, n)); {
		C.drun_uniform(C.int(dt), long(n), mem(out), C.uint64_t(s.Seed), C.uint64_t(s.Stream), C.uint64_t(s.At))
	}
}

// Normal draws n reals from the standard normal distribution.
func (s Stream) Normal(dt dtype.Type, n int, out unsafe.Pointer) {
	for c := begin("draw"); c.again(whole(dt, out, n)); {
		C.drun_normal(C.int(dt), long(n), mem(out), C.uint64_t(s.Seed), C.uint64_t(s.Stream), C.uint64_t(s.At))
	}
}

// Bounded draws integers in [low, low + count); a count of 0 means 2^64.
func (s Stream) Bounded(out []int64, low int64, count uint64) {
	for c := begin("draw"); c.again(slice(out)); {
		C.drun_bounded(long(len(out)), index(out), C.int64_t(low), C.uint64_t(count), C.uint64_t(s.Seed),
			C.uint64_t(s.Stream), C.uint64_t(s.At))
	}
}

// Dropout computes out = in / keep where a uniform draw is below keep, else 0. The gradient is the same call on dy.
func (s Stream) Dropout(dt dtype.Type, n int, out, in unsafe.Pointer, keep float64) {
	for c := begin("dropout"); c.again(array(dt, out, n)); {
		C.drun_dropout(C.int(dt), long(n), mem(out), mem(in), C.double(keep), C.uint64_t(s.Seed), C.uint64_t(s.Stream),
			C.uint64_t(s.At))
	}
}
