package sdk

import (
	"drun/collective"
	"drun/collective/reduction"
	"drun/kernel/element"
)

// Reduce combines the ranks' contributions, given in the order of the ranks and
// each as long as out, which may be one of them. It supports every dtype and
// operation of the contract, with the same bits as drun's own backend.
func Reduce(out collective.Buffer, parts [][]byte, op element.ReduceOp) {
	reduction.Combine(out, parts, op)
}
