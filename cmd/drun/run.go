package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"drun/engine/cluster"
	"drun/engine/console"
	"drun/engine/recipe"
	"drun/engine/record"
	"drun/engine/rendezvous"
	"drun/engine/run"
	"drun/history"
	"drun/internal/elapsed"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/kernel/opencl"
	"drun/plugins/host"
	"drun/runs/report"
	"drun/runs/submit"
	"drun/tools/check"
)

func newRun() *cobra.Command {
	var o run.Options
	var nproc string
	var join joinFlags
	var logs logFlags
	var follow serverFlags
	cmd := &cobra.Command{
		Use:        "run RECIPE.star",
		SuggestFor: []string{"train", "exec", "start"},
		Short:      "Run a recipe",
		Long:       "Runs a recipe once per rank, and records what it logs in the history.\nSIGINT, SIGTERM and SIGHUP end a run at once. A recipe that calls run.should_stop may end by itself first: it has\nuntil --grace is over or a second signal comes. SIGUSR1 only sets run.should_stop; SIGQUIT shows what every rank is\ndoing, and the run goes on.\nWith --json the last line on stdout is the run as drun show --json prints it.\nWith --help after the recipe's name: the recipe's docstring and parameters.",
		RunE: func(cmd *cobra.Command, args []string) error {
			n := try.To(ranks(nproc))
			o.Recipe, o.Nproc = args[0], n
			file, own := try.To2(submit.ReadFile(o.Recipe))
			if file != nil {
				o.Capture(&file.Bundle)
				o.UID, o.Sweep, o.Name, o.Filed = own.UID, file.Sweep, cmp.Or(o.Name, own.Name), file.Filed
			}
			o.LogFiles = try.To(logs.files())
			if join.launched {
				join.given = try.To(obeyLauncher(cmd.InOrStdin(), cmd.ErrOrStderr()))
				announce(&o, cmd.ErrOrStderr())
			} else if cmd.Flags().Changed("hosts") {
				try.Ok(o.Read()) // errors are told once, and before anything is started
				return join.onItsHosts(cmd, func(procs int, joining *cluster.Joining) error {
					if procs > 0 {
						o.Nproc = try.To(ranks(strconv.Itoa(procs)))
					}
					o.Join = joining
					return runRecipe(cmd, o, follow, false)
				})
			}
			o.Join = try.To(join.joining(cmd, &o.Nproc))
			return runRecipe(cmd, o, follow, join.launched && o.Join != nil && o.Join.Index != 0)
		},
	}
	f := cmd.Flags()
	addRecipeFlags(f, &o, &nproc)
	f.BoolVar(&o.KeepSecrets, "keep-secrets", false, "record the values of parameters whose names contain the word key, token, password or secret")
	f.StringVar(&o.Name, "name", "", "name of the run (default: two words)")
	f.StringArrayVar(&o.Tags, "tag", nil, "`tag` of the run (repeatable)")
	f.StringVar(&o.Resume, "resume", "", "continue from a checkpoint, `RUN[@STEP or @best]`, or with weights from FILE.safetensors or .npz; auto: continue the run that --name names, or begin it")
	f.BoolVar(&o.Reuse, "reuse", false, "if a finished run has the same recipe, parameters, seed, ranks and data, return that run instead of running again")
	f.StringVar(&o.RankOutput, "rank-output", "all", "whose output to show: all, none, or `ranks` such as 0 or 0,4-7; the history keeps all")
	logs.add(f)
	f.IntVar(&o.Keep, "keep", 0, "keep the newest `N` checkpoints of the run and the best, and remove the others (default: keep all)")
	f.IntVar(&o.MaxRestarts, "max-restarts", 0, "how many times all ranks start again, from the newest checkpoint, after one has failed or was lost")
	f.Var(&auditFlag{&o}, "audit", "notice processors that compute wrongly: compute this `share` of all operations twice, and compare parameters that ranks have in common after each update (0 to 1; without a value 0.0025)")
	f.Lookup("audit").NoOptDefVal = "0.0025" // which costs some 3 % of a run's time
	f.BoolVar(&o.AuditAbort, "audit-abort", false, "with --audit: end the run at the first wrong result, instead of going back to the newest checkpoint")
	f.DurationVar(&o.Grace, "grace", defaultGrace, "time that a recipe with run.should_stop has to end by itself after a signal")
	join.add(f)
	follow.add(f)
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		switch name {
		case "nproc-per-node", "nproc_per_node": // torchrun's
			name = "nproc"
		case "max_restarts", "log_dir":
			name = strings.ReplaceAll(name, "_", "-")
		}
		return pflag.NormalizedName(normalizeJoin(name))
	})
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if recipe := cmd.Flags().Arg(0); recipe != "" {
			if err := describe(cmd, recipe); err != nil {
				exitHelp(reportError(cmd.ErrOrStderr(), err))
			}
			return
		}
		help(cmd, args)
	})
	return cmd
}

