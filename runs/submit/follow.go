package submit

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"drun/history"
	"drun/internal/exit"
	"drun/internal/try"
)

// One process of drun follows the jobs of a home, as long as there are some that have not ended: it starts those of the queue
// here, asks the other targets' schedulers, and fetches what their runs record. drun submit starts it, and every command that
// waits for jobs does if it is gone; no terminal is needed.

const (
	lookEvery = 100 * time.Millisecond // how often it looks whether somebody has woken it
	pollHere  = 200 * time.Millisecond // how often the queue here is looked at
	pollSoon  = time.Second            // how often a scheduler is asked, while
	soonFor   = 30 * time.Second       // its jobs are this young, or have changed this lately;
	pollLater = 5 * time.Second        // later;
	pollLast  = time.Minute            // and at least, if it does not answer
	lostAfter = 2 * time.Minute        // a job that its scheduler does not know is lost,
	goneAfter = 7 * 24 * time.Hour     // and one whose target does not answer

	again  = "its nodes were taken back, and it goes on later: " // begins the reason why a job is pending that was running
	byDrun = "by drun jobs cancel"
)

// Follower follows the jobs of a home.
type Follower struct {
	Home string
	// Pull fetches runs, by their uids, from where a target's jobs record them. Those that have not begun there are left out.
	Pull func(ctx context.Context, from Source, uids []string) error
}

// Source is where runs of a target are recorded: a home, or a server.
type Source struct {
	Host   string // "": this machine
	Drun   string // the program there
	Home   string
	Server string // its address; "": the home
}

// source is where the run of a job is recorded; nil: in the submitter's home, or where only pods reach it.
func (s spec) source(home string) *Source {
	switch own, err := filepath.Abs(home); {
	case s.Server != "":
		return &Source{Server: s.Server}
	case s.Target.Kind != "slurm" || err == nil && s.Home == own:
		return nil
	}
	return &Source{Host: s.Target.Get("host"), Drun: s.Drun, Home: s.Home}
}

// SourceOn is the home of the runs of a target on another machine, and the drun that was sent there last.
func SourceOn(t *Target) Source {
	root := strings.TrimRight(t.Get("folder"), "/")
	return Source{Host: t.Get("host"), Drun: cmp.Or(t.Get("drun"), root+"/bin/drun"), Home: root + "/home"}
}

// Run follows the jobs until all have ended. It returns at once if another process does so.
func (f *Follower) Run(ctx context.Context) error {
	for {
		release, err := history.Claim(f.Home, "jobs")
		if release == nil || err != nil {
			return err
		}
		err = f.follow(ctx)
		release()
		if err != nil || ctx.Err() != nil {
			return err
		}
		if _, err := os.Stat(wakeFile(f.Home)); err != nil { // else one has come meanwhile
			return nil
		}
	}
}

// asked is what is known of a target from asking it.
type asked struct {
	busy    bool
	next    time.Time // to ask
	changed time.Time // when its jobs did
	failing time.Time // since when it does not answer; zero: it does
}

// answer is what came of asking a target.
type answer struct {
	from   *asked
	jobs   []*history.Job // that it was asked about
	states map[int64]State
	pulled error // why runs could not be fetched
	err    error // why the scheduler did not answer
}

func (f *Follower) follow(ctx context.Context) (err error) {
	defer try.Caught(&err)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	db := try.To(history.Open(f.Home))
	defer db.Close()
	answers, targets, left := make(chan answer), map[string]*asked{}, map[int64]bool{}
	for {
		if db.Replaced() {
			return nil
		}
		woken := os.Remove(wakeFile(f.Home)) == nil // before the jobs are read
		jobs := try.To(db.Jobs(false))
		if len(jobs) == 0 {
			return nil
		}
		groups, wake := map[string][]*history.Job{}, time.Now().Add(pollLast)
		for _, j := range jobs {
			s := specOf(j)
			switch {
			case j.Handle != "":
				key := fmt.Sprint(s.Target.Kind, " ", j.Target, " ", s.Target.Get("host"), " ", s.Home, " ", s.Server)
				groups[key] = append(groups[key], j)
			case left[j.ID]: // also before the jobs were read
				j.State, j.Reason, wake = history.Lost, "drun submit ended before the scheduler had taken it", time.Time{}
				try.Ok(db.SetJob(j))
			default:
				if release := try.To(handing(f.Home, j.UID)); release != nil {
					release()
					left[j.ID], wake = true, time.Time{}
				}
			}
		}
		for key, group := range groups {
			a := targets[key]
			if a == nil {
				a = &asked{}
				targets[key] = a
			}
			if newest := group[len(group)-1].Submitted; newest.After(a.changed) {
				a.changed, a.next = newest, time.Time{}
			}
			if !a.busy && (woken || !time.Now().Before(a.next)) {
				a.busy = true
				go func() {
					select {
					case answers <- f.ask(ctx, a, group):
					case <-ctx.Done():
					}
				}()
			}
			if !a.busy && a.next.Before(wake) {
				wake = a.next
			}
		}
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case r := <-answers:
				try.Ok(f.told(db, r))
				waiting = false
			case <-time.After(lookEvery):
				_, err := os.Stat(wakeFile(f.Home))
				waiting = err != nil && time.Now().Before(wake)
			}
		}
	}
}

// ask asks a target what has become of jobs, and fetches their runs.
func (f *Follower) ask(ctx context.Context, a *asked, jobs []*history.Job) (r answer) {
	r.from, r.jobs = a, jobs
	s := specOf(jobs[0])
	if r.states, r.err = schedulerOf(&s.Target).states(ctx, jobs); r.err != nil {
		return r
	}
	var uids []string
	for _, j := range jobs {
		if state, known := r.states[j.ID]; known && (state.Status != history.Pending || j.RunStatus == history.Running) {
			uids = append(uids, j.UID)
		}
	}
	if from := s.source(f.Home); f.Pull != nil && len(uids) > 0 && from != nil {
		r.pulled = f.Pull(ctx, *from, uids)
	}
	return r
}

