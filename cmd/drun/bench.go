package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"drun/engine/record"
	"drun/engine/run"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/scratch"
	"drun/internal/try"
	"drun/kernel/dtype"
)

//go:embed bench.star
var benchRecipe []byte

// benchRow is one size, as nccl-tests shows it: the slowest rank's mean time per call; algbw is bytes / time, and
// busbw is algbw times the operation's traffic factor.
type benchRow struct {
	Op      string  `json:"op"`
	Backend string  `json:"backend"`
	Ranks   int     `json:"ranks"`
	DType   string  `json:"dtype"`
	Bytes   int     `json:"bytes"`
	Micros  float64 `json:"us"`
	AlgBW   float64 `json:"algbw"` // GB/s
	BusBW   float64 `json:"busbw"`
	Wrong   *int    `json:"wrong,omitempty"` // wrong elements in the results; with --check
}

type benchFlags struct {
	nproc, op, dtype, from, to string
	factor, iters, warmup      int
	check                      bool
}

func newBench(dirs *[]string) *cobra.Command {
	var b benchFlags
	cmd := &cobra.Command{
		Use:   "bench NAME",
		Short: "Measure a backend's collectives",
		Long: "Times a collective at several sizes, called as from a recipe, and prints the slowest rank's mean in the\n" +
			"columns of nccl-tests.",
		RunE: func(cmd *cobra.Command, args []string) error { return b.run(cmd, args[0], *dirs) },
	}
	f := cmd.Flags()
	f.StringVarP(&b.nproc, "nproc", "n", "2", "ranks on this machine")
	f.StringVar(&b.op, "op", "all_reduce", "`collective` to time")
	f.StringVarP(&b.from, "begin", "b", "4", "smallest `size` in bytes, as in 64K or 1M")
	f.StringVarP(&b.to, "end", "e", "64M", "largest `size`")
	f.IntVarP(&b.factor, "factor", "f", 4, "each size is this many times the size before")
	f.StringVar(&b.dtype, "dtype", "float32", "type of the elements")
	f.IntVar(&b.iters, "iters", 20, "number of timed calls")
	f.IntVar(&b.warmup, "warmup", 5, "number of calls before the timed ones")
	f.BoolVar(&b.check, "check", true, "count wrong elements in the results")
	return cmd
}

// traffic is busbw / algbw: see nccl-tests' PERFORMANCE.md.
var traffic = map[string]func(n float64) float64{
	"all_reduce":     func(n float64) float64 { return 2 * (n - 1) / n },
	"broadcast":      func(float64) float64 { return 1 },
	"reduce":         func(float64) float64 { return 1 },
	"all_gather":     func(n float64) float64 { return (n - 1) / n },
	"gather":         func(n float64) float64 { return (n - 1) / n },
	"scatter":        func(n float64) float64 { return (n - 1) / n },
	"reduce_scatter": func(n float64) float64 { return (n - 1) / n },
	"all_to_all":     func(n float64) float64 { return (n - 1) / n },
	"barrier":        func(float64) float64 { return 0 },
}

func (b *benchFlags) run(cmd *cobra.Command, backend string, dirs []string) error {
	n := try.To(ranks(b.nproc))
	sizes, width := try.To2(b.sizes())
	temp := try.To(scratch.Make("bench-"))
	defer temp.Remove()
	dir := temp.Path
	recipe := filepath.Join(dir, "bench.star")
	try.Ok(os.WriteFile(recipe, benchRecipe, 0o600))
	program := ""
	if backend != "shm" {
		_, program = try.To2(verified(cmd, backend, dirs)) // the run itself has a new home
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, run.Signals...)
	defer signal.Stop(signals)
	var out bytes.Buffer
	result := try.To(run.Run(run.Options{
		Hooks:  run.Hooks{Signals: signals},
		Recipe: recipe, Nproc: n,
		Communication: run.Communication{Backend: backend, Plugins: dirs, PluginHost: func() (string, error) { return program, nil }, Counted: true},
		History:       record.History{Home: filepath.Join(dir, ".drun"), Given: records.Given{Version: version()}},
		Timeout:       5 * time.Minute, Output: run.Output{Stdout: &out, Stderr: cmd.ErrOrStderr()},
		Parameters: run.Parameters{Params: []string{"op=" + b.op, "sizes=" + strings.Join(sizes, ","), "dtype=" + b.dtype, "width=" + strconv.Itoa(width),
			"iters=" + strconv.Itoa(b.iters), "warmup=" + strconv.Itoa(b.warmup), "check=" + strconv.FormatBool(b.check)}},
	}))
	if f := result.Failure; f != nil {
		return exit.WithHint(exit.Errorf(result.Code, "%s", f.Text(n)), f.Hint)
	}
	if result.Code != exit.Done { // a signal ended it
		return exitStatus(result.Code)
	}
	try.Ok(b.print(cmd, backend, n, out.String()))
	return printCounts(cmd.ErrOrStderr(), result.Counts)
}

