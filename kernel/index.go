package kernel

// #define DRUN_MEM char
// #include "kernel.h"
import "C"

import (
	"slices"
	"unsafe"

	"drun/kernel/dtype"
)

// Take selects along the middle dimension: out [outer, len(indices), inner] from in [outer, n, inner]. With
// outer = 1 it is an embedding. Any element type.
func Take(dt dtype.Type, outer, n, inner int, out, in unsafe.Pointer, indices []int64) {
	for c := begin("selection of rows"); c.again(whole(dt, out, outer*len(indices)*inner)); {
		C.drun_take(C.int(dt.Size()), long(outer), long(len(indices)), long(n), long(inner), mem(out), mem(in), index(indices))
	}
}

// reach is how many rows the indices reach; it is needed only where calls are audited.
func reach(indices []int64) int {
	if audit == nil || len(indices) == 0 {
		return 0
	}
	return int(slices.Max(indices)) + 1
}

// AddRows adds row r of in [len(indices), n] to row indices[r] of out, in increasing r: the gradient of an
// embedding. Reals.
func AddRows(dt dtype.Type, n int, out, in unsafe.Pointer, indices []int64) {
	for c := begin("sum of rows"); c.again(array(dt, out, reach(indices)*n)); {
		C.drun_add_rows(C.int(dt), long(len(indices)), long(n), mem(out), index(indices), mem(in))
	}
}

// Gather computes out[p][i][j] = in[p][indices[p][i][j]][j] for out and indices [outer, to, inner] and in
// [outer, from, inner]. Any element type.
func Gather(dt dtype.Type, outer, to, from, inner int, out, in unsafe.Pointer, indices []int64) {
	for c := begin("gather"); c.again(whole(dt, out, outer*to*inner)); {
		C.drun_gather(C.int(dt.Size()), long(outer), long(to), long(from), long(inner), mem(out), mem(in), index(indices))
	}
}

// ScatterAdd computes out[p][indices[p][i][j]][j] += in[p][i][j] for in and indices [outer, from, inner] and
// out [outer, to, inner], in increasing i.
func ScatterAdd(dt dtype.Type, outer, from, to, inner int, out, in unsafe.Pointer, indices []int64) {
	for c := begin("scatter"); c.again(array(dt, out, outer*to*inner)); {
		C.drun_scatter_add(C.int(dt), long(outer), long(from), long(to), long(inner), mem(out), index(indices), mem(in))
	}
}

// Scatter computes out[p][indices[p][i][j]][j] = in[p][i][j] for in and indices [outer, from, inner] and out
// [outer, to, inner], in increasing i. Any element type.
func Scatter(dt dtype.Type, outer, from, to, inner int, out, in unsafe.Pointer, indices []int64) {
	for c := begin("scatter"); c.again(array(dt, out, outer*to*inner)); {
		C.drun_scatter(C.int(dt.Size()), long(outer), long(from), long(to), long(inner), mem(out), mem(in), index(indices))
	}
}

// Put is the reverse of Take: out[p][indices[i]] = in[p][i] for out [outer, n, inner] and in [outer, len(indices),
// inner], in increasing i. Any element type.
func Put(dt dtype.Type, outer, n, inner int, out, in unsafe.Pointer, indices []int64) {
	for c := begin("scatter"); c.again(array(dt, out, outer*n*inner)); {
		C.drun_put(C.int(dt.Size()), long(outer), long(len(indices)), long(n), long(inner), mem(out), mem(in), index(indices))
	}
}
