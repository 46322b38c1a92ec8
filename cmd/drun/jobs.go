package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"

	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/terminal"
	"drun/internal/try"
	"drun/runs/submit"
	"drun/runs/transfer"
)

func newJobs() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:        "jobs",
		SuggestFor: []string{"squeue", "sacct"},
		Short:      "List jobs that were submitted, end them, or wait for them",
		Long: `Lists the jobs of drun submit that have not ended, and the latest others; with --all all of them. A job is called by its
target and by what the scheduler there calls it, as hpc:1234; the name or number of its run does as well. Its state is one of
those that runs have: pending, running, done, failed, interrupted, stopped early, preempted, cancelled or lost.`,
		Example: `  drun jobs
  drun jobs wait --all
  drun jobs cancel hpc:1234`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			jobs, err := allJobs(cmd)
			if err == nil && slices.ContainsFunc(jobs, going) {
				err = follow(homeOf(cmd))
			}
			try.Ok(err)
			if over := len(jobs) - latest; !all && over > 0 {
				old := jobs[:over]
				jobs = append(slices.DeleteFunc(slices.Clone(old), func(j *history.Job) bool { return !going(j) }), jobs[over:]...)
			}
			list := []job{}
			for _, j := range slices.Backward(jobs) {
				list = append(list, jobOf(j))
			}
			return show(cmd, list, printJobs)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all jobs, also those that ended long ago")
	cmd.AddCommand(forJobs("cancel", "End jobs, as SIGTERM ends a run; one that has not begun never will", cancelJobs), newJobsLogs(),
		forJobs("wait", "Wait until jobs have ended, and end with the first exit code that is not 0", waitFor), newJobsFollow())
	return cmd
}

// latest is how many jobs drun jobs lists, beside those that have not ended.
const latest = 20

func going(j *history.Job) bool { return !j.State.Ended() }

// job is a line of drun jobs.
type job struct {
	Job    string         `json:"job"`
	Target string         `json:"target"`
	Run    *int64         `json:"run"` // null: it was removed
	State  history.Status `json:"state"`
	Reason string         `json:"reason"`
	of     *history.Job
}

func jobOf(j *history.Job) job {
	out := job{Job: submit.NameOf(j), Target: j.Target, State: j.State, Reason: j.Reason, of: j}
	if j.Run > 0 {
		out.Run = &j.Run
	}
	return out
}

func printJobs(out io.Writer, list []job) error {
	if len(list) == 0 {
		return nil
	}
	paint := painterFor(out)
	return printList(out, list, []column[job]{
		{"JOB", func(j job) any { return j.Job }},
		{"STATE", func(j job) any { return paint.status(j.State) }},
		{"RUN", func(j job) any { return known(j.Run, whole) }},
		{"NAME", func(j job) any { return j.of.RunName }},
		{"SUBMITTED", func(j job) any { return localTime(j.of.Submitted) }},
		{"REASON", func(j job) any { return j.Reason }},
	})
}

// allJobs lists the jobs of the home.
func allJobs(cmd *cobra.Command) (jobs []*history.Job, err error) {
	db, err := openHistory(cmd)
	if errors.As(err, new(*history.ErrNone)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return db.Jobs(true)
}

// chosenJobs finds the jobs that arguments name, or with all those that have not ended.
func chosenJobs(cmd *cobra.Command, names []string, all bool) (chosen []*history.Job, err error) {
	if all == (len(names) > 0) {
		return nil, usage("usage: "+cmd.UseLine(), "either name jobs, or give --all")
	}
	jobs, err := allJobs(cmd)
	if err != nil {
		return nil, err
	}
	if all {
		return slices.DeleteFunc(jobs, func(j *history.Job) bool { return !going(j) }), nil
	}
	for _, name := range names {
		j := submit.Find(jobs, name)
		if j == nil {
			return nil, usage("drun jobs --all lists them", "there is no job %q", name)
		}
		chosen = append(chosen, j)
	}
	return chosen, nil
}

// forJobs is a command for jobs that are named, or for all that have not ended.
func forJobs(name, short string, do func(cmd *cobra.Command, jobs []*history.Job) error) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   name + " [JOB…]",
		Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			return do(cmd, try.To(chosenJobs(cmd, args, all)))
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all that have not ended")
	return cmd
}

// cancelJobs asks for the end of jobs; one that cannot be asked keeps none of the others from it.
func cancelJobs(cmd *cobra.Command, jobs []*history.Job) error {
	if len(jobs) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no job is under way")
		return nil
	}
	db := try.To(history.Open(homeOf(cmd)))
	defer db.Close()
	var failed error
	for _, j := range jobs {
		if !going(j) {
			failed = errors.Join(failed, usage("", "job %s has ended: %s", submit.NameOf(j), j.State))
		} else if err := submit.Cancel(cmd.Context(), db, homeOf(cmd), j); err != nil {
			failed = errors.Join(failed, err)
		} else {
			fmt.Fprintf(cmd.ErrOrStderr(), "job %s is to end\n", submit.NameOf(j))
		}
	}
	return errors.Join(failed, follow(homeOf(cmd)))
}

