package run

import (
	"net"
	"sync/atomic"

	"drun/engine"
	"drun/engine/cluster"
	"drun/engine/recipe"
	"drun/internal/each"
	"drun/internal/queue"
)

// Debugger leads the ranks of a run. Its methods are called one at a time, and must not wait.
type Debugger interface {
	// Begun says that the ranks of an attempt start. send may be called from any goroutine, and does not wait either.
	Begun(world int, send func(rank int, m *engine.Debug))
	// Said passes on what a rank tells.
	Said(rank int, m *engine.Debugged)
	// Ended says that a rank has ended, and why, if it has failed.
	Ended(rank int, why string)
	// Over says that the run has ended, and why, if it has failed.
	Over(why string)
}

// debugged passes something on to the run's debugger, if it has one.
func (c *coordinator) debugged(tell func(Debugger)) {
	if c.debugger != nil {
		tell(c.debugger)
	}
}

// debugSend gives a debugger its way to the ranks.
func (c *coordinator) debugSend() func(rank int, m *engine.Debug) {
	links := each.Of(c.ranks, func(r rankState) cluster.Link[cluster.ToCoordinator, cluster.ToNode] { return r.peer.Link })
	return func(rank int, m *engine.Debug) {
		links[rank].Send(&cluster.ToNode{Rank: rank, Msg: &engine.ToWorker{Debug: m}})
	}
}

// visitor is a debugger that has come to the run from another process.
type visitor struct {
	channel *engine.Channel
	out     *queue.Queue[[]engine.Debugging]
	c       *coordinator
	send    atomic.Pointer[ranks]
}

// ranks are those of the present attempt.
type ranks struct {
	world int
	send  func(rank int, m *engine.Debug)
}

// come is called for a debugger's connection.
func (c *coordinator) come(conn net.Conn) {
	if !c.put(event{visitor: &visitor{channel: engine.ChannelOver(conn), c: c}}) {
		conn.Close()
	}
}

// admit lets a debugger lead the ranks, unless another does.
func (c *coordinator) admit(v *visitor) {
	if c.debugger != nil || c.board == nil {
		why := "another debugger is attached to the run"
		if c.board == nil {
			why = "the run has no ranks at the moment"
		}
		_ = v.channel.Send(engine.Debugging{Over: &why})
		v.channel.Close()
		return
	}
	c.debugger = v
	v.out = queue.New[[]engine.Debugging](queue.Limits{})
	go v.write()
	v.Begun(c.world(), c.debugSend())
	go v.read()
}

// leave lets the ranks go on without the debugger, which is gone.
func (c *coordinator) leaveDebugger(v *visitor) {
	if c.debugger != Debugger(v) {
		return
	}
	c.debugger = nil
	v.out.Close()
	send, off := c.debugSend(), false
	for rank := range c.ranks {
		send(rank, &engine.Debug{Leave: true})
		send(rank, &engine.Debug{Held: &off})
	}
}

func (v *visitor) tell(m engine.Debugging) {
	v.out.Add(1, func(batch *[]engine.Debugging) { *batch = append(*batch, m) })
}

func (v *visitor) Begun(world int, send func(int, *engine.Debug)) {
	v.send.Store(&ranks{world, send})
	v.tell(engine.Debugging{World: world})
}

func (v *visitor) Said(rank int, m *engine.Debugged) {
	v.tell(engine.Debugging{Rank: rank, Debugged: m})
}
func (v *visitor) Ended(rank int, why string) { v.tell(engine.Debugging{Rank: rank, Ended: &why}) }
func (v *visitor) Over(why string) {
	v.tell(engine.Debugging{Over: &why})
	v.out.Close()
}

// write sends what the debugger is told.
func (v *visitor) write() {
	defer v.channel.Close()
	for range v.out.Ready() {
		batch, _, closed := v.out.Take()
		for _, m := range batch {
			if v.channel.Send(m) != nil {
				return
			}
		}
		if closed {
			return
		}
	}
}

// read passes on what the debugger asks for, until it goes away.
func (v *visitor) read() {
	for {
		var m engine.Debugging
		if v.channel.Receive(&m) != nil {
			v.c.put(event{leaves: v})
			return
		}
		if to := v.send.Load(); m.Debug != nil && m.Rank >= 0 && m.Rank < to.world {
			to.send(m.Rank, m.Debug)
		}
	}
}

// Bundle is the recipe that Read has read.
func (o *Options) Bundle() *recipe.Bundle { return o.read }

// Given are the values that the options give to the recipe's parameters.
func (o *Options) Given() ([]engine.Param, error) { return parseParams(o.Filed, o.Params) }
