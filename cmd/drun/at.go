package main

import (
	"fmt"
	"strconv"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"drun/engine/run"
	"drun/history"
	"drun/runs/replay"
	"drun/runs/report"
)

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
				if err := newFile(file); err != nil {
					return err
				}
			}
			return again.with(cmd, args[0], func(o run.Options, db *history.DB, id int64) error {
				p, err := replay.At(o, db, homeOf(cmd), id, step, metric, again.params, tell(cmd))
				if err != nil {
					return err
				}
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
		var err error
		if result.Bytes, result.LeftOut, err = writeTensors(cmd, p.Store, k, rank, file); err != nil {
			return err
		}
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
