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

// signal handles SIGINT and SIGTERM: a recipe that asks run.should_stop() gets
// the grace to end by itself, any other is ended at once, and so is any on a
// second signal.
func (a *agent) signal(sig os.Signal) {
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
