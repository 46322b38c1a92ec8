package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"drun/engine"
	"drun/engine/run"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/replay"
)

func newReplay() *cobra.Command {
	var again againFlags
	cmd := &cobra.Command{
		Use:   "replay RUN",
		Short: "Run a recorded run again, and compare the bits",
		Long: `Runs again the recipe that the history has captured with RUN, in a temporary home, with the
same parameters, seed, ranks and backend, and compares all metrics that are exact, the digests of the
parameters after each update, and what the recipe kept (drun artifacts), bit for bit. Data files that have changed since are named before it starts.
The first difference is printed with its step, metric and both values, and the exit code is 1.
RUN is an id, a name, or last. If the run did not finish successfully, what it recorded is compared.`,
		Example: `  drun replay last
  drun replay 7 --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return again.with(cmd, args[0], func(o run.Options, db *history.DB, id int64) error {
				r, err := replay.Replay(o, db, homeOf(cmd), id, again.params, tell(cmd))
				if err != nil {
					return err
				}
				text := fmt.Sprintf("the same bits: %d metric points", r.Compared)
				switch {
				case r.Same == nil:
					text = "it ran again, but there was nothing to compare: the run recorded no exact metric, updated no parameters and kept nothing"
				case !*r.Same:
					text = "different: " + difference(r.First, "recorded", "now")
				case r.Artifacts > 0:
					text += " and " + english.Plural(r.Artifacts, "artifact", "")
				}
				err = answer(cmd, r, "%s", text)
				if err == nil && r.Same != nil && !*r.Same {
					err = exitStatus(exit.Recipe)
				}
				return err
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
}

// with finds the run, and prepares the options of its replay.
func (a *againFlags) with(cmd *cobra.Command, ref string, fn func(o run.Options, db *history.DB, id int64) error) error {
	for _, text := range a.secrets {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return usage("", "-p %s: want name=value", text)
		}
		a.params = append(a.params, engine.Param{Name: name, Value: value})
	}
	return withRun(cmd, ref, func(db *history.DB, id int64) (err error) {
		defer try.Caught(&err)
		d := try.To(db.Get(id))
		o := a.options
		o.Backend = d.Backend
		stop := try.To(prepare(cmd, &o))
		defer stop()
		o.Stdout, o.Stderr, o.Terminal = io.Discard, io.Discard, false
		return fn(o, db, id)
	})
}
