package board_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/engine/board"
)

// apart guards ranks, each on a node of its own, and gives the boards of their
// agents: the first is the head's.
func apart(t *testing.T, n int, wrap func(collective.Comm) collective.Comm) (comms []collective.Comm, agents []*board.Board) {
	t.Helper()
	for rank, inner := range disttest.InProcess(t, n) {
		agent, ranks := nodeOf(t, n, rank, rank+1)
		ranks[rank].SetState(collective.Running)
		c, err := board.Guard(wrap(inner), ranks[rank])
		if err != nil {
			t.Fatal(err)
		}
		comms, agents = append(comms, c), append(agents, agent)
	}
	return comms, agents
}

// lagging is a backend whose collectives take long.
type lagging struct {
	collective.Comm
	long time.Duration
}

func (l lagging) Start(c *collective.Call) (collective.Work, error) {
	w, err := l.Comm.Start(c)
	if err != nil {
		return nil, err
	}
	return &slowWork{Work: w, at: time.Now().Add(l.long)}, nil
}

// Ranks that do not know yet that the other has come are in no circle, however long
// they stay in the collective: the head, which has the words of both, knows.
func TestOldWordsMakeNoCircle(t *testing.T) {
	t.Parallel()
	const long = 1500 * time.Millisecond
	comms, agents := apart(t, 3, func(c collective.Comm) collective.Comm { return plain{lagging{c, long}} })
	over := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		var watch board.CircleWatch
		for {
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
			}
			agents[0].Adopt(agents[1].Show(nil, false))
			agents[0].Adopt(agents[2].Show(nil, false))
			if circle := watch.Check(agents[0]); circle != nil {
				t.Errorf("a circle: %v", circle)
			}
		}
	}()
	disttest.Each(t, comms, func(rank int, comm collective.Comm) error {
		return disttest.Do(comm, collective.NewBarrier())
	})
	close(over)
	<-watched
}

// A circle over nodes ends its ranks' waits once the head has confirmed it, and not
// before: what they know of each other may be old.
func TestCircleIsConfirmed(t *testing.T) {
	t.Parallel()
	comms, agents := apart(t, 2, func(c collective.Comm) collective.Comm { return c })
	stop := make(chan struct{})
	confirmed := make(chan time.Time, 1)
	go func() {
		var watch board.CircleWatch
		start := time.Now()
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			agents[0].Adopt(agents[1].Show(nil, true))
			agents[1].Adopt(agents[0].Show(nil, true))
			if time.Since(start) < 1500*time.Millisecond {
				continue
			}
			if circle := watch.Check(agents[0]); circle != nil {
				confirmed <- time.Now()
				agents[0].Confirm(circle)
				agents[1].Confirm(circle)
				return
			}
		}
	}()
	disttest.Each(t, comms, func(rank int, comm collective.Comm) error {
		call := collective.NewRecv(collective.Of(make([]float32, 1)), 1-rank, 7)
		w, err := comm.Start(&call)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		err = w.Wait(ctx)
		if err == nil || !strings.Contains(err.Error(), "wait for each other in a circle") {
			t.Errorf("rank %d: %v", rank, err)
		}
		return nil
	})
	close(stop)
	select {
	case <-confirmed:
	default:
		t.Error("the waits ended before the head had confirmed anything")
	}
}
