// Package record keeps what a run leaves behind: its rows in the history, written in batches during the run, and
// its checkpoints. Only this package knows the databases; engine/run calls it. A disk that is locked, slow or hangs
// delays a run no longer than the configured time.
package record

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"drun/checkpoints"
	"drun/engine"
	"drun/engine/board"
	"drun/engine/recipe"
	"drun/engine/rendezvous"
	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/secret"
	"drun/internal/try"
	"drun/plugins/host"
)

// History says what is kept of a run, and which run it continues.
type History struct {
	Home        string
	Name        string // of the run; "" to have one made up
	Tags        []string
	Resume      string         // RUN[@STEP or @best], or Auto; "": the run is a new one. For the engine also a file of weights
	ProjectName string         // the project of a team that the run belongs to; "": none
	Replay      *Replay        // the run to repeat, in which case recipe, parameters and Resume are ignored; nil: a new run
	Keep        int            // how many of the run's newest checkpoints to keep, besides the best; 0: all
	KeepSecrets bool           // keep the values of parameters whose names suggest secrets
	DiskTimeout time.Duration  // for a disk that does not answer; 0: DiskTimeout
	Sweep       *records.Sweep // that it is a cell of; nil: none
	UID         string         // that a job was given for its run, which is continued if it has begun; "": the run belongs to no job
	records.Given
}

// Config is what a run's record needs at its beginning. Most of its fields go into the run's row of the history as they are.
type Config struct {
	History
	Recipe        *recipe.Bundle
	Placements    []rendezvous.Placement // by rank
	Backend       string
	Plugin        *host.Plugin // of the backend; nil: built in
	Seed          int64
	SeedGiven     bool // otherwise a resumed run keeps its seed
	Threads       int
	Deterministic bool
	OtherBits     string   // the device that may compute other bits than the processor; "": there is none
	DataDirs      []string // absolute
	Started       time.Time
	Params        []engine.Param    // as given
	Say           func(text string) // tells a person about the record; the text is also kept in the logs
	// Doing returns what the ranks are doing now, for other processes that ask the agent; several goroutines may call
	// it. It returns nil while there are no ranks. If Doing is nil, no such request is answered.
	Doing func(context.Context) (*board.Snapshot, error)
	// Debugged is called for each debugger that comes to the run. If it is nil, none can.
	Debugged func(net.Conn)
}

// Record is the record of one run: what it consists of, its checkpoints and, within these, its rows in the history.
type Record struct {
	Checkpoints
	// Params are the given parameters, with those of the resumed run.
	Params []engine.Param
	// Seed is the given seed or, if none was given, that of the resumed run.
	Seed int64

	keep     bool // keep the values of secrets
	plugin   *host.Plugin
	db       *history.DB
	identity *history.Inputs // without the parameters, which the recipe declares later
	unkeyed  bool            // see Unkey; or the run was begun by a drun that kept no key
	before   history.Params  // of a run that is continued, until its recipe has declared them
	git      sync.WaitGroup  // asking for the state of the recipe's repository
	earlier  time.Duration   // from the beginning of the run to that of this process
}

// Open enters a run in the history. Its error says why there is no run; hurry ends the wait for the disk, unless the run is
// being entered, which could not be taken back.
func Open(c Config, hurry <-chan struct{}) (*Record, error) {
	var r *Record
	var failed error
	var entry entrance
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, failed = open(c, &entry)
	}()
	ended := func() error { <-done; return failed }
	err := bounded(c.Home, c.DiskTimeout, hurry, ended)
	if IsHung(err) && !entry.refuse() {
		err = bounded(c.Home, enterFor, nil, ended)
	}
	if err != nil {
		return nil, err // r belongs to the work that was left behind
	}
	return r, nil
}

// enterFor is how long the disk has to enter a run after a signal, or after the time limit.
const enterFor = 5 * time.Second

// entrance is whether a run may still be entered in the history, which one side decides.
type entrance struct{ state atomic.Int32 }

const (
	undecided = iota
	entering
	refused
)

func (e *entrance) enter() error {
	if !e.state.CompareAndSwap(undecided, entering) && e.state.Load() == refused {
		return errors.New("the run is not wanted any more")
	}
	return nil
}

// refuse reports that the run is not in the history and will not be.
func (e *entrance) refuse() bool { return e.state.CompareAndSwap(undecided, refused) }

