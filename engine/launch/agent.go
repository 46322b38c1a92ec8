package launch

import (
	"math/big"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"drun/checkpoints"
	"drun/collective"
	"drun/collective/shm"
	"drun/engine"
	"drun/engine/board"
	"drun/engine/nodes"
	"drun/engine/rendezvous"
	"drun/history"
	"drun/internal/exit"
	"drun/internal/secret"
)

// killAfter is how long ranks that were told to end may take.
const killAfter = 500 * time.Millisecond

// event is something that a goroutine beside the agent's saw.
type event struct {
	rank  int
	msg   *engine.ToAgent
	exit  *nodes.Exit
	saved *savedEvent
	from  *node // who sent what follows
	sig   os.Signal
	said  *nodes.ToHead
	gone  bool // its agent is
}

func (a *agent) execute() (*Result, error) {
	hurry, sig, stop := a.hurried()
	err := bounded(a.o.Home, a.o.Patience, hurry, a.begin)
	stop()
	if err != nil && *sig != nil {
		err = engine.Errorf(engine.ExitInterrupted, "interrupted by %s before the run was in the history, which another process may have locked", signalName(*sig))
	}
	if err != nil {
		a.dismiss(&Result{Code: exit.CodeOf(err), Failure: engine.NewFailure(board.Observer, err, 0)})
		return nil, err
	}
	runtime.LockOSThread() // see spawn
	defer runtime.UnlockOSThread()
	if *sig != nil {
		a.interrupt(*sig)
	} else if err := a.start(); err != nil {
		a.fail(engine.NewFailure(board.Observer, err, board.Now()))
	}
	a.watch()
	return a.finish()
}

// begin enters the run in the history.
func (a *agent) begin() (err error) {
	if a.db, err = history.Open(a.o.Home); err != nil {
		return err
	}
	if err = a.enter(); err != nil {
		a.db.Close()
	}
	return err
}

func (a *agent) enter() (err error) {
	var parent *history.Parent
	if a.o.Resume != "" {
		if a.store, err = checkpoints.Open(a.o.Home); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				a.store.Close()
			}
		}()
		if a.from, err = findOrigin(a.db, a.store, a.o.Resume); err != nil {
			return err
		}
		a.params = a.from.inherit(a.params)
		parent = &history.Parent{ID: a.from.line[0].id, Step: a.from.info.Step}
	}
	a.record, err = a.db.Begin(history.RunInfo{
		Name: a.o.Name, Recipe: a.bundle.Name, WorldSize: a.world, Backend: a.o.Backend, Seed: a.o.Seed,
		Threads: a.o.Threads, Deterministic: a.o.Deterministic, Version: a.o.Version, Command: a.o.Command, Started: a.started, Parent: parent,
	})
	if err != nil {
		return err
	}
	sources := make([]history.Source, len(a.bundle.Sources))
	for i, s := range a.bundle.Sources {
		sources[i] = history.Source{Path: s.Path, Role: "load", Content: s.Content}
		if s.Path == a.bundle.Main {
			sources[i].Role = "recipe"
		}
	}
	if err = a.record.AddSources(sources); err == nil {
		err = a.record.BeginAttempt(0)
	}
	if err == nil && len(a.o.Tags) > 0 {
		err = a.record.Tag(a.o.Tags...)
	}
	if err == nil && a.plugin != nil {
		err = a.record.AddPlugin(a.pluginRecord(""))
	}
	if err != nil {
		_ = a.record.Discard()
		return err
	}
	a.keeper = newKeeper(a.record, a.o.Home, a.o.Patience, func(text string) {
		a.console.note(text)
		a.keeper.line(board.Observer, true, text)
	})
	return nil
}