// auditFlag is the value of --audit.
type auditFlag struct{ o *run.Options }

func (a *auditFlag) Type() string { return "share" }
func (a *auditFlag) String() string {
	if a.o == nil || a.o.Audit == 0 {
		return ""
	}
	return strconv.FormatFloat(a.o.Audit, 'g', -1, 64)
}

func (a *auditFlag) Set(text string) error {
	share, err := strconv.ParseFloat(text, 64)
	if err != nil || !(share > 0 && share <= 1) {
		return errors.New("the share must be above 0 and at most 1")
	}
	a.o.Audit = share
	return nil
}

// addRecipeFlags adds the flags that decide what a recipe computes.
func addRecipeFlags(f *pflag.FlagSet, o *run.Options, nproc *string) {
	f.StringVarP(nproc, "nproc", "n", "1", "ranks on this machine: a number, cpu (one for each core), gpu (one for each GPU) or auto (gpu where there is one, else cpu)")
	f.StringVar(&o.Backend, "backend", defaultBackend(), "backend of the collectives: shm or the `name` of a plugin ($DRUN_BACKEND, $TORCH_DISTRIBUTED_BACKEND; default shm, on several nodes gloo or nccl)")
	f.BoolFunc("deterministic", "add in rank order, for the same bits as shm; false: in the backend's own order (default: true, except for backends that are much slower in rank order, such as nccl)", func(text string) error {
		v, err := strconv.ParseBool(text)
		o.Deterministic = &v
		return err
	})
	f.StringArrayVar(&o.Plugins, "plugin-dir", nil, "`folder` in which to look for plugins first (repeatable)")
	f.StringArrayVarP(&o.Params, "param", "p", nil, "set a parameter of the recipe, as `name=value` (repeatable)")
	f.StringVar(&o.ParamFile, "params", "", "set parameters of the recipe from a JSON or TOML `file`; -p overrides it")
	f.Int64Var(&o.Seed, "seed", 0, "seed of all random numbers (default: that of the run that is resumed, or 0)")
	f.DurationVar(&o.Timeout, "timeout", 5*time.Minute, "longest wait in a collective")
	addDeviceFlag(f, o)
	f.Func("device-bits", "`any`: compute on a device whose bits differ from the processor's, and record that", func(text string) error {
		if text != "any" && text != "cpu" {
			return errors.New("it is cpu or any")
		}
		o.OtherBits = text == "any"
		return nil
	})
	f.IntVar(&o.Threads, "threads", 0, "kernel threads per rank (default: cores/ranks)")
	f.StringArrayVar(&o.DataDirs, "data", nil, "another `folder` that the recipe may read, besides its own (repeatable)")
}

// logFlags are torchrun's flags of files with the ranks' output.
type logFlags struct{ dir, redirects, tee string }

func (l *logFlags) add(f *pflag.FlagSet) {
	f.StringVar(&l.dir, "log-dir", "", "`folder` for files with the ranks' output, as RUN/attempt_N/RANK/stdout.log; the history keeps it in any case")
	f.StringVarP(&l.redirects, "redirects", "r", "0", "what goes to the files of --log-dir and is not shown: 0 nothing, 1 stdout, 2 stderr, 3 both; 0:3,1:2 says so for each `local rank`")
	f.StringVarP(&l.tee, "tee", "t", "0", "what goes to the files of --log-dir and is shown, too, as --redirects (default: 3 where --log-dir is given without --redirects)")
}

