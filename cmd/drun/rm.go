package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"drun/history"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/report"
)

func newRm() *cobra.Command {
	var undo bool
	cmd := &cobra.Command{
		Use:   "rm RUN…",
		Short: "Move runs to the trash, or out of it",
		Long: `Moves runs to the trash: no command shows them any more, except drun runs --trash and drun sql. They keep their
checkpoints and their names until drun gc, which removes them for good. --undo takes runs out of the trash.
A run that is still running is refused. Runs that were resumed from one of the moved runs are named.`,
		Example: `  drun rm 7 calm-otter
  drun runs --trash
  drun rm --undo calm-otter
  drun rm $(drun runs --all --where 'status == "failed"' --columns id --json | jq .[].id) && drun gc`,
		RunE: func(cmd *cobra.Command, args []string) error {
			find, act := (*history.DB).Find, (*history.DB).Trash
			if undo {
				find, act = (*history.DB).FindTrashed, (*history.DB).Restore
			}
			return change(cmd, args, find, func(db *history.DB, ids []int64) (err error) {
				defer try.Caught(&err)
				ids = unique(ids)
				try.Ok(act(db, ids))
				runs := try.To(db.Select(history.Selection{IDs: ids}))
				names := make([]history.RunName, len(ids))
				for _, r := range runs {
					names[slices.Index(ids, r.ID)] = history.RunName{ID: r.ID, Name: r.Name}
				}
				if !undo {
					children := try.To(db.ResumedFrom(ids))
					for _, c := range children {
						fmt.Fprintf(cmd.ErrOrStderr(), "run %d %s was resumed from run %d at step %d: once drun gc has removed that, drun replay cannot repeat it\n",
							c.ID, terminal.Escape(c.Name), c.Parent.ID, c.Parent.Step)
					}
				}
				if wantsJSON(cmd) {
					return printJSON(cmd.OutOrStdout(), names)
				}
				for _, r := range names {
					what := fmt.Sprintf("is in the trash; to take it out: drun rm --undo %d", r.ID)
					if undo {
						what = "is out of the trash"
					}
					fmt.Fprintf(cmd.OutOrStdout(), "run %d %s %s\n", r.ID, terminal.Escape(r.Name), what)
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "take the runs out of the trash")
	return cmd
}

func unique(ids []int64) (list []int64) {
	for _, id := range ids {
		if !slices.Contains(list, id) {
			list = append(list, id)
		}
	}
	return list
}

// change finds runs, and opens the history for writing. It does not create a history.
func change(cmd *cobra.Command, refs []string, find func(*history.DB, string) (int64, error), fn func(*history.DB, []int64) error) (err error) {
	defer try.Caught(&err)
	reader := try.To(history.OpenReadOnly(homeOf(cmd)))
	defer reader.Close()
	ids := try.To(report.Find(refs, func(ref string) (int64, error) { return find(reader, ref) }))
	db := try.To(history.Open(homeOf(cmd)))
	defer db.Close()
	return fn(db, ids)
}

func newTag() *cobra.Command {
	var remove []string
	cmd := &cobra.Command{
		Use:   "tag RUN [TAG…]",
		Short: "Label a run, or take labels away",
		Example: `  drun tag last baseline
  drun tag 7 good --remove baseline
  drun runs --tag good`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args)+len(remove) < 2 {
				return usage("usage: "+cmd.UseLine(), "no label was given")
			}
			if err := checkTags(args[1:]); err != nil {
				return err
			}
			return change(cmd, args[:1], (*history.DB).Find, func(db *history.DB, ids []int64) error {
				if err := db.Label(ids[0], args[1:], remove); err != nil {
					return err
				}
				return printLabels(cmd, db, ids[0])
			})
		},
	}
	cmd.Flags().StringArrayVar(&remove, "remove", nil, "take this `label` away (repeatable)")
	return cmd
}

// checkTags refuses labels that the history cannot keep.
func checkTags(tags []string) error {
	for _, tag := range tags {
		if tag == "" || len(tag) > maxTag {
			return usage("", "a label has 1 to %d bytes: %.40q has %d", maxTag, tag, len(tag))
		}
	}
	return nil
}

func printLabels(cmd *cobra.Command, db *history.DB, id int64) error {
	runs, err := db.Select(history.Selection{IDs: []int64{id}, Tags: true})
	if err != nil || len(runs) == 0 {
		return err
	}
	r := runs[0]
	return answer(cmd, map[string]any{"id": r.ID, "name": r.Name, "tags": r.Tags}, "run %d %s: %s", r.ID, r.Name, strings.Join(r.Tags, ", "))
}

const maxNote = 1 << 20 // bytes, as for run.note

func newNote() *cobra.Command {
	return &cobra.Command{
		Use:     "note RUN TEXT",
		Short:   "Add a remark to a run",
		Example: `  drun note last "the loss rises after epoch 3: try a smaller lr"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if text := args[1]; text == "" || len(text) > maxNote {
				return usage("", "a note has 1 to %d bytes, not %d", maxNote, len(text))
			}
			return change(cmd, args[:1], (*history.DB).Find, func(db *history.DB, ids []int64) error {
				if err := db.AddNote(ids[0], args[1]); err != nil {
					return err
				}
				if wantsJSON(cmd) {
					d, err := db.Get(ids[0])
					if err != nil {
						return err
					}
					return printJSON(cmd.OutOrStdout(), d.Notes)
				}
				return nil
			})
		},
	}
}
