package submit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"drun/history"
	"drun/internal/try"
)

// One process of drun follows the jobs of a home, as long as there are some that have not ended: it starts those of the queue
// here, asks the other targets' schedulers, and fetches what their runs record. drun submit starts it, and every command that
// waits for jobs does if it is gone; no terminal is needed.

const (
	pollSoon  = time.Second      // how often a scheduler is asked, while
	soonFor   = 30 * time.Second // its jobs are this young, or have changed this lately;
	pollLater = 5 * time.Second  // later;
	pollLast  = time.Minute      // and at least, if it does not answer
	lostAfter = 2 * time.Minute  // a job that its scheduler does not know is lost
	handed    = 10 * time.Minute // after which a job that no scheduler was given never will be

	again = "its nodes were taken back, and it goes on later: " // begins the reason why a job is pending that was running
)

// Follower follows the jobs of a home.
type Follower struct {
	Home string
	// Pull fetches runs, by their uids, from the home that a target's jobs have. Those that have not begun there are left out.
	Pull func(ctx context.Context, from Source, uids []string) error
}

// Source is a home of runs on a target.
type Source struct {
	Host string // "": this machine
	Drun string // the program there
	Home string
}

// SourceOn is the home of the runs of a target on another machine, where jobs of this version of drun have put it.
func SourceOn(t *Target, version string) Source {
	root := strings.TrimRight(t.Get("folder"), "/")
	return Source{t.Get("host"), cmp.Or(t.Get("drun"), root+"/bin/"+folderOf(version)+"/drun"), root + "/home"}
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
		if again, err := unfinished(f.Home); !again { // one may have come meanwhile
			return err
		}
	}
}

func unfinished(home string) (bool, error) {
	db, err := history.OpenReadOnly(home)
	if err != nil {
		return false, err
	}
	defer db.Close()
	jobs, err := db.Jobs(false)
	return len(jobs) > 0, err
}

// answer is what came of asking a target.
type answer struct {
	target string
	jobs   []*history.Job // that it was asked about
	states map[int64]State
	pulled error // why runs could not be fetched
	err    error // why the scheduler did not answer
}

// asked is how a target is asked.
type asked struct {
	busy    bool
	next    time.Time
	changed time.Time
	failing time.Time // since when it does not answer; zero: it does
}

