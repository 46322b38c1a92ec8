package board_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/engine/board"
	"drun/kernel/dtype"
)

// failing is a backend whose calls fail.
type failing struct {
	collective.Comm
	err error
}

func (f failing) Start(*collective.Call) (collective.Work, error) { return nil, f.err }

// ranks 3 and 1 of four make a group with a backend of its own, which wrap has changed.
func ownBackend(t *testing.T, wrap func(collective.Comm) collective.Comm) (groups []collective.Comm, boards []*board.Board) {
	comms, boards := guarded(t, 4, true)
	own := disttest.InProcess(t, 2)
	groups = make([]collective.Comm, 4)
	var wg sync.WaitGroup
	for rank, comm := range comms {
		wg.Go(func() {
			group := collective.Group{ID: 1, Ranks: []int{3, 1}, Backend: "special", Open: func(context.Context) (collective.Comm, error) {
				if rank%2 == 0 {
					return nil, nil
				}
				return wrap(own[1-rank/2]), nil
			}}
			var err error
			if groups[rank], err = comm.Split(disttest.Context, group); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if groups[0] != nil || groups[2] != nil || groups[1] == nil || groups[3] == nil {
		t.Fatal("the group has other members")
	}
	return []collective.Comm{groups[3], groups[1]}, boards
}

func TestGroupWithABackendOfItsOwn(t *testing.T) {
	for _, hide := range []bool{false, true} {
		groups, boards := ownBackend(t, func(c collective.Comm) collective.Comm {
			if hide {
				return plain{c}
			}
			return c
		})
		same := func() collective.Call { return collective.NewAllReduce(collective.Of([]int64{1}), dtype.Sum) }
		if errs := results(groups, same(), same()); errors.Join(errs...) != nil {
			t.Fatal(errs)
		}
		other := collective.NewAllReduce(collective.Of([]float32{1}), dtype.Sum)
		for _, err := range results(groups, same(), other) {
			var e *collective.MismatchError
			if !errors.As(err, &e) || !strings.Contains(err.Error(), "collective 2 of group 1 over special: the ranks disagree") {
				t.Errorf("%v", err)
			}
			if !strings.Contains(err.Error(), "2 of group 1 over special  recipe.star:11") {
				t.Errorf("the row of a rank does not name the backend:\n%v", err)
			}
		}
		if text := boards[0].Snapshot().Calls(); !strings.Contains(text, "number 2 of group 1 over special") {
			t.Errorf("seen from outside the group:\n%s", text)
		}
	}
}

func TestErrorsOfAGroupsBackendNameRanksOfTheWorld(t *testing.T) {
	groups, boards := ownBackend(t, func(c collective.Comm) collective.Comm {
		if c.Rank() == 1 {
			return plain{c}
		}
		return failing{c, &collective.BackendError{Backend: "special", Rank: c.Rank(), Msg: "rank 1 of 2 is gone"}}
	})
	err := results(groups, collective.NewBarrier(), collective.NewBarrier())[0]
	want := "backend special of group 1 failed on rank 3: rank 1 is gone"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	if err := boards[0].Aborted(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the others get %v", err)
	}
}

// A backend's error about a lost peer is held back until news of that peer comes, which ends the wait at once.
func TestALostPeerIsExplained(t *testing.T) {
	groups, boards := ownBackend(t, func(c collective.Comm) collective.Comm {
		if c.Rank() == 1 {
			return plain{c}
		}
		return failing{c, &collective.BackendError{Backend: "special", Rank: c.Rank(), Msg: "connection closed by peer"}}
	})
	began := time.Now()
	go func() {
		time.Sleep(50 * time.Millisecond) // the agent takes a moment
		boards[0].Abort(board.Observer, &collective.PeerLostError{Rank: 1, How: "killed by signal 9"})
	}()
	err := results(groups, collective.NewBarrier(), collective.NewBarrier())[0]
	if err == nil || !strings.Contains(err.Error(), "rank 1 was lost: killed by signal 9") {
		t.Error(err)
	}
	if took := time.Since(began); took > 400*time.Millisecond {
		t.Errorf("the news came at once, and ended the wait after %v", took)
	}
}

// A failing rank lets lower ranks that still run fail first, but does not wait for those that wait for it.
func TestTheLowestFailsFirst(t *testing.T) {
	_, boards := guarded(t, 2, false)
	go func() {
		time.Sleep(20 * time.Millisecond) // it gets a core a little later
		boards[0].AwaitLower()
		boards[0].Abort(0, errors.New("all fail"))
	}()
	boards[1].AwaitLower()
	if boards[1].Abort(1, errors.New("all fail")) {
		t.Error("rank 1 failed before rank 0")
	}

	comms, others := guarded(t, 2, false)
	went := make(chan error, 1)
	go func() { went <- results(comms[:1], collective.NewBarrier())[0] }()
	for others[1].State(0) != collective.Waiting {
		time.Sleep(time.Millisecond)
	}
	shortest := time.Hour
	for range 5 { // the machine may be busy
		began := time.Now()
		others[1].AwaitLower()
		shortest = min(shortest, time.Since(began))
	}
	if shortest > 400*time.Millisecond {
		t.Errorf("it waited %v for a rank that waits for it", shortest)
	}
	others[1].Abort(1, errors.New("one fails"))
	<-went
}
