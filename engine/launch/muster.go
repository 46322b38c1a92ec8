package launch

import (
	"fmt"
	"time"

	"drun/engine"
	"drun/engine/board"
)

// Ranks that join show that they are alive. One that does not, since it was stopped
// or hangs, would hold the others up until their own limit, and they would be blamed.

const (
	musterEvery = 200 * time.Millisecond
	// musterAtLeast is how long a rank may show no life in any case: a machine may be
	// busy.
	musterAtLeast = 3 * time.Second
)

func musterAfter(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return time.Duration(1<<63 - 1)
	}
	return max(timeout, musterAtLeast)
}

func absent(rank int, timeout time.Duration) *engine.Failure {
	return &engine.Failure{Rank: rank, Code: engine.ExitTimeout, When: board.Now(),
		Message: fmt.Sprintf("it has not joined the others, and shown no life for %v", musterAfter(timeout)),
		Hint:    "its process may have been stopped (SIGSTOP, a debugger), or the machine may have no time for it"}
}
