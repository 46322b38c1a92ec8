package main

import (
	"fmt"
	"os"

	"drun/collective"
	"drun/collective/disttest"
	"drun/collective/hier"
	"drun/engine/rendezvous"
	"drun/plugins/client"
	"drun/plugins/host"
)

// test runs the conformance suite against the plugin, and reports it to stdout. It has one process for each
// rank or, where the plugin connects two nodes, for each of their links.
func test(p *host.Plugin, deterministic, hierarchy bool) error {
	factory := func(t disttest.TB, n int) []collective.Comm {
		return disttest.Open(t, n, rendezvous.Memory(), deterministic, func(int) collective.Backend {
			plugin := &client.Backend{Plugin: p, Stderr: os.Stderr}
			if !hierarchy {
				return plugin
			}
			nodes := make([]int, n)
			for rank := range nodes {
				nodes[rank] = 2 * rank / n
			}
			return &hier.Backend{Far: plugin, Nodes: nodes}
		})
	}
	passed := disttest.RunStandalone(os.Stdout, p.Name, func(t *disttest.Standalone) {
		if deterministic || hierarchy {
			disttest.Conformance(t, factory) // to the bit
		} else {
			disttest.ConformanceInAnyOrder(t, factory)
		}
	})
	if !passed {
		return fmt.Errorf("the backend %s does not pass the suite", p.Name)
	}
	return nil
}
