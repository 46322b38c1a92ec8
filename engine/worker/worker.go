// Package worker is one rank of a run: a process that the agent starts, that executes the recipe and reports to the
// agent over its control channel. The command line calls Main if it finds itself started as a worker.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	godebug "runtime/debug"
	"sync"
	"time"

	"drun/collective"
	"drun/collective/hier"
	"drun/collective/shm"
	"drun/engine"
	"drun/engine/board"
	"drun/engine/debug"
	"drun/engine/recipe"
	"drun/engine/rendezvous"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/memory"
	"drun/internal/try"
	"drun/kernel"
	"drun/starlib"
	"drun/starlib/distributed"
	"drun/starlib/lang"
	"drun/starlib/run"
	"drun/starlib/testing"
	"drun/starlib/universe"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Invoked reports whether this process was started as a worker.
func Invoked() bool {
	return len(os.Args) > 1 && os.Args[1] == engine.WorkerArg && os.Getenv("DRUN_RUN_ID") != ""
}

// Main runs the rank and returns the process's exit status, after reporting a failure to the agent. A program that can
// start plugins passes a Starter.
func Main(plugins ...Starter) int {
	signal.Ignore(engine.WorkerIgnores...)
	// The recipe's own limit stops a deep recursion; this leaves room for it.
	godebug.SetMaxStack(1 << 30)
	if os.Getenv("GOGC") == "" {
		// A recipe's values are mostly small and short-lived, and every write of a pointer is slower during a
		// collection: this halves the number of collections, for a few MiB.
		godebug.SetGCPercent(200)
	}
	channel, err := engine.NewChannel(os.NewFile(engine.ControlFD, "control"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "drun: a worker is started by drun run, not by hand:", err)
		return int(exit.Usage)
	}
	var first engine.ToWorker
	if err := channel.Receive(&first); err != nil || first.Job == nil {
		return int(exit.RankLost) // the agent is gone
	}
	w := &worker{job: first.Job, channel: channel, replies: make(chan engine.ToWorker, 1)}
	if len(plugins) > 0 {
		w.plugins = plugins[0]
	}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	w.debug = debug.New(w.ctx, func(m *engine.Debugged) error { return channel.Send(&engine.ToAgent{Debugged: m}) })
	return w.run()
}

// worker is the state of one rank's process, from the recipe's start to its end.
type worker struct {
	job     *engine.Job
	channel *engine.Channel
	ctx     context.Context // ends when the run is aborted
	cancel  context.CancelCauseFunc
	replies chan engine.ToWorker
	plugins Starter // nil: there are none

	record   *recorder
	board    *board.Board
	digests  *digests
	replicas replicas
	regions  regions
	trace    *tracer // nil: no trace is wanted
	debug    *debug.Agent
	thread   *starlark.Thread
	// position is that of the latest call of a module's builtin.
	position syntax.Position
	counts   func() map[string]int64 // of the backend; nil: it does not count
	comm     collective.Comm         // of the world; nil in a world of one
	groups   []ownGroup              // in the order they were made
	store    *rendezvous.Store
	remote   *rendezvous.Remote // the store of a run of several ranks
	telling  sync.Mutex
	told     *engine.Failure // the failure reported to the agent
	wrong    *kernel.Wrong   // the first wrong result that an audit found
	mu       sync.Mutex      // guards wrong, and thread against a cancel that comes early
}

func (w *worker) run() int {
	rec := newRecorder(w.ctx, w.channel, !w.job.Watched)
	w.record = rec
	if err := w.recipe(rec); err != nil {
		return w.report(err)
	}
	rec.close()
	_ = w.channel.Send(&engine.ToAgent{Done: true})
	return int(exit.Done)
}

// report tells the agent why the rank fails, unless it was told before. The result is the process's exit status.
func (w *worker) report(err error) int {
	if w.told == nil {
		w.tell(w.failure(err))
	}
	return int(w.told.Code)
}

func (w *worker) tell(f *engine.Failure) {
	w.telling.Lock()
	defer w.telling.Unlock()
	w.record.close()
	w.told = f
	_ = w.channel.Send(&engine.ToAgent{Failure: f})
}

