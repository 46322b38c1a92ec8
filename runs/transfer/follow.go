package transfer

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/try"
)

// Follower sends runs to a server while they go on. It reads what they have written to their home, in goroutines of its own,
// so that a server that is slow, dead or gone keeps no run waiting, and nothing is lost: the home's history notes which
// runs the server lacks something of, and the next follower sends that first.
type Follower struct {
	Home    string
	Server  string // its address, as the history notes it
	Weights string // of which checkpoints: none, best or all
	Open    func() (*Remote, error)
	Say     func(text string)

	ctx    context.Context
	cancel context.CancelFunc
	runs   sync.WaitGroup
	mu     sync.Mutex
	begun  bool
	ending bool
	heard  time.Time // when the server has answered last
	left   int       // runs of which the server lacks something
	told   bool
}

// Times of a follower.
const (
	tick       = 500 * time.Millisecond // between two looks at the history
	heartbeat  = 8 * time.Second        // a lease is prolonged in time
	onceWithin = 20 * time.Second       // one request
	backOff    = 10 * time.Second       // the longest wait before a server that did not answer is asked again
	silentFor  = 3 * time.Second        // at the end, for a server that does not answer
)

// Follow begins to follow a run. It returns at once.
func (f *Follower) Follow(id int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx == nil {
		f.ctx, f.cancel = context.WithCancel(Local(context.Background()))
	}
	if !f.begun {
		f.runs.Go(f.earlier)
	}
	f.begun = true
	f.runs.Go(func() {
		if err := f.run(id); err != nil && f.ctx.Err() == nil {
			f.tell(err)
		}
	})
}

// tell says once why the server gets nothing.
func (f *Follower) tell(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.told {
		f.told = true
		f.Say("drun: " + f.Server + ": " + err.Error() + "; what it lacks stays here, and follows later")
	}
}

// End waits until the server has everything, at most for a time, only while it answers, and until a signal comes. It returns how many runs the
// server still lacks something of.
func (f *Follower) End(atMost time.Duration, signals <-chan os.Signal) (left int) {
	f.mu.Lock()
	begun := f.begun
	f.ending, f.heard = true, time.Now()
	f.mu.Unlock()
	if !begun {
		return 0
	}
	done := make(chan struct{})
	go func() {
		f.runs.Wait()
		close(done)
	}()
	end, stop := time.Now().Add(atMost), false
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-done:
			f.cancel()
			return f.left
		case <-signals:
			stop = true
		case <-look.C:
		}
		f.mu.Lock()
		stop = stop || time.Since(f.heard) > silentFor || time.Now().After(end)
		f.mu.Unlock()
		if !stop {
			continue
		}
		f.cancel() // requests end with it
		select {
		case <-done:
		case <-time.After(silentFor): // another process has the history locked
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		return max(f.left, 1)
	}
}

// following is a run that is followed.
type following struct {
	*Follower
	from   *Home
	to     *Remote
	uid    string
	source *history.Source
	have   *history.Extent // nil: not known
	sent   time.Time
	doing  bool // somebody wants to know what the ranks do
	id     int64
}

func (f *Follower) run(id int64) (err error) {
	defer try.Caught(&err)
	home := try.To(OpenHome(f.Home, false))
	defer home.Close()
	uid := try.To(home.db.UIDs([]int64{id}))
	if len(uid) == 0 {
		return nil
	}
	try.Ok(f.note(uid[0], true))
	to := try.To(f.open())
	defer to.Close()
	to.Within, to.Patience = onceWithin, silentFor
	run := &following{Follower: f, from: home, to: to, uid: uid[0], id: id}
	ended := make(chan struct{})
	var saves sync.WaitGroup
	saves.Go(func() { run.saves(ended) })
	complete := run.rows()
	close(ended)
	saves.Wait()
	if complete && run.weights() == nil {
		try.Ok(f.note(uid[0], false))
	} else {
		f.mu.Lock()
		f.left++
		f.mu.Unlock()
	}
	return nil
}

// note writes down whether the server lacks something of a run.
func (f *Follower) note(uid string, lacks bool) error {
	db, err := history.Open(f.Home)
	if err != nil {
		return err
	}
	return errors.Join(db.NoteServer(uid, f.Server, lacks), db.Close())
}

