// Package launch is the agent: it starts a worker for every rank, watches them,
// keeps what they record in the history, and ends the run when one of them
// fails. The command line's `drun run` calls it, and so do the tests of recipes.
package launch

import (
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"drun/checkpoints"
	"drun/engine"
	"drun/engine/board"
	"drun/engine/recipe"
	"drun/engine/rendezvous"
	"drun/history"
	"drun/internal/scratch"
	"drun/internal/secret"
	"drun/plugins/host"
)

// Options are what `drun run` is told.
type Options struct {
	Recipe   string
	Nproc    int      // ranks that this process starts, at least 1
	Join     *Joining // makes a world together with other processes; nil: alone
	Params   []string // name=value
	Seed     int64
	Name     string // of the run; "" to have one made up
	Tags     []string
	Backend  string        // "": shm on one machine, else a network's
	Plugins  []string      // folders to look for plugins in before all others
	Resume   string        // RUN[@STEP or @best]
	Timeout  time.Duration // of collectives
	Threads  int           // kernel threads a rank; 0: cores/ranks
	Heap     int           // bytes for a rank's plain values; 0: a share of the machine's memory
	DataDirs []string
	// Deterministic: reductions in rank order, whatever the backend.
	Deterministic bool
	Home          string
	Grace         time.Duration // between a signal and the end
	Patience      time.Duration // with a disk that does not answer; 0: longer than a locked history may take
	Command       []string      // as the user typed it, for the history
	KeepSecrets   bool          // keep the values of parameters whose names say that they are secrets
	Version       string

	Exe string // the program that workers run; "": this one
	// PluginHost is the program that workers run instead when the backend is a plugin.
	PluginHost string
	Stdout     io.Writer
	Stderr     io.Writer
	Terminal   bool             // Stderr is a terminal: show progress
	Signals    <-chan os.Signal // of the kinds in Signals
	Testing    bool             // give the recipe the testing module
	Counted    bool             // gather the plugin's statistics
	OnSpawn    func(rank, pid int)
}

// Result is how a run ended.
type Result struct {
	ID       int64
	Name     string
	Code     engine.ExitCode
	Ranks    int
	Failure  *engine.Failure   // why, unless Code is 0
	Failures []*engine.Failure // of every rank, Failure among them
	Snapshot *board.Snapshot   // what the ranks did when the run failed; nil for one rank
	Seconds  float64
	// Counts are the plugin's statistics, summed over the ranks; with Options.Counted.
	Counts map[string]int64
}

// Run runs a recipe to its end. The error is one that kept the run from being
// entered in the history; what went wrong afterwards is in the Result.
func Run(o Options) (*Result, error) {
	if o.Nproc < 1 {
		return nil, engine.Errorf(engine.ExitUsage, "a run has at least 1 rank, not %d", o.Nproc)
	}
	o, plugin, err := chooseBackend(o)
	if err != nil {
		return nil, err
	}
	if plugin != nil {
		defer scratch.Sweep() // what ranks left that were killed while their plugin started
	}
	params, err := parseParams(o.Params)
	if err != nil {
		return nil, err
	}
	if !o.KeepSecrets {
		o.Command = redact(o.Command, params)
	}
	bundle, err := recipe.Read(o.Recipe)
	if err != nil {
		return nil, err
	}
	var extra []string
	if o.Testing {
		extra = append(extra, "testing")
	}
	if err := bundle.Check(extra...); err != nil {
		return nil, err
	}
	if o.Patience <= 0 {
		o.Patience = patience
	}
	if o.Threads < 1 {
		o.Threads = max(1, runtime.NumCPU()/o.ranksHere())
	}
	if o.Join != nil && o.Join.Count > MaxRanks {
		return nil, engine.Errorf(engine.ExitUsage, "%d processes: a run has at most %d ranks", o.Join.Count, MaxRanks)
	}
	if o.Join != nil && o.Join.Index > 0 {
		m := &member{o: o, plugin: plugin, bundle: bundle}
		m.console.out, m.console.err, m.console.prefix = o.Stdout, o.Stderr, true
		return m.run()
	}
	a := &agent{o: o, plugin: plugin, bundle: bundle, params: params, started: time.Now(), events: make(chan event, 64), over: make(chan struct{}), world: o.Nproc, console: console{
		out: o.Stdout, err: o.Stderr, prefix: o.Nproc > 1 || o.Join != nil, terminal: o.Terminal,
	}}
	for rank := range o.Nproc {
		a.places = append(a.places, rendezvous.Local(rank, o.Nproc))
	}
	if o.Join != nil {
		if err := a.gather(); err != nil {
			return nil, err
		}
		a.started = time.Now()
	}
	return a.execute()
}

// agent is the state of one run.
type agent struct {
	o       Options
	bundle  *recipe.Bundle
	params  []engine.Param
	plugin  *host.Plugin // of the backend; nil: built in
	started time.Time
	console console

	db      *history.DB
	record  *history.Run
	store   *checkpoints.Store
	from    *origin // of --resume
	keeper  *keeper
	board   *board.Board
	server  *rendezvous.Server // of the key-value store; nil in a world of one
	meeting engine.Meeting
	region  *os.File // shm's; nil with a plugin, and in a world of one
	procs   []*process
	events  chan event
	over    chan struct{} // closed when nobody reads events any more

	failures  []*engine.Failure
	signalled os.Signal // the latest SIGINT or SIGTERM
	stall     stall
	grace     <-chan time.Time // its end, when the recipe asks run.should_stop
	pending   sync.WaitGroup   // saves and restores under way
	ended     time.Time        // when the ranks were told to end; zero: not yet
	saves     map[int64]map[int]*engine.Part
	saved     int // saves that have ended
	restores  restores

	world      int                // ranks
	places     []rendezvous.Place // by rank
	nodes      []*node            // the other agents; none when all ranks are ours
	oneBoard   bool               // they share this one's
	address    string             // of this machine, as they reach it
	signallers map[*node]bool     // who has passed a signal on that was noted
	counts     map[string]int64   // see Result
	lookAround <-chan time.Time   // when to look who waits; nil: all ranks are on this board
	rounds     rounds
}

// redact takes the secrets among the parameters out of a command line.
func redact(command []string, params []engine.Param) []string {
	out := slices.Clone(command)
	for i, arg := range out {
		for _, p := range params {
			if text := p.Name + "=" + p.Value; secret.Named(p.Name) && strings.HasSuffix(arg, text) {
				out[i] = strings.TrimSuffix(arg, text) + p.Name + "=" + secret.Redacted
			}
		}
	}
	return out
}

func parseParams(given []string) ([]engine.Param, error) {
	var out []engine.Param
	at := map[string]int{}
	for _, text := range given {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, engine.Errorf(engine.ExitUsage, "-p %s: want name=value", text)
		}
		p := engine.Param{Name: name, Value: value}
		if i, again := at[name]; again { // the last one counts
			out[i] = p
			continue
		}
		at[name] = len(out)
		out = append(out, p)
	}
	return out, nil
}
