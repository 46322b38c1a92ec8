package run

import (
	"context"
	"drun/internal/exit"
	"os"
	"syscall"
	"time"

	"drun/engine"
	"drun/engine/board"
)

// Signals are those that Options.Signals may deliver.
var Signals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1}

// Ends reports whether a signal asks for the end of a run.
func Ends(sig os.Signal) bool {
	return sig == syscall.SIGINT || sig == syscall.SIGTERM || sig == syscall.SIGHUP
}

// signal handles a signal. SIGQUIT shows what every rank does; SIGUSR1 asks the recipe to end, which it sees in
// run.should_stop(). SIGINT, SIGTERM and SIGHUP give a recipe that calls it the grace period to end by itself; any
// other recipe is ended at once, as is any on a second signal. A recipe counts as calling it if its sources name
// should_stop, even if it has not reached the call yet. A terminal sends one signal to the processes of all nodes
// (from; nil: this one), which counts as one.
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
	from   map[*peer]bool   // the nodes that have passed it on
	grace  <-chan time.Time // ends the grace period of a recipe that asks run.should_stop
	asked  bool             // run.should_stop was set by SIGUSR1
}

// heard is what signals asked for while the run could not handle them.
type heard struct {
	end  os.Signal // asks for the end
	stop bool      // SIGUSR1 came
}

// listen takes the signals while the run cannot handle them. One that ends, or SIGUSR1, is noted in came, and one that
// ends also ends the context. done ends the listening.
func (p *plan) listen(ends func(os.Signal) bool) (ctx context.Context, came *heard, done func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	came, listening := new(heard), make(chan struct{})
	go func() {
		defer close(listening)
		for {
			select {
			case s, ok := <-p.Signals:
				if !ok {
					return
				}
				came.stop = came.stop || s == syscall.SIGUSR1
				if ends(s) {
					came.end = s
					cancel(exit.Errorf(exit.Interrupted, "interrupted by %s while waiting for the other processes of the run", engine.SignalName(s)))
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, came, func() {
		cancel(nil)
		<-listening
	}
}

// interruptible calls a function that waits for other processes, with a context that the first signal ends.
func (p *plan) interruptible(wait func(context.Context) error) error {
	ctx, came, done := p.listen(func(os.Signal) bool { return true })
	err := wait(ctx)
	if done(); err == nil && came.end != nil {
		return context.Cause(ctx) // the signal came at the last moment
	}
	return err
}
