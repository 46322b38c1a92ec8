package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"drun/collective"
	"drun/collective/shm"
	"drun/engine"
	"drun/engine/board"
	"drun/engine/cluster"
	"drun/engine/node"
	"drun/engine/record"
	"drun/engine/rendezvous"
	"drun/history/records"
	"drun/internal/each"
	"drun/internal/exit"
	"drun/internal/try"
)

// coordinator leads one run on its nodes, attempt after attempt.
type coordinator struct {
	*plan
	nodes
	events
	record  *record.Record
	started time.Time

	stop     stop
	counts   map[string]int64 // see Result
	restarts int              // decided on so far; tells attempts apart
	begun    int              // restarts that have begun: a signal may end the pause before one
	grown    int              // restarts made because a node had come
	doubts   int              // restarts made because a processor had computed wrongly
	avoid    map[string][]int // cores that did, by host
	idle     int              // consecutive attempts that saved nothing
	saved    int              // saves of the run before this attempt

	warnedOfNaN bool
	debugger    *debugger // nil: there is none
	attempt
}

// attempt is the state of one start of the ranks.
type attempt struct {
	*nodes
	board    *board.Board // of all ranks: those of other machines are mirrored
	shared   []*os.File   // the memory of this machine's ranks
	ranks    []rankState
	failures []*engine.Failure
	ended    time.Time // when the ranks were told to end; zero: not yet
	last     bool      // no attempt follows it
	grows    bool      // it ends because a node has come
	stall    stall
	rounds   rounds
	leavers  map[party]leaving // groups that some ranks have left and others not yet
	replicas replicas
	contents contents
}

type rankState struct {
	peer     *peer
	reported bool // it has reported how it ended
	exited   bool
}

// events is how other goroutines reach the coordinator's goroutine.
type events struct {
	queue chan event
	over  chan struct{} // closed when the queue is no longer read
}

// event is what another goroutine reports to the coordinator.
type event struct {
	from     *peer
	msg      *cluster.ToCoordinator // nil: the node is gone
	saved    *saved
	late     *late
	asked    chan<- *board.Snapshot // asks for a snapshot of the ranks
	debugger *debugger
	leads    *engine.Debugging // what it asks for; nil: it comes or has gone
}

type saved struct{ attempt int } // the attempt in which it began

// late is a save whose wait for ranks has reached its limit.
type late struct {
	attempt int
	step    int64
	doing   string // what they should do
	missing func() []int
}

func newCoordinator(p *plan, all *cluster.Cluster) *coordinator {
	c := &coordinator{plan: p, nodes: nodes{cluster: all}, counts: map[string]int64{}, events: events{make(chan event, 64), make(chan struct{})}, started: time.Now()}
	c.attempt.nodes = &c.nodes
	if p.Debug != nil {
		c.lead(cluster.Debugger(p.Debug))
	}
	return c
}

// coordinate runs the recipe on this process's ranks and those of all processes that join it.
func (p *plan) coordinate() (_ *Result, err error) {
	defer try.Caught(&err)
	c := newCoordinator(p, &cluster.Cluster{})
	checked := p.check()
	for rank := range p.Nproc {
		c.cluster.Own = append(c.cluster.Own, rank)
		c.cluster.Placements = append(c.cluster.Placements, rendezvous.Local(rank, p.Nproc))
	}
	if p.Join != nil {
		named := p.History
		if p.resumesFile() {
			named.Resume = ""
		}
		try.Ok(record.CheckNames(named))
		waiting := cluster.Waiting{Timeout: p.Timeout, Note: p.console.Note, MaxRanks: MaxRanks}
		c.cluster = try.To(interruptible(p, func(ctx context.Context) (*cluster.Cluster, error) {
			return cluster.Form(ctx, p.Join, p.hello(), waiting, p.decideBackend)
		}))
		c.started = time.Now()
	}
	link := c.addPeers()
	sig, err := c.enter()
	if done := (*record.DoneError)(nil); errors.As(err, &done) {
		c.console.Note("drun: " + done.Error())
		c.console.Close()
		r := &Result{ID: done.ID, Name: done.Name, Seconds: done.Seconds, Ranks: c.world()}
		c.dismiss(r)
		return r, nil
	}
	if err != nil {
		f := engine.NewFailure(board.Observer, err, 0)
		c.dismiss(&Result{Code: f.Code, Failure: f})
		return nil, err
	}
	switch fault := checked(); {
	case sig != nil:
		c.interrupt(sig)
	case fault != nil:
		c.fail(fault)
	default:
		c.begin(link)
	}
	for c.watch(); c.again(); c.watch() {
		c.begin(nil)
	}
	return c.finish()
}

