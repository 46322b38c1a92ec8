package nccl

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/engine/rendezvous"
	"drun/plugins/internal/enginetest"
)

// inProcess makes worlds of ranks in this process, each with a device.
func inProcess(deterministic bool) disttest.Factory {
	return enginetest.InProcess(deterministic, func(int) collective.Backend { return New(FromEnvironment()) })
}

func TestConformance(t *testing.T) {
	disttest.ConformanceInAnyOrder(t, inProcess(false))
}

func TestConformanceInRankOrder(t *testing.T) {
	enginetest.InRankOrder(t, inProcess(true))
}

// Ranks that are not all on this machine meet on the route to MASTER_ADDR.
func TestAddress(t *testing.T) {
	t.Setenv("MASTER_ADDR", "127.0.0.1")
	store := rendezvous.Memory()
	var wg sync.WaitGroup
	for rank := range 2 {
		wg.Go(func() {
			world := collective.World{Rank: rank, Size: 2, LocalSize: 1, Store: store}
			o := FromEnvironment()
			o.Devices = []int{rank}
			comm, err := New(o).Open(disttest.Context, world)
			if err == nil {
				err = errors.Join(disttest.Do(comm, collective.NewBarrier()), comm.Close())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestCloseAtAnyTime(t *testing.T) { disttest.Disorder(t, inProcess(false)) }

// When ranks leave, what waits for a message that can still come goes on, and what waits in vain soon ends with an error.
func TestRanksThatLeave(t *testing.T) {
	comms := inProcess(false)(t, 3)
	begin := func(from, tag int) <-chan error {
		ended := make(chan error, 1)
		call := collective.NewRecv(collective.Of(make([]byte, 5)), from, tag)
		w, err := comms[0].Start(&call)
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- w.Wait(disttest.Context) }()
		return ended
	}
	end := func(ended <-chan error, want string) {
		t.Helper()
		select {
		case err := <-ended:
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("it ended with %v, want %q", err, want)
			}
		case <-time.After(disttest.Bound()):
			t.Errorf("it still waits; want %q", want)
		}
	}
	leave := func(rank int) {
		if err := comms[rank].Close(); err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	one, other, lost := begin(1, 1), begin(collective.AnySource, 2), begin(collective.AnySource, 3)
	leave(1)
	end(one, "rank 1 has left the group")
	if err := disttest.Do(comms[2], collective.NewSend(collective.Of(make([]byte, 5)), 0, 2)); err != nil {
		t.Error(err)
	}
	end(other, "")
	leave(2)
	end(lost, "all other ranks have left the group")
	end(begin(collective.AnySource, 4), "all other ranks have left the group")
	leave(0)
}