func (l *logFlags) files() (_ *console.Files, err error) {
	out := &console.Files{Dir: l.dir}
	if l.dir != "" && l.redirects == "0" && l.tee == "0" {
		l.tee = "3"
	}
	if out.Redirects, err = console.ParseStreams(l.redirects); err != nil {
		return nil, usage("", "--redirects: %v", err)
	}
	if out.Tee, err = console.ParseStreams(l.tee); err != nil {
		return nil, usage("", "--tee: %v", err)
	}
	return out, nil
}

// exitHelp ends the process from within a help function, which cannot return an error.
var exitHelp = os.Exit

// ranks parses -n.
func ranks(text string) (int, error) {
	n, err := rendezvous.Procs(text)
	switch {
	case err != nil:
		return 0, usage("cpu starts one rank for each core, gpu one for each GPU, auto one for each GPU or, where there is none, each core", "-n %s: %v", text, err)
	case n < 1:
		return 0, usage("", "-n %d: a run has at least 1 rank", n)
	case n > run.MaxHere:
		return 0, usage("", "-n %d: at most %d ranks fit on one machine", n, run.MaxHere)
	}
	return n, nil
}

const defaultGrace = 30 * time.Second

// runRecipe runs a recipe and says how it ended; if quiet, node 0 says that to the same reader.
func runRecipe(cmd *cobra.Command, o run.Options, follow serverFlags, quiet bool) (err error) {
	defer try.Caught(&err)
	if cmd.Flags().Changed("resume") && o.Resume == "" {
		return usage("is a variable of the shell not set?", "--resume is empty: want RUN[@STEP or @best], a file of weights, or auto")
	}
	if o.MaxRestarts < 0 {
		return usage("", "--max-restarts %d: the number cannot be negative", o.MaxRestarts)
	}
	o.Import = func(file string) (string, error) {
		made, err := importFile(homeOf(cmd), file, "", 0, true)
		if err != nil {
			return "", fmt.Errorf("--resume %s: %w", file, err)
		}
		return made.Run, nil
	}
	stop := try.To(prepare(cmd, &o))
	defer stop()
	end := try.To(follow.follow(cmd, &o))
	if !quiet {
		o.Check = func(b *recipe.Bundle) ([]string, *run.Fault) { return checked(b, o.Nproc > 1 || o.Join != nil) }
	}
	result, err := run.Run(o)
	end()
	if quiet && errors.As(err, new(run.FirstProcessError)) {
		return exitStatus(exit.CodeOf(err))
	}
	try.Ok(err)
	if quiet {
		return exitStatus(result.Code)
	}
	out := cmd.ErrOrStderr()
	if f := result.Failure; f != nil {
		fmt.Fprintf(out, "drun: %s\n", terminal.Lines(f.Text(result.Ranks)))
		if text := result.RanksAtFailure(); text != "" {
			fmt.Fprintln(out, terminal.Lines(text))
		}
		if f.Hint != "" {
			fmt.Fprintf(out, "  hint: %s\n", terminal.Lines(f.Hint))
		}
	}
	if o.Join != nil && o.Join.Index != 0 {
		fmt.Fprint(out, o.Join.Name()+" of ")
	}
	if wantsJSON(cmd) && (o.Join == nil || o.Join.Index == 0) {
		if err := printResult(cmd, result); err != nil {
			fmt.Fprintf(out, "drun: the run's summary cannot be read: %s\n", terminal.Lines(err.Error()))
		}
	}
	resume := ""
	if result.Code == exit.Interrupted && result.Saved {
		resume = "; to continue: " + howToContinue(cmd, &o, result.Name, o.Join != nil)
		if o.Resume == record.Auto {
			resume = "; the same command continues it"
		}
	}
	if result.Reused {
		fmt.Fprintf(out, "run %d %s has the same recipe, parameters, seed, ranks and data, and is done: nothing was run\n", result.ID, terminal.Escape(result.Name))
		return nil
	}
	if o.Resume != "" && o.Resume != record.Auto && result.Code == exit.Done && !result.Saved {
		sayIdle(cmd, result)
	}
	fmt.Fprintf(out, "run %d %s: %s in %s%s\n", result.ID, terminal.Escape(result.Name), result.Code.Status(), elapsed.Text(result.Seconds), resume)
	if result.Code != exit.Done {
		return exitStatus(result.Code)
	}
	return nil
}

