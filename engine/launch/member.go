package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"drun/collective"
	"drun/engine"
	"drun/engine/board"
	"drun/engine/nodes"
	"drun/engine/recipe"
	"drun/plugins/host"
)

// member is an agent that runs some of a run's ranks for the head, which keeps
// the run: what the ranks say goes there, and what it says is done here.
type member struct {
	o       Options
	bundle  *recipe.Bundle
	plugin  *host.Plugin
	console console

	link     *nodes.Link
	board    *board.Board
	oneBoard bool
	procs    map[int]*process
	events   chan event
	asked    uint32    // of the ranks' asks, what the head was told
	ended    time.Time // when the ranks were told to end; zero: not yet
}

func (m *member) run() (*Result, error) {
	inbox, err := m.meet()
	if err != nil {
		return nil, err
	}
	defer m.link.Close()
	start, err := m.await(inbox)
	if err != nil {
		return nil, err
	}
	runtime.LockOSThread() // see spawn
	defer runtime.UnlockOSThread()
	m.procs, m.events = map[int]*process{}, make(chan event, 64)
	if err := m.start(start); err != nil {
		m.refuse(start, err)
	}
	return m.watch(start, inbox)
}

// start makes the board, or opens the head's, and starts the ranks.
func (m *member) start(s *nodes.Start) (err error) {
	m.o.Backend, m.oneBoard = s.Backend, len(s.Shared) > 0
	if m.plugin == nil {
		if m.plugin, err = findBackend(m.o); err != nil {
			return err
		}
	}
	files, err := m.files(s)
	if err != nil {
		return err
	}
	for _, f := range files[1:] {
		defer f.Close()
	}
	if m.board, err = board.Open(files[0], board.Observer); err != nil {
		return err
	}
	if near := s.Jobs[0].Near; !m.oneBoard {
		m.board.Near(near[0], near[1])
	}
	exe := m.o.Exe
	if m.plugin != nil && m.o.PluginHost != "" {
		exe = m.o.PluginHost
	}
	if exe == "" {
		exe = "/proc/self/exe"
	}
	for i := range s.Jobs {
		job := m.complete(&s.Jobs[i])
		p, err := spawn(exe, job, files, func(rank int, stderr bool, text string) {
			m.console.line(rank, stderr, text)
			m.link.Send(&nodes.ToHead{Rank: rank, Line: &nodes.Line{Stderr: stderr, Text: text}})
			m.link.Await()
		})
		if err != nil {
			return err
		}
		m.procs[p.rank] = p
		if m.o.OnSpawn != nil {
			m.o.OnSpawn(p.rank, p.cmd.Process.Pid)
		}
		go p.serve(job, m.events, m.link.Await)
	}
	return nil
}

// files are those that ranks inherit.
func (m *member) files(s *nodes.Start) (files []*os.File, err error) {
	if len(s.Shared) == 0 {
		f, err := board.Create(s.World)
		return []*os.File{f}, err
	}
	for _, path := range s.Shared {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil, &engine.Error{Code: engine.ExitBackend, Msg: fmt.Sprintf("the memory of rank 0 cannot be shared: %v", err), Hint: "use --backend gloo"}
		}
		files = append(files, f)
	}
	return files, nil
}

// complete adds to a job what is this machine's own.
func (m *member) complete(job *engine.Job) *engine.Job {
	job.Sources, job.Dir = m.bundle.Sources, m.bundle.Dir
	job.DataDirs = absolute(m.o.DataDirs)
	job.Threads = m.o.Threads
	job.Plugin = pluginOf(m.plugin)
	job.Store.Address = m.o.Join.Address
	if !m.oneBoard {
		job.NodeAddress = ipOf(m.link.Local())
	}
	return job
}

// refuse tells the head that the ranks cannot start.
func (m *member) refuse(s *nodes.Start, err error) {
	f := engine.NewFailure(board.Observer, err, board.Now())
	for i := range s.Jobs {
		rank := s.Jobs[i].Place.Rank
		if m.procs[rank] != nil {
			continue
		}
		own := *f
		own.Rank = rank
		m.link.Send(&nodes.ToHead{Rank: rank, Msg: &engine.ToAgent{Failure: &own}})
		m.link.Send(&nodes.ToHead{Rank: rank, Exit: &nodes.Exit{Text: "not started"}})
	}
}

