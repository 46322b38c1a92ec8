// Package node runs some of a run's ranks on one machine: it starts their processes, watches them, and carries
// messages between them and the coordinator. The coordinator's own machine is a node as well. engine/run calls it.
package node

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"drun/collective"
	"drun/engine"
	"drun/engine/board"
	"drun/engine/cluster"
	"drun/engine/console"
	"drun/engine/recipe"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/memory"
	"drun/internal/try"
	"drun/plugins/host"
)

const (
	// KillAfter is how long ranks that were told to end may take to do so.
	KillAfter = 500 * time.Millisecond
	// LookEvery is how often a node with a board of its own checks whether ranks have waited for so long that boards
	// should be compared, and about how often they then are.
	LookEvery = 100 * time.Millisecond
	// While ranks join, they show signs of life. One that shows none, because it was stopped or hangs, would hold up the
	// others until their own limit, and they would be blamed. joiningAtLeast is how long a rank may show none at least:
	// a machine may be busy.
	joiningEvery   = 200 * time.Millisecond
	joiningAtLeast = 3 * time.Second
)

// Config is what a node knows about its machine, and about the run before it starts.
type Config struct {
	Bundle   *recipe.Bundle
	DataDirs []string
	Threads  int           // kernel threads of a rank
	Timeout  time.Duration // of collectives, and of joining
	Console  *console.Console
	Watched  bool // somebody watches the progress bar

	Exe        string // the program that workers run; "": this one
	PluginHost string // the program that workers run instead if plugins may be needed
	// Backend finds the plugin of a backend, nil for one that is built in.
	Backend func(name string) (*host.Plugin, error)

	Endpoint string // address at which the processes of the run have met; "": there is one process
	Address  string // of this machine, as other nodes reach it; "": no other nodes
	Signals  <-chan os.Signal
	OnSpawn  func(rank, pid int)
}

type node struct {
	Config
	start *cluster.Start
	link  cluster.Link[cluster.ToNode, cluster.ToCoordinator]

	plugin *host.Plugin
	found  map[string]func() *engine.Found // of groups' own backends, each looked for once
	board  *board.Board
	sent   board.Sent // what the coordinator has of the board
	shared bool       // the board is the coordinator's: nothing on it has to be sent
	procs  map[int]*process
	events chan event
	asked  uint32    // the latest request of the ranks that the coordinator was told of
	ended  time.Time // when the ranks were told to end; zero: not yet
	left   int       // processes that have not ended

	machine  *meter
	handed   *handedOver
	restores map[uint64]*restored
	reading  map[int]*restored // by rank
}

// Run starts the ranks in each attempt and returns when the coordinator says how the run ended, with every process
// gone. It returns nil when the coordinator itself is gone.
func Run(c Config, start *cluster.Start, link cluster.Link[cluster.ToNode, cluster.ToCoordinator], inbox <-chan *cluster.ToNode) *cluster.End {
	runtime.LockOSThread() // see spawn
	defer runtime.UnlockOSThread()
	handed := newHandedOver(link)
	defer handed.close()
	defer handed.source.End(io.EOF)
	for {
		n := &node{Config: c, start: start, link: link, shared: len(start.Shared) > 0, procs: map[int]*process{}, events: make(chan event, 64),
			handed: handed, restores: map[uint64]*restored{}, reading: map[int]*restored{}, machine: newMeter()}
		if err := n.spawnAll(); err != nil {
			n.refuse(err)
		}
		next, end := n.watch(inbox)
		n.clean()
		if next == nil {
			return end
		}
		start = next
	}
}

// send tells the coordinator something about this attempt.
func (n *node) send(m *cluster.ToCoordinator) {
	m.Attempt = n.start.Attempt
	n.link.Send(m)
}