// recipe executes the recipe from its first line to main's return.
func (w *worker) recipe(rec *recorder) (err error) {
	defer try.Caught(&err)
	job := w.job
	w.audit()
	kernel.SetThreads(job.Threads)
	rec.Machine(job.Placement, kernel.Path())
	memory.Share(job.Placement.LocalSize, job.Memory)
	rank := &starlib.Rank{
		Rank: job.Placement.Rank, WorldSize: job.Placement.WorldSize, LocalRank: job.Placement.LocalRank, LocalSize: job.Placement.LocalSize,
		NodeRank: job.Placement.NodeRank, NumNodes: job.Placement.Nodes, Peers: job.Peers, Seed: job.Seed, Threads: job.Threads,
	}
	rank.Files = try.To(starlib.OpenFiles(job.Dir, job.DataDirs...))
	rank.Outputs = starlib.NewOutputs(job.Home, job.RunID)
	rank.Files.Largest = memory.LargestValue()
	rank.Files.OnRead = func(f starlib.FileRead) {
		rec.DataFile(records.DataFile{Path: f.Path, SHA256: f.SHA256, Bytes: f.Bytes, Modified: &f.Modified, Position: w.position.String(), Node: &rank.NodeRank}, f.PerRank)
	}
	w.digests = &digests{worker: w, rank: rank, open: map[string]int{}}
	w.replicas = replicas{rank: rank, digests: w.digests, record: rec, audit: job.Audit > 0}
	rec.sending.Lock() // records may be under way already
	rec.digests = w.digests
	rec.sending.Unlock()
	rank.OnUpdate, rank.OnLog = w.digests.updated, w.digests.logged
	w.board = try.To(board.Open(os.NewFile(engine.BoardFD, "board"), job.Placement.Rank))
	w.board.Near(job.Near[0], job.Near[1])
	w.board.OnStart, w.board.OnWait, w.board.OnStuck = w.debug.Starts, w.debug.Waiting, w.debug.Stuck
	w.openStore()
	go w.listen()
	joined := w.board.Joining()
	comm, err := w.join(w.store.In(w.keys(backendKeys)))
	joined()
	if err != nil {
		return err
	}
	if comm != nil {
		defer comm.Close()
	}
	defer w.closeGroups()
	env := universe.Host{
		Rank: rank, Recorder: rec, Comm: comm, Backend: job.Backend, OpenGroup: w.openGroup, LeaveGroup: w.leaveGroup, KeyValue: &recipeStore{w.store.In(w.keys(recipeKeys)), w.board, job.Timeout}, Timeout: job.Timeout, Store: w, Context: w.ctx, Stop: w.board.StopRequested,
		Run:    run.Info{ID: job.RunID, Name: job.RunName, RestartCount: job.RestartCount},
		Params: map[string]string{},
	}
	for _, p := range job.Params {
		env.Params[p.Name] = p.Value
	}
	switch {
	case job.Testing:
		env.Extra = append(env.Extra, testing.Module(job.Dir))
	case recipe.HaveTests(job.Sources):
		env.Extra = append(env.Extra, testing.Module(""))
	}
	w.board.SetState(collective.Running)
	u := universe.New(env)
	device := try.To(w.openDevice())
	if device != nil {
		device.Caller = w.caller
		defer w.watchDevice(device)()
		u.Tensors.UseDevice(device)
		rec.Machine(job.Placement, fmt.Sprintf("%s (%s), %s", device.Device, device.Name, kernel.Path()))
	}
	try.Ok(w.meetNode(u.Dist))
	u.Params.Origins = map[string]run.Origin{}
	for _, p := range job.Params {
		if p.Kind != "" {
			u.Params.Origins[p.Name] = run.Origin{Kind: p.Kind, File: p.File}
		}
	}
	if job.Trace != "" {
		w.trace = try.To(newTracer(job.Trace, job.Placement.Rank))
		defer w.trace.close()
		u.Env[lang.Trace] = w.trace.Value()
	}
	if job.Marks {
		u.Env[lang.Mark] = starlark.None
	}
	if t := job.Target; t != nil {
		w.digests.target = &target{Target: *t}
	}
	if w.digests.every = job.KeepEach; job.Target != nil || job.KeepEach > 0 {
		rank.OnBatch = w.digests.asked
	}
	if job.Target != nil || job.Marks {
		u.Env[lang.SavePoint] = starlark.NewBuiltin("checkpoint.save", w.digests.deciding)
	}
	err = cmp.Or(w.execute(rank, u), w.doubt())
	if device != nil {
		rec.Copies(copies(device))
	}
	if w.digests.target != nil {
		err = w.digests.end(err)
	}
	if err != nil {
		w.tell(w.abort(err)) // before the backend is closed, which may take longer than the rank is given to end
		return err
	}
	w.board.SetState(collective.Returned)
	w.replicas.flush()
	w.part(comm)
	if w.counts != nil && job.Counted {
		return w.channel.Send(&engine.ToAgent{Counts: w.counts()})
	}
	return nil
}

