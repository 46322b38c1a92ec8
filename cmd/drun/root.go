// Command drun runs experiments written as Starlark recipes, and shows what was run and its results. Each subcommand
// has a file, or shares it with those like it, which parses flags and prints; other packages do the work.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/mattn/go-sqlite3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"drun/engine/worker"
	"drun/history"
	"drun/internal/build"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/report"
	_ "drun/starlib/data/table/columns" // so that recipes can read Parquet and Arrow
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "drun",
		Short:         "Runs ML experiments written as Starlark recipes; same recipe, same bits",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().String("home", cmp.Or(os.Getenv("DRUN_HOME"), ".drun"), "folder of the history and checkpoints ($DRUN_HOME)")
	root.PersistentFlags().Bool("json", false, "print data as JSON")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(cmp.Or(ofTorchrun(cmd, err), "see: "+cmd.CommandPath()+" --help"), "%s", flagProblem(err))
	})
	root.AddCommand(newRun(), newSubmit(), newJobs(), newTargets(), newSweep(), newDoctor(), newCheck(), newFmt(), newTests(), newRepl(), newLSP(), newDebug(), newDAP(), newDoc(), newRuns(), newShow(), newCompare(), newMetrics(), newPlot(), newSource(), newArtifacts(), newLogs(), newSQL(), newBackends(), newDevices(), newCheckpoints(), newStop(), newRename(), newTag(), newNote(), newRm(), newDu(), newData(), newExportRuns(), newImportRuns(), newGC(), newBackup(), newVerifyResume(), newReplay(), newAt(), newDiff(), newPack(), newUnpack(), newVerifyPack(), newPush(), newPull(), newTransferServe(), newLogin(), newLogout(), newUI(), newServe(), newVersion())
	requireArguments(root)
	completeFromHistory(root)
	root.AddCommand(helpTopics()...)
	root.SetHelpCommand(newHelp())
	return root
}

// execute runs one command line and returns its exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out := &output{Writer: stdout}
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(stderr)
	err := outcome(ctx, root)
	if err == nil {
		err = out.failed
	}
	return reportError(stderr, err)
}

// output is standard output. A failed write becomes the command's error, even if the command ignores it.
type output struct {
	io.Writer
	first  sync.Once
	failed error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		err = errors.New(err.Error()) // without errno, so that it is not taken for an error of the history's disk
		o.first.Do(func() { o.failed = err })
	}
	return n, err
}

// Fd returns the descriptor of the file that it writes to.
func (o *output) Fd() uintptr {
	if file, ok := o.Writer.(*os.File); ok {
		return file.Fd()
	}
	return math.MaxUint
}

// outcome returns the command's error, including that of a failed step (internal/try): code that commands run in this goroutine needs no try.Caught.
func outcome(ctx context.Context, root *cobra.Command) (err error) {
	defer try.Caught(&err)
	return root.ExecuteContext(ctx)
}

// reportError prints an error with its hint and returns its exit code.
func reportError(stderr io.Writer, err error) int {
	if err == nil {
		return int(exit.Done)
	}
	if text := err.Error(); text != "" {
		fmt.Fprintf(stderr, "drun: %s\n", terminal.Lines(text))
	}
	if hint := exit.HintOf(err); hint != "" {
		fmt.Fprintf(stderr, "  hint: %s\n", terminal.Lines(hint))
	}
	if errors.Is(err, context.Canceled) {
		err = exit.WithCode(err, exit.Interrupted)
	}
	return int(exit.CodeOf(err))
}

// usage is the error for a mistake on the command line.
func usage(hint, format string, args ...any) error {
	return exit.WithHint(exit.Errorf(exit.Usage, format, args...), hint)
}

// flagProblem describes what is wrong with a flag, without strconv's wording.
func flagProblem(err error) string {
	invalid := (*pflag.InvalidValueError)(nil)
	if !errors.As(err, &invalid) {
		return err.Error()
	}
	flag, value := "--"+invalid.GetFlag().Name, invalid.GetValue()
	wants := map[string]string{"int": "a whole number", "int64": "a whole number", "int64Slice": "whole numbers", "bool": "true or false", "boolfunc": "true or false",
		"duration": "a time such as 30s or 5m"}[invalid.GetFlag().Value.Type()]
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Sprintf("%s %s: the number is too large", flag, value)
	case wants == "":
		return err.Error()
	}
	return fmt.Sprintf("%s wants %s, not %q", flag, wants, value)
}

