package board_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"drun/collective"
	"drun/engine/board"
)

// looks calls Look on all at the same pace until one gives an error, at most n times.
func looks(n int, watchdogs ...*board.Watchdog) error {
	for range n {
		for _, l := range watchdogs {
			if err := l.Check(); err != nil {
				return err
			}
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

func running(t *testing.T, world int) []*board.Board {
	t.Helper()
	_, boards := guarded(t, world, false)
	for _, b := range boards {
		b.SetState(collective.Running)
	}
	return boards
}

func TestWatchdogForBusyRanks(t *testing.T) {
	boards := running(t, 3)
	a, b := boards[0].Watch("waiting for a"), boards[1].Watch("waiting for b")
	if err := looks(20, a, b); err != nil {
		t.Errorf("rank 2 may still do something, but: %v", err)
	}
	if row := boards[2].Row(1); row.Note != "waiting for b" {
		t.Errorf("the board shows %+v", row)
	}
	c := boards[2].Watch("waiting for c")
	err := looks(20, a, b, c)
	if err == nil || !strings.Contains(err.Error(), "rank 0 is waiting for a, rank 1 is waiting for b, rank 2 is waiting for c") {
		t.Errorf("a circle: %v", err)
	}
	c.Close()
	if err := looks(20, a, b); err != nil {
		t.Errorf("rank 2 waits no more, but: %v", err)
	}
	b.Close()
	if row := boards[2].Row(1); row.Note != "" {
		t.Errorf("the board still shows %q", row.Note)
	}
	// A new wait looks new, so that what happened in between counts.
	for range 20 {
		b, c = boards[1].Watch("b"), boards[2].Watch("c")
		if err := looks(1, a, b, c); err != nil {
			t.Fatalf("the ranks go on, but: %v", err)
		}
		b.Close()
		c.Close()
	}
}

func TestWatchdogForEndedRanks(t *testing.T) {
	boards := running(t, 3)
	a := boards[0].Watch("waiting")
	boards[1].SetState(collective.Returned)
	if err := looks(5, a); err != nil {
		t.Error(err)
	}
	boards[2].SetState(collective.Failed)
	if err := looks(5, a); err != nil {
		t.Errorf("the agent reports the failure, not: %v", err)
	}
	boards[2].SetState(collective.Returned)
	if err := looks(1, a); err == nil || !strings.Contains(err.Error(), "returned from main") {
		t.Errorf("all have returned: %v", err)
	}
}

func TestWatchdogAlone(t *testing.T) {
	if err := looks(1, running(t, 1)[0].Watch("waiting")); err == nil {
		t.Error("one rank waits for others")
	}
}

// Notes are written anew, and never use up the room for files.
func TestManyNotes(t *testing.T) {
	boards := running(t, 2)
	for i := range 1000 {
		note := fmt.Sprintf("waiting for key %d", i)
		boards[1].Note(note)
		if got := boards[0].Row(1).Note; got != note {
			t.Fatalf("note %q became %q", note, got)
		}
	}
	boards[1].At(collective.Position{File: "a.star", Line: 1})
	if got := boards[0].Row(1).Pos.File; got != "a.star" {
		t.Errorf("the file became %q", got)
	}
	boards[1].Note(strings.Repeat("long ", 100))
	if got := boards[0].Row(1).Note; !strings.HasPrefix(got, "long long") || !strings.HasSuffix(got, "…") || len(got) > 128 {
		t.Errorf("a long note became %q", got)
	}
}
