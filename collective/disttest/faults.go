package disttest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"drun/collective"
	"drun/internal/testlimit"
	"drun/kernel/dtype"
)

// Bound is how soon a wait must end after an abort: a second on an idle machine.
func Bound() time.Duration { return testlimit.Time(time.Second) }

// allEnd returns the errors of what ends n times, soon.
func allEnd(t *testing.T, n int, ended <-chan error, what string) (errs []error) {
	t.Helper()
	timer := time.After(Bound())
	for range n {
		select {
		case err := <-ended:
			errs = append(errs, err)
		case <-timer:
			t.Fatalf("%s goes on for %v", what, Bound())
		}
	}
	return errs
}

// faults lets ranks stay away, give up and disagree.
func faults(t *testing.T, factory Factory) {
	first := errors.New("the first cause")
	kinds := append([]collective.Kind{collective.Recv}, kindsOfCollective...)
	for _, kind := range kinds {
		t.Run("abort in "+kind.String(), func(t *testing.T) {
			comms := factory(t, 3)
			ended := make(chan error, 2)
			for rank := range 2 { // rank 2 never comes
				go func() {
					if kind == collective.Recv {
						ended <- Do(comms[rank], collective.NewRecv(collective.Of(make([]float32, 4)), 2, 0))
						return
					}
					call, _ := trial{kind: kind, dtype: dtype.Float32, root: 2, counts: equal(3, 3000)}.call(rank)
					ended <- Do(comms[rank], call)
				}()
			}
			time.Sleep(20 * time.Millisecond)
			comms[2].Abort(first)
			for _, err := range allEnd(t, 2, ended, "a wait, after the abort,") {
				if err == nil {
					t.Errorf("the call ended well without rank 2")
				}
			}
			call := collective.NewBarrier()
			for rank, comm := range comms {
				if _, err := comm.Start(&call); err == nil {
					t.Errorf("rank %d can still start calls", rank)
				}
			}
			if _, err := comms[2].Start(&call); err == nil || !strings.Contains(err.Error(), first.Error()) {
				t.Errorf("rank 2's next call says %v", err)
			}
		})
	}
	t.Run("timeout", func(t *testing.T) {
		comms := factory(t, 2)
		call := collective.NewBarrier()
		w, err := comms[0].Start(&call)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		err = w.Wait(collective.Within(context.Background(), 60*time.Millisecond))
		if took := time.Since(start); err == nil || took < 50*time.Millisecond || took > Bound() {
			t.Errorf("a limit of 60ms ended the wait after %v with %v", took, err)
		}
	})
	t.Run("cancel", func(t *testing.T) {
		comms := factory(t, 2)
		ctx, cancel := context.WithCancel(context.Background())
		call := collective.NewBarrier()
		w, err := comms[0].Start(&call)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(30*time.Millisecond, cancel)
		start := time.Now()
		if err := w.Wait(ctx); !errors.Is(err, context.Canceled) || time.Since(start) > Bound() {
			t.Errorf("cancelled: %v after %v", err, time.Since(start))
		}
	})
	t.Run("close ends asynchronous calls", func(t *testing.T) {
		comms := factory(t, 2)
		for _, call := range []collective.Call{collective.NewBarrier(), collective.NewRecv(collective.Of(make([]int8, 1)), 1, 0)} {
			call.Async = true
			if _, err := comms[0].Start(&call); err != nil {
				t.Fatal(err)
			}
		}
		closed := make(chan error)
		go func() { closed <- comms[0].Close() }()
		if err := allEnd(t, 1, closed, "Close, for a rank that does not come,")[0]; err != nil {
			t.Error(err)
		}
	})
}