// watch passes everything on until the head says how the run ended.
func (m *member) watch(s *nodes.Start, inbox <-chan *nodes.ToMember) (*Result, error) {
	var deadline, look <-chan time.Time
	if !m.oneBoard {
		look = time.Tick(lookEvery / 2)
	}
	var muster <-chan time.Time // until all ranks have joined
	var mustered board.Muster
	if !m.oneBoard && m.board != nil {
		muster = time.Tick(musterEvery)
	}
	for {
		if deadline == nil && !m.ended.IsZero() {
			deadline = time.After(killAfter)
		}
		select {
		case ev := <-m.events:
			m.tell(ev)
		case msg, more := <-inbox:
			if !more {
				m.killAll()
				m.clean()
				return nil, &engine.Error{Code: engine.ExitRankLost, Msg: fmt.Sprintf("the connection to the run's first process, at %s, ended: this process's ranks were killed", m.o.Join.Address)}
			}
			if msg.End != nil {
				m.clean()
				e := msg.End
				r := &Result{ID: e.ID, Name: e.Name, Code: e.Code, Ranks: s.World, Failure: e.Failure, Seconds: e.Seconds}
				if r.Code == engine.ExitUsage && r.Failure != nil {
					return nil, usage(r.Failure)
				}
				return r, nil
			}
			m.obey(msg)
		case sig, ok := <-m.o.Signals:
			if n, is := sig.(syscall.Signal); ok && is {
				m.link.Send(&nodes.ToHead{Signal: int(n)})
			} else if !ok {
				m.o.Signals = nil
			}
		case <-look:
			if m.board == nil {
				break
			}
			n, asked := m.board.Asks()
			if !asked || n == m.asked {
				n = 0
			} else {
				m.asked = n
			}
			if n != 0 || m.board.Stuck(lookEvery) {
				m.link.Send(&nodes.ToHead{Look: &nodes.Look{Ask: n}})
			}
		case <-muster:
			rank, all := mustered.Look(m.board, musterAfter(m.o.Timeout))
			if rank >= 0 {
				m.link.Send(&nodes.ToHead{Rank: rank, Msg: &engine.ToAgent{Failure: absent(rank, m.o.Timeout)}})
				m.ending()
			}
			if all || rank >= 0 {
				muster = nil
			}
		case <-deadline:
			m.killAll()
			deadline = time.After(killAfter)
		}
	}
}

// tell passes on what a rank says, or its end.
func (m *member) tell(ev event) {
	p := m.procs[ev.rank]
	if ev.msg != nil {
		if ev.msg.Failure != nil || ev.msg.Done {
			p.reported = true
		}
		if ev.msg.Failure != nil {
			m.ending()
			if by, cause, ok := m.board.Cause(); ok {
				m.link.Send(&nodes.ToHead{Abort: &nodes.Abort{By: by, Cause: cause}})
			}
		}
		m.link.Send(&nodes.ToHead{Rank: ev.rank, Msg: ev.msg})
		return
	}
	p.exited = true
	p.drain()
	if !m.oneBoard { // what it did last
		m.link.Send(&nodes.ToHead{Mirror: &nodes.Mirror{Words: m.board.Show(nil, true)}})
	}
	if !p.reported {
		m.board.SetRankState(ev.rank, collective.Gone)
		m.ending()
	}
	m.link.Send(&nodes.ToHead{Rank: ev.rank, Exit: ev.exit})
}

// ending begins to count the time that the ranks have left.
func (m *member) ending() {
	if m.ended.IsZero() {
		m.ended = time.Now()
	}
}

// obey does what the head says.
func (m *member) obey(msg *nodes.ToMember) {
	switch p := m.procs[msg.Rank]; {
	case msg.Msg != nil && p != nil:
		if msg.Msg.Cancel != nil {
			m.ending()
		}
		if !p.exited {
			p.send(msg.Msg)
		}
	case msg.Abort != nil && m.board != nil:
		m.board.AbortAs(msg.Abort.By, msg.Abort.Cause)
		m.ending()
	case msg.Kill:
		m.killAll()
	case msg.Show != nil && m.board != nil:
		m.link.Send(&nodes.ToHead{Mirror: &nodes.Mirror{Words: m.board.Show(nil, msg.Show.All), Round: msg.Show.Round}})
	case msg.Mirror != nil && msg.Mirror.Words != nil && m.board != nil:
		m.board.Adopt(msg.Mirror.Words)
		m.board.Confirm(msg.Mirror.Circle)
		if msg.Mirror.Told != 0 {
			m.board.Tell(msg.Mirror.Told)
		}
	}
}

func (m *member) killAll() {
	for _, p := range m.procs {
		if !p.exited {
			p.kill()
		}
	}
}

// clean waits for the ranks, which have ended or were killed.
func (m *member) clean() {
	m.killAll()
	limit := time.After(2 * time.Second)
	for _, p := range m.procs {
		for !p.exited {
			select {
			case ev := <-m.events:
				if ev.exit != nil {
					m.procs[ev.rank].exited = true
					m.procs[ev.rank].drain()
				}
			case <-limit:
				return
			}
		}
	}
	m.console.close()
	if m.board != nil {
		m.board.Close()
	}
}

// absolute makes folders mean the same in another working directory.
func absolute(dirs []string) []string {
	out := make([]string, len(dirs))
	for i, dir := range dirs {
		out[i] = dir
		if abs, err := filepath.Abs(dir); err == nil {
			out[i] = abs
		}
	}
	return out
}

func pluginOf(p *host.Plugin) *engine.Plugin {
	if p == nil {
		return nil
	}
	return &engine.Plugin{Name: p.Name, Path: p.Path, SHA256: p.SHA256, Mark: p.Mark}
}
