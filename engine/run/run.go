// Package run runs a recipe: it makes a plan from the options and coordinates the nodes that run the ranks
// (engine/node, engine/cluster), what is recorded (engine/record) and what a person sees (engine/console), until
// all ranks have ended. `drun run` calls it, and so do the tests of recipes.
package run

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"drun/collective"
	"drun/engine"
	"drun/engine/board"
	"drun/engine/cluster"
	"drun/engine/console"
	"drun/engine/node"
	"drun/engine/recipe"
	"drun/engine/record"
	"drun/engine/rendezvous"
	"drun/internal/build"
	"drun/internal/each"
	"drun/internal/exit"
	"drun/internal/scratch"
	"drun/internal/secret"
	"drun/internal/try"
	"drun/plugins/host"
)

// Options are those of `drun run`.
type Options struct {
	Recipe    string
	Nproc     int              // ranks that this process starts, at least 1
	Join      *cluster.Joining // makes a world together with other processes; nil: alone
	Seed      int64
	SeedGiven bool // otherwise a resumed run keeps its seed
	// MaxRestarts is how often the ranks may start again after a failure that may be transient.
	MaxRestarts int
	// Audit is the share of operations that are computed twice, to notice processors that compute wrongly; 0: none.
	Audit      float64
	AuditAbort bool          // the run ends at the first wrong result, instead of going back to a checkpoint
	Timeout    time.Duration // of collectives
	Threads    int           // kernel threads per rank; 0: cores/ranks
	Device     string        // that computes tensors: "" or cpu, opencl, opencl:N or auto
	OtherBits  bool          // the device may compute other bits than the processor
	Memory     int           // bytes that the ranks of a machine have together; 0: all of the machine's
	DataDirs   []string
	Grace      time.Duration // between a signal and the end
	Testing    bool          // the recipe may use module testing
	Function   string        // of the recipe, called instead of main; "": main
	Reuse      bool          // return a finished run that has the same bits, if there is one
	Parameters
	Communication
	record.History
	Output
	Hooks

	read *recipe.Bundle // by Read; nil: read when needed
}

// Parameters are the values given for the recipe's parameters.
type Parameters struct {
	Params    []string       // name=value
	ParamFile string         // the file that --params named; its values are in Filed
	Filed     []engine.Param // values of a parameter file, which Params override
}

// Communication says how the ranks reach each other.
type Communication struct {
	Backend       string   // "": shm on one machine, else a network's
	Plugins       []string // folders searched for plugins before all others
	Deterministic *bool    // reductions in rank order; nil: unless the backend says that it has an order of its own
	Flat          bool     // on several nodes, collectives go through the backend alone, also within a node
	Links         int      // ranks of a node that are connected to other nodes, at most; 0: the default
	Counted       bool     // gather the plugin's statistics
	Exe           string   // the program that workers run; "": this one
	// PluginHost finds the program that workers run instead if plugins may be needed. If it returns a path and an
	// error, the program must not be used, and the error matters if the run needs a plugin. nil: there is none.
	PluginHost func() (path string, err error)
}

// Output says what a person sees.
type Output struct {
	Stdout     io.Writer
	Stderr     io.Writer
	Terminal   bool           // Stderr is a terminal: show progress
	RankOutput string         // whose lines are shown, see console.Ranks
	LogFiles   *console.Files // nil: there are none
}

// Hooks connect the caller and a run in progress.
type Hooks struct {
	Signals   <-chan os.Signal // of the kinds in the variable Signals
	OnSpawn   func(rank, pid int)
	OnSaved   func(step int64) // called when a checkpoint is complete
	OnEntered func(id int64)   // called when the run is in the history
	// Debug leads to a debugger, for which the ranks wait before they execute the recipe; nil: one may come later.
	Debug    net.Conn
	Marks    bool  // the ranks have marks for it, see lang.Mark
	KeepEach int64 // see engine.Job
	// Import makes a run with a checkpoint from the file of weights that Resume names, and returns the run's name.
	Import func(file string) (run string, err error)
	// Check, if set, looks for faults while the run is prepared. One that is certain to end the run ends it before the
	// ranks start; notes are shown.
	Check func(*recipe.Bundle) (notes []string, certain *Fault)
}

