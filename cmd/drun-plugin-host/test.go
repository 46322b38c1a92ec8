package main

import (
	"fmt"
	"os"

	"drun/collective"
	"drun/collective/disttest"
	"drun/engine/rendezvous"
	"drun/plugins/client"
	"drun/plugins/host"
)

// test runs the conformance suite against the plugin, with one process for each
// rank, and reports it to stdout.
func test(p *host.Plugin, deterministic bool) error {
	factory := func(t disttest.TB, n int) []collective.Comm {
		return disttest.Open(t, n, rendezvous.Memory(), deterministic, func(int) collective.Backend {
			return &client.Backend{Plugin: p, Stderr: os.Stderr}
		})
	}
	passed := disttest.RunStandalone(os.Stdout, p.Name, func(t *disttest.Standalone) {
		if deterministic {
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
