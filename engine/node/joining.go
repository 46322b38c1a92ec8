package node

import (
	"drun/internal/exit"
	"fmt"
	"time"

	"drun/engine"
	"drun/engine/board"
)

// Ranks that join show that they are alive. One that does not, because it was stopped or hangs, would hold up the
// others until their own limit, and they would be blamed.
const (
	joiningEvery = 200 * time.Millisecond
	// joiningAtLeast is the least time for which a rank may show no life: a machine may be busy.
	joiningAtLeast = 3 * time.Second
)

// joining is the watch over a node's ranks until all have joined.
type joining struct {
	C     <-chan time.Time // when to look
	board *board.Board
	limit time.Duration
	seen  board.JoinWatch
}

func (n *node) watchJoining() *joining {
	j := &joining{board: n.board, limit: max(n.Timeout, joiningAtLeast)}
	if n.board != nil && n.start.World > 1 && n.Timeout > 0 {
		j.C = time.Tick(joiningEvery)
	}
	return j
}

// look gives the failure of a rank that shows no life. The watch ends then, or when all ranks have joined.
func (j *joining) look() *engine.Failure {
	rank, all := j.seen.Check(j.board, j.limit)
	if all || rank >= 0 {
		j.C = nil
	}
	if rank < 0 {
		return nil
	}
	return &engine.Failure{Rank: rank, Code: exit.Timeout, When: board.Now(),
		Message: fmt.Sprintf("it has not joined the others, and has shown no sign of life for %v", j.limit),
		Hint:    "its process may have been stopped (SIGSTOP, a debugger), or the machine may be too busy to run it"}
}