// Fault is a fault in a recipe, at a position.
type Fault struct {
	File      string
	Line, Col int
	Message   string
}

// Read reads the recipe and what it loads now, so that all runs with these options use the same bytes even if the
// files change.
func (o *Options) Read() (err error) {
	o.read, err = recipe.Read(o.Recipe)
	return err
}

// Capture makes the runs with these options use a recipe as it was read before.
func (o *Options) Capture(b *recipe.Bundle) { o.Recipe, o.read = b.Name, b }

// Result is how a run ended.
type Result struct {
	ID       int64
	Name     string
	Code     exit.Code
	Ranks    int
	Failure  *engine.Failure   // the cause, unless Code is 0
	Failures []*engine.Failure // of every rank, Failure among them
	Snapshot *board.Snapshot   // what the ranks did when the run failed; nil for one rank
	Seconds  float64
	Restarts int  // of the ranks, by this process
	Reused   bool // it is an earlier run; nothing was run now
	Saved    bool // there is a checkpoint on disk from which the run can be resumed
	// Counts are the plugin's statistics summed over the ranks, if Options.Counted.
	Counts map[string]int64
}

// Run runs a recipe to its end. The error is one that kept the run out of the history; later failures are in the
// Result.
func Run(o Options) (_ *Result, err error) {
	defer try.Caught(&err)
	p := try.To(newPlan(o))
	if p.Reuse {
		if r, err := p.reusable(exit.Done); r != nil || err != nil {
			return r, err
		}
	}
	if p.plugin != nil || p.program != "" {
		defer scratch.Sweep() // removes what ranks that were killed while their plugin started have left behind
	}
	if p.Join != nil {
		if first := try.To(interruptible(p, func(ctx context.Context) (bool, error) { return p.Join.Lead(ctx, p.Timeout) })); !first {
			return p.runNode()
		}
	}
	return p.coordinate()
}

// Reusable finds the newest finished run with the bits that a run with these options would have: the same recipe
// and files it loads, parameters, seed, world size and arithmetic, and the same content of the files that the run
// has read, which are read now to compare. With exit.Interrupted it finds the newest interrupted run, whose bits
// are a prefix of those. nil: there is none.
func Reusable(o Options, code exit.Code) (_ *Result, err error) {
	defer try.Caught(&err)
	return try.To(newPlan(o)).reusable(code)
}

func (p *plan) reusable(code exit.Code) (_ *Result, err error) {
	defer try.Caught(&err)
	if p.Join != nil || p.Resume != "" {
		return nil, exit.Errorf(exit.Usage, "--reuse is for runs on one machine that begin anew, without --resume")
	}
	declared := try.To(declare(p.bundle, p.params))
	places := make([]rendezvous.Placement, p.Nproc)
	found := try.To(record.Reusable(record.Config{History: p.History, Recipe: p.bundle, Placements: places, Backend: p.Backend, Plugin: p.plugin,
		Seed: p.Seed, Deterministic: !p.ownOrder(), OtherBits: p.otherBits(), DataDirs: absolute(p.DataDirs)}, declared, code))
	if found == nil {
		return nil, nil
	}
	return &Result{ID: found.ID, Name: found.Name, Code: code, Ranks: p.Nproc, Seconds: found.Seconds, Reused: true}, nil
}

// plan is what a run will be, once its options, recipe and backend are known to be valid.
type plan struct {
	Options
	plugin *host.Plugin // of the backend; nil: built in
	// properties are the plugin's, once it was asked.
	properties *collective.Properties
	program    string // the program that starts plugins; "": there is none, or none is needed
	bundle     *recipe.Bundle
	params     []engine.Param
	console    *console.Console
	noted      []string // for the console, once there is one
}

func (p *plan) note(text string) {
	if p.console == nil {
		p.noted = append(p.noted, text)
		return
	}
	p.console.Note(text)
}

