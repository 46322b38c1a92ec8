package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"drun/internal/try"
)

// training measures steps of the reference models. drun's recipes save the weights and data that they start with,
// and the peers on one rank start with the same: the rows of losses show whether they do the same work.
type training struct {
	folder, home string
	peers        *peers
	recipe       func(path string, ranks, threads int, more ...string) []string
}

func (t training) saved(model string) (string, error) {
	found, err := filepath.Glob(filepath.Join(t.home, "outputs", "*", model+".safetensors"))
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("bench/%s.star has saved no %s.safetensors", model, model)
	}
	return found[0], nil
}

// beside runs a peer's program on a saved model; its arguments are the model, the steps, the file, and more.
func (t training) beside(line []string, model string, steps int, more ...string) func(context.Context) ([]figure, error) {
	return func(ctx context.Context) (_ []figure, err error) {
		defer try.Caught(&err)
		args := []string{model, strconv.Itoa(steps), try.To(t.saved(model))}
		return printed(slices.Concat(line, args, more), 0)(ctx)
	}
}

// once times a program that makes a single step, from its start to its exit, with no compiled code from before.
func (t training) once(args []string) func(context.Context) ([]figure, error) {
	return func(ctx context.Context) (_ []figure, err error) {
		defer try.Caught(&err)
		path := try.To(t.saved("gpt"))
		cache := try.To(os.MkdirTemp(t.folder, "compiled-"))
		defer os.RemoveAll(cache)
		line := append([]string{"env", "TORCHINDUCTOR_CACHE_DIR=" + cache}, args[:len(args)-1]...)
		return timed(firstStep, 1, append(line, "gpt", "0", path, args[len(args)-1]), 0)(ctx)
	}
}

const firstStep = "gpt, first step, start to exit"

func (t training) peersOf(model string, steps, threads int) (all []probe) {
	suffix := ", 1 rank"
	if threads > 1 {
		suffix += fmt.Sprintf(", %d threads", threads)
	}
	environment := []string{"env", fmt.Sprintf("OMP_NUM_THREADS=%d", threads), "TORCHINDUCTOR_CACHE_DIR=" + filepath.Join(t.folder, "compiled")}
	line := func(args ...string) []string { return append(environment[:len(environment):len(environment)], args...) }
	today := line(ofToday("train_torch.py")...)
	debian := line(t.peers.ofDebian("train_torch.py")...)
	add := func(who string, run func(context.Context) ([]figure, error)) {
		all = append(all, probe{groupTrain, who, suffix, run})
	}
	add(torchName, t.beside(today, model, steps))
	add(compiledName, t.beside(today, model, steps, "compile"))
	add(jaxName, t.beside(line(ofToday("train_jax.py")...), model, steps))
	if model != gpt2 && threads == 1 {
		add(debianName, t.beside(debian, model, steps))
		add(debianWideName, t.beside(append(slices.Clone(wide), debian...), model, steps))
	}
	return all
}

func (t training) probes() (all []probe) {
	if t.peers.has(peakName) {
		all = append(all, probe{groupTrain, drunName, "", printed([]string{t.peers.built("peak"), "2"}, 0)})
	}
	for _, m := range models {
		path, steps := "bench/"+m.name+".star", "steps="+strconv.Itoa(m.steps)
		all = append(all, probe{groupTrain, drunName, ", 1 rank", printed(t.recipe(path, 1, 1, "-p", steps, "-p", "save=true"), 0)})
		all = append(all, t.peersOf(m.name, m.steps, 1)...)
		all = append(all, probe{groupTrain, drunName, ", 2 ranks", printed(t.recipe(path, 2, 1, "-p", steps), 0)})
		all = append(all, t.peers.torch(groupTrain, ", 2 ranks", 2, "train_torch.py", m.name, strconv.Itoa(m.steps), "-")...)
		if m.both > 0 {
			all = append(all, probe{groupTrain, drunName, ", 1 rank, 2 threads", printed(t.recipe(path, 1, 2, "-p", steps), 0)})
			all = append(all, t.peersOf(m.name, m.steps, 2)...)
		}
	}
	return append(all,
		probe{groupTrain, drunName, "", itself(productsCommand)},
		probe{groupTrain, drunName, "", timed(firstStep, 3, t.recipe("bench/gpt.star", 1, 1, "-p", "steps=0"), 0)},
		probe{groupTrain, torchName, "", t.once(ofToday("train_torch.py", "once"))},
		probe{groupTrain, compiledName, "", t.once(ofToday("train_torch.py", "compile-once"))},
		probe{groupTrain, jaxName, "", t.once(ofToday("train_jax.py", "once"))},
	)
}

// gpt2 is the model with 124 million parameters, in the setting of llm.c.
const (
	gpt2      = "gpt2"
	gpt2Steps = 8
	llmcSteps = 2 // of more than 15 s each
)

func (t training) largeProbes(more ...string) []probe {
	made := sync.OnceValue(func() error {
		_, _, err := (command{t.recipe("bench/gpt2.star", 1, 0, append(more, "-p", "make=true")...), 0}).run(context.Background())
		return err
	})
	own := func(threads int, suffix string) probe {
		return probe{groupLarge, drunName, suffix, func(ctx context.Context) (_ []figure, err error) {
			defer try.Caught(&err)
			try.Ok(made())
			path := try.To(t.saved(gpt2))
			args := append(more, "--data", filepath.Dir(path), "-p", fmt.Sprintf("steps=%d", gpt2Steps))
			return sized("gpt2 memory", t.recipe("bench/gpt2.star", 1, threads, args...), largestChild)(ctx)
		}}
	}
	all := []probe{}
	for i, suffix := range []string{", 1 rank", ", 1 rank, 2 threads"} {
		threads := i + 1
		all = append(all, own(threads, suffix))
		all = append(all, t.peersOf(gpt2, gpt2Steps, threads)...)
		all = append(all, probe{groupLarge, llmcName, suffix, func(ctx context.Context) (_ []figure, err error) {
			defer try.Caught(&err)
			return printed([]string{"env", fmt.Sprintf("OMP_NUM_THREADS=%d", threads), t.peers.built("gpt2_llmc"), strconv.Itoa(llmcSteps), try.To(t.saved(gpt2))}, 0)(ctx)
		}})
	}
	for i := range all {
		all[i].group = groupLarge
	}
	return all
}
