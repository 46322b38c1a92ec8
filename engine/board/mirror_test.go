package board_test

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/engine/board"
)

// node makes the board of a node of a world of three.
func node(t *testing.T, from, to int) (agent *board.Board, ranks map[int]*board.Board) {
	t.Helper()
	return nodeOf(t, 3, from, to)
}

func nodeOf(t *testing.T, world, from, to int) (agent *board.Board, ranks map[int]*board.Board) {
	t.Helper()
	f, err := board.Create(world)
	if err != nil {
		t.Fatal(err)
	}
	ranks = map[int]*board.Board{}
	for rank := board.Observer; rank < to; rank++ {
		if rank != board.Observer && rank < from {
			continue
		}
		b, err := board.Open(disttest.Dup(t, f), rank)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		b.Near(from, to)
		if rank == board.Observer {
			agent = b
		} else {
			ranks[rank] = b
		}
	}
	f.Close()
	return agent, ranks
}

func TestMirror(t *testing.T) {
	here, near := node(t, 0, 2)
	there, far := node(t, 2, 3)
	far[2].SetState(collective.Running)
	far[2].At(collective.Position{File: "there.star", Line: 7, Col: 3})
	far[2].Note("thinking")
	near[0].SetState(collective.Running)
	near[0].At(collective.Position{File: "here.star", Line: 1, Col: 1})

	if row := here.Row(2); row.Pos.File != "" {
		t.Errorf("before: %+v", row)
	}
	m := there.Show(nil, true)
	if len(m.Ranks) != 1 || m.Ranks[0].Rank != 2 {
		t.Fatalf("%+v", m)
	}
	m.Now -= int64(time.Hour) // another machine has another clock
	here.Adopt(m)
	if row := here.Row(2); row.Pos.String() != "there.star:7:3" || row.Note != "thinking" || row.State != collective.Running {
		t.Errorf("after: %+v", row)
	}
	far[2].SetState(collective.Returned)
	here.Adopt(there.Show(nil, true))
	if near[0].State(2) != collective.Returned {
		t.Error("a rank does not see that one on the other node has returned")
	}

	// A mirror changes nothing of this node's own ranks, and what does not fit is left out.
	own := here.Show(nil, true)
	own.Ranks[0].Parts[0] = make([]byte, len(own.Ranks[0].Parts[0]))
	here.Adopt(own)
	if row := here.Row(0); row.Pos.File != "here.star" {
		t.Errorf("rank 0: %+v", row)
	}
	bad := there.Show(nil, true)
	bad.Ranks[0].Rank = 99
	here.Adopt(bad)
	bad.Ranks[0].Rank, bad.Ranks[0].Parts = 2, map[uint32][]byte{0: {1}, 1: {2}, 2: {3}, 3: make([]byte, 13), 4: {4}, 5: {5}, 6: make([]byte, 9), 1 << 30: make([]byte, 9)}
	here.Adopt(bad)
}

func TestCauseOfAnotherNode(t *testing.T) {
	here, near := node(t, 0, 2)
	there, _ := node(t, 2, 3)
	if _, _, ok := there.Cause(); ok {
		t.Error("a cause before there is one")
	}
	there.Abort(2, &collective.MismatchError{Reason: "the ranks disagree", Rows: []collective.Row{{Rank: 2}}})
	by, cause, ok := there.Cause()
	if !ok || !here.AbortAs(by, cause) || here.AbortAs(by, cause) {
		t.Fatal("it is not passed on, or twice")
	}
	var mismatch *collective.MismatchError
	if err := near[1].Aborted(); !errors.As(err, &mismatch) || !strings.Contains(err.Error(), "the ranks disagree") {
		t.Error(err)
	}
}

func TestStuck(t *testing.T) {
	here, near := node(t, 0, 2)
	if here.Stuck(0) {
		t.Error("nobody waits")
	}
	look := near[1].Watch("waiting for store key \"k\"")
	_ = look.Check()
	if !here.Stuck(time.Hour) {
		t.Error("a rank that waits outside of calls is not seen")
	}
	look.Close()
	if here.Stuck(0) {
		t.Error("it waits no more")
	}
}

// A rank whose process is held still is shown as stopped, on the boards of other nodes too.
func TestStoppedRank(t *testing.T) {
	here, _ := node(t, 0, 2)
	there, far := node(t, 2, 3)
	far[2].SetState(collective.Running)
	far[2].At(collective.Position{File: "there.star", Line: 7, Col: 3})
	held := exec.Command("sleep", "60")
	if err := held.Start(); err != nil {
		t.Fatal(err)
	}
	defer held.Wait()
	defer held.Process.Kill()
	far[2].SetProcess(held.Process.Pid)
	shown := func(want bool) (row collective.Row, both bool) { // on both nodes; the process may be changing at this moment
		here.Adopt(there.Show(nil, true))
		row = here.Row(2)
		return row, row.Stopped == want && there.Row(2).Stopped == want
	}
	for _, stop := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := held.Process.Signal(stop); err != nil {
			t.Fatal(err)
		}
		want := stop == syscall.SIGSTOP
		row, both := shown(want)
		for end := time.Now().Add(10 * time.Second); !both && time.Now().Before(end); row, both = shown(want) {
			time.Sleep(time.Millisecond)
		}
		if !both || (row.Status() == "stopped") != want ||
			strings.HasPrefix(row.Doing(), "stopped by a signal or a debugger while running at there.star:7:3") != want {
			t.Errorf("after %v: %s, %s", stop, row.Status(), row.Doing())
		}
	}
}
