package launch

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"drun/engine"
	"drun/engine/board"

	"golang.org/x/sys/unix"
)

// Signals are those that Options.Signals may bring.
var Signals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1}

// signal handles a signal. SIGQUIT shows what every rank does; SIGUSR1 asks the
// recipe to end, as run.should_stop() tells it. SIGINT and SIGTERM give a recipe
// that looks there the grace to end by itself; any other is ended at once, and
// so is any on a second signal.
func (a *agent) signal(sig os.Signal) {
	switch {
	case a.board == nil:
	case sig == syscall.SIGQUIT:
		a.show("SIGQUIT")
		return
	case sig == syscall.SIGUSR1:
		a.board.RequestStop()
		return
	}
	if a.signalled != nil || a.board == nil || !a.board.StopObserved() {
		a.interrupt(sig)
		return
	}
	a.signalled = sig
	a.board.RequestStop()
	a.grace = time.After(a.o.Grace)
}

func (a *agent) interrupt(sig os.Signal) {
	a.signalled, a.grace = sig, nil
	name := sig.String()
	if n, ok := sig.(syscall.Signal); ok {
		name = unix.SignalName(n)
	}
	a.fail(&engine.Failure{Rank: board.Observer, Code: engine.ExitInterrupted, Message: fmt.Sprintf("interrupted by %s", name), When: board.Now()})
}