func open(c Config, entry *entrance) (_ *Record, err error) {
	r := &Record{keep: c.KeepSecrets, Seed: c.Seed, plugin: c.Plugin, Params: c.Params, Checkpoints: Checkpoints{newest: c.Keep, places: c.Placements, restores: newRestores(),
		rows: rows{home: c.Home, atMost: c.DiskTimeout, say: c.Say, attempt: newAttempt(0, time.Now(), 0)}}}
	git := askGit(c.Recipe.Dir) // takes as long as opening the history
	if r.db, err = history.Open(c.Home); err != nil {
		return nil, err
	}
	defer try.CaughtOr(&err, func() {
		if r.run != nil && r.attempt.number == 0 {
			_ = r.run.Discard()
		} else if r.run != nil {
			r.run.Leave() // it counts as lost again
		}
		r.closeStores(false)
		r.db.Close()
	})
	if c.Resume == "" && c.Recipe.Names("checkpoint") {
		if err = checkpoints.Check(c.Home); err != nil && !errors.As(err, new(*checkpoints.ErrNone)) {
			return nil, err
		}
	}
	info := history.RunInfo{Name: c.Name, Recipe: c.Recipe.Name, Project: string(c.Recipe.Project), ProjectName: c.ProjectName, WorldSize: len(c.Placements), Backend: c.Backend, Seed: c.Seed,
		Threads: c.Threads, Deterministic: c.Deterministic, Numerics: engine.Numerics, DataDirs: c.DataDirs, Given: c.Given, Started: c.Started, Sweep: c.Sweep, UID: c.UID, Enter: entry.enter}
	var before *history.Detail // the run, if it is continued
	if c.Resume == Auto || c.UID != "" {
		before = try.To(r.unfinished(c))
		info.Seed = r.Seed
	}
	if before == nil && c.Resume != "" && c.Resume != Auto {
		r.store = try.To(checkpoints.Open(c.Home))
		r.from = try.To(findOrigin(r.db, r.store, c.Resume))
		r.Params = Override(r.from.params, c.Params)
		if !c.SeedGiven {
			r.Seed, info.Seed = r.from.seed, r.from.seed
		}
		info.Parent = &history.Parent{ID: r.from.line[0].ID, Step: r.from.info.Step}
	}
	if c.Replay != nil && c.Replay.From != "" {
		try.Ok(r.goOnFrom(c.Replay))
	}
	if before != nil {
		try.Ok(r.reopen(before, info))
	} else {
		r.run = try.To(r.db.Begin(info))
		try.Ok(r.run.BeginAttempt())
	}
	if c.Doing != nil {
		r.answer(c.Doing)
	}
	if c.Debugged != nil {
		r.run.AnswerDebuggers(c.Debugged)
	}
	try.Ok(r.run.AddSources(c.Recipe.Sources))
	if tags := append(slices.Clone(c.Tags), rendezvous.JobTags(os.LookupEnv)...); len(tags) > 0 {
		try.Ok(r.run.Tag(tags...))
	}
	if c.Plugin != nil {
		try.Ok(r.run.Write(&history.Batch{Batch: records.Batch{Plugins: []records.Plugin{r.pluginRow("")}}}))
	}
	r.identity = inputsOf(c, r.Seed)
	if c.Replay == nil && r.from != nil {
		r.identity.Parent = fmt.Sprintf("%s@%d", r.from.line[0].UID, r.from.info.Step)
	}
	r.writer = newWriter(r.run, c.Home, c.DiskTimeout, r.Say)
	r.git.Go(func() {
		if found := <-git; found != nil {
			r.writer.add(1, 0, func(b *history.Batch) { b.Git = found })
		}
	})
	if info.Parent != nil {
		if d := try.To(r.db.Get(info.Parent.ID)); d.Backend != FileBackend {
			r.sayChanges(d, c.Recipe)
		}
	}
	r.unkeyed = before != nil && before.Inputs == ""
	if before != nil {
		r.beginAnew()
		if r.store != nil {
			try.Ok(r.sayMissing(before))
		}
		r.sayChanges(before, c.Recipe)
		r.before = before.Params
	}
	return r, nil
}

// Unkey notes that the run's inputs alone do not determine what it computes, as when a person asks it to stop early: it
// then cannot stand in for another run with the same inputs. Only the coordinator calls it.
func (r *Record) Unkey() {
	r.unkeyed = true
	none := ""
	r.writer.add(1, 0, func(b *history.Batch) { b.Inputs = &none })
}