// start makes the shared memory and starts every rank.
func (a *agent) start() error {
	boardFile, err := board.Create(a.world)
	if err != nil {
		return err
	}
	if a.board, err = board.Open(boardFile, board.Observer); err != nil {
		return err
	}
	shared := []*os.File{boardFile}
	if a.world > 1 && a.plugin == nil {
		region, err := shm.Create(a.world)
		if err != nil {
			return err
		}
		a.region = region
		shared = append(shared, region)
	}
	if a.world > 1 && a.server == nil {
		a.meet()
	}
	a.startMembers(shared)
	exe := a.o.Exe
	if a.plugin != nil && a.o.PluginHost != "" {
		exe = a.o.PluginHost
	}
	if exe == "" {
		exe = "/proc/self/exe" // the program that runs, also if the file was replaced
	}
	for rank := range a.world {
		if n := a.nodeOf(rank); n != nil {
			a.procs = append(a.procs, &process{rank: rank, node: n})
			continue
		}
		job := a.job(rank)
		p, err := spawn(exe, job, shared, func(rank int, stderr bool, text string) {
			a.console.line(rank, stderr, text)
			a.keeper.line(rank, stderr, text)
			a.keeper.await()
		})
		if err != nil {
			return err
		}
		a.procs = append(a.procs, p)
		if a.o.OnSpawn != nil {
			a.o.OnSpawn(rank, p.cmd.Process.Pid)
		}
		go p.serve(job, a.events, a.keeper.await)
	}
	for _, n := range a.nodes {
		go a.hear(n)
	}
	return nil
}

// meet starts the run's key-value store. A machine on which that is not possible
// still runs recipes that do not use it.
func (a *agent) meet() {
	a.meeting.Token = rendezvous.NewToken()
	server, err := rendezvous.Listen("127.0.0.1:0", a.meeting.Token)
	if err != nil {
		a.meeting.Problem = err.Error()
		return
	}
	a.server, a.meeting.Address = server, server.Addr()
}

func (a *agent) job(rank int) *engine.Job {
	return &engine.Job{
		Plugin: pluginOf(a.plugin),
		RunID:  a.record.ID, RunName: a.record.Name, Place: a.places[rank], Peers: rendezvous.Peers(a.places, rank), Near: a.near(rank), NodeAddress: a.address, Deterministic: a.o.Deterministic,
		Seed: uint64(a.o.Seed), Backend: a.o.Backend, Recipe: a.bundle.Name, Dir: a.bundle.Dir, Main: a.bundle.Main,
		Sources: a.bundle.Sources, DataDirs: absolute(a.o.DataDirs), Params: a.params, Timeout: a.o.Timeout,
		Threads: a.o.Threads, Heap: a.o.Heap, Testing: a.o.Testing, Counted: a.o.Counted, Watched: a.o.Terminal, Store: a.meeting,
	}
}

func (a *agent) pluginRecord(version string) history.Plugin {
	return history.Plugin{Name: a.plugin.Name, Version: version, Path: a.plugin.Path, SHA256: a.plugin.SHA256}
}

// watch handles events until every worker has ended.
func (a *agent) watch() {
	var deadline <-chan time.Time // of the ranks that were told to end
	var watched <-chan time.Time  // somebody looks on
	if a.o.Terminal && a.world > 1 {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		watched = tick.C
	}
	var muster <-chan time.Time // until all ranks have joined
	var mustered board.Muster
	if a.world > 1 && a.board != nil {
		muster = time.Tick(musterEvery)
	}
	for alive := len(a.procs); alive > 0; {
		if deadline == nil && !a.ended.IsZero() {
			deadline = time.After(killAfter)
		}
		select {
		case ev := <-a.events:
			switch {
			case ev.saved != nil:
				a.reply(ev.saved)
			case ev.msg != nil:
				a.message(ev.rank, ev.msg)
			case ev.exit != nil:
				if !a.procs[ev.rank].exited {
					alive--
					a.exited(ev.rank, ev.exit)
				}
			case ev.said != nil:
				a.said(ev.from, ev.said)
			case ev.gone:
				alive -= a.lost(ev.from)
			case ev.sig != nil:
				a.signal(ev.sig, ev.from)
			}
		case err := <-a.keeper.faults:
			a.fail(a.storageFailure(err))
		case sig, ok := <-a.o.Signals:
			if ok {
				a.signal(sig, nil)
			}
		case <-watched:
			a.stalled()
		case <-muster:
			rank, all := mustered.Look(a.board, musterAfter(a.o.Timeout))
			if rank >= 0 {
				a.fail(absent(rank, a.o.Timeout))
			}
			if all || rank >= 0 {
				muster = nil
			}
		case <-a.lookAround:
			a.look()
		case <-a.grace:
			a.interrupt(a.signalled)
		case <-deadline:
			for _, p := range a.procs {
				if !p.exited {
					p.kill()
				}
			}
			deadline = time.After(killAfter)
			a.giveUp()
		}
	}
	a.settled()
}

