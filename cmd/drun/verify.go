package main

import (
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"drun/engine/run"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/runs/replay"
)

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
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			defer try.Caught(&err)
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
			err = answer(cmd, map[string]any{"same": r.Same, "kills": r.Kills}, "%s", text)
			if !r.Same && !wantsJSON(cmd) {
				fmt.Fprintf(cmd.ErrOrStderr(), "  hint: %s\n", replay.Forgotten)
			}
			if err == nil && !r.Same {
				err = exitStatus(exit.Recipe)
			}
			return err
		},
	}
	f := cmd.Flags()
	addRecipeFlags(f, &o, &nproc)
	f.IntVar(&kills, "kills", 5, "how many kills the run must survive")
	return cmd
}
