// Package replay proves what drun promises about a recipe, by running it.
package replay

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"drun/checkpoints"
	"drun/engine/run"
	"drun/history"
	"drun/internal/elapsed"
	"drun/internal/exit"
	"drun/internal/scratch"
	"drun/internal/try"
)

// Forgotten names the usual cause of a difference.
const Forgotten = "put everything that changes into the state, and save last: what comes after checkpoint.save in an iteration, random draws too, is not done again"

// Report is what Resume has found.
type Report struct {
	Same  bool
	First string // the first difference; "" if there is none
	Kills int    // between the first checkpoint and the end, after each of which the run went on
	// Points and Bytes are how much was compared: points of metrics, and bytes of the last checkpoint.
	Points int
	Bytes  int64
	// Again is how many points were recorded by one attempt and again by a later one.
	Again int
}

// Resume runs a recipe undisturbed, then with ranks killed at random moments after its first checkpoint, each kill
// followed by a restart, until there were kills of them, and compares all exact metrics and the last checkpoint,
// bit for bit. The options' home, name and limit of restarts are ignored: nothing is left behind. say is called with
// the progress.
func Resume(o run.Options, kills int, rng *rand.Rand, say func(text string)) (_ *Report, err error) {
	defer try.Caught(&err)
	dir := try.To(scratch.Make("verify-"))
	defer dir.Remove()
	o.Home, o.Name, o.MaxRestarts = filepath.Join(dir.Path, "undisturbed"), "", 0
	var saves []time.Time
	o.OnSaved = func(int64) { saves = append(saves, time.Now()) }
	say("running undisturbed")
	calm := try.To(finish(o, "the undisturbed run"))
	if len(saves) == 0 {
		return nil, exit.Errorf(exit.Usage, "the recipe saves no checkpoint, so a run of it cannot go on after a kill")
	}
	want := try.To(outcomeOf(o.Home, calm))
	say(fmt.Sprintf("the undisturbed run took %s and saved %d times; running with kills", elapsed.Text(calm.Seconds), len(saves)))
	r := &Report{Same: true, Points: len(want.points), Bytes: want.bytes}
	// Twice the time that evenly spaced kills would take leaves room for those that hit nothing.
	every := max(time.Millisecond, 2*time.Since(saves[0])/time.Duration(kills+1))
	for round := 0; r.Kills < kills; round++ {
		if round == 20 {
			return nil, exit.Errorf(exit.Usage, "only %d of %d kills came between the run's first checkpoint and its end: it is too short, give it more steps", r.Kills, kills)
		}
		o.Home = filepath.Join(dir.Path, fmt.Sprintf("killed-%d", round))
		k := newKiller(rng, every, kills-r.Kills)
		o.MaxRestarts, o.OnSpawn, o.OnSaved = kills-r.Kills, k.spawned, k.saved // a failure of the recipe itself must not be retried
		stormy, err := finish(o, "the run with kills")
		k.stop()
		if err != nil {
			return nil, err
		}
		got := try.To(outcomeOf(o.Home, stormy))
		r.Kills += stormy.Restarts
		say(fmt.Sprintf("%d of %d kills", r.Kills, kills))
		r.Again += got.again
		if r.First = want.differs(got); r.First != "" {
			r.Same = false
			return r, nil
		}
		every = max(time.Millisecond/4, every/2)
	}
	return r, nil
}

// finish runs a recipe, and returns an error that begins with what unless the run is done.
func finish(o run.Options, what string) (*run.Result, error) {
	r, err := run.Run(o)
	switch {
	case err != nil:
		return nil, err
	case r.Failure != nil:
		return nil, exit.WithHint(exit.WithCode(fmt.Errorf("%s failed: %w", what, r.Failure.Err()), r.Code), r.Failure.Hint)
	case r.Code != exit.Done:
		return nil, exit.Errorf(r.Code, "%s was %s", what, r.Code.Status())
	}
	return r, nil
}

// outcome is what a run has left behind.
type outcome struct {
	*series
	step   int64 // of the last checkpoint
	states [][]checkpoints.Entry
	bytes  int64
	again  int
}