func newPlan(o Options) (_ *plan, err error) {
	defer try.Caught(&err)
	if o.Nproc < 1 {
		return nil, exit.Errorf(exit.Usage, "a run has at least 1 rank, not %d", o.Nproc)
	}
	if o.Join != nil && o.Join.Count > MaxRanks {
		return nil, exit.Errorf(exit.Usage, "%d processes: a run has at most %d ranks", o.Join.Count, MaxRanks)
	}
	p := &plan{Options: o}
	try.Ok(p.chooseBackend())
	p.params = try.To(parseParams(o.Filed, o.Params))
	if !o.KeepSecrets {
		p.Command = redact(o.Command, p.params)
	}
	if r := o.Replay; r != nil {
		p.bundle, p.params = r.Bundle, r.Params
	} else if p.bundle = o.read; p.bundle == nil {
		p.bundle = try.To(recipe.Read(o.Recipe))
	}
	try.Ok(p.findProgram())
	var extra []string
	if o.Testing {
		extra = append(extra, "testing")
	}
	try.Ok(p.bundle.Check(extra...))
	if o.DiskTimeout <= 0 {
		p.DiskTimeout = record.DiskTimeout
	}
	if o.Threads < 1 {
		p.Threads = max(1, runtime.NumCPU()/o.ranksHere())
	}
	world := 0
	if o.Join == nil {
		world = o.Nproc
	}
	shows, err := console.Ranks(o.RankOutput, world)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "--rank-output: %w", err)
	}
	p.console = console.New(o.Stdout, o.Stderr, o.Nproc > 1 || o.Join != nil, o.Terminal, shows, o.LogFiles)
	for _, text := range p.noted {
		p.console.Note(text)
	}
	if p.Audit > 0 && p.Device != "" && p.Device != "cpu" {
		p.console.Note("drun: warning: --audit does not compute twice what an OpenCL device computes: of that, it only compares the parameters that ranks have in common")
	}
	return p, nil
}

// findProgram finds the program that starts plugins, if the run may need one.
func (p *plan) findProgram() (err error) {
	needed := p.Backend != builtIn // it may not be decided yet
	if p.PluginHost == nil || !needed && !p.bundle.NamesBackends() {
		return nil
	}
	p.program, err = p.PluginHost()
	switch {
	case err == nil:
	case needed && p.program != "":
		return err // found, but built from another version
	default:
		p.program = "" // the error of a missing backend says more
	}
	return nil
}

// ranksHere is how many ranks share this machine, as far as is known.
func (o *Options) ranksHere() int {
	switch {
	case o.Join == nil || o.Join.Placement == nil:
		return o.Nproc
	case o.Join.Placement.LocalSize == rendezvous.Unknown:
		return o.Join.Count
	}
	return o.Join.Placement.LocalSize
}

// otherBits names the device that may compute other bits than the processor; "": there is none.
func (p *plan) otherBits() string {
	if p.OtherBits && p.Device != "" && p.Device != "cpu" {
		return p.Device
	}
	return ""
}

func (p *plan) node() node.Config {
	return node.Config{
		Bundle: p.bundle, DataDirs: absolute(p.DataDirs), Threads: p.Threads, Timeout: p.Timeout, Console: p.console,
		Exe: p.Exe, PluginHost: p.program, OnSpawn: p.OnSpawn,
		Backend: func(name string) (*host.Plugin, error) {
			if p.plugin != nil && p.plugin.Name == name {
				return p.plugin, nil
			}
			return p.findBackend(name)
		},
	}
}

// FirstProcessError is an error of the run's first process, which has told it, too.
type FirstProcessError struct{ error }

func (e FirstProcessError) Unwrap() error { return e.error }

