package board_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/engine/board"
	"drun/internal/exit"
	"drun/kernel/dtype"
)

func TestObserverSeesEveryRank(t *testing.T) {
	comms, boards := guarded(t, 2, false)
	observer := boards[0]
	for i := range 40 { // more than a journal holds
		call := func() collective.Call {
			return collective.NewAllReduce(collective.Of(make([]float32, i)), dtype.Sum)
		}
		results(comms, call(), call())
	}
	boards[1].At(collective.Position{File: "lib/model.star", Line: 3, Col: 1})
	boards[1].SetState(collective.Failed)
	rows := observer.Rows()
	if rows[0].State != collective.Running || rows[0].Call.Count != 39 || rows[0].Call.Seq != 40 || rows[0].Pos != at(10) {
		t.Errorf("rank 0: %+v", rows[0])
	}
	if rows[1].State != collective.Failed || rows[1].Pos.String() != "lib/model.star:3:1" {
		t.Errorf("rank 1: %+v", rows[1])
	}
	recent := observer.Snapshot().Ranks[1].Recent
	if len(recent) != board.RecentCalls || recent[0].Count != 39 || recent[2].Count != 37 || recent[2].Pos != at(11) ||
		recent[0].Began > recent[1].Began || !recent[0].Ended || recent[0].Took < 0 {
		t.Errorf("recent: %+v", recent)
	}
}

func TestManyNames(t *testing.T) {
	_, boards := guarded(t, 2, false)
	long := strings.Repeat("x", 300) + "end.star"
	for i, file := range append([]string{long, ""}, make([]string, 200)...) {
		if i > 1 {
			file = fmt.Sprintf("file%d.star", i)
		}
		boards[1].At(collective.Position{File: file, Line: int32(i)})
		got := boards[0].Row(1).Pos
		switch {
		case i == 0 && (!strings.HasSuffix(got.File, "xend.star") || len(got.File) > 128):
			t.Errorf("a long name became %q", got.File)
		case i > 1 && i < 110 && got.File != file:
			t.Errorf("%q became %q", file, got.File)
		case i > 130 && got.File != "(another name)":
			t.Errorf("name %d became %q", i, got.File)
		}
	}
}

func TestStop(t *testing.T) {
	_, boards := guarded(t, 2, false)
	if boards[0].StopObserved() || boards[1].StopRequested() {
		t.Error("stopped from the start")
	}
	if !boards[0].StopObserved() {
		t.Error("nobody saw rank 1 look")
	}
	boards[0].RequestStop()
	if !boards[1].StopRequested() {
		t.Error("rank 1 was not told")
	}
}

func TestCausesKeepTheirType(t *testing.T) {
	row := collective.Row{Rank: 1, Pos: at(3)}
	for _, cause := range []error{
		&collective.MismatchError{Reason: "r", Seq: 3, Rows: []collective.Row{row}},
		&collective.TimeoutError{Missing: []collective.Row{row}},
		&collective.FailedError{Rank: 1, Msg: "m", Code: exit.Storage},
		&collective.PeerLostError{Rank: 1, How: "killed by SIGKILL", Last: row},
		&collective.BackendError{Backend: "gloo", Msg: "m"},
		&collective.StoppedError{By: "SIGINT"},
		errors.New(strings.Repeat("plain ", 1_000_000)),
	} {
		_, boards := guarded(t, 2, false)
		if boards[1].Aborted() != nil {
			t.Fatal("aborted from the start")
		}
		boards[0].Abort(board.Observer, fmt.Errorf("wrapped: %w", cause))
		got := boards[1].Aborted()
		inner := errors.Unwrap(got)
		if m := new(*collective.MismatchError); errors.As(cause, m) {
			inner = got
		}
		if text := inner.Error(); len(cause.Error()) < 1000 && (fmt.Sprintf("%T", inner) != fmt.Sprintf("%T", cause) || text != cause.Error()) {
			t.Errorf("%T %v became %T %v", cause, cause, inner, inner)
		} else if !strings.Contains(text, cause.Error()[:10]) {
			t.Errorf("%.30s… became %.30s…", cause, text)
		}
	}
}

// A process that has claimed the cause may not run for a while on a busy machine.
func TestCauseIsAwaited(t *testing.T) {
	_, boards := guarded(t, 2, false)
	publish := boards[0].Claim(0, &collective.FailedError{Rank: 0, Msg: "late", Code: exit.Recipe})
	time.AfterFunc(300*time.Millisecond, publish)
	if err := boards[1].Aborted(); !strings.Contains(fmt.Sprint(err), "late") {
		t.Errorf("the other rank was told %v", err)
	}
}

func TestBadBoards(t *testing.T) {
	for _, n := range []int{0, -1, board.MaxWorld + 1} {
		if _, err := board.Create(n); err == nil {
			t.Errorf("a board of %d ranks was made", n)
		}
	}
	f, err := board.Create(2)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	other := disttest.Dup(t, f)
	defer other.Close()
	if _, err := board.Open(other, 2); err == nil {
		t.Error("rank 2 of 2 opened the board")
	}
}
