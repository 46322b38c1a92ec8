package worker

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"drun/collective"
	"drun/engine"
	"drun/starlib"

	"go.starlark.net/starlark"
)

// profiler writes down how the rank spends its steps, for `drun forecast`.
type profiler struct {
	engine.Profile
	rank  int
	done  engine.Profiled
	step  []engine.Moment // so far
	steps int             // that have ended
	since time.Time       // the rank computes
	async int             // asynchronous calls so far
}

// errProfiled ends the recipe once its steps have been seen.
var errProfiled = errors.New("the steps have been measured")

func newProfiler(p engine.Profile, rank, world int) *profiler {
	return &profiler{Profile: p, rank: rank, done: engine.Profiled{World: world}}
}

// follow has the profiler told of the rank's steps.
func (p *profiler) follow(rank *starlib.Rank) {
	p.since = time.Now()
	updated, logged := rank.OnUpdate, rank.OnLog
	rank.OnUpdate = func(thread *starlark.Thread, params [][]byte) error {
		if err := updated(thread, params); err != nil {
			return err
		}
		return p.ended()
	}
	rank.OnLog = func(thread *starlark.Thread, step int64) error {
		if err := logged(thread, step); err != nil || rank.Optimizer {
			return err
		}
		return p.ended()
	}
}

// ended notes the end of a step.
func (p *profiler) ended() error {
	p.add(engine.Moment{Compute: p.computed()})
	if p.steps++; p.steps > p.Skip {
		p.done.Steps = append(p.done.Steps, p.step)
	}
	p.step, p.since = nil, time.Now()
	if len(p.done.Steps) < p.Profile.Steps {
		return nil
	}
	if err := p.write(); err != nil {
		return err
	}
	return errProfiled
}

func (p *profiler) computed() float64 { return time.Since(p.since).Seconds() }

func (p *profiler) add(m engine.Moment) { p.step = append(p.step, m) }

// write writes the file; at the end of a recipe that has fewer steps, those that there are.
func (p *profiler) write() error {
	data, err := json.Marshal(p.done)
	if err != nil {
		return err
	}
	return os.WriteFile(p.File(p.rank), data, 0o600)
}

// over is what the end of the recipe means.
func (p *profiler) over(err error) error {
	if errors.Is(err, errProfiled) {
		return nil
	}
	if err == nil {
		err = p.write()
	}
	return err
}

// watch has the profiler told of a Comm's calls.
func (p *profiler) watch(comm collective.Comm) collective.Comm {
	if comm == nil {
		return nil
	}
	w := profiledComm{comm, p}
	if arena, ok := comm.(collective.Arena); ok {
		return profiledArena{w, arena}
	}
	return w
}

// profiledComm is no [collective.ArgumentVerifier]: what is measured stands for nodes too, between which arguments are
// compared in calls of their own.
type profiledComm struct {
	collective.Comm
	p *profiler
}

type profiledArena struct {
	profiledComm
	collective.Arena
}

func (c profiledComm) Split(ctx context.Context, group collective.Group) (collective.Comm, error) {
	comm, err := c.Comm.Split(ctx, group)
	if err != nil || comm == nil {
		return nil, err
	}
	return c.p.watch(comm), nil
}

func (c profiledComm) Start(call *collective.Call) (collective.Work, error) {
	p := c.p
	m := engine.Moment{Compute: p.computed(), Kind: call.Kind.String(), Bytes: len(call.Data().Data), Ranks: c.Size(), At: call.Pos.String()}
	started := time.Now()
	work, err := c.Comm.Start(call)
	if err != nil {
		return nil, err
	}
	if call.Async {
		p.async++
		m.Async = p.async
		p.add(m)
		p.since = started
	}
	return profiledWork{work, p, m, started}, nil
}

type profiledWork struct {
	collective.Work
	p       *profiler
	m       engine.Moment // of the call
	started time.Time
}

func (w profiledWork) Wait(ctx context.Context) error {
	p, m := w.p, w.m
	if m.Async != 0 {
		m = engine.Moment{Compute: p.computed(), Waits: m.Async}
	}
	err := w.Work.Wait(ctx)
	if w.m.Async == 0 {
		m.Took = time.Since(w.started).Seconds()
	}
	p.add(m)
	p.since = time.Now()
	return err
}

// Source is the sender of a received message.
func (w profiledWork) Source() int {
	if r, ok := w.Work.(collective.Receipt); ok {
		return r.Source()
	}
	return collective.AnySource
}
