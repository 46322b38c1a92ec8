package kernel

// #define DRUN_MEM char
// #include "kernel.h"
// #cgo noescape drun_group_norm
// #cgo nocallback drun_group_norm
// #cgo noescape drun_group_norm_grad
// #cgo nocallback drun_group_norm_grad
import "C"

import (
	"unsafe"

	"drun/kernel/dtype"
)

// Groups is the geometry of a group norm over x [Rows/Groups, Groups·Each, Run].
type Groups struct{ Rows, Groups, Each, Run int }

// Norm computes y, and mean and rstd [Rows]; gamma and beta [Groups·Each] may be nil.
func (g Groups) Norm(dt dtype.Type, eps float64, y, mean, rstd, x, gamma, beta unsafe.Pointer) {
	C.drun_group_norm(C.int(dt), long(g.Rows), long(g.Groups), long(g.Each), long(g.Run), C.double(eps), mem(y), mem(mean), mem(rstd), mem(x),
		mem(gamma), mem(beta))
}

// Grad computes dx, and adds to dgamma and dbeta; each may be nil. sums [2·Rows·Each] is working memory.
func (g Groups) Grad(dt dtype.Type, dx, dgamma, dbeta, sums, dy, x, gamma, mean, rstd unsafe.Pointer) {
	C.drun_group_norm_grad(C.int(dt), long(g.Rows), long(g.Groups), long(g.Each), long(g.Run), mem(dx), mem(dgamma), mem(dbeta), mem(sums), mem(dy),
		mem(x), mem(gamma), mem(mean), mem(rstd))
}
