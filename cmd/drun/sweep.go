package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"drun/engine/run"
	"drun/history"
	"drun/history/query"
	"drun/history/records"
	"drun/internal/each"
	"drun/internal/elapsed"
	"drun/internal/exit"
	"drun/internal/secret"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/sweep"
)

func newSweep() *cobra.Command {
	var o run.Options
	var s sweepFlags
	var nproc string
	cmd := &cobra.Command{
		Use:   "sweep RECIPE.star",
		Short: "Run a recipe with many combinations of parameters",
		Long: `Runs a recipe once for each combination of the values that -p gives, as -p lr=0.1,0.01 -p batch=32,64, and prints a
table of all runs at the end. With --random N it draws N combinations, from lists and from ranges: -p lr=1e-4..1e-1:log
draws floats evenly on a logarithmic scale, -p layers=1..8 whole numbers. A comma within a value is written \,; those
within a list, as in -p 'widths=[64,64],[128]', need no backslash.

A combination that has a finished run with the same recipe, seed, ranks and data is not run again, so a sweep that was
interrupted goes on with the same command. If a run fails, the others go on. drun logs has what the ranks print.
--plan only says what would run.

With --early-stop METRIC a run that has logged some points of the metric is compared with those of the combinations before
it at the same number of points, and ended unless it is among the best third; then at 3 times as many points, and so on
(successive halving). Which runs are ended depends on their values alone, not on which was faster; a run that
finishes before it can be ended is done, but never the best. With several seeds the runs with the first are compared; those
with the others follow for combinations that were not ended. Runs that were ended early have the status "stopped early".
The same sweep takes them as they are when it is repeated; one with other combinations or settings reruns those that it
would not have ended.

drun show of a run names its sweep, which has the same name whenever it is repeated, and the command that goes on with it.`,
		Example: `  drun sweep train.star -p lr=0.1,0.01 -p batch=32,64 -n 2 --jobs 2
  drun sweep train.star -p lr=1e-4..1e-1:log -p layers=1..8 --random 20 --seed 3
  drun sweep train.star -p lr=0.1,0.01 --sort -metrics.acc.last
  drun sweep train.star -p lr=1e-5..1:log --random 50 --jobs 4 --early-stop loss --early-stop-after 100`,
		RunE: func(cmd *cobra.Command, args []string) error {
			n := try.To(ranks(nproc))
			o.Recipe, o.Nproc = args[0], n
			return s.sweep(cmd, o)
		},
	}
	f := cmd.Flags()
	addRecipeFlags(f, &o, &nproc)
	f.Lookup("param").Usage = "values of a parameter, as `name=value,value…`, or a range for --random (repeatable)"
	seeds := pflag.NewFlagSet("", pflag.ContinueOnError)
	seeds.Int64SliceVar(&s.seeds, "seed", nil, "")
	seed := f.Lookup("seed")
	seed.Value, seed.Usage = seeds.Lookup("seed").Value, "seeds of all runs, as `N,N…`: each combination runs once with each, and the table has mean ± standard deviation; the first is that of the draws of --random"
	f.StringArrayVar(&o.Tags, "tag", nil, "`tag` of the runs (repeatable)")
	s.follow.add(f)
	f.IntVar(&o.Keep, "keep", 0, "keep the newest `N` checkpoints of each run and the best (default: keep all)")
	f.IntVar(&o.MaxRestarts, "max-restarts", 0, "how many times all ranks of a run start again, after one has failed or was lost")
	f.DurationVar(&o.Grace, "grace", defaultGrace, "time that a recipe with run.should_stop has to end by itself after a signal")
	f.VisitAll(func(flag *pflag.Flag) { // what a run on a target takes over
		if flag.Name != "param" && flag.Name != "seed" {
			flag.Value = &noted{flag.Value, flag.Name, &s.job.given}
		}
	})
	f.StringVar(&s.on, "on", "", "run the cells on a `target` of drun submit, as one job array on Slurm; the command waits for them")
	f.StringVar(&s.nodes, "nnodes", "1", "with --on: nodes of each run")
	s.job.more(f)
	f.IntVar(&s.random, "random", 0, "draw `N` combinations instead of running all")
	f.IntVar(&s.jobs, "jobs", 1, "runs at a time")
	f.StringVar(&s.hosts, "hosts", "", "start a node of each run on each of these `hosts` by ssh, as drun run does; the first is this machine")
	f.StringVar(&s.early, "early-stop", "", "end runs early whose `METRIC` is large compared with that of others; -METRIC: small")
	f.IntVar(&s.first, "early-stop-after", 1, "points of the metric of rank 0 at which runs are compared first; then after 3, 9, 27, … times as many")
	f.BoolVar(&s.plan, "plan", false, "say what would run, and run nothing")
	f.StringVar(&s.sort, "sort", "", "sort the table by the expression `KEY`, as drun runs does")
	f.StringVar(&s.minimize, "minimize", "", "sort the table by the last value of `METRIC`, the smallest first, and name the best combination; -METRIC: the largest")
	cmd.MarkFlagsMutuallyExclusive("sort", "minimize")
	return cmd
}