// check starts looking for faults in the recipe. The function that it returns waits for the result, shows the notes, and
// returns the fault that keeps the run from starting, if there is one.
func (p *plan) check() (wait func() *engine.Failure) {
	if p.Check == nil {
		return func() *engine.Failure { return nil }
	}
	type found struct {
		notes []string
		fault *Fault
	}
	ended := make(chan found, 1)
	go func() {
		result := found{}
		defer func() {
			_ = recover() // a mistake in the check must not keep a recipe from running
			ended <- result
		}()
		result.notes, result.fault = p.Check(p.bundle)
	}()
	return func() *engine.Failure {
		found := <-ended
		for _, text := range found.notes {
			p.console.Note(text)
		}
		if found.fault == nil {
			return nil
		}
		f := &engine.Failure{Rank: board.Observer, Code: exit.Recipe, When: board.Now(), Permanent: true, Hint: "drun check found this before the ranks started"}
		f.Message, f.Traceback = p.bundle.Fault(found.fault.File, int32(found.fault.Line), int32(found.fault.Col), found.fault.Message)
		return f
	}
}

// resumesFile reports whether --resume names a file of weights.
func (p *plan) resumesFile() bool {
	ext := filepath.Ext(p.Resume)
	return p.Import != nil && (ext == ".safetensors" || ext == ".npz")
}

// enter begins the run's record. sig is a signal that came meanwhile.
func (c *coordinator) enter() (sig os.Signal, err error) {
	kept := c.History
	if c.resumesFile() {
		if kept.Resume, err = c.Import(kept.Resume); err != nil {
			return nil, err
		}
	}
	hurry, came, done := c.listen(Ends)
	c.record, err = record.Open(record.Config{
		History: kept, Recipe: c.bundle, Placements: c.cluster.Placements, Backend: c.Backend, Plugin: c.plugin, Seed: c.Seed, SeedGiven: c.SeedGiven,
		Threads: c.Threads, OtherBits: c.plan.otherBits(), Deterministic: !c.ownOrder() || c.plan.hierarchy(&c.nodes) != nil, DataDirs: absolute(c.DataDirs),
		Started: c.started, Params: c.params, Say: c.console.Note, Doing: c.doing, Debugged: c.come,
	}, hurry.Done())
	done()
	if err != nil && came.end != nil {
		err = exit.Errorf(exit.Interrupted, "interrupted by %s before the run was in the history, which another process may have locked", engine.SignalName(came.end))
	}
	if err == nil && came.stop {
		c.signal(syscall.SIGUSR1, nil)
	}
	if err == nil && c.OnEntered != nil {
		c.OnEntered(c.record.ID())
	}
	return came.end, err
}

// begin begins an attempt, or ends the run if that fails.
func (c *coordinator) begin(link cluster.Link[cluster.ToNode, cluster.ToCoordinator]) {
	if err := c.start(link); err != nil {
		c.last = true
		c.fail(engine.NewFailure(board.Observer, err, board.Now()))
	}
}