func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see: drun help"
	cmd.SuggestionsMinimumDistance = min(2, len(args[0])/2) // a name of two letters would be near half of all commands
	near := cmd.SuggestionsFor(args[0])
	for _, c := range cmd.Commands() {
		if slices.Contains(c.SuggestFor, args[0]) {
			near = []string{c.Name()}
		}
	}
	if len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "? all commands: drun help"
	} else if strings.HasSuffix(args[0], ".star") {
		hint = "to run a recipe: drun run " + args[0]
	}
	return usage(hint, "unknown command %q", args[0])
}

// arguments refuses a number of arguments that the usage line does not allow: an argument in brackets may
// be missing, and one with dots may be given several times.
func arguments(cmd *cobra.Command, args []string) error {
	least, most := 0, 0
	for _, name := range strings.Fields(cmd.Use)[1:] {
		if most++; !strings.HasPrefix(name, "[") {
			least++
		}
		if strings.Contains(name, "…") || strings.Contains(name, "...") {
			most = math.MaxInt / 2
		}
	}
	if n := len(args); n < least || n > most {
		return usage("usage: "+cmd.UseLine(), "%s: wrong number of arguments: %d", cmd.CommandPath(), n)
	}
	return nil
}

// requireArguments makes a command and its subcommands accept only the arguments that their usage lines name.
func requireArguments(cmd *cobra.Command) {
	if cmd.Args == nil && cmd.Runnable() {
		cmd.Args = arguments
	}
	for _, c := range cmd.Commands() {
		requireArguments(c)
	}
}

func homeOf(cmd *cobra.Command) string {
	home, _ := cmd.Flags().GetString("home") // every command has it
	return cmp.Or(home, ".drun")
}

func wantsJSON(cmd *cobra.Command) bool {
	yes, err := cmd.Flags().GetBool("json")
	return err == nil && yes
}

func show[T any](cmd *cobra.Command, v T, print func(io.Writer, T) error) error {
	if wantsJSON(cmd) {
		return printJSON(cmd.OutOrStdout(), v)
	}
	return print(cmd.OutOrStdout(), v)
}

// answer prints a value as JSON, or else a line.
func answer(cmd *cobra.Command, v any, format string, args ...any) error {
	if wantsJSON(cmd) {
		return printJSON(cmd.OutOrStdout(), v)
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), terminal.Escape(fmt.Sprintf(format, args...)))
	return err
}

func printJSON(out io.Writer, v any) error {
	return report.JSON(out, v, "  ")
}

// openHistory opens the history for reading, and tells the user if it lacks records.
func openHistory(cmd *cobra.Command) (*history.DB, error) {
	db, err := history.OpenReadOnly(homeOf(cmd))
	if err == nil && len(db.Waiting) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "drun: the history lacks the last records of run %s: they are in %s until it can be written\n",
			strings.Trim(strings.ReplaceAll(fmt.Sprint(db.Waiting), " ", ", "), "[]"), filepath.Join(homeOf(cmd), "spool"))
	}
	return db, err
}

// withRun opens the history and finds the run that an argument names.
func withRun(cmd *cobra.Command, ref string, fn func(db *history.DB, id int64) error) error {
	return withRuns(cmd, []string{ref}, func(db *history.DB, ids []int64) error { return fn(db, ids[0]) })
}

// withRuns opens the history and finds the runs that arguments name.
func withRuns(cmd *cobra.Command, refs []string, fn func(db *history.DB, ids []int64) error) error {
	return withChosen(cmd, &conditions{}, refs, fn)
}

// withChosen is withRuns, or finds the runs that conditions choose.
func withChosen(cmd *cobra.Command, c *conditions, refs []string, fn func(db *history.DB, ids []int64) error) (err error) {
	defer try.Caught(&err)
	db := try.To(openHistory(cmd))
	defer db.Close()
	ids := try.To(c.find(cmd, db, refs))
	return fn(db, ids)
}

func main() {
	if worker.Invoked() {
		os.Exit(worker.Main())
	}
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		RunE: func(cmd *cobra.Command, _ []string) error {
			sqlite, _, _ := sqlite3.Version()
			return answer(cmd, map[string]string{"version": version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH, "sqlite": sqlite},
				"drun %s (%s %s/%s, SQLite %s)", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, sqlite)
		},
	}
}

func version() string { return build.Own() }
