package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// backendProbes measure plugins: gloo beside raw Gloo, and the way from a recipe to a plugin and back. make plugins
// builds the plugins; missing ones are skipped.
func backendProbes(drun string, p *peers, recipe func(path string, ranks, threads int, more ...string) []string) (all []probe) {
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(filepath.Dir(drun), "plugins", "drun-backend-"+name))
		return err == nil
	}
	for _, ranks := range []int{2, 4} {
		if !has("gloo") {
			break
		}
		suffix := fmt.Sprintf(", %d ranks", ranks)
		scale := "-p=scale=0.05" // about as many calls as the raw Gloo benchmark makes
		all = append(all,
			probe{groupBackends, drunName, suffix, prefixed("gloo plugin, ", printed(recipe("bench/allreduce.star", ranks, 1, "--backend", "gloo", scale), 0))},
			probe{groupBackends, glooName, suffix, gloo(p, ranks)},
		)
	}
	if has("example") {
		for _, ranks := range []int{1, 2} {
			all = append(all, probe{groupBackends, drunName, "", printed(recipe("bench/hop.star", ranks, 1, "--backend", "example"), 0)})
		}
		start := "hello.star, 2 ranks, start to exit"
		all = append(all,
			probe{groupBackends, drunName, "", timed(start+" beside it", 3, recipe("examples/hello.star", 2, 0), 0)},
			probe{groupBackends, drunName, "", timed("with a plugin, "+start, 3, recipe("examples/hello.star", 2, 0, "--backend", "example"), 0)},
		)
	}
	return all
}

// prefixed puts a prefix before the names of figures.
func prefixed(prefix string, run func(context.Context) ([]figure, error)) func(context.Context) ([]figure, error) {
	return func(ctx context.Context) ([]figure, error) {
		figures, err := run(ctx)
		for i := range figures {
			figures[i].name = prefix + figures[i].name
		}
		return figures, err
	}
}