// start makes the shared memory and starts every rank. link leads to this machine's node, which starts with the first
// attempt.
func (c *coordinator) start(link cluster.Link[cluster.ToNode, cluster.ToCoordinator]) (err error) {
	defer try.Caught(&err)
	file := try.To(board.Create(c.world()))
	c.shared = append(c.shared, file)
	c.board = try.To(board.Open(file, board.Observer))
	if near := c.near(0); len(c.peers) > 1 {
		c.board.Near(near[0], near[1])
	}
	if c.world() > 1 && c.plugin == nil {
		c.shared = append(c.shared, try.To(shm.Create(c.world())))
	}
	c.keys.Store(&keys{c.restarts, rendezvous.NewTable()})
	for rank := range c.world() {
		c.ranks = append(c.ranks, rankState{peer: c.peerOf(rank)})
	}
	if c.stop.asked {
		c.board.RequestStop()
	}
	c.debugged(&engine.Debugging{World: c.world()})
	for _, p := range c.peers {
		if p.mirrored = (mirrored{}); p != c.peers[0] || c.restarts > 0 {
			p.Link.Send(&cluster.ToNode{Start: c.startOf(p)})
		}
	}
	if c.restarts > 0 {
		return nil
	}
	own := c.node()
	own.Endpoint, own.Watched = c.cluster.Address, c.Terminal
	first := c.startOf(c.peers[0])
	c.local.Go(func() { node.Run(own, first, link, cluster.Inbox(link)) })
	for _, p := range c.peers {
		go c.hear(p)
	}
	return nil
}

// job is a rank's job, without what its node adds itself.
func (c *coordinator) job(rank int) engine.Job {
	job := engine.Job{
		RunID: c.record.ID(), RunName: c.record.Name(), RestartCount: c.record.Attempt(), Placement: c.cluster.Placements[rank], Peers: rendezvous.Peers(c.cluster.Placements, rank), Near: c.near(rank), Deterministic: !c.ownOrder(), Groups: c.groupsOrder(),
		Seed: uint64(c.record.Seed), Backend: c.Backend, Recipe: c.bundle.Name, Main: c.bundle.Main, Params: c.record.Params, Timeout: c.Timeout,
		Hierarchy: c.plan.hierarchy(&c.nodes), Memory: c.Memory, Device: c.Device, OtherBits: c.OtherBits, Home: absolute([]string{c.Home})[0], Testing: c.Testing, Function: c.Function, Counted: c.Counted,
		Audit: c.Audit, Avoid: c.avoid[c.ranks[rank].peer.Host], Debug: c.Debug != nil, Marks: c.Marks, KeepEach: c.KeepEach,
	}
	if r := c.Replay; r != nil {
		job.RunID, job.RunName, job.Target, job.Trace = r.ID, r.Name, r.Target, r.Trace
		job.RestartCount += r.Starts
	}
	return job
}

// groupsOrder is the order in which groups' own backends are to reduce. In a run that is replayed they had their
// defaults, unless all backends reduced in an order of their own.
func (c *coordinator) groupsOrder() *bool {
	if c.Replay != nil && c.Deterministic != nil && *c.Deterministic {
		return nil
	}
	return c.Deterministic
}

// watch handles events until every worker has ended.
func (c *coordinator) watch() {
	var deadline <-chan time.Time // for the ranks that were told to end
	var watched <-chan time.Time  // while somebody watches
	if c.Terminal && c.world() > 1 {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		watched = tick.C
	}
	for slices.ContainsFunc(c.ranks, func(r rankState) bool { return !r.exited }) {
		if deadline == nil && !c.ended.IsZero() {
			deadline = time.After(node.KillAfter)
		}
		select {
		case ev := <-c.queue:
			c.handle(ev)
		case err := <-c.record.Faults():
			c.fail(storageFailure(err))
		case sig, ok := <-c.Signals:
			if !ok {
				c.Signals = nil
			} else {
				c.signal(sig, nil)
			}
		case <-watched:
			c.stalled()
		case m := <-c.cluster.Joins:
			c.join(m)
		case <-c.lookTick:
			c.look()
		case <-c.stop.grace:
			c.interrupt(c.stop.signal)
		case <-deadline:
			for _, p := range c.peers {
				if len(c.left(p)) > 0 {
					p.Link.Send(&cluster.ToNode{Kill: true})
				}
			}
			deadline = time.After(node.KillAfter)
			c.giveUp()
		}
	}
	c.endRounds()
}