// message handles what a worker says.
func (a *agent) message(rank int, m *engine.ToAgent) {
	p := a.procs[rank]
	if d := m.Declared; d != nil {
		a.keeper.add(len(d.Params), 0, func(b *history.Batch) { b.Params = append(b.Params, values(d.Params, a.o.KeepSecrets)...) })
	}
	a.keeper.metrics(rank, m.Points)
	if c := m.Machine; c != nil {
		place := a.places[rank]
		a.keeper.add(1, len(c.Host), func(b *history.Batch) {
			b.Ranks = append(b.Ranks, history.RankPlace{Rank: rank, Node: place.NodeRank, LocalRank: place.LocalRank, Host: c.Host, Threads: c.Threads, Kernels: c.Kernels})
		})
	}
	for _, f := range m.Files {
		a.keeper.add(1, len(f.Path), func(b *history.Batch) { b.DataFiles = append(b.DataFiles, history.DataFile(f)) })
	}
	if len(m.Tags) > 0 {
		a.keeper.add(len(m.Tags), textOf(m.Tags), func(b *history.Batch) { b.Tags = append(b.Tags, m.Tags...) })
	}
	if len(m.Notes) > 0 {
		a.keeper.add(len(m.Notes), textOf(m.Notes), func(b *history.Batch) {
			for _, text := range m.Notes {
				b.Notes = append(b.Notes, history.Note{Time: time.Now(), Text: text})
			}
		})
	}
	if m.Version != nil && a.plugin != nil {
		a.keeper.add(1, 0, func(b *history.Batch) { b.Plugins = append(b.Plugins, a.pluginRecord(*m.Version)) })
	}
	for name, n := range m.Counts {
		if a.counts == nil {
			a.counts = map[string]int64{}
		}
		a.counts[name] += n
	}
	switch {
	case m.Progress != nil:
		a.console.progress(m.Progress)
	case m.Save != nil:
		a.save(rank, m.Save)
	case m.Restore != nil:
		a.restore(rank, m.Restore)
	case m.Failure != nil:
		p.reported = true
		a.fail(m.Failure)
	case m.Done:
		p.reported = true
	}
}

// exited handles the end of a worker's process.
func (a *agent) exited(rank int, exit *nodes.Exit) {
	p := a.procs[rank]
	p.exited = true
	if p.reported {
		return // the board keeps saying how it ended
	}
	row := a.board.Row(rank)
	a.board.SetRankState(rank, collective.Gone)
	if sig := syscall.Signal(exit.Signal); ends(sig) && a.ended.IsZero() {
		a.interrupt(sig) // it was sent to all of the run's processes: ranks ignore it once they run
	}
	a.fresh(func() {
		if !a.ended.IsZero() {
			return
		}
		lost := &collective.PeerLostError{Rank: rank, How: exit.Text, Last: row}
		f := &engine.Failure{Rank: rank, Code: engine.ExitRankLost, Message: exit.Text, When: board.Now(),
			Traceback: "it was last seen " + row.Doing()}
		if exit.Killed {
			f.Hint = "if nobody killed it, the machine may have run out of memory: see dmesg"
		}
		a.failures = append(a.failures, f)
		a.end(rank, lost, f)
	})
}

// fail notes why a rank, or the run, failed, and ends all ranks.
func (a *agent) fail(f *engine.Failure) {
	a.failures = append(a.failures, f)
	a.end(f.Rank, &collective.FailedError{Rank: f.Rank, Msg: f.Message, Code: f.Code}, f)
}

// end tells all ranks to end. Those that wait for each other learn it from the
// board, those that compute from their control channel.
func (a *agent) end(by int, cause error, f *engine.Failure) {
	if !a.ended.IsZero() {
		return
	}
	a.ended = time.Now()
	a.keeper.release()
	if a.board != nil {
		a.board.Abort(by, cause)
		a.passOn(nil)
	}
	for _, p := range a.procs {
		if !p.exited && !p.reported {
			p.send(&engine.ToWorker{Cancel: f})
		}
	}
}

func textOf(list []string) (bytes int) {
	for _, s := range list {
		bytes += len(s)
	}
	return bytes
}

// values are a recipe's parameters as the history keeps them. A secret that is
// the recipe's default is none: the history has the recipe.
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
	}
	return nil
}