// sayIdle tells the user if a resumed run has done nothing, because its recipe had already finished where it was resumed.
func sayIdle(cmd *cobra.Command, result *run.Result) {
	db, err := history.OpenReadOnly(homeOf(cmd))
	if err != nil {
		return
	}
	defer db.Close()
	if d, err := db.Get(result.ID); err == nil && len(d.Metrics) == 0 && d.Parent != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "drun: the run has recorded and saved nothing: run %s may have been at its end at step %d; -p gives the recipe more to do\n", terminal.Escape(d.Parent.Name), d.Parent.Step)
	}
}

// mostWarnings limits how many lines a run shows of what drun check finds.
const mostWarnings = 5

// checked returns what drun check finds in a recipe: warnings, those about ranks only if there are several, and a fault
// that is certain to end the run.
func checked(b *recipe.Bundle, several bool) (notes []string, certain *run.Fault) {
	found, _, err := check.NewRecipes().Inspect(b, nil, false)
	if err != nil {
		return nil, nil // the run reports it
	}
	for _, f := range found {
		switch {
		case f.Certain:
			return nil, &run.Fault{File: f.File, Line: f.Line, Col: f.Col, Message: f.Message}
		case f.Severity == check.Error || several:
			notes = append(notes, fmt.Sprintf("drun: warning: %s:%d:%d: %s", f.File, f.Line, f.Col, f.Message))
		}
	}
	if more := len(notes) - mostWarnings; more > 0 {
		notes = append(notes[:mostWarnings], fmt.Sprintf("drun: %d more: drun check %s", more, b.Name))
	}
	return notes, nil
}

// howToContinue says how a run is resumed. A run of several processes, which a launcher may have started, needs the
// same commands again: other nodes or numbers of ranks would make another world.
func howToContinue(cmd *cobra.Command, o *run.Options, name string, several bool) string {
	if several {
		which := "the same command on every node"
		if slices.ContainsFunc(o.Command, func(arg string) bool { return strings.HasPrefix(arg, "--hosts") || arg == "--launched" }) {
			which = "the same command"
		}
		return which + ", with --resume " + terminal.Word(name) + " in place of --name"
	}
	text := "drun run " + terminal.Word(o.Recipe)
	if o.Nproc > 1 {
		text += fmt.Sprintf(" -n %d", o.Nproc)
	}
	if o.Backend != "" && o.Backend != "shm" {
		text += " --backend " + terminal.Word(o.Backend)
	}
	for _, dir := range o.Plugins {
		text += " --plugin-dir " + terminal.Word(dir)
	}
	if o.Deterministic != nil {
		text += fmt.Sprintf(" --deterministic=%v", *o.Deterministic)
	}
	text += deviceFlags(o)
	for _, dir := range o.DataDirs {
		text += " --data " + terminal.Word(dir)
	}
	if home := cmd.Flags().Lookup("home"); home.Changed {
		text += " --home " + terminal.Word(home.Value.String())
	}
	return text + " --resume " + terminal.Word(name)
}

func addDeviceFlag(f *pflag.FlagSet, o *run.Options) {
	f.StringVar(&o.Device, "device", "cpu", "what computes tensors, with the same bits: cpu, opencl, `opencl:N` of drun devices, or auto (a GPU where there is one)")
}

// deviceFlags are the flags that choose the device, as text.
func deviceFlags(o *run.Options) (text string) {
	if o.Device != "" && o.Device != "cpu" {
		text = " --device " + o.Device
	}
	if o.OtherBits {
		text += " --device-bits any"
	}
	return text
}