func (c *coordinator) handle(ev event) {
	switch m := ev.msg; {
	case ev.saved != nil:
		if ev.saved.attempt == c.restarts {
			c.record.SaveEnded(c.saving())
		}
	case ev.late != nil:
		c.overdue(ev.late)
	case ev.debugger != nil:
		c.led(ev.debugger, ev.leads)
	case ev.asked != nil:
		// It shows other nodes' ranks as of the latest round, at most about a second ago.
		if c.board == nil {
			ev.asked <- nil
		} else {
			ev.asked <- c.board.Snapshot()
		}
	case m == nil:
		c.lost(ev.from)
	case m.Signal != 0:
		c.signal(syscall.Signal(m.Signal), ev.from)
	case m.Attempt != c.restarts: // from an earlier attempt
	case m.Msg != nil:
		c.message(m.Rank, m.Msg)
	case m.Usage != nil:
		c.record.Records(m.Rank, &records.Batch{Usage: []records.Usage{*m.Usage}})
	case m.Exit != nil:
		c.exited(m.Rank, m.Exit)
	default:
		c.said(ev.from, m)
	}
}

// warnOfNaN warns once in a run: training hardly recovers from NaN, and a run that ends with it looks like any other.
func (c *coordinator) warnOfNaN(points []records.Point) {
	i := slices.IndexFunc(points, func(p records.Point) bool { return math.IsNaN(p.Value) })
	if c.warnedOfNaN || i < 0 {
		return
	}
	c.warnedOfNaN = true
	c.console.Note(fmt.Sprintf("drun: warning: the metric %s is NaN at step %d (run.watch_nan() ends a run at the operation that NaN comes from)", points[i].Name, points[i].Step))
}

func (c *coordinator) message(rank int, m *engine.ToAgent) {
	c.record.Add(rank, m)
	c.console.Metrics(m.Records.Points)
	if m.Debugged != nil {
		c.debugged(&engine.Debugging{Rank: rank, Debugged: m.Debugged})
	}
	c.warnOfNaN(m.Records.Points)
	for name, n := range m.Counts {
		c.counts[name] += n
	}
	if len(m.Records.DataFiles) > 0 && c.cluster.Placements[rank].Nodes > 1 {
		c.compareFiles(rank, m)
	}
	if m.Replicas != nil {
		c.told(c.replicas.add(rank, c.world(), m.Replicas))
	}
	switch {
	case m.Progress != nil:
		c.console.Progress(m.Progress)
		c.record.Progress(m.Progress)
	case m.Save != nil && slices.ContainsFunc(c.failures, func(f *engine.Failure) bool { return f.Doubt != nil }):
		// The state may be wrong. The rank is about to end.
	case m.Save != nil:
		c.record.Save(rank, m.Save, c.saving())
	case m.Handed != nil:
		c.record.Handed(rank, m.Handed, c.saving())
	case m.Restore != "":
		link := c.ranks[rank].peer.Link // of this attempt, which may be over when the answer comes
		c.record.Restore(rank, m.Restore, c.opens(rank), func(state *engine.Restored) {
			link.Send(&cluster.ToNode{Rank: rank, Msg: &engine.ToWorker{State: state}})
		})
	case m.Taken:
		c.record.Taken(rank)
	case m.Leave != nil:
		c.leave(rank, m.Leave)
	case m.Failure != nil:
		c.ranks[rank].reported = true
		c.rankEnded(rank, m.Failure.Message)
		c.fail(m.Failure)
	case m.Done:
		c.ranks[rank].reported = true
		c.rankEnded(rank, "")
	}
}

