package nccl

import (
	"errors"
	"sync"
	"testing"

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
