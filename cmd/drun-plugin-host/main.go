// Command drun-plugin-host is drun's worker, with the code that starts plugins. `drun run` starts it for the ranks of a
// run whose backend is a plugin, and `drun backends` uses it to probe and test plugins. It is a separate program
// because linking gRPC into drun would slow the start of every run.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/collective/hier"
	"drun/engine"
	"drun/engine/rendezvous"
	"drun/engine/worker"
	"drun/internal/each"
	"drun/internal/exit"
	"drun/internal/scratch"
	"drun/plugins/client"
	"drun/plugins/host"
	_ "drun/starlib/data/table/columns" // so that recipes can read Parquet and Arrow
)

func main() {
	if worker.Invoked() {
		os.Exit(worker.Main(start))
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() { // a plugin that is starting has a temporary folder
		<-signals
		scratch.RemoveOwn()
		os.Exit(int(exit.Interrupted))
	}()
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(int(exit.Backend))
	}
}

// start makes the backend that runs a plugin; the worker calls it.
func start(p *engine.Plugin, onDeath func(error)) collective.Backend {
	return &client.Backend{
		Plugin:  &host.Plugin{Name: p.Name, Path: p.Path, SHA256: p.SHA256, Mark: p.Mark},
		Stderr:  os.Stderr,
		OnDeath: onDeath,
	}
}

// command carries out a request of `drun backends`, or of a run.
func command(args []string) error {
	if len(args) != 5 {
		return fmt.Errorf("this program is started by drun: see drun backends --help")
	}
	p := &host.Plugin{Name: args[1], Path: args[2], SHA256: args[3], Mark: args[4]}
	switch args[0] {
	case "probe":
		return answer(client.Probe(context.Background(), p))
	case "properties":
		return answer(client.Properties(context.Background(), p))
	case "test", "test-deterministic", "test-hierarchy":
		return test(p, args[0] == "test-deterministic", args[0] == "test-hierarchy")
	}
	return fmt.Errorf("unknown command %s", args[0])
}

func answer[T any](reply T, err error) error {
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(reply)
}

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
			nodes := each.UpTo(n, func(rank int) int { return 2 * rank / n })
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
