package main

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"drun/history"
	"drun/internal/exit"
	"drun/internal/try"
)

func newStop() *cobra.Command {
	return &cobra.Command{
		Use:        "stop RUN…",
		SuggestFor: []string{"kill", "cancel", "abort"},
		Short:      "End runs, as SIGTERM does",
		Long: `Ends runs in progress, and waits until they have ended. A recipe that calls run.should_stop() has the --grace of its run
to save and return; any other ends at once, and keeps what it has saved. Either way the run's status is interrupted.`,
		Example: `  drun stop last
  drun run --resume last`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withRuns(cmd, args, func(db *history.DB, ids []int64) error {
				var agents []*history.Agent
				for _, id := range unique(ids) {
					agent := try.To(agentOf(cmd.Context(), db, id))
					defer agent.Close()
					agents = append(agents, agent)
				}
				for _, agent := range agents {
					try.Ok(agent.Terminate())
				}
				for i, agent := range agents {
					try.Ok(agent.Wait(cmd.Context()))
					d := try.To(db.Get(unique(ids)[i]))
					try.Ok(answer(cmd, map[string]any{"id": d.ID, "name": d.Name, "status": d.Status}, "run %d %s: %s", d.ID, d.Name, d.Status))
				}
				return nil
			})
		},
	}
}

// agentOf opens the process that leads a run.
func agentOf(ctx context.Context, db *history.DB, id int64) (*history.Agent, error) {
	d, err := db.Get(id)
	if err != nil {
		return nil, err
	}
	if d.Status == history.Pending {
		return nil, usage("to take it back: drun jobs cancel "+d.Name, "run %d %s has not begun", id, d.Name)
	}
	if d.Status != history.Running {
		return nil, usage("", "run %d %s has ended: %s", id, d.Name, d.Status)
	}
	agent, err := db.Agent(ctx, id)
	if silent := (*history.SilentError)(nil); errors.As(err, &silent) {
		hint := "where it goes on, as the user who started it: drun stop " + d.Name
		if jobs, _ := db.Jobs(false); slices.ContainsFunc(jobs, func(j *history.Job) bool { return j.Run == id }) {
			hint = "drun jobs cancel " + d.Name
		}
		err = exit.WithHint(exit.Errorf(exit.Recipe, "run %d %s cannot be stopped from here: %v", id, d.Name, err), hint)
	}
	return agent, err
}
