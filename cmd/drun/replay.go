package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"drun/engine"
	"drun/engine/run"
	"drun/history"
	"drun/history/records"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/replay"
	"drun/runs/report"
)

func newReplay() *cobra.Command {
	var again againFlags
	cmd := &cobra.Command{
		Use:   "replay RUN",
		Short: "Run a recorded run again, and compare the bits",
		Long: `Runs the captured recipe of RUN again, in a temporary home, with the same parameters, seed, ranks and backend, and
compares all exact metrics, the digests of the parameters after each update, and what the recipe kept (drun artifacts),
bit for bit. Before it starts, it names data files that have changed since.
The first difference is printed with its step, metric and both values, and the exit code is 1.
RUN is an id, a name, or last. If the run did not finish successfully, what it recorded is compared.`,
		Example: `  drun replay last
  drun replay 7 --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return again.with(cmd, args[0], func(o run.Options, db *history.DB, id int64) error {
				r := try.To(replay.Replay(o, db, homeOf(cmd), id, again.params, tell(cmd)))
				text := fmt.Sprintf("the same bits: %d metric points", r.Compared)
				switch {
				case r.Same == nil:
					text = "it ran again, but there was nothing to compare: the run recorded no exact metric, updated no parameters and kept nothing"
				case !*r.Same:
					text = "different: " + difference(r.First, "recorded", "now")
				case r.Artifacts > 0:
					text += " and " + english.Plural(r.Artifacts, "artifact", "")
				}
				host, _ := os.Hostname() // only shown
				err := change(cmd, &conditions{}, []string{strconv.FormatInt(id, 10)}, func(db *history.DB, _ []int64) error {
					return db.AddReplay(id, history.Replay{Host: host, Version: version(), Same: r.Same, Result: text})
				})
				if err != nil { // the result does not depend on it
					tell(cmd)("the history does not say that the run was repeated: " + err.Error())
				}
				return cmp.Or(answer(cmd, r, "%s", text), failedIf(r.Same != nil && !*r.Same))
			})
		},
	}
	again.add(cmd.Flags())
	return cmd
}

// difference describes the first point at which two runs differ. a and b name the runs.
func difference(d *replay.Divergence, a, b string) string {
	what := fmt.Sprintf("%s at step %d", d.Metric, d.Step)
	switch {
	case d.Metric == replay.Parameters:
		what = fmt.Sprintf("the parameters after %d updates", d.Step)
	case d.Artifact != "":
		what = fmt.Sprintf("the artifact %s (%s)", d.Artifact, d.Kind) + atStep(d.Step >= 0, d.Step)
	}
	if d.Rank > 0 {
		what += fmt.Sprintf(" of rank %d", d.Rank)
	}
	value := func(v any) string {
		if v == nil {
			return "nothing"
		}
		return fmt.Sprint(v)
	}
	return terminal.Escape(fmt.Sprintf("%s: %s %s, %s %s", what, a, value(d.A), b, value(d.B)))
}

// tell prints what may keep a repeated run from giving the same result.
func tell(cmd *cobra.Command) func(string) {
	return func(text string) { fmt.Fprintf(cmd.ErrOrStderr(), "drun: %s\n", terminal.Escape(text)) }
}

// againFlags are the flags of commands that repeat a recorded run.
type againFlags struct {
	secrets []string // name=value
	params  []engine.Param
	options run.Options
}

func (a *againFlags) add(f *pflag.FlagSet) {
	f.StringArrayVarP(&a.secrets, "param", "p", nil, "the value of a secret parameter, as `name=value` (repeatable)")
	f.StringArrayVar(&a.options.Plugins, "plugin-dir", nil, "`folder` in which to look for the run's plugin first (repeatable)")
	f.DurationVar(&a.options.Timeout, "timeout", 5*time.Minute, "longest wait in a collective")
	f.IntVar(&a.options.Threads, "threads", 0, "kernel threads per rank (default: cores/ranks)")
	addDeviceFlag(f, &a.options)
}

// with finds the run, and prepares the options of its replay.
func (a *againFlags) with(cmd *cobra.Command, ref string, fn func(o run.Options, db *history.DB, id int64) error) error {
	a.parseSecrets()
	return withRun(cmd, ref, func(db *history.DB, id int64) error {
		d := try.To(db.Get(id))
		o := a.options
		o.Backend = d.Backend
		stop := try.To(prepare(cmd, &o))
		defer stop()
		o.Stdout, o.Stderr, o.Terminal = io.Discard, io.Discard, false
		return fn(o, db, id)
	})
}

func newAt() *cobra.Command {
	var again againFlags
	var file, metric string
	var rank int
	cmd := &cobra.Command{
		Use:   "at RUN STEP",
		Short: "Rebuild the state of a run at any step, and prove it",
		Long: `Rebuilds the state that RUN had at STEP: from the checkpoint of that step or, if there is none, by running
the captured recipe again from the nearest checkpoint before it, in a temporary home, up to that step. The digest of
the parameters after each update on the way must be the one that the run recorded; if one differs, the exit code is
1. --export writes the tensors into a .safetensors or .npz file, as drun checkpoints export does.
STEP is a step of checkpoint.save, even one that was not saved, or else a step of run.log.`,
		Example: `  drun at 7 1200
  drun at calm-otter 17 --export weights.safetensors
  drun at last 40 --metric loss`,
		RunE: func(cmd *cobra.Command, args []string) error {
			step, err := strconv.ParseInt(args[1], 10, 64)
			if err != nil {
				return usage("", "STEP wants a whole number, not %q", args[1])
			}
			if cmd.Flags().Changed("export") {
				try.Ok(newFile(file))
			}
			return again.with(cmd, args[0], func(o run.Options, db *history.DB, id int64) error {
				p := try.To(replay.At(o, db, homeOf(cmd), id, step, metric, again.params, tell(cmd)))
				defer p.Close()
				return tellAt(cmd, p, rank, file)
			})
		},
	}
	f := cmd.Flags()
	again.add(f)
	f.StringVar(&file, "export", "", "write the tensors into this new `file`, .safetensors or .npz")
	f.StringVar(&metric, "metric", "", "STEP is a step of the metric with this `name`")
	f.IntVar(&rank, "rank", 0, "the rank whose tensors are written")
	return cmd
}

func tellAt(cmd *cobra.Command, p *replay.Point, rank int, file string) error {
	result := struct {
		*replay.Point
		File    *string  `json:"file"`
		Bytes   int64    `json:"bytes"`
		LeftOut []string `json:"left_out"`
	}{Point: p, LeftOut: []string{}}
	if file != "" {
		k := report.Kept{Step: p.Step, Run: history.Summary{Name: p.Run}, Info: p.Info}
		result.Bytes, result.LeftOut = try.To2(writeTensors(cmd, p.Store, k, rank, file))
		result.File = &file
	}
	text := fmt.Sprintf("%s at step %d: ", p.Run, p.Step)
	if p.Digest == nil {
		text += "its checkpoint"
	} else {
		from := "the beginning"
		if p.From != nil {
			from = fmt.Sprintf("step %d", *p.From)
		}
		if p.FromRun != nil {
			from += " of run " + *p.FromRun
		}
		text += fmt.Sprintf("after %d updates, %d of them replayed from %s; digest %s, as recorded", p.Updates, p.Again, from, *p.Digest)
	}
	if file != "" {
		text += fmt.Sprintf("; %s in %s", humanize.IBytes(uint64(result.Bytes)), file)
	}
	return answer(cmd, result, "%s", text)
}

func newDiff() *cobra.Command {
	var again againFlags
	var trace bool
	cmd := &cobra.Command{
		Use:   "diff RUN RUN",
		Short: "Show why two runs differ: their inputs, the first metric, the first operation",
		Long: `Prints which inputs of two runs differ (parameters, recipe, data, seed, ranks, backend, machine,
versions), and the first step and metric at which the runs differ. With --trace both are run again, in a temporary home, from
the nearest state that they had in common to that step, and the first operation of the recipe whose result
differs is named with its line and rank. A RUN is an id, a name, or last.`,
		Example: `  drun diff 3 7
  drun diff calm-otter last --trace`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return again.with(cmd, args[0], func(o run.Options, db *history.DB, a int64) error {
				b := try.To(db.Find(args[1]))
				d, err := replay.Diff(o, db, homeOf(cmd), a, b, trace, again.params)
				if d == nil {
					return err
				}
				if wantsJSON(cmd) {
					return errors.Join(printJSON(cmd.OutOrStdout(), d), err)
				}
				untraced := err
				source := try.To(report.SourceDiff(db, a, b))
				try.Ok(printDifferences(cmd.OutOrStdout(), d, source, trace && untraced == nil))
				return untraced
			})
		},
	}
	cmd.Flags().BoolVar(&trace, "trace", false, "run both again, and name the first operation that differs")
	again.add(cmd.Flags())
	return cmd
}

func printDifferences(out io.Writer, d *replay.Differences, source string, traced bool) error {
	if len(d.Inputs) == 0 {
		fmt.Fprintln(out, "what went in is the same")
	}
	w := terminal.NewTable(out)
	if len(d.Inputs) > 0 {
		row(w, "WENT IN", "FIRST RUN", "SECOND RUN")
	}
	for _, in := range d.Inputs {
		row(w, in.What, inputText(in.What, in.A), inputText(in.What, in.B))
	}
	try.Ok(w.Flush())
	if source != "" {
		fmt.Fprintf(out, "\n%s\n", paintDiff(out, source))
	}
	if d.First == nil {
		fmt.Fprintln(out, "no metric differs")
	} else {
		fmt.Fprintf(out, "the first that differs is %s\n", difference(d.First, "first run", "second run"))
	}
	var err error
	switch op := d.Operation; {
	case !traced:
	case op == nil:
		_, err = fmt.Fprintln(out, "no operation has another result")
	default:
		side := func(line, op string) string {
			if op == "" {
				return "no further operation"
			}
			return op + " at " + line
		}
		text := side(op.Line, op.Op)
		if other := side(op.LineB, op.OpB); other != text {
			text += ", in the second run " + other
		}
		_, err = fmt.Fprintf(out, "the first operation with another result, on rank %d: %s\n", op.Rank, terminal.Escape(text))
	}
	return err
}

func inputText(what string, v any) string {
	kind := "data"
	if strings.HasPrefix(what, "params.") {
		kind = "parameter"
	}
	if f, is := v.(records.Float); is {
		v = f.String()
	}
	return terminal.Escape(comparedText(kind, v))
}

func newVerifyResume() *cobra.Command {
	var o run.Options
	var nproc string
	var kills int
	cmd := &cobra.Command{
		Use:   "verify-resume RECIPE.star",
		Short: "Prove that a recipe's run survives kills with the same bits",
		Long: `Runs a recipe twice in a temporary home: undisturbed, and with ranks killed (SIGKILL) at
random moments between the first checkpoint and the end, after each of which all ranks
start again. Then compares all metrics that are exact, and the last checkpoint, bit for bit.
A difference is named, and ends with exit code 1.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Nproc = try.To(ranks(nproc))
			if kills < 1 {
				return usage("", "--kills %d: at least one is needed", kills)
			}
			stop := try.To(prepare(cmd, &o))
			defer stop()
			o.Recipe, o.Stdout, o.Stderr, o.Terminal = args[0], io.Discard, io.Discard, false
			r := try.To(replay.Resume(o, kills, rand.New(rand.NewPCG(rand.Uint64(), 0)), func(text string) { fmt.Fprintf(cmd.ErrOrStderr(), "verify-resume: %s\n", text) }))
			text := fmt.Sprintf("the same bits after %s: %s, %s of the last checkpoint", english.Plural(r.Kills, "kill", ""), english.Plural(r.Points, "metric point", ""), humanize.Bytes(uint64(r.Bytes)))
			if !r.Same {
				text = fmt.Sprintf("different after %s: %s", english.Plural(r.Kills, "kill", ""), r.First)
			}
			err := answer(cmd, map[string]any{"same": r.Same, "kills": r.Kills}, "%s", text)
			if !r.Same && !wantsJSON(cmd) {
				fmt.Fprintf(cmd.ErrOrStderr(), "  hint: %s\n", replay.Forgotten)
			}
			return cmp.Or(err, failedIf(!r.Same))
		},
	}
	f := cmd.Flags()
	addRecipeFlags(f, &o, &nproc)
	f.IntVar(&kills, "kills", 5, "how many kills the run must survive")
	return cmd
}
