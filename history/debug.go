package history

import (
	"context"
	"net"
	"os"

	"drun/internal/exit"
)

// A running run also listens at <home>/locks/<uid>.debug, for a debugger. Only the agent's user can open that socket.

func (db *DB) debugPath(uid string) string { return db.livePath(uid) + debugSuffix }

const debugSuffix = ".debug"

// AnswerDebuggers passes on each connection of a debugger, until the run's lock is released. come is called from a
// goroutine. The run goes on even if there can be no socket, as on some file systems.
func (r *Run) AnswerDebuggers(come func(net.Conn)) {
	path := r.db.debugPath(r.UID)
	l, err := socket(path)
	if err != nil {
		return
	}
	r.mu.Lock()
	r.debuggers = func() {
		os.Remove(path)
		l.Close()
	}
	r.mu.Unlock()
	go accept(l, come)
}

// Debug connects to the agent of a running run, as a debugger.
func (db *DB) Debug(ctx context.Context, id int64) (net.Conn, error) {
	conn, _, err := db.callAgent(ctx, id, debugSuffix)
	if silent, is := err.(*SilentError); is {
		return nil, exit.WithHint(exit.Errorf(exit.Usage, "%s", silent.Why), "only a run that goes on, on this machine, can be debugged; drun debug RUN@STEP takes up one that has ended")
	}
	return conn, err
}