func (b *benchFlags) sizes() (list []string, width int, err error) {
	if traffic[b.op] == nil {
		return nil, 0, usage("want one of all_reduce, broadcast, reduce, all_gather, gather, scatter, reduce_scatter, all_to_all, barrier", "--op %s: no such collective", b.op)
	}
	for _, d := range dtype.Types() {
		if d.String() == b.dtype {
			width = d.Size()
		}
	}
	if width == 0 {
		return nil, 0, usage("for example float32", "--dtype %s: no such type", b.dtype)
	}
	from, err := bytesOf(b.from)
	if err != nil {
		return nil, 0, usage("", "-b %s: %v", b.from, err)
	}
	to, err := bytesOf(b.to)
	if err != nil {
		return nil, 0, usage("", "-e %s: %v", b.to, err)
	}
	if b.factor < 2 || b.iters < 1 || b.warmup < 0 || from < 1 || to < from {
		return nil, 0, usage("", "want -f above 1, --iters above 0, --warmup not below 0, and -b above 0 and not above -e")
	}
	if to > mostBytes {
		return nil, 0, usage("", "-e %s: the largest size is 4G", b.to)
	}
	for size := from; size <= to; size *= uint64(b.factor) {
		list = append(list, strconv.FormatUint(size, 10))
	}
	return list, width, nil
}

const mostBytes = 4 << 30 // of a measured tensor

// bytesOf parses 4, 64K, 1M: powers of 1024, as in nccl-tests.
func bytesOf(text string) (uint64, error) {
	if text != "" && strings.ContainsAny(text[len(text)-1:], "KMGkmg") {
		text += "iB"
	}
	return humanize.ParseBytes(text)
}

func (b *benchFlags) print(cmd *cobra.Command, backend string, n int, printed string) error {
	var list []benchRow
	failed := 0
	for line := range strings.Lines(printed) {
		at := strings.Index(line, "bench ")
		if at < 0 {
			continue
		}
		r := benchRow{Op: b.op, Backend: backend, Ranks: n, DType: b.dtype}
		wrong := 0
		if _, err := fmt.Sscanf(line[at:], "bench %d %g %d", &r.Bytes, &r.Micros, &wrong); err != nil {
			return fmt.Errorf("cannot read %q: %w", line, err)
		}
		r.AlgBW = float64(r.Bytes) / r.Micros / 1e3
		r.BusBW = r.AlgBW * traffic[b.op](float64(n))
		if b.check {
			r.Wrong = &wrong
			failed += wrong
		}
		list = append(list, r)
	}
	err := show(cmd, list, printBench)
	if err == nil && failed > 0 {
		return exit.Errorf(exit.Backend, "%d elements of the results are wrong", failed)
	}
	return err
}

func printBench(out io.Writer, list []benchRow) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row(w, "BYTES", "TIME us", "ALGBW GB/s", "BUSBW GB/s", "WRONG", "")
	for _, r := range list {
		row(w, strconv.Itoa(r.Bytes), fmt.Sprintf("%.2f", r.Micros), fmt.Sprintf("%.3f", r.AlgBW), fmt.Sprintf("%.3f", r.BusBW), known(r.Wrong, strconv.Itoa), "")
	}
	return w.Flush()
}

// printCounts shows the plugin's counters, over all ranks and all calls, not only the timed ones.
func printCounts(out io.Writer, counts map[string]int64) error {
	if len(counts) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row(w, "PLUGIN", "COUNT", "")
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		row(w, name, strconv.FormatInt(counts[name], 10), "")
	}
	return w.Flush()
}
