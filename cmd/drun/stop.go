package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"drun/history"
	"drun/internal/exit"
	"drun/internal/try"
)

func newStop() *cobra.Command {
	return &cobra.Command{
		Use:        "stop RUN…",
		SuggestFor: []string{"kill", "cancel", "abort"},
		Short:      "End runs, as SIGTERM does",
		Long: `Ends runs that go on, and waits until they have. A recipe that calls run.should_stop() has the --grace of its run
to save and return; any other ends at once, and keeps what it has saved. Either way the run's status is interrupted.`,
		Example: `  drun stop last
  drun run --resume last`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withRuns(cmd, args, func(db *history.DB, ids []int64) error {
				var agents []*os.File
				for _, id := range unique(ids) {
					agent, err := agentOf(cmd.Context(), db, id)
					try.Ok(err)
					defer agent.Close()
					agents = append(agents, agent)
				}
				for _, agent := range agents {
					if err := unix.PidfdSendSignal(int(agent.Fd()), unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
						return err
					}
				}
				for i, agent := range agents {
					try.Ok(ended(cmd.Context(), agent))
					d := try.To(db.Get(unique(ids)[i]))
					try.Ok(answer(cmd, map[string]any{"id": d.ID, "name": d.Name, "status": d.Status}, "run %d %s: %s", d.ID, d.Name, d.Status))
				}
				return nil
			})
		},
	}
}

// agentOf opens the process that leads a run.
func agentOf(ctx context.Context, db *history.DB, id int64) (*os.File, error) {
	d, err := db.Get(id)
	if err != nil {
		return nil, err
	}
	if d.Status != history.Running {
		return nil, usage("", "run %d %s has ended: %s", id, d.Name, d.Status)
	}
	agent, err := db.Agent(ctx, id)
	if silent := (*history.SilentError)(nil); errors.As(err, &silent) {
		err = exit.WithHint(exit.Errorf(exit.Recipe, "run %d %s cannot be stopped from here: %v", id, d.Name, err), "where it goes on, as the user who started it: drun stop "+d.Name)
	}
	return agent, err
}

// ended waits for a process.
func ended(ctx context.Context, process *os.File) error {
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(process.Fd()), Events: unix.POLLIN}}, int(200*time.Millisecond/time.Millisecond))
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return ctx.Err()
}
