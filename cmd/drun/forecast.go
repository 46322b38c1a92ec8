package main

import (
	"fmt"
	"io"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"drun/engine/run"
	"drun/forecast"
	"drun/internal/terminal"
)

func newForecast() *cobra.Command {
	var o run.Options
	var f forecastFlags
	cmd := &cobra.Command{
		Use:   "forecast RECIPE.star",
		Short: "Tell how long a step would take on more ranks than there are here",
		Long: `Runs some steps of a recipe on this machine, in a temporary home, measures what a rank computes between its
collectives, and tells from a model of drun's collectives how long the same steps would take on other numbers of ranks,
--per-node of them on each node, and a link of --link between the nodes: its bandwidth in bits per second, and the time
that a message takes one way. A rank's work is the one measured here (its batch stays, so more ranks take more samples a step).
A step is an optimizer's or, in a recipe without one, a call of run.log. docs/parallelism.md says what the model leaves out.`,
		Example: `  drun forecast train.star --ranks 8,64,1024 --link 100Gbit,5us
  drun forecast train.star -n 4 --ranks 16,32 --per-node 8 --link 25Gbit,20us --json`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := ranks(f.nproc)
			if err != nil {
				return err
			}
			o.Recipe, o.Nproc = args[0], n
			return f.run(cmd, o)
		},
	}
	flags := cmd.Flags()
	addRecipeFlags(flags, &o, &f.nproc)
	flags.Lookup("nproc").DefValue = "2"
	f.nproc = "2"
	flags.Lookup("nproc").Usage = "ranks that run here, to measure: at least 2, with a core each"
	flags.StringVar(&f.ranks, "ranks", "8,64,1024", "`numbers` of ranks to tell of")
	flags.StringVar(&f.link, "link", "", "what connects a node: `BANDWIDTH,LATENCY` as in 100Gbit,5us")
	flags.IntVar(&f.perNode, "per-node", 0, "ranks on each node (default: as many as run here)")
	flags.IntVar(&f.steps, "steps", 20, "steps to measure, after 3 others")
	return cmd
}

type forecastFlags struct {
	nproc, ranks, link string
	perNode, steps     int
}

func (f *forecastFlags) run(cmd *cobra.Command, o run.Options) error {
	if o.Nproc < 2 {
		return usage("for example -n 2", "-n %d: on a single rank there are no collectives to be seen", o.Nproc)
	}
	if o.Backend != "" && o.Backend != "shm" {
		return usage("", "--backend %s: what runs here runs on shm; the model is of gloo between the nodes", o.Backend)
	}
	if f.steps < 1 {
		return usage("", "--steps %d: want at least 1", f.steps)
	}
	if !cmd.Flags().Changed("per-node") {
		f.perNode = o.Nproc
	}
	var numbers []int
	most := 0
	for _, text := range strings.Split(f.ranks, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return usage("for example --ranks 8,64,1024", "--ranks %s: %q is no number", f.ranks, text)
		}
		numbers, most = append(numbers, n), max(most, n)
	}
	if err := forecast.Check(numbers, f.perNode); err != nil {
		return usage("for example --ranks 8,64,1024", "%v", err)
	}
	link, err := parseLink(f.link)
	if f.link == "" && most > f.perNode {
		return usage("for example --link 100Gbit,5us", "--link is missing: %d ranks are on several nodes", most)
	}
	if err != nil && f.link != "" {
		return usage("for example --link 100Gbit,5us", "--link %s: %v", f.link, err)
	}
	stop, err := prepare(cmd, &o)
	if err != nil {
		return err
	}
	defer stop()
	if cores := runtime.NumCPU(); o.Nproc > cores {
		fmt.Fprintf(cmd.ErrOrStderr(), "drun: the %d ranks share the cores of this machine (%d), so the forecast takes them for slower than they are with a core each\n", o.Nproc, cores)
	}
	o.Backend, o.Stdout, o.Stderr, o.Terminal = "shm", io.Discard, io.Discard, false
	m, err := forecast.Measure(o, f.steps)
	if err != nil {
		return err
	}
	all := make([]forecast.Forecast, len(numbers))
	for i, n := range numbers {
		all[i] = m.Predict(n, f.perNode, link)
	}
	out := cmd.OutOrStdout()
	if wantsJSON(cmd) {
		return printJSON(out, struct {
			Measured *forecast.Measured  `json:"measured"`
			Link     forecast.Link       `json:"link"`
			PerNode  int                 `json:"per_node"`
			Forecast []forecast.Forecast `json:"forecast"`
		}{m, link, f.perNode, all})
	}
	return printForecast(out, m, all)
}

// printForecast prints the table, and what it is made of.
func printForecast(out io.Writer, m *forecast.Measured, all []forecast.Forecast) error {
	fmt.Fprintf(out, "measured: %d steps on %d ranks here; in each\n", m.Steps, m.Ranks)
	for i, c := range m.Calls {
		if i == 8 {
			fmt.Fprintf(out, "  and %d more\n", len(m.Calls)-i)
			break
		}
		fmt.Fprintf(out, "  %g × %s of %s, %s\n", c.Count, c.Op, humanize.IBytes(uint64(c.Bytes)), terminal.Escape(c.At))
	}
	if len(m.Calls) == 0 {
		fmt.Fprintln(out, "  no collective: does the recipe average its gradients?")
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nRANKS\tNODES\tSTEP\tCOMPUTE\tWAITING\tEFFICIENCY\t")
	for _, f := range all {
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%.1f %%\t\n", f.Ranks, f.Nodes, took(f.Step), took(f.Compute), took(f.Communication), 100*f.Efficiency)
	}
	return w.Flush()
}

func took(s float64) string {
	return time.Duration(s * 1e9).Round(time.Duration(max(1, s*1e9/1e3))).String()
}

var bandwidth = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9.]+)\s*([KMGT]?)(bit|bps|bit/s)$`) })

// parseLink reads BANDWIDTH,LATENCY.
func parseLink(text string) (l forecast.Link, err error) {
	speed, latency, ok := strings.Cut(text, ",")
	match := bandwidth().FindStringSubmatch(strings.TrimSpace(speed))
	if !ok || match == nil {
		return l, fmt.Errorf("want a bandwidth in bits per second (Kbit, Mbit, Gbit) and a latency")
	}
	bits, err := strconv.ParseFloat(match[1], 64)
	if err != nil || bits <= 0 {
		return l, fmt.Errorf("the bandwidth must be above 0")
	}
	wait, err := time.ParseDuration(strings.TrimSpace(latency))
	if err != nil || wait < 0 {
		return l, fmt.Errorf("%q is no time as in 5us or 0.2ms", latency)
	}
	for range strings.Index("KMGT", match[2]) + 1 {
		if match[2] != "" {
			bits *= 1000
		}
	}
	return forecast.Link{Bandwidth: bits / 8, Latency: wait.Seconds()}, nil
}
