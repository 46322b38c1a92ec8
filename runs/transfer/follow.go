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
	ending bool
	heard  time.Time // when the server has answered last
	failed bool      // a request has failed since
	left   int       // runs of which the server lacks something
	told   sync.Once
}

// Times of a follower.
const (
	tick       = 500 * time.Millisecond // between two looks at the history
	heartbeat  = 8 * time.Second        // a lease is prolonged in time
	onceWithin = 20 * time.Second       // one request
	backOff    = 10 * time.Second       // the longest wait before a server that did not answer is asked again
	silentFor  = 3 * time.Second        // at the end, for a server that does not answer
	busyFor    = 12 * time.Second       // the same, if it has a request that has not failed
)

// Follow begins to follow a run. It returns at once.
func (f *Follower) Follow(id int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx == nil {
		f.ctx, f.cancel = context.WithCancel(Local(context.Background()))
		f.runs.Go(func() { _ = f.earlier() }) // the next follower sends what is left
	}
	f.runs.Go(func() {
		if err := f.run(id); err != nil && f.ctx.Err() == nil {
			f.tell(err)
		}
	})
}

// tell says once why the server gets nothing.
func (f *Follower) tell(err error) {
	f.told.Do(func() {
		f.Say("drun: " + f.Server + ": " + err.Error() + "; what it lacks stays here, and follows later")
	})
}

// End waits until the server has everything, at most for a time, only while it answers, and until a signal comes. It returns how many runs the
// server still lacks something of.
func (f *Follower) End(atMost time.Duration, signals <-chan os.Signal) (left int) {
	f.mu.Lock()
	begun := f.ctx != nil
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
	for look := time.Tick(50 * time.Millisecond); !stop; {
		select {
		case <-done:
			f.cancel()
			return f.left
		case <-signals:
			stop = true
		case <-look:
			f.mu.Lock()
			silent := time.Since(f.heard)
			stop = silent > silentFor && f.failed || silent > busyFor || time.Now().After(end)
			f.mu.Unlock()
		}
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

// open opens the server, and notes when it answers.
func (f *Follower) open() (*Remote, error) {
	to, err := f.Open()
	if err != nil {
		return nil, err
	}
	to.Within = onceWithin
	to.answered = func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.heard, f.failed = time.Now(), false
	}
	return to, nil
}

// note writes down whether the server lacks something of a run.
func (f *Follower) note(uid string, lacks bool) error {
	db, err := history.Open(f.Home)
	if err != nil {
		return err
	}
	return errors.Join(db.NoteServer(uid, f.Server, lacks), db.Close())
}

// earlier sends what the server lacks of runs that have ended before.
func (f *Follower) earlier() (err error) {
	defer try.Caught(&err)
	home, to := try.To(OpenHome(f.Home, false)), try.To(f.open())
	defer home.Close()
	defer to.Close()
	for _, s := range try.To(home.db.States(try.To(home.db.NotedFor(f.Server)))) {
		_, err := Copy(f.ctx, home, to, []Found{{s.ID, s.UID, s.Name}}, Options{Weights: f.Weights, Say: func(string) {}})
		if err == nil || errors.As(err, new(*history.Gone)) {
			try.Ok(f.note(s.UID, false))
		} else if exit.CodeOf(err) != exit.Recipe || f.ctx.Err() != nil { // that one cannot be sent
			return err
		}
	}
	return nil
}

// following is a run that is followed.
type following struct {
	*Follower
	from   *Home
	to     *Remote
	run    Found
	source *history.Source
	have   *history.Extent // nil: not known
	sent   time.Time
	doing  bool          // somebody wants to know what the ranks do
	stamp  history.Stamp // of the home when it was read last
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
	to.Patience = silentFor
	r := &following{Follower: f, from: home, to: to, run: Found{id, uid[0], ""}}
	ended := make(chan struct{})
	var saves sync.WaitGroup
	saves.Go(func() { r.saves(ended) })
	err = r.again(r.rows)
	close(ended)
	saves.Wait()
	if err == nil && f.Weights != "none" {
		err = r.again(func() (bool, error) { return true, r.weights() })
	}
	if err == nil {
		return f.note(uid[0], false)
	}
	f.mu.Lock()
	f.left++
	f.mu.Unlock()
	return err
}

// again does something until it has ended, with pauses that grow while the server does not answer.
func (r *following) again(do func() (ended bool, err error)) error {
	for wait := tick; ; {
		ended, err := do()
		switch {
		case err != nil && !passes(err):
			return err
		case err != nil:
			r.have = nil // what has arrived is not known
			wait = min(2*wait, backOff)
		case ended:
			return nil
		default:
			wait = tick
		}
		r.mu.Lock()
		pause := wait
		r.failed = r.failed || err != nil
		if r.ending {
			pause = min(pause, 200*time.Millisecond)
		}
		r.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
	}
}

// passes reports whether an error of the server may be over soon.
func passes(err error) bool {
	refused := (*Refused)(nil)
	if errors.As(err, &refused) {
		return refused.temporary() || refused.Status >= 500
	}
	for _, final := range []any{new(*history.Diverged), new(*history.Gone), new(*VersionError), new(*history.Misshapen)} {
		if errors.As(err, final) {
			return false
		}
	}
	return true
}

// rows sends what is new, if there may be something, and reports whether that was the end.
func (r *following) rows() (ended bool, err error) {
	now := history.StampOf(r.Home)
	if r.have != nil && now == r.stamp && now.Settled(time.Now()) && time.Since(r.sent) < heartbeat && !r.doing {
		return false, nil
	}
	r.stamp = now
	return r.next()
}

func (r *following) next() (ended bool, err error) {
	defer try.Caught(&err)
	if r.have == nil {
		try.Ok(agree(r.ctx, r.from, r.to))
		known := try.To(Extent(r.ctx, r.to, Part{r.run.UID, -1, -1}))
		r.have, r.source = &known.Extent, r.from.db.SourceOf(r.run.UID)
		r.source.Live = true
	}
	d := try.To(r.source.Since(*r.have))
	try.To(Fill(r.ctx, r.from, r.to, d))
	m := try.To(Merge(r.ctx, r.to, Arriving{Delta: d, Live: true, Doing: r.now()}))
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
	s, _ := r.from.db.Doing(ctx, r.run.ID)
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
		now, err := r.from.db.States([]string{r.run.UID})
		if err != nil || len(now) == 0 || now[0].Checkpoints == known {
			continue
		}
		if _, _, err := CopyCheckpoints(r.ctx, r.from, r.to, r.run.UID, r.Weights); err == nil {
			known = now[0].Checkpoints
		}
	}
}

// weights sends the checkpoints that are not there yet, and the files.
func (r *following) weights() error {
	_, _, err := CopyCheckpoints(r.ctx, r.from, r.to, r.run.UID, r.Weights)
	if err == nil {
		_, _, err = copyFiles(r.ctx, r.from, r.to, r.run.UID, true)
	}
	return err
}
