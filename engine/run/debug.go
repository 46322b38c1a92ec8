package run

import (
	"net"

	"drun/engine"
	"drun/engine/recipe"
	"drun/internal/queue"
)

// debugger leads the ranks of a run, from the other end of a connection.
type debugger struct {
	channel *engine.Channel
	out     *queue.Queue[[]engine.Debugging]
}

// come is called for a debugger's connection. One that comes too late to be admitted is told so.
func (c *coordinator) come(conn net.Conn) {
	d := newDebugger(conn)
	c.put(event{debugger: d})
	go func() {
		if <-c.over; c.debugger != d { // finish ends the other
			d.end("the run has ended")
		}
	}()
}

func newDebugger(conn net.Conn) *debugger {
	d := &debugger{engine.ChannelOver(conn), queue.New[[]engine.Debugging](queue.Limits{})}
	go d.write()
	return d
}

// admit lets a debugger lead the ranks, unless another does.
func (c *coordinator) admit(d *debugger) {
	why := ""
	switch {
	case c.debugger != nil:
		why = "another debugger is attached to the run"
	case c.board == nil:
		why = "the run has no ranks at the moment"
	default:
		c.lead(d)
		d.tell(engine.Debugging{World: c.world()})
		return
	}
	d.end(why)
}

// lead has a debugger lead the ranks.
func (c *coordinator) lead(d *debugger) {
	c.debugger = d
	go func() {
		for {
			var m engine.Debugging
			if d.channel.Receive(&m) != nil {
				c.put(event{debugger: d, left: true})
				return
			}
			c.put(event{debugger: d, leads: &m})
		}
	}()
}

// led does what a debugger asks for. One that has gone lets the ranks go on without it.
func (c *coordinator) led(d *debugger, m *engine.Debugging) {
	switch {
	case c.debugger != d || c.board == nil:
	case m == nil:
		c.debugger = nil
		d.out.Close()
		off := false
		for rank := range c.ranks {
			c.send(rank, &engine.ToWorker{Debug: &engine.Debug{Leave: true}})
			c.send(rank, &engine.ToWorker{Debug: &engine.Debug{Held: &off}})
		}
	case m.Debug != nil && m.Rank >= 0 && m.Rank < len(c.ranks):
		c.send(m.Rank, &engine.ToWorker{Debug: m.Debug})
	}
}

// debugged tells the run's debugger something, if it has one.
func (c *coordinator) debugged(m engine.Debugging) {
	if c.debugger != nil {
		c.debugger.tell(m)
	}
}

// rankEnded tells it that a rank has ended, and why, if that has failed.
func (c *coordinator) rankEnded(rank int, why string) {
	c.debugged(engine.Debugging{Rank: rank, Ended: &why})
}

func (d *debugger) tell(m engine.Debugging) {
	d.out.Add(1, func(batch *[]engine.Debugging) { *batch = append(*batch, m) })
}

// end tells the debugger why there is nothing more to lead.
func (d *debugger) end(why string) {
	d.tell(engine.Debugging{Over: &why})
	d.out.Close()
}

// write sends what the debugger is told.
func (d *debugger) write() {
	defer d.channel.Close()
	for range d.out.Ready() {
		batch, _, closed := d.out.Take()
		for _, m := range batch {
			if d.channel.Send(m) != nil {
				return
			}
		}
		if closed {
			return
		}
	}
}

// Bundle is the recipe that Read has read.
func (o *Options) Bundle() *recipe.Bundle { return o.read }

// Given are the values that the options give to the recipe's parameters.
func (o *Options) Given() ([]engine.Param, error) { return parseParams(o.Filed, o.Params) }
