package run

import (
	"testing"

	"drun/engine"
	"drun/engine/board"
	"drun/engine/cluster"
	"drun/internal/exit"
)

// A rank's death that is heard of after what another believes of it is the cause, unless drun has ended that rank, or something
// is known to have failed.
func TestADeathExplainsASuspicion(t *testing.T) {
	killed := cluster.Exit{Text: "killed by signal 9 (SIGKILL)", Killed: true, Signal: 9}
	ours := killed
	ours.Ours = true
	for name, test := range map[string]struct {
		suspected bool
		end       cluster.Exit
		cause     int // rank
	}{
		"a death explains a suspicion":      {true, killed, 2},
		"drun's kill does not":              {true, ours, 1},
		"nor does it replace what is known": {false, killed, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c, theirs := coordinatorOf(t, 2)
			theirs[0].Send(&cluster.ToCoordinator{Rank: 1, Msg: &engine.ToAgent{Failure: &engine.Failure{
				Rank: 1, Code: exit.Backend, Message: "connection closed by peer", When: board.Now(), Suspected: test.suspected}}})
			for c.ended.IsZero() {
				c.handle(<-c.queue)
			}
			theirs[1].Send(&cluster.ToCoordinator{Rank: 2, Exit: &test.end})
			theirs[0].Send(&cluster.ToCoordinator{Rank: 1, Exit: &cluster.Exit{Text: "exited with status 6"}})
			c.watch()
			r, err := c.finish()
			if err != nil || r.Failure == nil || r.Failure.Rank != test.cause {
				t.Fatalf("%+v %v", r, err)
			}
		})
	}
}