func (r *Record) Add(rank int, m *engine.ToAgent) {
	if d := m.Declared; d != nil {
		params := values(d.Params, r.keep)
		r.identity.Params = params
		r.sayOtherParams(params)
		inputs, err := r.identity.Key()
		if err != nil || r.unkeyed {
			inputs = "" // the parameters could not be recorded either
		}
		r.writer.add(len(d.Params), 0, func(b *history.Batch) { b.Params, b.Inputs = append(b.Params, params...), &inputs })
	}
	r.Records(rank, &m.Records)
	if m.Uses != nil {
		r.uses(m.Uses)
	}
	if m.Version != nil && r.plugin != nil {
		r.writer.add(1, 0, func(b *history.Batch) { b.Plugins = append(b.Plugins, r.pluginRow(*m.Version)) })
	}
}

func (r *Record) Records(rank int, made *records.Batch) {
	n, bytes := made.Size()
	if n == 0 {
		return
	}
	made.SetRank(rank, r.attempt.number)
	if points := made.Points; len(points) > 0 {
		r.recorded(rank, len(points))
		if rank == 0 && !r.loops {
			r.count(points)
		}
	}
	r.writer.add(n, bytes, func(b *history.Batch) { b.Append(made) })
}

// uses records the plugin that a group has for itself. If its engine reduces in an order of its own, the run cannot
// stand in for another.
func (r *Record) uses(u *engine.Uses) {
	if r.plugin != nil && r.plugin.Name == u.Name {
		return
	}
	r.writer.add(1, 0, func(b *history.Batch) { b.Plugins = append(b.Plugins, u.Plugin) })
	if u.Orders && !r.unkeyed {
		r.Unkey()
	}
}

func (r *Record) pluginRow(version string) records.Plugin {
	return records.Plugin{Name: r.plugin.Name, Version: version, Path: r.plugin.Path, SHA256: r.plugin.SHA256}
}

// Drain waits for the saves and restores under way, and until everything is stored. fault says why not all of the
// record is stored, hung that the disk does not answer, in which case the stores stay open.
func (r *Record) Drain() (fault, hung error) {
	hung = bounded(r.home, saveFactor*r.atMost, r.writer.hurry, func() error { r.pending.Wait(); return nil })
	_ = r.writer.sync() // its error is also among the faults
	select {
	case fault = <-r.writer.faults:
	default:
	}
	return fault, hung
}

// Finish writes the run's end. spool is where the end waits for the next process that opens the history; the error
// says why it is not recorded.
func (r *Record) Finish(code exit.Code, text string, seconds float64) (spool string, err error) {
	r.endUndecided(code)
	r.git.Wait() // it has a time limit
	spool, err = r.writer.close(&history.End{Status: history.Status(code.Status()), ExitCode: int(code), Error: text, Seconds: seconds + r.earlier.Seconds()})
	if spool != "" || err != nil {
		r.run.Leave()
	}
	return spool, err
}

func (r *Record) Discard() (err error) {
	defer try.Caught(&err)
	try.To(r.writer.close(nil))
	return bounded(r.home, r.atMost, r.writer.hurry, r.run.Discard)
}

// Close closes the databases, but not that of the checkpoints if saves still use it.
func (r *Record) Close(hung bool) error {
	r.Abandon()
	if !hung {
		r.remember(nil)
		r.forgetRestores()
		r.regions.Close()
	}
	return bounded(r.home, r.atMost, r.writer.hurry, func() error {
		r.closeStores(hung)
		return r.db.Close()
	})
}

// closeStores closes the stores of checkpoints, but not the run's own while saves use it.
func (r *Record) closeStores(saving bool) {
	if !saving && r.store != nil {
		r.store.Close()
	}
	if r.from != nil && r.from.store != nil {
		r.from.store.Close()
	}
}

// values returns a recipe's parameters as the history keeps them. A secret's default value is kept, since the
// history has the recipe.
func values(params []engine.Value, keepSecrets bool) []history.Param {
	out := make([]history.Param, len(params))
	for i, p := range params {
		out[i] = history.Param{Name: p.Name, Value: plain(p)}
		if p.Changed && p.Kind != "bool" && secret.Named(p.Name) && !keepSecrets {
			out[i].Value = history.Secret{}
		}
	}
	return out
}

func plain(p engine.Value) any {
	switch p.Kind {
	case "bool":
		return p.Text == "True"
	case "int":
		n, _ := new(big.Int).SetString(p.Text, 10)
		return n
	case "float":
		x, _ := strconv.ParseFloat(p.Text, 64) // written by strconv
		return x
	case "string":
		return p.Text
	case "list":
		return history.List(p.Text)
	}
	return nil
}
