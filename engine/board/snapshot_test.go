package board_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/engine/board"
	"drun/kernel/dtype"
)

func TestSnapshotOfAMismatch(t *testing.T) {
	comms, boards := guarded(t, 3, false)
	if boards[0].Last() != nil {
		t.Fatal("there is a snapshot of an abort that was not")
	}
	call := func(n int) collective.Call {
		return collective.NewAllReduce(collective.Of(make([]float32, n)), dtype.Sum)
	}
	for i := range 10 {
		results(comms, call(i), call(i), call(i))
	}
	for _, err := range results(comms, call(7), call(8), call(7)) {
		if err == nil {
			t.Fatal("no mismatch")
		}
	}
	s := boards[2].Last()
	if s == nil || time.Since(s.At) > 10*time.Second {
		t.Fatalf("the abort left no snapshot: %+v", s)
	}
	for rank, r := range s.Ranks {
		if r.State != collective.Waiting || r.Call.Seq != 11 || r.Pos != at(10+int32(rank)) || r.For <= 0 {
			t.Errorf("rank %d: %+v", rank, r.Row)
		}
		if len(r.Recent) != board.RecentCalls || r.Recent[0].Seq != 11 || r.Recent[0].Ended || !r.Recent[1].Ended {
			t.Errorf("rank %d made %+v", rank, r.Recent)
		}
	}
	text := s.String()
	for _, want := range []string{"rank  state", "waiting", "float32[8]", "recipe.star:11:5", "the latest calls, newest first:", "number 11", "not ended"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Ranks that did the same share a block, and calls of several groups are in the
// order in which they were made.
func TestSnapshotOfGroups(t *testing.T) {
	comms, boards := guarded(t, 3, false)
	groups := make([]collective.Comm, 3)
	disttest.Each(t, comms, func(rank int, comm collective.Comm) error {
		group := collective.Group{ID: 5, Origin: collective.Origin{Pos: at(1)}}
		if rank < 2 {
			group.Ranks = []int{0, 1}
		}
		var err error
		groups[rank], err = comm.Split(disttest.Context, group)
		return err
	})
	barrier := collective.NewBarrier()
	for range 2 {
		results(comms, barrier, barrier, barrier)
		results(groups[:2], barrier, barrier)
	}
	async := collective.NewSend(collective.Of([]float32{1}), 1, 3)
	async.Async = true
	if _, err := comms[0].Start(&async); err != nil {
		t.Fatal(err)
	}
	s := boards[1].Snapshot()
	var order []string
	for _, c := range s.Ranks[1].Recent {
		order = append(order, c.Kind.String()+strings.Repeat("'", int(c.Group)))
	}
	if got := strings.Join(order, " "); got != "barrier''''' barrier barrier''''' barrier new_group" {
		t.Errorf("rank 1 made %s", got)
	}
	text := s.Calls()
	for _, want := range []string{"  rank 0\n    send(float32[1], to 1, tag 3)", "asynchronous, not waited for", "  rank 1\n    barrier              number 2 of group 5  at recipe.star:11:5"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if one, other := s.Ranks[1].Recent, s.Ranks[2].Recent; len(one) == len(other) {
		t.Errorf("rank 2 is not in the group, but made %v", other)
	}
}

// A group that the engine makes before the recipe starts is none of the recipe's
// collectives: it has no number, and no line among the latest calls.
func TestInternalGroup(t *testing.T) {
	for _, hide := range []bool{false, true} {
		comms, boards := guarded(t, 3, hide)
		groups := make([]collective.Comm, 3)
		disttest.Each(t, comms, func(rank int, comm collective.Comm) error {
			group := collective.Group{ID: 1, Ranks: []int{0, 1}, Internal: true}
			var err error
			groups[rank], err = comm.Split(disttest.Context, group)
			return err
		})
		if groups[2] != nil {
			t.Error("rank 2 is in a group of ranks 0 and 1")
		}
		barrier := collective.NewBarrier()
		for _, err := range results(groups[:2], barrier, barrier) {
			if err != nil {
				t.Fatal(err)
			}
		}
		x := collective.Of([]float32{1})
		for _, err := range results(comms, barrier, barrier, collective.NewAllReduce(x, dtype.Sum)) {
			if e := (*collective.MismatchError)(nil); !errors.As(err, &e) || e.Seq != 1 {
				t.Errorf("the first collective of the recipe: %v", err)
			}
		}
		if text := boards[1].Snapshot().Calls(); strings.Contains(text, "new_group") {
			t.Errorf("the latest calls have one that the recipe did not make:\n%s", text)
		}
	}
}

func TestSnapshotOfADeath(t *testing.T) {
	_, boards := guarded(t, 2, false)
	row := boards[0].Row(1)
	row.Pos = at(77)
	boards[0].Abort(1, &collective.PeerLostError{Rank: 1, How: "killed", Last: row})
	s := boards[1].Last()
	if s == nil || s.Ranks[1].State != collective.Gone || s.Ranks[1].Pos != at(77) {
		t.Errorf("the snapshot of a death: %+v", s)
	}
	if text := s.Calls(); text != "" {
		t.Errorf("nobody made a call, but: %s", text)
	}
	boards[0].Abort(0, errors.New("another cause"))
	if again := boards[1].Last(); again == nil || !again.At.Equal(s.At) {
		t.Error("the snapshot is no longer the first cause's")
	}
}