// spawnAll makes the board, or opens the coordinator's, and starts the ranks.
func (n *node) spawnAll() (err error) {
	defer try.Caught(&err)
	n.plugin = try.To(n.Backend(n.start.Backend))
	files := try.To(n.files())
	for _, f := range files[1:] {
		defer f.Close()
	}
	if n.board, err = board.Open(files[0], board.Observer); err != nil {
		files[0].Close()
		return err
	}
	jobs := n.start.Jobs
	n.board.Near(jobs[0].Placement.Rank, jobs[len(jobs)-1].Placement.Rank+1)
	exe, beside := n.Exe, len(jobs)
	if n.PluginHost != "" && (n.plugin != nil || n.Bundle.NamesBackends()) {
		exe, beside = n.PluginHost, 2*len(jobs) // each rank with its plugin
	}
	if exe == "" {
		exe = "/proc/self/exe" // the running program, even if its file was replaced
	}
	for i := range jobs {
		job := n.complete(&jobs[i])
		try.Ok(exit.WithCode(n.Console.Begin(job.RunName, job.RestartCount, job.Placement.Rank, job.Placement.LocalRank), exit.Storage))
		p := try.To(spawn(exe, beside, job, environment(job, n.Endpoint), files, func(rank int, stderr bool, text string) {
			n.Console.Line(rank, stderr, text)
			n.send(&cluster.ToCoordinator{Rank: rank, Line: &cluster.Line{Stderr: stderr, Text: text}})
			n.link.Wait()
		}))
		n.procs[p.rank] = p
		n.left++
		if n.OnSpawn != nil {
			n.OnSpawn(p.rank, p.cmd.Process.Pid)
		}
		go p.serve(n.events, n.link.Wait)
	}
	return nil
}

func (n *node) files() (files []*os.File, err error) {
	if !n.shared {
		f, err := board.Create(n.start.World)
		return []*os.File{f}, err
	}
	for _, path := range n.start.Shared {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, exit.Permanent(exit.WithHint(exit.Errorf(exit.Backend, "the memory of rank 0 cannot be shared: %v", err),
				"name a backend for networks: drun backends lists them"))
		}
		files = append(files, f)
	}
	return files, nil
}

// complete adds to a job what is particular to this machine.
func (n *node) complete(job *engine.Job) *engine.Job {
	job.Sources, job.Dir, job.Project = n.Bundle.Sources, n.Bundle.Dir, string(n.Bundle.Project)
	job.DataDirs = n.DataDirs
	job.Threads = n.Threads
	if job.Memory == 0 {
		job.Memory = memory.Machine()
	}
	job.Watched = n.Watched
	if job.NodeAddress = n.Address; n.start.Address != "" {
		job.NodeAddress = n.start.Address
	}
	job.Plugin = program(n.plugin)
	return job
}

// program describes a plugin to ranks; nil if there is none.
func program(p *host.Plugin) *engine.Plugin {
	if p == nil {
		return nil
	}
	return &engine.Plugin{Plugin: records.Plugin{Name: p.Name, Path: p.Path, SHA256: p.SHA256}, Mark: p.Mark}
}

// find looks for the plugin of a group's own backend. All ranks of the node get the same answer.
func (n *node) find(name string) func() *engine.Found {
	if n.found == nil {
		n.found = map[string]func() *engine.Found{}
	}
	if n.found[name] == nil {
		n.found[name] = sync.OnceValue(func() *engine.Found {
			p, err := n.Backend(name)
			f := &engine.Found{Plugin: program(p)}
			switch {
			case err != nil:
				f.Failure = engine.NewFailure(board.Observer, err, board.Now())
			case p != nil:
				var about collective.Properties // a plugin that does not answer fails on the ranks, too
				_ = host.Ask(context.Background(), n.PluginHost, "properties", p, &about)
				f.Plugin.WholeWorld, f.Plugin.OwnOrder = about.WholeWorld, about.OwnOrder
			}
			return f
		})
	}
	return n.found[name]
}