type sweepFlags struct {
	follow       serverFlags
	random, jobs int
	plan         bool
	sort         string
	minimize     string
	early        string
	first        int
	seeds        []int64
	hosts        string
	on, nodes    string
	job          submission
}

func (f *sweepFlags) sweep(cmd *cobra.Command, o run.Options) error {
	if f.jobs < 1 || f.jobs > run.MaxHere {
		return usage("", "--jobs %d: want 1 to %d", f.jobs, run.MaxHere)
	}
	if f.first < 1 || cmd.Flags().Changed("early-stop") && strings.TrimPrefix(f.early, "-") == "" {
		return usage("for example --early-stop loss --early-stop-after 3, or --early-stop -acc", "--early-stop wants a metric, and --early-stop-after at least 1 point")
	}
	if early, largest := strings.CutPrefix(f.early, "-"); early != "" && early == strings.TrimPrefix(f.minimize, "-") && largest != strings.HasPrefix(f.minimize, "-") {
		return usage("a leading - means that large values are good", "--early-stop %s and --minimize %s: one of them calls small values of %s good, the other large ones", f.early, f.minimize, early)
	}
	try.Ok(f.checkOn(cmd, &o))
	var key *query.Key
	if f.sort != "" {
		k := try.To(query.ParseKey(f.sort))
		key = &k
	}
	if len(f.seeds) > 0 {
		o.Seed = f.seeds[0]
	}
	cells, seeds := try.To(f.cells(cmd, o)), []int64(nil)
	if len(f.seeds) > 1 {
		one := cells
		cells = nil
		for _, c := range one {
			for _, seed := range f.seeds {
				cells, seeds = append(cells, c), append(seeds, seed)
			}
		}
	}
	o.Params = nil
	stop := try.To(prepare(cmd, &o))
	defer stop()
	// Each run is recorded as if it had been started alone.
	o.Command = []string{"drun", "run", o.Recipe, "-n", strconv.Itoa(o.Nproc)}
	here := o.Nproc
	if cmd.Flags().Changed("hosts") {
		o.Command = append(o.Command, "--hosts", f.hosts)
		o.Nproc = try.To(worldOn(f.hosts, here))
	}
	if o.Backend != "" {
		o.Command = append(o.Command, "--backend", o.Backend)
	}
	o.Command = append(o.Command, strings.Fields(deviceFlags(&o))...)
	for _, dir := range o.DataDirs {
		o.Command = append(o.Command, "--data", dir)
	}
	if o.ParamFile != "" {
		o.Command = append(o.Command, "--params", o.ParamFile)
	}
	if o.Deterministic != nil {
		o.Command = append(o.Command, fmt.Sprintf("--deterministic=%v", *o.Deterministic))
	}
	// What it runs names a sweep, so that it has the same name whenever it is repeated.
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %q %d %s %d", o.Recipe, cells, seeds, f.early, f.first))
	o.Sweep = &records.Sweep{Name: fmt.Sprintf("sweep-%x", sum[:4]), Cells: len(cells), Command: secret.Arguments(os.Args)}
	s := &sweep.Sweep{Options: o, Cells: cells, Seeds: seeds, PerCombination: len(f.seeds), Jobs: f.jobs}
	if cmd.Flags().Changed("hosts") {
		threads := o.Threads
		s.Start = func(o run.Options) (*run.Result, error) { return runCellOnHosts(cmd, f.hosts, here, threads, o) }
	}
	if f.early != "" {
		metric, largest := strings.CutPrefix(f.early, "-")
		s.Halving = &sweep.Halving{Metric: metric, Largest: largest, First: f.first, Factor: 3}
	}
	plan := try.To(s.Plan())
	errs := cmd.ErrOrStderr()
	if f.plan {
		return printPlan(cmd, plan, seeds != nil)
	}
	there := 0
	for _, o := range plan {
		if o.Result != nil {
			there++
		}
	}
	fmt.Fprint(errs, english.Plural(len(plan), "cell", ""))
	switch {
	case there == len(plan):
		fmt.Fprint(errs, ", finished before")
	case there > 0:
		fmt.Fprintf(errs, ", %d of them finished before", there)
	}
	fmt.Fprintln(errs)
	live := newLiveSweep(errs, o.Home)
	s.Options.OnEntered = live.add
	end := try.To(f.follow.follow(cmd, &s.Options))
	defer end()
	count, looked := there, false
	look := func(o *sweep.Outcome) { // as soon as there is a run to look at
		if o.Done() && !looked {
			looked = true
			f.sayUnlogged(cmd, o.Result.ID)
		}
	}
	for i := range plan {
		look(&plan[i])
	}
	tell := func(i int) {
		live.mu.Lock()
		defer live.mu.Unlock()
		live.clear()
		count++
		text := plan[i].Cell.String()
		if seeds != nil {
			text = strings.TrimSpace(fmt.Sprintf("%s seed=%d", text, plan[i].Seed))
		}
		sayEnded(errs, &plan[i], text, count, len(plan))
		look(&plan[i])
	}
	var interrupted bool
	if f.on != "" {
		interrupted = try.To(f.runOn(cmd, o, plan, tell))
	} else {
		interrupted = s.Run(plan, tell)
	}
	live.close()
	try.Ok(f.table(cmd, plan, key))
	failed, open, left := 0, 0, 0
	var late []string // runs that were faster than the comparison
	for i := range plan {
		switch {
		case plan[i].Done() && plan[i].Stopped > 0:
			late = append(late, whole(plan[i].Result.ID))
		case plan[i].Result == nil && plan[i].Stopped > 0:
			left++
		case plan[i].Stopped > 0:
		case plan[i].Result == nil && plan[i].Err == nil:
			open++
		case !plan[i].Done():
			failed++
		}
	}
	if len(late) > 0 {
		fmt.Fprintf(errs, "%s %s finished before --early-stop could end %s: worse than others\n", english.PluralWord(len(late), "run", ""), english.WordSeries(late, "and"), english.PluralWord(len(late), "it", "them"))
	}
	if left > 0 {
		fmt.Fprintf(errs, "%s not run: other seeds of combinations that were ended early\n", english.Plural(left, "cell", ""))
	}
	if interrupted {
		fmt.Fprintf(errs, "interrupted with %d cells to run: the same command goes on\n", open+failed)
		return exitStatus(exit.Interrupted)
	}
	if failed > 0 {
		fmt.Fprintf(errs, "%d of %d cells failed; the same command runs them again\n", failed, len(plan))
		return exitStatus(exit.Recipe)
	}
	return nil
}

