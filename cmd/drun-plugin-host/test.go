package main

import (
	"errors"
	"flag"
	"os"
	"sync"
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/engine/rendezvous"
	"drun/plugins/client"
	"drun/plugins/host"
)

// test runs the conformance suite against the plugin, with one process for each
// rank; if something fails it ends this process with status 1.
func test(p *host.Plugin, deterministic bool) error {
	testing.Init()
	if err := flag.CommandLine.Parse([]string{"-test.v"}); err != nil {
		return err
	}
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: p.Name,
		F: func(t *testing.T) {
			suite := disttest.ConformanceInAnyOrder
			if deterministic {
				suite = disttest.Conformance // to the bit
			}
			suite(t, func(t testing.TB, n int) []collective.Comm { return open(t, p, n, deterministic) })
		},
	}}, nil, nil)
	return nil
}

// open makes a world of n ranks.
func open(t testing.TB, p *host.Plugin, n int, deterministic bool) []collective.Comm {
	store := rendezvous.Memory()
	comms, errs := make([]collective.Comm, n), make([]error, n)
	var all sync.WaitGroup
	for rank := range n {
		all.Go(func() {
			b := &client.Backend{Plugin: p, Stderr: os.Stderr}
			comms[rank], errs[rank] = b.Open(disttest.Context, collective.World{
				Rank: rank, Size: n, LocalRank: rank, LocalSize: n, Store: store, Deterministic: deterministic})
		})
	}
	all.Wait()
	t.Cleanup(func() {
		for rank, c := range comms {
			if c == nil {
				continue
			}
			if err := c.Close(); err != nil {
				t.Errorf("close of rank %d: %v", rank, err)
			}
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return comms
}