// refuse reports that the ranks that have not started cannot start.
func (n *node) refuse(err error) {
	for i := range n.start.Jobs {
		rank := n.start.Jobs[i].Placement.Rank
		if n.procs[rank] != nil {
			continue
		}
		n.send(&cluster.ToCoordinator{Rank: rank, Msg: &engine.ToAgent{Failure: engine.NewFailure(rank, err, board.Now())}})
		n.send(&cluster.ToCoordinator{Rank: rank, Exit: &cluster.Exit{Text: "not started"}})
	}
}

// watch passes everything on until the coordinator starts the next attempt, says how the run ended, or is gone.
func (n *node) watch(inbox <-chan *cluster.ToNode) (next *cluster.Start, end *cluster.End) {
	var deadline, look, joining <-chan time.Time
	var joins board.JoinWatch
	if n.board != nil && n.start.World > 1 && n.Timeout > 0 {
		joining = time.Tick(joiningEvery)
	}
	began := time.Now()
	sample := time.NewTimer(nextSample(0))
	defer sample.Stop()
	if n.board != nil && !n.shared {
		look = time.Tick(LookEvery / 2)
	}
	for {
		if deadline == nil && !n.ended.IsZero() {
			deadline = time.After(KillAfter)
		}
		select {
		case ev := <-n.events:
			n.tell(ev)
		case msg, more := <-inbox:
			if !more || msg.End != nil || msg.Start != nil {
				if more {
					next, end = msg.Start, msg.End
				}
				return next, end
			}
			n.obey(msg)
		case sig, ok := <-n.Signals:
			if number, is := sig.(syscall.Signal); ok && is {
				n.send(&cluster.ToCoordinator{Signal: int(number)})
			} else if !ok {
				n.Signals = nil
			}
		case <-look:
			asks, asked := n.board.Asks()
			if !asked || asks == n.asked {
				asks = 0
			} else {
				n.asked = asks
			}
			if asks != 0 || n.board.Stuck(LookEvery) {
				n.send(&cluster.ToCoordinator{Look: &cluster.Look{Ask: asks}})
			}
		case <-sample.C:
			n.sample()
			sample.Reset(nextSample(time.Since(began)))
		case <-joining:
			limit := max(n.Timeout, joiningAtLeast)
			rank, all := joins.Check(n.board, limit)
			if rank >= 0 {
				n.send(&cluster.ToCoordinator{Rank: rank, Msg: &engine.ToAgent{Failure: &engine.Failure{Rank: rank, Code: exit.Timeout, When: board.Now(),
					Message: fmt.Sprintf("it has not joined the others, and has shown no sign of life for %v", limit),
					Hint:    "its process may have been stopped (SIGSTOP, a debugger), or the machine may be too busy to run it"}}})
				n.ending()
			}
			if all || rank >= 0 {
				joining = nil
			}
		case <-deadline:
			n.kill()
			deadline = time.After(KillAfter)
		}
	}
}

// tell passes on a rank's message, or its end.
func (n *node) tell(ev event) {
	p := n.procs[ev.rank]
	if ev.msg != nil && ev.msg.Find != "" {
		found := n.find(ev.msg.Find)
		go func() { p.send(&engine.ToWorker{Found: found()}) }() // a plugin may have to be started to be asked
		return
	}
	if ev.msg != nil {
		if ev.msg.Failure != nil || ev.msg.Done {
			p.reported = true
		}
		if ev.msg.Failure != nil {
			n.ending()
			if by, cause, ok := n.board.Cause(); ok && !n.shared {
				n.send(&cluster.ToCoordinator{Abort: &cluster.Abort{By: by, Cause: cause}})
			}
		}
		if ev.msg.Handed != nil {
			n.handed.take(ev.rank)
		}
		if ev.msg.Taken {
			n.opened(ev.rank)
		}
		n.send(&cluster.ToCoordinator{Rank: ev.rank, Msg: ev.msg})
		return
	}
	if p.refused.Load() && !p.reported && !ev.exit.Killed {
		n.tell(event{rank: ev.rank, msg: &engine.ToAgent{Failure: n.exceeded(p)}})
	}
	p.exited = true
	n.left--
	n.sampleEnd(p)
	if !n.shared { // its last calls
		n.send(&cluster.ToCoordinator{Mirror: &cluster.Mirror{Words: n.show(true)}})
	}
	if !p.reported {
		if !n.shared { // otherwise the coordinator does so, after reading the rank's last calls
			n.board.SetRankState(ev.rank, collective.Gone)
		}
		n.ending()
	}
	n.send(&cluster.ToCoordinator{Rank: ev.rank, Exit: ev.exit})
}

