// Command bench measures drun's speed beside the programs that users would use instead, on the machine at hand: start, the history, collectives, helpers, operators, training steps and kernels. `make bench` runs it from the
// root of the repository. Every round measures everything once, drun and its peers in turn, and the table holds the
// medians over the rounds: machines are noisy, so only ratios within one run mean much.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"drun/internal/try"
)

// commands are what this program measures besides the table.
var commands = map[string]func(context.Context, []string, io.Writer) error{
	nodesCommand: measureNodes, proofCommand: measureProof, meetCommand: measureMeeting, savesCommand: measureSaves, serveCommand: measureServe,
	kernelsCommand: measureKernels, productsCommand: measureProducts,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := func(ctx context.Context, _ []string, _ io.Writer) error { return bench(ctx) }
	arguments := os.Args[1:]
	if len(arguments) > 0 && commands[arguments[0]] != nil {
		run, arguments = commands[arguments[0]], arguments[1:]
	}
	if err := run(ctx, arguments, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context) (err error) {
	defer try.Caught(&err)
	drun := flag.String("drun", "bin/drun", "the drun to measure")
	rounds := flag.Int("rounds", 3, "how many times to measure everything")
	only := flag.String("only", "", "the groups to measure, separated by commas: "+strings.Join(groups, ", "))
	narrow := flag.Bool("avx2", false, "as on a processor without AVX-512: drun's and the peers' kernels for AVX2, bars beside the best peer 0.1 laxer")
	lasting := flag.Duration("logging", 10*time.Second, "how long 16 runs log at once")
	flag.Parse()
	chosen := groups
	if *only != "" {
		chosen = strings.Split(*only, ",")
	}
	for _, group := range chosen {
		if !slices.Contains(groups, group) {
			return fmt.Errorf("no group %q; there are %s", group, strings.Join(groups, ", "))
		}
	}
	try.FailIf(*rounds < 1, "-rounds %d: at least one", *rounds)

	if *narrow {
		for name, value := range onlyAVX2 {
			try.Ok(os.Setenv(name, value))
		}
		loosen(rows)
	}
	folder := try.To(os.MkdirTemp("", "drun-bench-"))
	defer os.RemoveAll(folder)
	peers := findPeers(ctx, folder)
	plan := slices.DeleteFunc(probes(*drun, folder, peers, *lasting), func(p probe) bool { return !slices.Contains(chosen, p.group) })
	samples := try.To(measure(ctx, plan, *rounds))
	addShares(samples)

	fmt.Printf("%s\n\nMedians of %d rounds.\n\n", machine(), *rounds)
	if ctx.Err() != nil {
		fmt.Print("Interrupted: of fewer rounds than that.\n\n")
	}
	printTable(os.Stdout, slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !slices.Contains(chosen, r.group) }), samples.medians(), samples)
	for _, missing := range peers.missing() {
		fmt.Println("\n" + missing)
	}
	return nil
}

// onlyAVX2 tells drun, PyTorch (its own kernels, oneDNN's and MKL's), JAX and OpenBLAS to use no more than AVX2.
var onlyAVX2 = map[string]string{
	"DRUN_KERNEL": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
	"XLA_FLAGS": "--xla_cpu_max_isa=AVX2", "OPENBLAS_CORETYPE": "Haswell",
}

func loosen(rows []row) {
	for _, r := range rows {
		for i := range r.bars {
			if r.bars[i].of == bestName {
				r.bars[i].limit += 0.1
			}
		}
	}
}

// measure runs each probe once per round. After an interrupt it returns what was measured so far.
func measure(ctx context.Context, plan []probe, rounds int) (samples, error) {
	all := samples{}
	for round := 1; round <= rounds; round++ {
		for _, p := range plan {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s, %s\n", round, rounds, p.group, p.who)
			figures, err := p.run(ctx)
			if ctx.Err() != nil {
				return all, nil // interrupted
			}
			if err != nil && p.who == drunName {
				return nil, err
			}
			if err != nil { // a failing peer must not hide drun's figures
				fmt.Fprintln(os.Stderr, "bench:", err)
				continue
			}
			for _, f := range figures {
				f.name += p.suffix
				all.add(p.who, f)
			}
		}
	}
	return all, nil
}

// machine describes where the figures come from.
func machine() string {
	model, cores := "unknown processor", 0
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		name, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "model name":
			model = strings.TrimSpace(value)
		case "processor":
			cores++
		}
	}
	kernels := kernelPath()
	if told := os.Getenv("DRUN_KERNEL"); told != "" {
		kernels = told
	}
	return fmt.Sprintf("%s, %d cores, kernels: %s.", model, cores, kernels)
}
