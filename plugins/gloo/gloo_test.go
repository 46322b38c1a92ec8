//go:build gloo

package gloo

import (
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/plugins/internal/enginetest"
)

func factory(o Options) disttest.Factory {
	return enginetest.InProcess(func(int) collective.Backend { return New(o) })
}

func TestConformanceInRankOrder(t *testing.T) {
	disttest.Conformance(t, factory(Options{Deterministic: true}))
}