// exceeded is the failure of a rank that asked for more memory than there is and could not report that itself.
func (n *node) exceeded(p *process) *engine.Failure {
	f := engine.NewFailure(p.rank, memory.Exceeded(p.limit), board.Now())
	if pos := n.board.Row(p.rank).Pos; pos.File != "" {
		f.Message += fmt.Sprintf("; it was last seen at %v", pos)
	}
	return f
}

func (n *node) show(all bool) *board.Mirror {
	m := n.board.Show(nil, all)
	n.sent.Trim(m)
	return m
}

// ending starts the time limit for the ranks to end.
func (n *node) ending() {
	if n.ended.IsZero() {
		n.ended = time.Now()
	}
}

// obey carries out the coordinator's message.
func (n *node) obey(msg *cluster.ToNode) {
	switch p := n.procs[msg.Rank]; {
	case msg.Msg != nil && p != nil:
		if msg.Msg.Cancel != nil {
			n.ending()
		}
		if !p.exited {
			n.pass(p, msg.Msg)
		}
	case msg.Want != nil:
		go func() { n.link.Send(&cluster.ToCoordinator{Got: n.handed.held.Answer(msg.Want)}) }()
	case msg.Got != nil:
		n.handed.source.Deliver(msg.Got)
	case msg.Forget != 0:
		n.handed.forget(msg.Forget)
		n.forgetRestored(msg.Forget)
	case msg.Abort != nil && n.board != nil:
		n.board.AbortAs(msg.Abort.By, msg.Abort.Cause)
		n.ending()
	case msg.Kill:
		n.kill()
	case msg.Show != nil && n.board != nil:
		n.send(&cluster.ToCoordinator{Mirror: &cluster.Mirror{Words: n.show(msg.Show.All), Round: msg.Show.Round}})
	case msg.Mirror != nil && msg.Mirror.Words != nil && n.board != nil:
		n.board.Adopt(msg.Mirror.Words)
		n.board.Confirm(msg.Mirror.Circle)
		if msg.Mirror.Told != 0 {
			n.board.Tell(msg.Mirror.Told)
		}
	}
}

// pass sends a rank the coordinator's message. A state that the rank hands over or restores goes through this
// node's memory.
func (n *node) pass(p *process, msg *engine.ToWorker) {
	switch {
	case msg.HandOver != nil && msg.HandOver.State != 0:
		if err := n.handed.ask(p.rank, msg.HandOver); err != nil {
			n.send(&cluster.ToCoordinator{Rank: p.rank, Msg: &engine.ToAgent{Handed: &engine.Handed{Error: err.Error()}}})
			msg = &engine.ToWorker{Saved: &engine.Saved{Error: err.Error()}}
		}
	case msg.State != nil && msg.State.State != 0:
		n.restore(p, msg.State)
		return
	}
	p.send(msg)
}

func (n *node) kill() {
	for _, p := range n.procs {
		if !p.exited {
			p.kill()
		}
	}
}

// clean waits for the processes, which have ended or were killed.
func (n *node) clean() {
	n.kill()
	for state := range n.restores {
		n.forgetRestored(state)
	}
	limit := time.After(2 * time.Second)
	for n.left > 0 {
		select {
		case ev := <-n.events:
			if ev.exit != nil {
				n.procs[ev.rank].exited = true
				n.left--
			}
		case <-limit:
			return // the board stays open
		}
	}
	if n.board != nil {
		n.board.Close()
	}
}
