package main

import (
	"flag"
	"os"
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/collective/hier"
	"drun/engine/rendezvous"
	"drun/plugins/client"
	"drun/plugins/host"
)

// test runs the conformance suite against the plugin as `go test -v` would, and does not return: its exit status says
// whether all tests passed. There is one process for each rank or, where the plugin connects two nodes, for each of
// their links.
func test(p *host.Plugin, deterministic, hierarchy bool) error {
	factory := func(t testing.TB, n int) []collective.Comm {
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
	suite := disttest.ConformanceInAnyOrder
	if deterministic || hierarchy {
		suite = disttest.Conformance // to the bit
	}
	testing.Init()
	if err := flag.Set("test.v", "true"); err != nil {
		return err
	}
	all := func(string, string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: p.Name, F: func(t *testing.T) { suite(t, factory) }}}, nil, nil)
	return nil
}
