//go:build gloo

package gloo

import (
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/collective/hier"
	"drun/plugins/internal/enginetest"
)

// Between two nodes of several ranks, Gloo carries what shared memory cannot.
func TestConformanceBetweenNodes(t *testing.T) {
	disttest.Conformance(t, func(t testing.TB, n int) []collective.Comm {
		nodes := make([]int, n)
		for rank := range nodes {
			nodes[rank] = 2 * rank / n
		}
		return enginetest.InProcess(false, func(int) collective.Backend {
			return &hier.Backend{Far: New(Options{}), Nodes: nodes}
		})(t, n)
	})
}
