package run

import (
	"net"

	"drun/engine"
	"drun/engine/cluster"
	"drun/engine/recipe"
)

// debugger is the link to one that leads the ranks of the run.
type debugger = cluster.Conn[engine.Debugging, engine.Debugging]

// come is called for a debugger's connection. One that comes too late to be admitted is told so.
func (c *coordinator) come(conn net.Conn) {
	d := cluster.Debugger(conn)
	c.put(event{debugger: d})
	go func() {
		if <-c.over; c.debugger != d { // finish ends the other
			refuse(d, "the run has ended")
		}
	}()
}

// lead has a debugger lead the ranks, of which it hears once there are some.
func (c *coordinator) lead(d *debugger) {
	c.debugger = d
	if c.board != nil {
		d.Send(&engine.Debugging{World: c.world()})
	}
	go func() {
		for {
			m, err := d.Receive()
			if !c.put(event{debugger: d, leads: m}) || err != nil {
				return
			}
		}
	}()
}

// led does what a debugger asks for; nil: it comes or, if it leads the ranks, has gone. They go on without it.
func (c *coordinator) led(d *debugger, m *engine.Debugging) {
	switch {
	case m != nil && m.Debug != nil && c.debugger == d && m.Rank >= 0 && m.Rank < len(c.ranks):
		c.send(m.Rank, &engine.ToWorker{Debug: m.Debug})
	case m != nil:
	case c.debugger == d:
		c.debugger = nil
		for rank := range c.ranks {
			c.send(rank, &engine.ToWorker{Debug: &engine.Debug{Leave: true}})
		}
		go d.Close()
	case c.debugger != nil:
		go refuse(d, "another debugger is attached to the run")
	default:
		c.lead(d)
	}
}

// refuse tells a debugger why there is nothing to lead.
func refuse(d *debugger, why string) {
	d.Send(&engine.Debugging{Over: &why})
	d.Close()
}

// debugged tells the run's debugger something, if it has one.
func (c *coordinator) debugged(m *engine.Debugging) {
	if c.debugger != nil {
		c.debugger.Send(m)
	}
}

// rankEnded tells it that a rank has ended, and why, if that has failed.
func (c *coordinator) rankEnded(rank int, why string) {
	c.debugged(&engine.Debugging{Rank: rank, Ended: &why})
}

// Bundle is the recipe that Read has read.
func (o *Options) Bundle() *recipe.Bundle { return o.read }

// Given are the values that the options give to the recipe's parameters.
func (o *Options) Given() ([]engine.Param, error) { return parseParams(o.Filed, o.Params) }