// told records what a target has told of its jobs.
func (f *Follower) told(db *history.DB, r answer) (err error) {
	defer try.Caught(&err)
	a, now, problem := r.from, time.Now(), cmp.Or(r.err, r.pulled)
	a.busy = false
	switch {
	case problem == nil:
		a.failing = time.Time{}
	case a.failing.IsZero():
		a.failing = now
	}
	for _, j := range try.To(db.Jobs(false)) { // somebody may have asked for the end of one meanwhile
		if !slices.ContainsFunc(r.jobs, func(k *history.Job) bool { return k.ID == j.ID }) {
			continue // it is younger than the question
		}
		was, s := *j, specOf(j)
		state, known := r.states[j.ID]
		failing := now.Sub(a.failing)
		waits := problem != nil && failing < goneAfter && (r.err != nil || j.Asked == nil || failing < lostAfter)
		switch {
		case r.err != nil && waits:
			j.Reason = fmt.Sprintf("not known since %s: %v", a.failing.Local().Format("15:04:05"), problem)
		case r.err != nil:
			j.State, j.Reason = history.Lost, fmt.Sprintf("its target has not answered since %s: %v", a.failing.Local().Format(time.DateOnly), problem)
		case !known && j.Asked != nil:
			j.State, j.Reason = history.Cancelled, byDrun
		case !known && s.Missed == nil:
			s.Missed, j.Reason = &now, "its scheduler does not know it at the moment"
		case !known && now.Sub(*s.Missed) > lostAfter:
			j.State, j.Reason = history.Lost, "its scheduler no longer knows it, and it has left no exit code"
		case !known:
		case state.Status.Ended() && r.pulled != nil && waits: // its run first
			j.Reason = fmt.Sprintf("%s, and its run is not here yet: %v", state.Status, r.pulled)
		default:
			s.Missed = nil
			j.State, j.Reason, j.Code = state.Status, state.Reason, state.Code
			if j.State == history.Cancelled && j.Asked != nil {
				j.Reason = byDrun
			}
			if j.State == history.Pending && (was.State == history.Running || strings.HasPrefix(was.Reason, again)) {
				j.Reason = again + j.Reason
			}
		}
		if j.State != was.State {
			a.changed = now
		}
		if j.Spec = s.text(); j.State != was.State || j.Reason != was.Reason || j.Spec != was.Spec {
			try.Ok(db.SetJob(j))
		}
	}
	switch {
	case problem != nil:
		a.next = now.Add(min(max(now.Sub(a.failing), pollSoon), pollLast))
	case len(r.jobs) > 0 && specOf(r.jobs[0]).Target.Kind == Local:
		a.next = now.Add(pollHere)
	case now.Sub(a.changed) < soonFor:
		a.next = now.Add(pollSoon)
	default:
		a.next = now.Add(pollLater)
	}
	return nil
}

// NameOf is what a person calls a job: its target, and what the scheduler there calls it.
func NameOf(j *history.Job) string {
	if j.Handle == "" {
		return fmt.Sprintf("%s:(%d)", j.Target, j.ID)
	}
	return j.Target + ":" + j.Handle
}

// Find finds a job by its name, or by the number or name of its run, whose newest job counts.
func Find(jobs []*history.Job, name string) *history.Job {
	for _, j := range slices.Backward(jobs) {
		if NameOf(j) == name || j.RunName == name && name != "" || fmt.Sprint(j.Run) == name && j.Run > 0 {
			return j
		}
	}
	return nil
}

// Cancel asks for the end of a job.
func Cancel(ctx context.Context, db *history.DB, home string, j *history.Job) error {
	s := specOf(j)
	if j.Handle == "" {
		return exit.WithHint(exit.Errorf(exit.Usage, "job %s is still handed over", NameOf(j)), "try again in a moment")
	}
	err := db.AskEnd(j.ID, true)
	if err == nil && s.Target.Kind != Local { // the follower ends those of the queue here
		err = told(&s.Target, schedulerOf(&s.Target).cancel(ctx, j))
	}
	if err != nil && j.Asked == nil {
		_ = db.AskEnd(j.ID, false) // it goes on
	}
	Wake(home)
	return err
}

// Logs is what a job itself has printed.
func Logs(ctx context.Context, j *history.Job) (string, error) {
	s := specOf(j)
	text, err := schedulerOf(&s.Target).logs(ctx, j)
	return text, told(&s.Target, err)
}

func wakeFile(home string) string { return filepath.Join(home, "jobs", "wake") }

// Wake has the follower look at once.
func Wake(home string) {
	_ = os.WriteFile(wakeFile(home), nil, 0o600) // it looks from time to time in any case
}

// StartFollower starts a process that follows the jobs of a home, unless there is one; arguments are those of drun.
func StartFollower(home string, arguments ...string) (err error) {
	defer try.Caught(&err)
	release := try.To(history.Claim(home, "jobs"))
	if release == nil {
		Wake(home)
		return nil
	}
	release()
	try.Ok(os.MkdirAll(filepath.Join(home, "jobs"), 0o700))
	log := try.To(os.OpenFile(filepath.Join(home, "jobs", "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))
	defer log.Close()
	cmd := exec.Command(try.To(os.Executable()), arguments...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Setsid: true}
	try.Ok(cmd.Start())
	return cmd.Process.Release()
}