// prepare checks the flags of a recipe and connects its run to this process. stop stops listening for signals.
func prepare(cmd *cobra.Command, o *run.Options) (stop func(), err error) {
	defer try.Caught(&err)
	if o.Timeout <= 0 {
		return nil, usage("for example --timeout 30s", "--timeout %s: the time must be above 0", o.Timeout)
	}
	if o.Keep < 1 && cmd.Flags().Changed("keep") {
		return nil, usage("without --keep all checkpoints stay", "--keep %d: at least 1 checkpoint has to stay", o.Keep)
	}
	if o.Threads < 0 {
		return nil, usage("", "--threads %d: the number of threads cannot be negative", o.Threads)
	}
	if err := opencl.CheckName(o.Device); err != nil {
		return nil, usage("drun devices lists those of this machine", "--device: %v", err)
	}
	if o.Threads > run.MaxThreads {
		return nil, usage("", "--threads %d: a rank has at most %d threads", o.Threads, run.MaxThreads)
	}
	for _, tag := range o.Tags {
		if len(tag) > history.MaxTag {
			return nil, usage("", "--tag %q…: a label has at most %d bytes", tag[:40], history.MaxTag)
		}
	}
	o.PluginHost = host.FindProgram
	if cmd.Flags().Changed("params") {
		o.Filed = try.To(readParams(o.ParamFile))
	}
	// A run goes on even if the reader of its output goes away.
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 2)
	for _, sig := range run.Signals {
		if sig != syscall.SIGHUP || !signal.Ignored(sig) { // ignored under nohup
			signal.Notify(signals, sig)
		}
	}
	o.Flat, o.Links = try.To2(hierarchy(os.Getenv("DRUN_HIERARCHY")))
	o.SeedGiven = cmd.Flags().Changed("seed")
	o.Home, o.Version, o.Command = homeOf(cmd), version(), os.Args
	o.Stdout, o.Stderr, o.Signals = cmd.OutOrStdout(), cmd.ErrOrStderr(), signals
	o.Terminal = o.Stderr == os.Stderr && term.IsTerminal(int(os.Stderr.Fd()))
	resume := suspending(o)
	return func() {
		signal.Stop(signals)
		resume()
	}, nil
}

func hierarchy(text string) (flat bool, links int, err error) {
	if text == "" || text == "off" {
		return text == "off", 0, nil
	}
	if links, err = strconv.Atoi(text); err != nil || links < 1 {
		return false, 0, usage("", "DRUN_HIERARCHY=%s: want off, or how many ranks of each node are connected with other nodes", text)
	}
	return false, links, nil
}

// printResult prints the run as drun show --json does, on one line. It takes the outcome from the result, since a
// locked history may not have it yet.
func printResult(cmd *cobra.Command, r *run.Result) (err error) {
	defer try.Caught(&err)
	db := try.To(history.OpenReadOnly(homeOf(cmd)))
	defer db.Close()
	d := try.To(db.Get(r.ID))
	code := int(r.Code)
	d.Status, d.ExitCode, d.Seconds = history.Status(r.Code.Status()), &code, &r.Seconds
	if r.Failure != nil {
		d.Error = strings.TrimRight(r.Failure.Text(r.Ranks), "\n")
	}
	return report.JSON(cmd.OutOrStdout(), d, "")
}

// exitStatus is an exit code whose reason has already been printed.
type exitStatus exit.Code

func (e exitStatus) Error() string       { return "" }
func (e exitStatus) ExitCode() exit.Code { return exit.Code(e) }

// failedIf is the exit code of a recipe that failed, or nil.
func failedIf(failed bool) error {
	if failed {
		return exitStatus(exit.Recipe)
	}
	return nil
}

func describe(cmd *cobra.Command, recipe string) error {
	about := try.To(run.Describe(recipe))
	out := cmd.OutOrStdout()
	if wantsJSON(cmd) {
		return printJSON(out, about)
	}
	fmt.Fprintf(out, "%s\n", terminal.Escape(recipe))
	if about.Doc != "" {
		fmt.Fprintf(out, "\n%s\n", terminal.Lines(strings.TrimSpace(about.Doc)))
	}
	if len(about.Params) == 0 {
		fmt.Fprintln(out, "\nThe recipe has no parameters.")
	} else {
		fmt.Fprintln(out, "\nParameters (set them with -p name=value, or --params FILE):")
		w := terminal.NewTable(out)
		for _, p := range about.Params {
			about := "default " + p.Default
			if p.Choices != nil {
				about += "; one of " + strings.Join(p.Choices, ", ")
			}
			row(w, "  "+p.Name, p.Kind, about, p.Help)
		}
		w.Flush()
	}
	fmt.Fprintln(out, "\nFlags of drun run: drun run --help")
	return nil
}