func (f *sweepFlags) cells(cmd *cobra.Command, o run.Options) ([]sweep.Cell, error) {
	axes := each.Of(o.Params, func(text string) sweep.Axis { return try.To(sweep.ParseAxis(text)) })
	if cmd.Flags().Changed("random") {
		cells, err := sweep.Random(axes, f.random, o.Seed)
		if err == nil && len(cells) < f.random {
			fmt.Fprintf(cmd.ErrOrStderr(), "there are only %d combinations to draw\n", len(cells))
		}
		return cells, err
	}
	return sweep.Grid(axes)
}

// sayEnded prints a line for a cell that has ended.
func sayEnded(errs io.Writer, o *sweep.Outcome, text string, nth, all int) {
	r := o.Result
	if r != nil {
		how := r.Code.Status()
		if o.Stopped > 0 {
			how = "ended early"
		}
		text = fmt.Sprintf("run %d %s: %s in %s, %s", r.ID, r.Name, how, elapsed.Text(r.Seconds), text)
	}
	switch {
	case r == nil:
		first, _, _ := strings.Cut(o.Err.Error(), "\n")
		text += ": " + first
	case o.Stopped > 0:
		text += fmt.Sprintf(": worse than others after %d points", o.Stopped)
	case r.Failure != nil:
		first, _, _ := strings.Cut(r.Failure.Text(r.Ranks), "\n")
		text += ": " + first
	}
	fmt.Fprintf(errs, "[%d/%d] %s\n", nth, all, terminal.Escape(text))
}

func printPlan(cmd *cobra.Command, plan []sweep.Outcome, seeded bool) error {
	type cell struct {
		Params []string `json:"params"`
		Seed   *int64   `json:"seed,omitempty"` // of several
		Run    *int64   `json:"run"`            // the run that has finished or was ended early; null: it would be run

		stopped int
	}
	list := []cell{}
	for i, o := range plan {
		c := cell{Params: o.Cell, stopped: o.Stopped}
		if seeded {
			c.Seed = &plan[i].Seed
		}
		if o.Result != nil {
			c.Run = &o.Result.ID
		}
		list = append(list, c)
	}
	return show(cmd, list, func(out io.Writer, list []cell) error {
		w := terminal.NewTable(out)
		for _, c := range list {
			what := "would run"
			if c.Run != nil {
				what = "run " + whole(*c.Run)
			} else if c.stopped > 0 {
				what = "would not run"
			}
			if c.stopped > 0 {
				what += fmt.Sprintf(", ended early: worse than others after %d points", c.stopped)
			}
			params := slices.Clone(c.Params)
			if c.Seed != nil {
				params = append(params, fmt.Sprintf("seed=%d", *c.Seed))
			}
			row(w, append(params, what))
		}
		return w.Flush()
	})
}