// runNode runs this process's ranks for the coordinator.
func (p *plan) runNode() (*Result, error) {
	joined, err := interruptible(p, func(ctx context.Context) (*cluster.Joined, error) {
		return cluster.Join(ctx, p.Join, p.hello(), p.Timeout, p.console.Note)
	})
	if err != nil {
		return nil, err
	}
	defer joined.Link.Close()
	defer p.console.Close()
	if end := joined.End; end != nil { // the run was already finished
		return &Result{ID: end.ID, Name: end.Name, Code: end.Code, Ranks: p.Join.Count, Seconds: end.Seconds}, nil
	}
	c := p.node()
	c.Endpoint, c.Signals = p.Join.Address, p.Signals
	if len(joined.Start.Shared) == 0 {
		c.Address = joined.Address
	}
	end := node.Run(c, joined.Start, joined.Link, joined.Inbox)
	if end == nil {
		return nil, exit.Errorf(exit.RankLost, "the connection to the run's first process, at %s, ended: this process's ranks were killed", p.Join.Address)
	}
	if end.Code == exit.Usage && end.Failure != nil {
		return nil, FirstProcessError{end.Failure.Err()}
	}
	return &Result{ID: end.ID, Name: end.Name, Code: end.Code, Ranks: joined.Start.World, Failure: end.Failure, Seconds: end.Seconds}, nil
}

func (p *plan) hello() *cluster.Hello {
	h := &cluster.Hello{Version: p.Version, ID: p.Join.ID, Index: p.Join.Index, Count: p.Join.Count, Placement: p.Join.Placement, Procs: p.Nproc,
		PID: os.Getpid(), Machine: cluster.Machine()}
	h.Host, _ = os.Hostname() // only shown
	if p.program != "" {
		h.Program, _ = build.Of(p.program) // if it cannot be read, starting it reports that
	}
	add := func(name, value string) { h.Settings = append(h.Settings, cluster.Setting{Name: name, Value: value}) }
	add("the version of drun", strconv.Quote(p.Version))
	if p.Join.Placement != nil {
		add("WORLD_SIZE", strconv.Itoa(p.Join.Count))
	} else {
		add("--nnodes", p.Join.Nodes())
	}
	if e := p.Join.Elastic; e != nil {
		add("--elastic-world", strconv.FormatBool(e.Resize))
	}
	add("the recipe", p.bundle.Main)
	for _, s := range p.bundle.Sources {
		sum := sha256.Sum256(s.Content)
		add("the file "+s.Path, "one with SHA-256 "+hex.EncodeToString(sum[:6])+"…")
	}
	add("--backend", cmp.Or(p.Backend, "none"))
	add("--seed", strconv.FormatInt(p.Seed, 10))
	params, secrets := slices.Clone(p.Params), []cluster.Setting(nil)
	for _, filed := range p.Filed {
		params = append(params, filed.Name+"="+filed.Value)
	}
	for i, text := range params {
		if name, value, _ := strings.Cut(text, "="); secret.Named(name) {
			sum := sha256.Sum256([]byte(value))
			params[i] = name + "=" + secret.Redacted
			secrets = append(secrets, cluster.Setting{Name: "the value of the secret parameter " + name, Value: hex.EncodeToString(sum[:]), Secret: true})
		}
	}
	slices.Sort(params)
	add("-p", fmt.Sprintf("%q", params))
	h.Settings = append(h.Settings, secrets...)
	add("--resume", strconv.Quote(p.Resume))
	add("--keep", strconv.Itoa(p.Keep))
	add("--max-restarts", strconv.Itoa(p.MaxRestarts))
	order := "the default"
	if p.Deterministic != nil {
		order = strconv.FormatBool(*p.Deterministic)
	}
	add("--deterministic", order)
	return h
}

// redact removes secret parameters from a command line.
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

// parseParams parses name=value; a given value replaces that of the file.
func parseParams(filed []engine.Param, given []string) ([]engine.Param, error) {
	var params []engine.Param
	for _, text := range given {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, exit.Errorf(exit.Usage, "-p %s: want name=value", text)
		}
		params = append(params, engine.Param{Name: name, Value: value})
	}
	return record.Override(filed, params), nil
}

// absolute makes folders valid in another working directory.
func absolute(dirs []string) []string {
	return each.Of(dirs, func(dir string) string {
		if abs, err := filepath.Abs(dir); err == nil {
			return abs
		}
		return dir
	})
}