// rows sends what the run records until it has ended, and reports whether the server has all of it.
func (r *following) rows() (complete bool) {
	wait := tick
	stamp, first := history.Stamp{}, true
	for {
		now, taken := history.StampOf(r.Home), time.Now()
		quiet := !first && now == stamp && now.Settled(taken) && time.Since(r.sent) < heartbeat && !r.doing
		if !quiet {
			ended, err := r.next()
			switch {
			case ended:
				return true
			case err == nil:
				wait = tick
				stamp, first = now, false
			case !passes(err):
				r.tell(err)
				return false
			default:
				r.have, first = nil, true // what has arrived is not known
				wait = min(2*wait, backOff)
			}
		}
		r.mu.Lock()
		pause := wait
		if r.ending {
			pause = min(pause, 200*time.Millisecond)
		}
		r.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-r.ctx.Done():
			return false
		}
	}
}

// passes reports whether an error of the server may be over soon.
func passes(err error) bool {
	refused := (*Refused)(nil)
	if errors.As(err, &refused) {
		return refused.temporary || refused.Status >= 500
	}
	return !errors.As(err, new(*history.Diverged)) && !errors.As(err, new(*VersionError)) && !errors.As(err, new(*history.Misshapen))
}

// next sends what is new, and reports whether that was the end.
func (r *following) next() (ended bool, err error) {
	defer try.Caught(&err)
	if r.have == nil {
		try.Ok(agree(try.To(r.from.Hello(r.ctx)), try.To(r.to.Hello(r.ctx))))
		known := try.To(r.to.Extent(r.ctx, Part{r.uid, -1, -1}))
		r.have, r.source = &known.Extent, r.from.db.SourceOf(r.uid)
		r.source.Live = true
	}
	d := try.To(r.source.Since(*r.have))
	try.To(Fill(r.ctx, r.from, r.to, d))
	m := try.To(r.to.Merge(r.ctx, Arriving{Delta: d, Live: true, Doing: r.now()}))
	after := r.have.After(d)
	after.ID = m.ID
	r.have, r.sent, r.doing = &after, time.Now(), m.Watched
	if d.More {
		return r.next()
	}
	return d.Row.Status != history.Running, nil
}

// now is what the ranks do, if somebody wants to know it.
func (r *following) now() *records.Snapshot {
	if !r.doing {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.ctx, time.Second)
	defer cancel()
	s, _ := r.from.db.Doing(ctx, r.id)
	return s
}

// saves sends checkpoints while the run goes on, as long as that takes: points do not wait for them.
func (r *following) saves(ended <-chan struct{}) {
	known := "[]"
	for r.Weights != "none" {
		select {
		case <-time.After(2 * time.Second):
		case <-ended:
			return
		case <-r.ctx.Done():
			return
		}
		now, err := r.from.db.States([]string{r.uid})
		if err != nil || len(now) == 0 || now[0].Checkpoints == known {
			continue
		}
		if _, _, err := CopyCheckpoints(r.ctx, r.from, r.to, r.uid, r.Weights); err == nil {
			known = now[0].Checkpoints
		}
	}
}

// weights sends the checkpoints that are not there yet.
func (r *following) weights() error {
	if r.Weights == "none" {
		return nil
	}
	wait := tick
	for {
		_, _, err := CopyCheckpoints(r.ctx, r.from, r.to, r.uid, r.Weights)
		if err == nil || !passes(err) || r.ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(wait):
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
		wait = min(2*wait, backOff)
	}
}

// open opens the server, and notes when it answers.
func (f *Follower) open() (*Remote, error) {
	to, err := f.Open()
	if err == nil {
		to.answered = func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.heard = time.Now()
		}
	}
	return to, err
}

// earlier sends what the server lacks of runs that have ended before.
func (f *Follower) earlier() {
	home, err := OpenHome(f.Home, false)
	if err != nil {
		return
	}
	defer home.Close()
	to, err := f.open()
	if err != nil {
		return
	}
	defer to.Close()
	uids, err := home.db.NotedFor(f.Server)
	for _, uid := range uids {
		if err != nil || f.ctx.Err() != nil {
			break
		}
		state, serr := home.db.States([]string{uid})
		if serr != nil || len(state) == 0 {
			continue
		}
		_, err = Copy(f.ctx, home, to, []Found{{state[0].ID, uid, state[0].Name}}, Options{Weights: f.Weights, Say: func(string) {}})
		if err == nil {
			err = f.note(uid, false)
		} else if exit.CodeOf(err) == exit.Recipe {
			err = nil // this one cannot be sent
		}
	}
}
