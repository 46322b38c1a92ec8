package shm_test

import (
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
)

// A rank that sleeps is woken by the last one to arrive, and does not wait for the end of its slice of sleep, of 20 ms by then.
func TestSleeperIsWoken(t *testing.T) {
	const rounds, slices = 10, 8
	asleep, arrived := make(chan struct{}, 1), make(chan time.Time, 1)
	disttest.Run(t, 2, func(t *testing.T, rank int, comm collective.Comm) {
		least := time.Hour
		for range rounds {
			looks := 0
			call := collective.NewBarrier()
			limit := &collective.WaitLimit{Context: disttest.Context, Check: func() error {
				if looks++; rank == 0 && looks == slices { // it is about to sleep again
					asleep <- struct{}{}
				}
				return nil
			}}
			if rank == 1 {
				select {
				case <-asleep:
				case <-time.After(10 * time.Second):
					t.Fatal("the other rank does not sleep")
				}
				arrived <- time.Now()
			}
			w, err := comm.Start(&call)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Wait(limit); err != nil {
				t.Fatal(err)
			}
			if rank == 0 {
				least = min(least, time.Since(<-arrived))
			}
		}
		if rank == 0 && least > 10*time.Millisecond {
			t.Errorf("it slept for %v and more after the other had arrived", least)
		}
	})
}
