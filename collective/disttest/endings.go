package disttest

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"drun/collective"
	"drun/internal/testlimit"
	"drun/kernel/dtype"
)

// endings aborts and closes in all orders, and concurrently with calls and splits: each ends with an error, soon, and
// nothing crashes.
func endings(t *testing.T, factory Factory) {
	t.Run("after close", func(t *testing.T) {
		comms := factory(t, 2)
		Each(t, comms, func(_ int, comm collective.Comm) error { return comm.Close() })
		for _, comm := range comms {
			dead(t, comm)
		}
	})
	t.Run("after abort and close", func(t *testing.T) {
		comms := factory(t, 2)
		for _, comm := range comms {
			comm.Abort(errors.New("enough"))
			if err := comm.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			dead(t, comm)
		}
	})
	t.Run("a group after its world", func(t *testing.T) {
		comms := factory(t, 2)
		groups := make([]collective.Comm, 2)
		Each(t, comms, func(rank int, comm collective.Comm) (err error) {
			groups[rank], err = comm.Split(Context, collective.Group{ID: 1, Ranks: []int{1, 0}})
			return err
		})
		Each(t, comms, func(_ int, comm collective.Comm) error { return comm.Close() })
		Each(t, groups, func(_ int, group collective.Comm) error {
			if group == nil {
				return nil
			}
			_ = Do(group, collective.NewBarrier()) // whether it still works is the backend's choice
			if err := group.Close(); err != nil {
				return err
			}
			dead(t, group)
			return nil
		})
	})
	for _, who := range []string{"another rank", "the rank itself"} {
		t.Run("abort of "+who+" in new_group", func(t *testing.T) {
			comms := factory(t, 3) // rank 2 never comes
			ended := make(chan error, 2)
			for rank := range 2 {
				go func() {
					_, err := comms[rank].Split(Context, collective.Group{ID: 1, Ranks: []int{0, 1, 2}})
					ended <- err // none from a backend whose ranks need not meet for a group
				}()
			}
			time.Sleep(20 * time.Millisecond)
			if who == "another rank" {
				comms[2].Abort(errors.New("enough"))
			} else {
				comms[0].Abort(errors.New("enough"))
				comms[1].Abort(errors.New("enough"))
			}
			allEnd(t, 2, ended, "new_group, after the abort,")
		})
	}
	t.Run("at any time", func(t *testing.T) { atAnyTime(t, factory, 1, false) })
}

// Disorder is for plugin backends, whose Close may come during a synchronous call or a Split because drun has given
// up waiting.
func Disorder(t *testing.T, factory Factory) {
	t.Run("close in new_group", func(t *testing.T) {
		comms := factory(t, 2) // rank 1 never comes
		ended := make(chan error, 2)
		go func() {
			_, err := comms[0].Split(Context, collective.Group{ID: 1, Ranks: []int{0, 1}})
			ended <- err
		}()
		time.Sleep(20 * time.Millisecond)
		go func() { ended <- comms[0].Close() }()
		allEnd(t, 2, ended, "new_group and close")
		dead(t, comms[0])
	})
	t.Run("at any time", func(t *testing.T) { atAnyTime(t, factory, 2, true) })
}

// atAnyTime repeats anyTime, which depends on chance, DRUN_TEST_ROUNDS times, or a few times.
func atAnyTime(t *testing.T, factory Factory, stream uint64, closes bool) {
	rng := rand.New(rand.NewPCG(Seed(t), stream))
	rounds, err := strconv.Atoi(os.Getenv("DRUN_TEST_ROUNDS"))
	if err != nil {
		rounds = times(5, 5, 15)
	}
	for range rounds {
		anyTime(t, factory, rng, closes)
	}
}

// dead expects only errors from a closed Comm.
func dead(t testing.TB, comm collective.Comm) {
	t.Helper()
	comm.Abort(errors.New("too late"))
	comm.Abort(errors.New("far too late"))
	refuses(t, comm)
	if err := comm.Close(); err != nil {
		t.Errorf("closing it again: %v", err)
	}
}