func newJobsLogs() *cobra.Command {
	return &cobra.Command{
		Use:   "logs JOB",
		Short: "Print what a job's script has printed; drun logs has what its run has",
		RunE: func(cmd *cobra.Command, args []string) error {
			j := try.To(chosenJobs(cmd, args, false))[0]
			text, err := submit.Logs(cmd.Context(), j)
			if terminal.Is(cmd.OutOrStdout()) { // other people's control characters are shown
				text = terminal.Lines(text)
			}
			_, _ = io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
}

// waitFor waits for jobs, says what became of each, and returns the exit code of the first that is not done.
func waitFor(cmd *cobra.Command, jobs []*history.Job) (err error) {
	defer try.Caught(&err)
	code := exit.Done
	err = eachEnded(cmd.Context(), homeOf(cmd), jobs, func(j *history.Job) {
		text := fmt.Sprintf("job %s: run %s is %s", submit.NameOf(j), j.RunName, j.State)
		if j.Reason != "" && j.State != history.Done {
			text += ": " + j.Reason
		}
		fmt.Fprintln(cmd.ErrOrStderr(), terminal.Escape(text))
		switch {
		case code != exit.Done || j.State == history.Done:
		case j.Code != nil && *j.Code != 0:
			code = exit.Code(*j.Code)
		case j.State == history.Failed || j.State == history.Lost:
			code = exit.Recipe
		default:
			code = exit.Interrupted
		}
	})
	try.Ok(err)
	if code != exit.Done {
		return exitStatus(code)
	}
	return nil
}

// eachEnded calls fn with each of the jobs when it has ended.
func eachEnded(ctx context.Context, home string, jobs []*history.Job, fn func(*history.Job)) (err error) {
	defer try.Caught(&err)
	db := try.To(history.OpenReadOnly(home))
	defer db.Close()
	left := map[int64]bool{}
	for _, j := range jobs {
		left[j.ID] = true
	}
	for round := 0; ; round++ {
		if round%50 == 0 {
			try.Ok(follow(home))
		}
		for _, j := range try.To(db.Jobs(true)) {
			if left[j.ID] && !going(j) {
				delete(left, j.ID)
				fn(j)
			}
		}
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// follow has a process follow the jobs of a home, if none does.
func follow(home string) error {
	abs, err := filepath.Abs(home)
	if err != nil {
		return err
	}
	return submit.StartFollower(abs, "jobs", "follow", "--home", abs)
}

// followEvery is how often a command that watches looks whether its jobs are followed.
const followEvery = 5 * time.Second

// followAgain has the jobs that have not ended followed, for a command that watches runs: the machine may have been switched off
// meanwhile.
func followAgain(cmd *cobra.Command, db *history.DB) {
	if jobs, err := db.Jobs(false); err == nil && len(jobs) > 0 {
		_ = follow(homeOf(cmd)) // what is there is shown in any case
	}
}

func newJobsFollow() *cobra.Command {
	return &cobra.Command{
		Use:    "follow",
		Short:  "Start the jobs of the queue, and fetch what others record, until all have ended",
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signal.Ignore(syscall.SIGHUP)
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			p := &puller{home: homeOf(cmd)}
			defer p.lines.Range(func(_, l any) bool { l.(*line).close(); return true })
			return (&submit.Follower{Home: p.home, Pull: p.pull}).Run(ctx)
		},
	}
}

// puller copies what the runs of jobs record into a home, and answers there for what their ranks do.
type puller struct {
	home  string
	lines sync.Map // *line by submit.Source
}

// line is the connection to where runs are recorded. One goroutine at a time uses it.
type line struct {
	here    *transfer.Home
	there   transfer.Side
	answers map[string]func() // by uid; each ends an answer
}

func (l *line) close() {
	for _, end := range l.answers {
		end()
	}
	_, _ = l.there.Close(), l.here.Close()
}

// pull copies what runs have recorded since it was asked last, without the weights of their checkpoints.
func (p *puller) pull(ctx context.Context, from submit.Source, uids []string) (err error) {
	defer try.Caught(&err)
	ctx = transfer.Local(ctx)
	open, _ := p.lines.Load(from)
	l, is := open.(*line)
	if !is {
		there, err := sideOf(from, false)
		if errors.As(err, new(*history.ErrNone)) {
			return nil // no run has begun
		}
		try.Ok(err)
		l = &line{there: there, here: try.To(transfer.OpenHome(p.home, true)), answers: map[string]func(){}}
		p.lines.Store(from, l)
	}
	drop := func() { // the next call opens it anew
		l.close()
		p.lines.Delete(from)
	}
	defer try.CaughtOr(&err, drop)
	found, err := transfer.States(ctx, l.there, uids)
	if errors.As(err, new(*history.NotFound)) { // there is no history yet
		drop()
		return nil
	}
	try.Ok(err)
	var runs []transfer.Found
	for _, s := range found {
		runs = append(runs, transfer.Found{ID: s.ID, UID: s.UID, Name: s.Name})
		if l.answers[s.UID] == nil {
			l.answers[s.UID] = l.here.Writer().AnswerFor(s.UID, func(ctx context.Context) (*records.Snapshot, error) {
				return transfer.Doing(transfer.Local(context.WithoutCancel(ctx)), l.there, s.UID) // its end would be that of the connection
			})
		}
	}
	for uid, end := range l.answers {
		if end == nil || !slices.Contains(uids, uid) {
			delete(l.answers, uid)
			if end != nil {
				end()
			}
		}
	}
	_, err = transfer.Copy(ctx, l.there, l.here, runs, transfer.Options{Weights: "none", Quick: true, Say: func(string) {}})
	return err
}

// sideOf opens where the runs of jobs are recorded.
func sideOf(from submit.Source, write bool) (transfer.Side, error) {
	switch {
	case from.Server != "":
		return serverAt(from.Server)
	case from.Host == "":
		return transfer.OpenHome(from.Home, write)
	}
	return transfer.OverSSH(submit.SSH(from.Host), from.Host, from.Drun, from.Home, write)
}
