package launch

import (
	"os"
	"syscall"
	"time"

	"drun/engine"
	"drun/engine/board"

	"golang.org/x/sys/unix"
)

// Signals are those that Options.Signals may bring.
var Signals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1}

// ends tells the signals that ask for the end of a run.
func ends(sig os.Signal) bool {
	return sig == syscall.SIGINT || sig == syscall.SIGTERM || sig == syscall.SIGHUP
}

// signal handles a signal. SIGQUIT shows what every rank does; SIGUSR1 asks the
// recipe to end, as run.should_stop() tells it. SIGINT, SIGTERM and SIGHUP give a
// recipe that looks there the grace to end by itself; any other is ended at once,
// and so is any on a second signal. A recipe looks there if its sources name
// should_stop, though it may not have come to that yet. A terminal sends one to the agents of all nodes
// (from; nil: this one), which is one signal still.
func (a *agent) signal(sig os.Signal, from *node) {
	switch {
	case a.board == nil:
	case sig == syscall.SIGQUIT:
		a.fresh(func() { a.show("SIGQUIT") })
		return
	case sig == syscall.SIGUSR1:
		a.board.RequestStop()
		return
	}
	if a.signallers[from] || a.board == nil || !(a.board.StopObserved() || a.bundle.Names("should_stop")) {
		a.interrupt(sig)
		return
	}
	if a.signallers == nil {
		a.signallers = map[*node]bool{}
	}
	a.signallers[from] = true
	if a.signalled != nil {
		return
	}
	a.signalled = sig
	a.board.RequestStop()
	a.grace = time.After(a.o.Grace)
}

func (a *agent) interrupt(sig os.Signal) {
	a.signalled, a.grace = sig, nil
	a.fail(&engine.Failure{Rank: board.Observer, Code: engine.ExitInterrupted, Message: "interrupted by " + signalName(sig), When: board.Now()})
}

func signalName(sig os.Signal) string {
	if n, ok := sig.(syscall.Signal); ok {
		return unix.SignalName(n)
	}
	return sig.String()
}
