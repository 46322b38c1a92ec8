package run

import (
	"drun/internal/exit"
	"os"
	"syscall"
	"time"

	"drun/engine"
	"drun/engine/board"
)

// Signals are those that Options.Signals may bring.
var Signals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1}

// Ends tells the signals that ask for the end of a run.
func Ends(sig os.Signal) bool {
	return sig == syscall.SIGINT || sig == syscall.SIGTERM || sig == syscall.SIGHUP
}

// signal handles a signal. SIGQUIT shows what every rank does; SIGUSR1 asks the
// recipe to end, as run.should_stop() tells it. SIGINT, SIGTERM and SIGHUP give a
// recipe that looks there the grace to end by itself; any other is ended at once,
// and so is any on a second signal. A recipe looks there if its sources name
// should_stop, though it may not have come to that yet. A terminal sends one signal to
// the processes of all nodes (from; nil: this one), which still counts as one.
func (c *coordinator) signal(sig os.Signal, from *peer) {
	switch sig {
	case syscall.SIGQUIT:
		if c.board != nil {
			c.fresh(func() { c.show("SIGQUIT") })
		}
		return
	case syscall.SIGUSR1:
		c.stop.asked = true
		if c.board != nil {
			c.board.RequestStop()
		}
		c.record.Unkey()
		return
	}
	if c.stop.from[from] || c.board == nil || !(c.board.StopObserved() || c.bundle.Names("should_stop")) {
		c.interrupt(sig)
		return
	}
	if c.stop.from == nil {
		c.stop.from = map[*peer]bool{}
	}
	c.stop.from[from] = true
	if c.stop.signal != nil {
		return
	}
	c.stop.signal = sig
	c.board.RequestStop()
	c.stop.grace = time.After(c.Grace)
}

func (c *coordinator) interrupt(sig os.Signal) {
	c.stop.signal, c.stop.grace = sig, nil
	c.fail(&engine.Failure{Rank: board.Observer, Code: exit.Interrupted, Message: "interrupted by " + engine.SignalName(sig), When: board.Now()})
}

// stop is how far a person's wish to end the run has come.
type stop struct {
	signal os.Signal        // the latest that asks for the end
	from   map[*peer]bool   // who has passed it on
	grace  <-chan time.Time // its end, when the recipe asks run.should_stop
	asked  bool             // run.should_stop was set by SIGUSR1
}

// hurried gives a channel that is closed when a signal asks for the end, and the
// signal then; done ends the listening.
func (p *plan) hurried() (hurry chan struct{}, sig *os.Signal, done func()) {
	hurry, sig = make(chan struct{}), new(os.Signal)
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case s, ok := <-p.Signals:
				if !ok {
					return
				}
				if Ends(s) {
					*sig = s
					close(hurry)
					return
				}
			case <-quit:
				return
			}
		}
	}()
	return hurry, sig, func() {
		close(quit)
		<-ended
	}
}
