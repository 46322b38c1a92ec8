package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"drun/history/historytest"
)

// probe measures some figures of one program. Programs of the same group are measured in turn.
type probe struct {
	group, who string
	suffix     string // distinguishes this measurement's figures: ", 2 ranks"
	run        func(context.Context) ([]figure, error)
}

// printed runs a command and reads the figures that it prints.
func printed(args []string, ranks int) func(context.Context) ([]figure, error) {
	return func(ctx context.Context) ([]figure, error) {
		output, _, err := command{args, ranks}.run(ctx)
		return parseFigures(output), err
	}
}

// timed runs a command several times; besides what it prints, the figure is its time from start to exit.
func timed(name string, times int, args []string, ranks int) func(context.Context) ([]figure, error) {
	return func(ctx context.Context) ([]figure, error) {
		var figures []figure
		for range times {
			output, seconds, err := command{args, ranks}.run(ctx)
			if err != nil {
				return nil, err
			}
			figures = append(figures, figure{name, seconds, "s"})
			figures = append(figures, parseFigures(output)...)
		}
		return figures, nil
	}
}

// probes lists all measurements that this machine can make.
func probes(drun, folder string, p *peers, lasting time.Duration) []probe {
	home := filepath.Join(folder, "home")
	recipe := func(path string, ranks, threads int, more ...string) []string {
		args := []string{drun, "run", path, "--home", home, "-n", strconv.Itoa(ranks)}
		if threads > 0 {
			args = append(args, "--threads", strconv.Itoa(threads))
		}
		return append(args, more...)
	}
	mpirun := func(ranks int, program string) []string {
		return []string{"mpirun", "--oversubscribe", "-np", strconv.Itoa(ranks), p.built(program)}
	}

	all := []probe{
		{groupStart, drunName, "", timed("hello.star, 2 ranks, start to exit", 5, recipe("examples/hello.star", 2, 0), 0)},
		{groupStart, drunName, "", timed("hello.star, 64 ranks, start to exit", 2, recipe("examples/hello.star", 64, 0), 0)},
		{groupStart, drunName, "", onlySize("resident size of a rank", recipe("bench/resident.star", 2, 0), largestChild)},
		{groupStart, torchName, "", timed("hello.star, 2 ranks, start to exit", 1, ofToday("hello_torch.py"), 2)},
		{groupStart, debianName, "", timed("hello.star, 2 ranks, start to exit", 1, p.ofDebian("hello_torch.py"), 2)},
		{groupStart, mpiName, "", timed("hello.star, 2 ranks, start to exit", 2, mpirun(2, "hello_mpi"), 0)},
		{groupHistory, drunName, "", digitsHistory(drun, folder)},
		{groupQueries, drunName, "", queries(drun, folder, historytest.Large)},
		{groupQueries, mlflowName, "", printed([]string{mlflowPython, filepath.Join(peerSources, "queries_mlflow.py"), folder}, 0)},
		{groupLogging, drunName, "", printed(recipe("bench/log.star", 1, 0, "-p", "steps=20000"), 0)},
		{groupLogging, drunName, "", logging(drun, folder, 16, lasting)},
		{groupLogging, drunName, "", logging(drun, folder, 64, 0)},
	}
	all = append(all,
		probe{groupStates, drunName, ", 1 rank", printed(recipe("bench/checkpoints.star", 1, 1), 0)},
		probe{groupStates, drunName, ", 4 ranks", printed(recipe("bench/checkpoints.star", 4, 1), 0)},
		probe{groupStates, drunName, "", onlySize("agent beside 4 ranks of 256 MiB", recipe("bench/checkpoints.star", 4, 1, "-p", "rounds=2"), ownSize)},
		probe{groupStates, plainName, "", plainFile(folder)},
		probe{groupStates, torchName, ", 1 rank", printed(ofToday("checkpoints_torch.py", folder), 0)},
		probe{groupStates, debianName, ", 1 rank", printed(p.ofDebian("checkpoints_torch.py", folder), 0)},
	)
	for _, ranks := range []int{2, 4} {
		suffix := fmt.Sprintf(", %d ranks", ranks)
		all = append(all,
			probe{groupAllReduce, drunName, suffix, printed(recipe("bench/allreduce.star", ranks, 1), 0)},
			probe{groupAllReduce, mpiName, suffix, printed(mpirun(ranks, "allreduce_mpi"), 0)},
		)
	}
	// Four ranks of these take minutes on two cores, and set no bar.
	all = append(all,
		probe{groupAllReduce, glooName, ", 2 ranks", gloo(p, 2)},
		probe{groupAllReduce, torchName, ", 2 ranks", printed(ofToday("collectives_torch.py", "all_reduce"), 2)},
		probe{groupAllReduce, debianName, ", 2 ranks", printed(p.ofDebian("collectives_torch.py", "all_reduce"), 2)},
	)
	all = append(all, backendProbes(drun, p, recipe)...)
	all = append(all,
		probe{groupHelpers, drunName, ", 2 ranks", printed(recipe("bench/helpers.star", 2, 1), 0)},
		probe{groupHelpers, torchName, ", 2 ranks", printed(ofToday("collectives_torch.py", "helpers"), 2)},
		probe{groupHelpers, debianName, ", 2 ranks", printed(p.ofDebian("collectives_torch.py", "helpers"), 2)},
		probe{groupOperators, drunName, "", printed(recipe("bench/operators.star", 1, 1), 0)},
	)
	all = append(all, p.torch(groupOperators, "", 0, "operators_torch.py")...)
	all = append(all, probe{groupLayers, drunName, "", printed(recipe("bench/layers.star", 1, 1), 0)})
	all = append(all, p.torch(groupLayers, "", 0, "layers_torch.py")...)
	all = append(all, probe{groupLayers, jaxName, "", printed(ofToday("layers_jax.py"), 0)})
	all = append(all, probe{groupStreams, drunName, "", printed(recipe("bench/streams.star", 1, 1, "--data", "examples/data"), 0)})
	all = append(all, p.torch(groupStreams, "", 0, "streams_torch.py")...)
	openBLAS := append([]string{p.built("gemm_openblas")}, shapeArguments()...)
	t := training{folder, home, p, recipe}
	all = append(append(all, t.probes()...), t.largeProbes()...)
	all = append(all,
		probe{groupKernels, drunName, "", itself(kernelsCommand)},
		probe{groupKernels, openBLASName, "", printed(openBLAS, 0)},
		probe{groupKernels, openBLASWideName, "", printed(append([]string{"env", "OPENBLAS_CORETYPE=SkylakeX"}, openBLAS...), 0)},
	)
	all = append(all, p.torch(groupKernels, "", 0, "kernels_torch.py", shapeArguments()...)...)
	all = append(all, probe{groupKernels, jaxName, "", printed(ofToday("kernels_jax.py", shapeArguments()...), 0)})
	return slices.DeleteFunc(all, func(each probe) bool { return each.who != drunName && !p.has(each.who) })
}

// shapeArguments are the sizes of the products, as arguments of the peers.
func shapeArguments() (args []string) {
	for _, s := range gemmShapes {
		args = append(args, strconv.Itoa(s.m), strconv.Itoa(s.n), strconv.Itoa(s.k))
	}
	return args
}

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
