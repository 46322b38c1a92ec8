package run

import (
	"net"
	"testing"

	"drun/engine/cluster"
)

// A debugger that leaves while there are no ranks, between two attempts, makes room for another.
func TestDebuggerLeavesBetweenAttempts(t *testing.T) {
	c := &coordinator{events: events{make(chan event, 64), make(chan struct{})}}
	for range 2 {
		own, theirs := net.Pipe()
		d := cluster.Debugger(theirs)
		c.led(d, nil)
		if c.debugger != d {
			t.Fatal("a debugger that comes does not lead the ranks")
		}
		own.Close()
		for m := range c.queue {
			if c.led(m.debugger, m.leads); m.leads == nil {
				break
			}
		}
		if c.debugger != nil {
			t.Fatal("a debugger that has gone leads the ranks")
		}
	}
}