// saving gives a save of this attempt its access to the ranks.
func (c *coordinator) saving() record.Ranks {
	attempt, peers := c.restarts, slices.Clone(c.peers) // the save may outlast the attempt
	return record.Ranks{
		Near: c.opens,
		Node: func(rank int) record.Node { return c.ranks[rank].peer.states },
		Forget: func(state uint64) {
			for _, p := range peers[1:] {
				p.Link.Send(&cluster.ToNode{Forget: state})
			}
		},
		Ask: func(rank int, what *engine.HandOver) { c.send(rank, &engine.ToWorker{HandOver: what}) },
		Taken: func(rank int, err error) {
			msg := &engine.Saved{}
			if err != nil {
				msg.Error = err.Error()
			}
			c.send(rank, &engine.ToWorker{Saved: msg})
		},
		Saved: func(step int64, err error) {
			if err == nil && c.OnSaved != nil {
				c.OnSaved(step)
			}
			c.put(event{saved: &saved{attempt}})
		},
		Await: func(step int64, doing string, missing func() []int) func() {
			timer := time.AfterFunc(c.Timeout, func() { c.put(event{late: &late{attempt, step, doing, missing}}) })
			return func() { timer.Stop() }
		},
	}
}

// overdue ends an attempt in which a rank does not do its part of a save, because it is stopped or hangs.
func (c *coordinator) overdue(l *late) {
	if l.attempt != c.restarts || !c.ended.IsZero() || c.debugger != nil { // which may hold ranks for as long as it likes
		return
	}
	missing := l.missing()
	if len(missing) == 0 {
		return
	}
	rows := each.Of(missing, c.board.Row)
	c.fail(&engine.Failure{Rank: board.Observer, Code: exit.Timeout, When: board.Now(), Traceback: collective.Table(rows),
		Message: fmt.Sprintf("the checkpoint of step %d has waited %s for %s %s", l.step, c.Timeout, collective.RankList(missing), l.doing)})
}

func (c *coordinator) send(rank int, msg *engine.ToWorker) {
	c.ranks[rank].peer.Link.Send(&cluster.ToNode{Rank: rank, Msg: msg})
}

func (c *coordinator) exited(rank int, how *cluster.Exit) {
	r := &c.ranks[rank]
	if r.exited {
		return
	}
	r.exited = true
	if r.reported {
		return // the board keeps saying how it ended
	}
	c.rankEnded(rank, how.Text)
	row := c.board.Row(rank)
	c.board.SetRankState(rank, collective.Gone)
	if sig := syscall.Signal(how.Signal); Ends(sig) && c.ended.IsZero() {
		c.interrupt(sig) // it was sent to all of the run's processes; ranks ignore it only once they run
	}
	c.fresh(func() {
		if !c.ended.IsZero() && (how.Ours || !c.suspects()) {
			return
		}
		lost := &collective.PeerLostError{Rank: rank, How: how.Text, Last: row}
		f := &engine.Failure{Rank: rank, Code: exit.RankLost, Message: how.Text, When: board.Now(),
			Traceback: "it was last seen " + row.Doing()}
		if how.Killed {
			f.Hint = "if nobody killed it, the machine may have run out of memory: see dmesg"
		}
		c.failures = append(c.failures, f)
		c.end(rank, lost, f)
	})
}

// suspects reports whether the only known cause of the end is what one rank suspects of another. A rank's death then
// explains it, even if noticed later.
func (a *attempt) suspects() bool {
	f := engine.First(a.failures)
	return f != nil && f.Suspected
}

// fail notes why a rank, or the run, failed, and ends all ranks.
func (c *coordinator) fail(f *engine.Failure) {
	c.failures = append(c.failures, f)
	c.end(f.Rank, &collective.FailedError{Rank: f.Rank, Msg: f.Message, Code: f.Code}, f)
}

// end tells all ranks to end. Those that wait for each other learn it from the board, those that compute from their
// control channel.
func (c *coordinator) end(by int, cause error, f *engine.Failure) {
	if !c.ended.IsZero() {
		return
	}
	c.ended = time.Now()
	c.record.Release()
	if c.board != nil {
		c.board.Abort(by, cause)
		c.passOn(nil)
	}
	for rank, r := range c.ranks {
		if !r.exited && !r.reported {
			c.send(rank, &engine.ToWorker{Cancel: f})
		}
	}
}