func (f *Follower) follow(ctx context.Context) (err error) {
	defer try.Caught(&err)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	try.Ok(os.MkdirAll(filepath.Join(f.Home, "jobs"), 0o700))
	woken, stop := try.To2(watch(filepath.Join(f.Home, "jobs")))
	defer stop()
	db := try.To(history.Open(f.Home))
	defer db.Close()
	answers, over := make(chan answer), make(chan struct{}, 1)
	targets := map[string]*asked{}
	for {
		if db.Replaced() {
			return nil
		}
		jobs := try.To(db.Jobs(false))
		if len(jobs) == 0 {
			return nil
		}
		groups := map[string][]*history.Job{}
		for _, j := range jobs {
			switch {
			case j.Handle != "":
				s := specOf(j)
				key := s.Target.Kind + " " + j.Target + " " + s.Target.Get("host") + " " + s.Home
				groups[key] = append(groups[key], j)
			case time.Since(j.Submitted) > handed:
				j.State, j.Reason = history.Lost, "drun submit ended before the scheduler had taken it"
				try.Ok(db.SetJob(j))
			}
		}
		wake := time.Now().Add(pollLast)
		for key, group := range groups {
			if specOf(group[0]).Target.Kind == Local {
				try.Ok(f.queue(ctx, db, group, over))
				continue
			}
			a := targets[key]
			if a == nil {
				a = &asked{changed: time.Now()}
				targets[key] = a
			}
			if newest := group[len(group)-1].Submitted; newest.After(a.changed) {
				a.changed, a.next = newest, time.Time{}
			}
			if !a.busy && !time.Now().Before(a.next) {
				a.busy = true
				go func() {
					select {
					case answers <- f.ask(ctx, key, group):
					case <-ctx.Done():
					}
				}()
			}
			if !a.busy && a.next.Before(wake) {
				wake = a.next
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-woken:
		case <-over:
		case <-time.After(time.Until(wake)):
		case r := <-answers:
			a := targets[r.target]
			a.busy = false
			try.Ok(f.told(db, groups[r.target], a, r))
		}
	}
}

// ask asks a target what has become of jobs, and fetches their runs.
func (f *Follower) ask(ctx context.Context, key string, jobs []*history.Job) (r answer) {
	r.target, r.jobs = key, jobs
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
	if f.Pull != nil && len(uids) > 0 && s.Target.Kind == "slurm" && s.Home != absolute(f.Home) {
		r.pulled = f.Pull(ctx, Source{s.Target.Get("host"), s.Drun, s.Home}, uids)
	}
	return r
}

// told records what a target has told of its jobs.
func (f *Follower) told(db *history.DB, jobs []*history.Job, a *asked, r answer) (err error) {
	defer try.Caught(&err)
	problem := r.err
	if problem == nil {
		problem = r.pulled
	}
	now := time.Now()
	if problem == nil {
		a.failing = time.Time{}
	} else if a.failing.IsZero() {
		a.failing = now
	}
	for _, j := range jobs {
		if !slices.ContainsFunc(r.jobs, func(k *history.Job) bool { return k.ID == j.ID }) {
			continue // it is younger than the question
		}
		was, s := *j, specOf(j)
		state, known := r.states[j.ID]
		switch {
		case r.err != nil:
			j.Reason = fmt.Sprintf("not known since %s: %v", a.failing.Local().Format("15:04:05"), problem)
		case !known && j.Asked != nil:
			j.State, j.Reason = history.Cancelled, "by drun jobs cancel"
		case !known && s.Missed == nil:
			s.Missed, j.Reason = &now, "its scheduler does not know it at the moment"
		case !known && now.Sub(*s.Missed) > lostAfter:
			j.State, j.Reason = history.Lost, "its scheduler no longer knows it, and it has left no exit code"
		case !known:
		case state.Status.Ended() && r.pulled != nil: // its run first
			j.Reason = fmt.Sprintf("%s, and its run is not here yet: %v", state.Status, r.pulled)
		default:
			s.Missed = nil
			j.State, j.Reason, j.Code = state.Status, state.Reason, state.Code
			if j.State == history.Pending && (was.State == history.Running || strings.HasPrefix(was.Reason, again)) {
				j.Reason = again + j.Reason
			}
		}
		j.Spec = s.text()
		if j.State != was.State {
			a.changed = now
		}
		if j.State != was.State || j.Reason != was.Reason || j.Spec != was.Spec {
			try.Ok(db.SetJob(j))
		}
	}
	switch {
	case problem != nil:
		a.next = now.Add(min(max(now.Sub(a.failing), pollSoon), pollLast))
	case now.Sub(a.changed) < soonFor:
		a.next = now.Add(pollSoon)
	default:
		a.next = now.Add(pollLater)
	}
	return nil
}

// queue looks at the jobs of this machine, and starts those for which there is room.
func (f *Follower) queue(ctx context.Context, db *history.DB, jobs []*history.Job, over chan<- struct{}) (err error) {
	defer try.Caught(&err)
	q := local{}
	states := try.To(q.states(ctx, jobs))
	var waiting, running []*history.Job
	for _, j := range jobs {
		state := states[j.ID]
		switch {
		case state.Status == history.Pending && j.Asked != nil:
			state = State{Status: history.Cancelled, Reason: "by drun jobs cancel"}
		case state.Status == history.Pending:
			waiting = append(waiting, j)
			continue
		case state.Status == history.Running:
			running = append(running, j)
			if j.Asked != nil {
				_ = q.cancel(ctx, j)
			}
		}
		try.Ok(set(db, j, state))
	}
	begin, why := next(waiting, running)
	for _, j := range begin {
		state := State{Status: history.Running, Reason: "on this machine"}
		err := q.begin(j, func() {
			select {
			case over <- struct{}{}:
			default:
			}
		})
		if err != nil {
			state = State{Status: history.Failed, Reason: err.Error()}
		}
		try.Ok(set(db, j, state))
	}
	for _, j := range waiting[len(begin):] {
		try.Ok(set(db, j, State{Status: history.Pending, Reason: why}))
		why = fmt.Sprintf("after job %s", NameOf(j))
	}
	return nil
}

func set(db *history.DB, j *history.Job, s State) error {
	if j.State == s.Status && j.Reason == s.Reason {
		return nil
	}
	j.State, j.Reason, j.Code = s.Status, s.Reason, s.Code
	return db.SetJob(j)
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
	if err := db.AskEnd(j.ID); err != nil {
		return err
	}
	Wake(home)
	s := specOf(j)
	if s.Target.Kind == Local || j.Handle == "" {
		return nil // the follower ends it
	}
	return told(&s.Target, schedulerOf(&s.Target).cancel(ctx, j))
}

// Logs copies what a job itself has printed.
func Logs(ctx context.Context, j *history.Job, to io.Writer) error {
	s := specOf(j)
	return told(&s.Target, schedulerOf(&s.Target).logs(ctx, j, to))
}

// Wake has the follower look at once.
func Wake(home string) {
	_ = os.WriteFile(filepath.Join(home, "jobs", "wake"), nil, 0o600) // it looks from time to time in any case
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

// watch tells when a file of a folder is written or made.
func watch(dir string) (woken <-chan struct{}, stop func(), err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, nil, err
	}
	file := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO); err != nil {
		file.Close()
		return nil, nil, err
	}
	events := make(chan struct{}, 1)
	go func() {
		buffer := make([]byte, 4096)
		for {
			if _, err := file.Read(buffer); errors.Is(err, os.ErrClosed) || err != nil {
				return
			}
			select {
			case events <- struct{}{}:
			default:
			}
		}
	}()
	return events, func() { file.Close() }, nil
}