func outcomeOf(home string, r *run.Result) (_ *outcome, err error) {
	defer try.Caught(&err)
	db := try.To(history.OpenReadOnly(home))
	defer db.Close()
	d := try.To(db.Get(r.ID))
	list := try.To(db.Points(r.ID))
	o := &outcome{series: newSeries(list)}
	for attempt := range d.Attempts {
		all := try.To(db.AttemptPoints(r.ID, attempt))
		o.again += len(all)
	}
	o.again -= len(list)
	store, err := checkpoints.OpenIfAny(home)
	if store == nil || err != nil { // nil: it saves only in memory
		return o, err
	}
	defer store.Close()
	for rank := range r.Ranks {
		info, entries := try.To2(store.Load(d.UID, checkpoints.Last, rank))
		o.step, o.states = info.Step, append(o.states, entries)
		for _, e := range entries {
			o.bytes += int64(len(e.Data))
		}
	}
	return o, nil
}

func (o *outcome) differs(other *outcome) string {
	if d := o.series.first(other.series, true); d != nil {
		at := fmt.Sprintf("metric %s at step %d of rank %d", d.Metric, d.Step, d.Rank)
		switch {
		case d.B == nil:
			return at + " was not recorded"
		case d.A == nil:
			return at + " was recorded only after kills"
		}
		return fmt.Sprintf("%s is %v, was %v", at, d.B, d.A)
	}
	if o.step != other.step || len(o.states) != len(other.states) {
		return fmt.Sprintf("the last checkpoint is of step %d, was of step %d", other.step, o.step)
	}
	for rank, entries := range o.states {
		if len(entries) != len(other.states[rank]) {
			return fmt.Sprintf("the last checkpoint has %d entries of rank %d, had %d", len(other.states[rank]), rank, len(entries))
		}
		for i, e := range entries {
			if !sameEntry(e, other.states[rank][i]) {
				return fmt.Sprintf("%s of rank %d differs in the last checkpoint", e.Name, rank)
			}
		}
	}
	return ""
}

type killer struct {
	rng    *rand.Rand
	every  time.Duration // at most, from a checkpoint to the next kill
	events chan func()
	done   chan struct{}

	ranks  map[int]int // pidfds by rank
	left   int         // kills left
	timer  *time.Timer // of the next
	armed  bool        // the timer runs
	killed bool        // a rank was killed, and the run has not saved since in a later attempt
	next   bool        // the ranks have since started again
}

func newKiller(rng *rand.Rand, every time.Duration, kills int) *killer {
	k := &killer{rng: rng, every: every, left: kills, events: make(chan func(), 1000), done: make(chan struct{}), ranks: map[int]int{},
		timer: time.NewTimer(math.MaxInt64)}
	go k.loop()
	return k
}

func (k *killer) loop() {
	defer close(k.done)
	for {
		select {
		case f, more := <-k.events:
			if !more {
				return
			}
			f()
		case <-k.timer.C:
			k.armed = false
			if len(k.ranks) == 0 {
				continue
			}
			rank := slices.Sorted(maps.Keys(k.ranks))[k.rng.IntN(len(k.ranks))]
			if unix.PidfdSendSignal(k.ranks[rank], unix.SIGKILL, nil, 0) == nil {
				k.killed, k.next = true, false
				k.left--
			}
		}
	}
}

// stop ends the killing, since the run is over.
func (k *killer) stop() {
	close(k.events)
	<-k.done
	for _, fd := range k.ranks {
		unix.Close(fd)
	}
}

// spawned notes a process. Its pidfd never refers to another process.
func (k *killer) spawned(rank, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	k.events <- func() {
		if old, is := k.ranks[rank]; is {
			unix.Close(old)
		}
		k.ranks[rank], k.next = fd, true
	}
}

// saved sets the time of the next kill.
func (k *killer) saved(int64) {
	k.events <- func() {
		if k.next {
			k.killed = false
		}
		if k.left > 0 && !k.armed && !k.killed {
			k.armed = true
			k.timer.Reset(time.Duration(k.rng.Int64N(int64(k.every))))
		}
	}
}
