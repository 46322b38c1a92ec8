package nccl

import (
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/plugins/internal/enginetest"
)

// inProcess makes worlds of ranks in this process, each with a device.
func inProcess(deterministic bool) disttest.Factory {
	return enginetest.InProcess(func(int) collective.Backend {
		o := FromEnvironment()
		o.Deterministic = deterministic
		return New(o)
	})
}

func TestConformance(t *testing.T) {
	disttest.ConformanceInAnyOrder(t, inProcess(false))
}

func TestConformanceInRankOrder(t *testing.T) {
	disttest.Conformance(t, inProcess(true))
}