// refuses expects that no call can be started any more.
func refuses(t testing.TB, comm collective.Comm) {
	t.Helper()
	call := collective.NewBarrier()
	if _, err := comm.Start(&call); err == nil {
		t.Error("a call was started on what is closed")
	}
	if _, err := comm.Split(Context, collective.Group{ID: 99, Ranks: collective.AllRanks(comm.Size())}); err == nil {
		t.Error("a group was made of what is closed")
	}
	if s, ok := comm.(interface{ Statistics() map[string]int64 }); ok {
		s.Statistics()
	}
}

// anyTime lets ranks call, split and close groups until they are aborted or closed from another goroutine, at a
// random time.
func anyTime(t testing.TB, factory Factory, rng *rand.Rand, closes bool) {
	t.Helper()
	const ranks = 3
	comms := factory(t, ranks)
	var all sync.WaitGroup
	seed := rng.Uint64()
	for rank, comm := range comms {
		pause := time.Duration(rng.IntN(20_000)) * time.Microsecond
		used := make(chan struct{})
		all.Go(func() {
			use(comm, seed)
			close(used)
			if err := comm.Close(); err != nil {
				t.Errorf("close of rank %d: %v", rank, err)
			}
		})
		foreign := rng.IntN(3)
		all.Go(func() {
			time.Sleep(pause)
			if closes && foreign == 0 {
				if err := comm.Close(); err != nil {
					t.Errorf("close of rank %d: %v", rank, err)
				}
			}
			for range 3 {
				comm.Abort(errors.New("enough"))
				time.Sleep(pause / 10)
			}
			if !closes { // a rank's calls come from one goroutine, unlike Abort and a plugin's Close
				<-used
			}
			refuses(t, comm)
		})
	}
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(Limit):
		t.Fatalf("the ranks go on %v after they were aborted", Limit)
	}
}

// use makes calls until one fails, and closes the groups it made. The ranks draw the same calls from the same seed.
func use(comm collective.Comm, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	var groups []collective.Comm
	defer func() {
		for i, g := range groups {
			g.Abort(errors.New("the world has failed")) // others may wait in it
			if i%2 == 0 {                               // else the world's Close does
				_ = g.Close()
			}
		}
	}()
	for id := uint32(1); ; id++ {
		group, err := comm.Split(Context, collective.Group{ID: id, Ranks: []int{2, 0, 1}})
		if err != nil {
			return
		}
		groups = append(groups, group)
		message := collective.NewRecv(collective.Of(make([]byte, 1)), collective.AnySource, 0) // that never comes
		message.Async = true
		if _, err := comm.Start(&message); err != nil {
			return
		}
		if rng.IntN(3) == 0 {
			go group.Abort(errors.New("this group only"))
		}
		for range 4 {
			call := collective.NewAllReduce(collective.Of(make([]float32, 1+rng.IntN(5000))), dtype.Sum)
			if call.Async = rng.IntN(2) == 0; call.Async {
				if _, err := comm.Start(&call); err != nil {
					return
				}
				continue
			}
			_ = Do(group, call)
			if err := Do(comm, call); err != nil {
				return
			}
		}
	}
}

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
	alone := func(t *testing.T) collective.Work { // waits for rank 1, which never comes
		call := collective.NewBarrier()
		w, err := factory(t, 2)[0].Start(&call)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	t.Run("timeout", func(t *testing.T) {
		w, start := alone(t), time.Now()
		err := w.Wait(collective.Within(context.Background(), 60*time.Millisecond))
		if took := time.Since(start); err == nil || took < 50*time.Millisecond || took > Bound() {
			t.Errorf("a limit of 60ms ended the wait after %v with %v", took, err)
		}
	})
	t.Run("cancel", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		w, start := alone(t), time.Now()
		time.AfterFunc(30*time.Millisecond, cancel)
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
