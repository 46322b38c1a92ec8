package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"drun/engine"
	"drun/engine/run"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/try"
	"drun/runs/submit"
	"drun/runs/sweep"
)

// runOn has a target run the cells of a plan that have no result: those that a job of an earlier command is still at are waited
// for, the others are submitted as one. ended is called as by [sweep.Sweep.Run]. A signal ends the wait, and no job.
func (f *sweepFlags) runOn(cmd *cobra.Command, o run.Options, plan []sweep.Outcome, ended func(i int)) (interrupted bool, err error) {
	defer try.Caught(&err)
	r := try.To(f.job.request(cmd, f.on, o.Recipe))
	r.AtOnce = f.jobs
	cells, jobs := map[string]int{}, map[int64]int{}
	var wait []*history.Job
	for i := range plan {
		if plan[i].Result != nil {
			continue
		}
		c := submit.Cell{Args: []string{fmt.Sprintf("--seed=%d", plan[i].Seed)}, Info: r.Info}
		for _, p := range plan[i].Cell {
			c.Args = append(c.Args, "-p", p)
		}
		c.Info.Sweep, c.Info.Seed = o.Sweep, plan[i].Seed
		c.Key = o.Sweep.Name + " " + f.on + " " + strings.Join(c.Args, " ")
		cells[c.Key] = i
		r.Cells = append(r.Cells, c)
	}
	for _, j := range try.To(allJobs(cmd)) {
		if i, is := cells[submit.KeyOf(j)]; is && going(j) {
			wait, jobs[j.ID] = append(wait, j), i
			r.Cells = slices.DeleteFunc(r.Cells, func(c submit.Cell) bool { return c.Key == submit.KeyOf(j) })
		}
	}
	if len(wait) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d of them were submitted before\n", len(wait))
	}
	if len(r.Cells) > 0 {
		for _, j := range try.To(hand(cmd, r)) {
			wait, jobs[j.ID] = append(wait, j), cells[submit.KeyOf(j)]
		}
	}
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	go func() {
		select {
		case <-o.Signals:
			stop()
		case <-ctx.Done():
		}
	}()
	db := try.To(history.OpenReadOnly(homeOf(cmd)))
	defer db.Close()
	err = eachEnded(ctx, homeOf(cmd), wait, func(j *history.Job) {
		i := jobs[j.ID]
		plan[i].Result, plan[i].Err = resultOf(db, j)
		ended(i)
	})
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(cmd.ErrOrStderr(), "the jobs go on; drun jobs cancel --all ends them")
		return true, nil
	}
	return false, err
}

// resultOf is what came of a job's run.
func resultOf(db *history.DB, j *history.Job) (*run.Result, error) {
	found, err := db.Summaries([]int64{j.Run})
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("the run of job %s is gone: %w", submit.NameOf(j), err)
	}
	s := found[0]
	r := &run.Result{ID: s.ID, Name: s.Name, Code: exit.Recipe, Ranks: 1}
	if s.Seconds != nil {
		r.Seconds = *s.Seconds
	}
	switch {
	case s.Status == history.Done:
		r.Code = exit.Done
	case s.ExitCode != nil && *s.ExitCode != 0:
		r.Code = exit.Code(*s.ExitCode)
	}
	if r.Code != exit.Done {
		text := s.Error
		if text == "" {
			text = fmt.Sprintf("job %s is %s: %s", submit.NameOf(j), j.State, j.Reason)
		}
		r.Failure = &engine.Failure{Rank: -1, Code: r.Code, Message: text}
	}
	return r, nil
}

// checkOn checks the flags of a sweep on a target, and counts its ranks.
func (f *sweepFlags) checkOn(cmd *cobra.Command, o *run.Options) error {
	if f.on == "" {
		for _, k := range append([]submit.Key{{Name: "nnodes"}, {Name: "copy"}, {Name: "sums"}}, submit.Keys...) {
			if cmd.Flags().Changed(k.Name) {
				return usage("for example --on hpc", "--%s is for the runs of a target: --on", k.Name)
			}
		}
		return nil
	}
	if f.early != "" || f.hosts != "" {
		return usage("leave them out", "--early-stop and --hosts are for runs that this process starts, not for --on")
	}
	n, err := strconv.Atoi(f.nodes)
	if err != nil || n < 1 {
		return usage("for example --nnodes 2", "--nnodes %s: the runs of a sweep have a fixed number of nodes", f.nodes)
	}
	o.Nproc *= n
	return nil
}