func (w *worker) meetNode(world *distributed.World) error {
	ctx, stop := context.WithTimeout(w.ctx, max(w.job.Timeout, joinLimit))
	defer stop()
	err := world.FormNodeGroup(ctx)
	if cause := context.Cause(w.ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// noHost reports that this program is drun itself, not the plugin host.
var noHost = exit.Permanent(exit.WithHint(exit.Errorf(exit.Backend, "this program cannot start plugins: drun-plugin-host, which can, was not found"),
	"it belongs beside drun, and must be from the same build: make build puts it there"))

// joinLimit is the least time that opening a backend may take, even if the collectives' own limit is shorter: a
// program has to start, and a machine may be busy.
const joinLimit = 30 * time.Second

// join opens the backend; nil in a world of one, unless the user named a plugin.
func (w *worker) join(store collective.Store) (collective.Comm, error) {
	job := w.job
	var backend collective.Backend
	switch {
	case job.Plugin != nil:
		if w.plugins == nil {
			return nil, noHost
		}
		backend = w.plugins(job.Plugin, w.lostPlugin(0))
		if h := job.Hierarchy; h != nil {
			backend = &hier.Backend{Far: backend, Nodes: h.Nodes, Links: h.Links}
		}
	case job.Placement.WorldSize == 1:
		return nil, nil
	default:
		backend = &shm.Backend{File: os.NewFile(engine.ShmFD, "shm")}
	}
	ctx, stop := context.WithTimeout(w.ctx, max(job.Timeout, joinLimit))
	defer stop()
	comm, err := backend.Open(ctx, collective.World{
		Rank: job.Placement.Rank, Size: job.Placement.WorldSize, LocalRank: job.Placement.LocalRank, LocalSize: job.Placement.LocalSize,
		Store: store, NodeAddress: job.NodeAddress, Deterministic: job.Deterministic,
	})
	if err == nil && job.Plugin != nil && w.ctx.Err() == nil {
		err = warmUp(ctx, comm)
	}
	if cause := context.Cause(w.ctx); cause != nil {
		return nil, cause // another rank has failed already
	}
	if err != nil {
		w.board.AwaitCause(err)
		if cause := w.board.Aborted(); cause != nil && collective.Suspects(err) {
			return nil, cause
		}
		return nil, exit.WithCode(fmt.Errorf("backend %s: %w", job.Backend, err), exit.Backend)
	}
	if p, ok := comm.(interface{ Version() string }); ok && job.Placement.Rank == 0 {
		version := p.Version()
		if err := w.channel.Send(&engine.ToAgent{Version: &version}); err != nil {
			return nil, err
		}
	}
	w.comm = comm
	if c, ok := comm.(interface{ Statistics() map[string]int64 }); ok {
		w.counts = c.Statistics
	}
	return board.Guard(comm, w.board)
}

// A Starter makes the backend of a plugin. The plugin's stderr is the worker's; onDeath is called if the plugin ends by
// itself.
type Starter func(p *engine.Plugin, onDeath func(error)) collective.Backend

// listen handles the agent's messages. When the channel ends the agent is gone, and the worker ends at once,
// whatever it is doing.
func (w *worker) listen() {
	for {
		var msg engine.ToWorker
		if err := w.channel.Receive(&msg); err != nil {
			if !errors.Is(err, io.EOF) {
				fmt.Fprintln(os.Stderr, "drun:", err)
			}
			os.Exit(int(exit.RankLost))
		}
		if msg.Cancel != nil {
			// The agent has written the cause, which is not this rank, on the board.
			cause := w.board.Aborted()
			if cause == nil {
				cause = &collective.FailedError{Rank: msg.Cancel.Rank, Msg: msg.Cancel.Message, Code: msg.Cancel.Code}
			}
			if !errors.As(cause, new(*collective.AbortError)) {
				cause = &collective.AbortError{Rank: msg.Cancel.Rank, Cause: cause}
			}
			w.stop(cause)
			continue
		}
		if msg.Debug != nil {
			w.board.Unlimited.Store(true)
			w.debug.Deliver(msg.Debug)
			continue
		}
		if msg.Store != nil {
			w.remote.Deliver(msg.Store)
			continue
		}
		select {
		case w.replies <- msg:
		case <-w.ctx.Done():
		}
	}
}

func (w *worker) ask(doing string, msg *engine.ToAgent) (*engine.ToWorker, error) {
	return w.askWithin(w.ctx, doing, msg)
}

// askWithin is ask with the wait limited by ctx.
func (w *worker) askWithin(ctx context.Context, doing string, msg *engine.ToAgent) (*engine.ToWorker, error) {
	w.board.Note(doing)
	defer w.board.Note("")
	if err := w.channel.Send(msg); err != nil {
		return nil, err
	}
	var late <-chan time.Time
	if p, ok := ctx.(*collective.WaitLimit); ok && p.Limit > 0 && !w.board.Unlimited.Load() {
		late = time.After(p.Limit)
	}
	select {
	case reply := <-w.replies:
		return &reply, nil
	case <-late:
		return nil, exit.Errorf(exit.Timeout, "%s took longer than its limit: another rank does not answer", doing)
	case <-w.ctx.Done():
		return nil, context.Cause(w.ctx)
	}
}

func (w *worker) bundle() *recipe.Bundle {
	return &recipe.Bundle{Name: w.job.Recipe, Main: w.job.Main, Project: recipe.Project(w.job.Project), Sources: w.job.Sources}
}