// table prints the runs of the sweep, in cell order or as --sort says.
func (f *sweepFlags) table(cmd *cobra.Command, plan []sweep.Outcome, key *query.Key) error {
	ids := []int64{}
	swept := []string{}
	for i := range plan {
		if r := plan[i].Result; r != nil {
			ids = append(ids, r.ID)
		}
		for _, p := range plan[i].Cell {
			if name, _, _ := strings.Cut(p, "="); !slices.Contains(swept, name) {
				swept = append(swept, name)
			}
		}
	}
	db, err := history.OpenReadOnly(homeOf(cmd))
	if errors.As(err, new(*history.ErrNone)) {
		return show(cmd, []history.Summary{}, func(io.Writer, []history.Summary) error { return nil })
	}
	try.Ok(err)
	defer db.Close()
	if key != nil {
		sorted, unknown := try.To2(query.Choose(db, false, nil, []query.Key{*key}))
		for _, note := range unknown {
			fmt.Fprintln(cmd.ErrOrStderr(), terminal.Escape(note))
		}
		ids = slices.DeleteFunc(sorted, func(id int64) bool { return !slices.Contains(ids, id) })
	}
	runs := try.To(db.Summaries(ids))
	metric := strings.TrimPrefix(f.early, "-")
	if f.early != "" && !slices.ContainsFunc(runs, func(r history.Summary) bool { return r.Metrics[metric].Count >= int64(f.first) }) {
		fmt.Fprintf(cmd.ErrOrStderr(), "--early-stop %s compared nothing: no run logged %s of %s; the metrics are %s\n", terminal.Escape(f.early),
			english.Plural(f.first, "point", ""), terminal.Escape(metric), terminal.Escape(strings.Join(metricNames(runs), ", ")))
	}
	all := combine(plan, runs)
	if f.minimize != "" {
		runs = f.rank(cmd, all)
	}
	return show(cmd, runs, func(out io.Writer, runs []history.Summary) error {
		if len(f.seeds) > 1 {
			return printCombinations(out, all, swept)
		}
		return printSweep(out, runs, swept)
	})
}

// sayUnlogged warns once the first run is done, and not only at the end, that it has not logged a metric that a flag names.
func (f *sweepFlags) sayUnlogged(cmd *cobra.Command, run int64) {
	db, err := history.OpenReadOnly(homeOf(cmd))
	if err != nil {
		return
	}
	defer db.Close()
	runs, err := db.Summaries([]int64{run})
	if err != nil || len(runs) == 0 {
		return
	}
	names := metricNames(runs)
	for _, flag := range [][2]string{{"early-stop", f.early}, {"minimize", f.minimize}} {
		if metric := strings.TrimPrefix(flag[1], "-"); metric != "" && !slices.Contains(names, metric) {
			fmt.Fprintf(cmd.ErrOrStderr(), "drun: warning: --%s %s: run %d has not logged it; its metrics are %s\n", flag[0], terminal.Escape(flag[1]), run, terminal.Escape(strings.Join(names, ", ")))
		}
	}
}

// metricNames are the metrics that any of the runs has, sorted.
func metricNames(runs []history.Summary) []string {
	names := map[string]bool{}
	for _, r := range runs {
		for name := range r.Metrics {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func printSweep(out io.Writer, runs []history.Summary, swept []string) error {
	paint := painterFor(out)
	columns := []column[history.Summary]{
		{"ID", func(r history.Summary) any { return whole(r.ID) }},
		{"NAME", func(r history.Summary) any { return r.Name }},
		{"STATUS", func(r history.Summary) any { return paint.status(r.Status) }},
	}
	for _, name := range swept {
		columns = append(columns, column[history.Summary]{name, func(r history.Summary) any { return paramOrNone(r, name) }})
	}
	for _, name := range metricNames(runs) {
		columns = append(columns, column[history.Summary]{name, func(r history.Summary) any {
			if m, has := r.Metrics[name]; has {
				return number(m.Last)
			}
			return "-"
		}})
	}
	return printList(out, runs, append(columns, column[history.Summary]{"SECONDS", func(r history.Summary) any { return known(r.Seconds, tenths) }}))
}
