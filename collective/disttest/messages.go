package disttest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"drun/collective"
	"drun/internal/each"
)

func messages(t *testing.T, factory Factory) {
	numbers := func(n int, first float32) []float32 {
		return each.UpTo(n, func(i int) float32 { return first + float32(i) })
	}
	send := func(t *testing.T, comm collective.Comm, x []float32, to, tag int) {
		if err := Do(comm, collective.NewSend(collective.Of(x), to, tag)); err != nil {
			t.Errorf("send: %v", err)
		}
	}
	receive := func(t *testing.T, comm collective.Comm, n, from, tag int, first float32) {
		x := make([]float32, n)
		if err := Do(comm, collective.NewRecv(collective.Of(x), from, tag)); err != nil {
			t.Errorf("receive: %v", err)
			return
		}
		for i, want := range numbers(n, first) {
			if x[i] != want {
				t.Errorf("message of %d from %d, tag %d: [%d] is %v, not %v", n, from, tag, i, x[i], want)
				return
			}
		}
	}
	run := func(name string, ranks int, body func(t *testing.T, rank int, comm collective.Comm)) {
		t.Run(name, func(t *testing.T) { RunWith(t, factory, ranks, body) })
	}
	run("tags in another order", 2, func(t *testing.T, rank int, comm collective.Comm) {
		for _, n := range []int{0, 1, 3, 5000, 300_000} {
			if rank == 0 {
				send(t, comm, numbers(n, 7), 1, 7)
				send(t, comm, numbers(n, 8), 1, 8)
			} else {
				receive(t, comm, n, 0, 8, 8)
				receive(t, comm, n, 0, 7, 7)
			}
		}
	})
	run("every small size", 2, func(t *testing.T, rank int, comm collective.Comm) { // whichever a backend sends together with the header
		for n := range 130 {
			if rank == 0 {
				send(t, comm, numbers(n, float32(n)), 1, 0)
			} else {
				receive(t, comm, n, 0, 0, float32(n))
			}
		}
	})
	run("all send before they receive", 4, func(t *testing.T, rank int, comm collective.Comm) {
		for to := range comm.Size() {
			if to != rank {
				send(t, comm, numbers(100_000, float32(rank)), to, rank)
			}
		}
		for from := range comm.Size() {
			if from != rank {
				receive(t, comm, 100_000, from, from, float32(from))
			}
		}
	})
	run("any source, before it is waited for", 3, func(t *testing.T, rank int, comm collective.Comm) {
		if rank != 0 {
			if rank == 2 {
				send(t, comm, numbers(10, 2), 0, 5)
			}
			return
		}
		call := collective.NewRecv(collective.Of(make([]float32, 10)), collective.AnySource, 5)
		call.Async = true
		w, err := comm.Start(&call)
		if err != nil {
			t.Error(err)
			return
		}
		for end := time.Now().Add(Limit); !w.Done() && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
		early := -1
		if w.Done() {
			early = w.(collective.Receipt).Source()
		}
		if err := w.Wait(Context); err != nil || early != 2 || w.(collective.Receipt).Source() != 2 {
			t.Errorf("the message of rank 2 is said to be from %d, then from %d (%v)", early, w.(collective.Receipt).Source(), err)
		}
	})
	run("any source", 3, func(t *testing.T, rank int, comm collective.Comm) {
		if rank > 0 {
			send(t, comm, numbers(10, float32(rank)), 0, 5)
			return
		}
		seen := map[int]bool{}
		for range 2 {
			x := make([]float32, 10)
			call := collective.NewRecv(collective.Of(x), collective.AnySource, 5)
			w, err := comm.Start(&call)
			if err == nil {
				err = w.Wait(Context)
			}
			if err != nil {
				t.Error(err)
				return
			}
			from := w.(collective.Receipt).Source()
			if seen[from] = true; x[0] != float32(from) {
				t.Errorf("the message of rank %v is said to be from %d", x[0], from)
			}
		}
		if len(seen) != 2 {
			t.Errorf("messages came from %v", seen)
		}
	})
	run("asynchronous", 2, func(t *testing.T, rank int, comm collective.Comm) {
		const n = 20
		in, out := make([][]float32, n), make([][]float32, n)
		var works []collective.Work
		for i := range n {
			in[i], out[i] = make([]float32, 1000*i), numbers(1000*i, float32(i))
			for _, call := range []collective.Call{
				collective.NewRecv(collective.Of(in[i]), 1-rank, 0), collective.NewSend(collective.Of(out[i]), 1-rank, 0),
			} {
				call.Async = true
				w, err := comm.Start(&call)
				if err != nil {
					t.Error(err)
					return
				}
				works = append(works, w)
			}
		}
		for _, w := range works {
			if err := w.Wait(Context); err != nil {
				t.Error(err)
			}
			if !w.Done() {
				t.Error("not done after Wait")
			}
		}
		for i := range n {
			for j := range in[i] {
				if in[i][j] != out[i][j] {
					t.Errorf("message %d: [%d] is %v, not %v", i, j, in[i][j], out[i][j])
					return
				}
			}
		}
	})
	run("wrong size or type", 2, func(t *testing.T, rank int, comm collective.Comm) {
		if rank == 0 {
			send(t, comm, numbers(3, 0), 1, 0)
			send(t, comm, numbers(3, 0), 1, 0)
			send(t, comm, numbers(4, 1), 1, 0)
			return
		}
		for want, b := range map[string]collective.Buffer{"8 bytes of float32": collective.Of(make([]float32, 2)), "12 bytes of int32": collective.Of(make([]int32, 3))} {
			var bad *collective.CallError
			if err := Do(comm, collective.NewRecv(b, 0, 0)); !errors.As(err, &bad) ||
				!strings.Contains(bad.Problem, "from rank 0 with tag 0 holds 12 bytes of float32, but the buffer takes "+want) {
				t.Errorf("a message that does not fit %s: %v", want, err)
			}
		}
		receive(t, comm, 4, 0, 0, 1)
	})
}

// groups splits a world of four in several ways, uses the groups in turn and at the same time, and closes them.
func groups(t *testing.T, factory Factory, s suite) {
	RunWith(t, factory, 4, func(t *testing.T, rank int, world collective.Comm) {
		var made []collective.Comm
		for i, sets := range [][][]int{{{1, 2}}, {{0, 1}, {2, 3}}, {{3, 0}, {1}}, {{0, 1, 2, 3}}, {{2, 1, 0}}} {
			group := collective.Group{ID: uint32(i + 1)}
			for _, ranks := range sets {
				if slices.Contains(ranks, rank) {
					group.Ranks = ranks
				}
			}
			comm, err := world.Split(Context, group)
			if err != nil {
				t.Errorf("split %v: %v", group, err)
				return
			}
			if (comm != nil) != (group.Ranks != nil) {
				t.Errorf("rank %d got %v for %v", rank, comm, group)
				return
			}
			if comm == nil {
				continue
			}
			if got, want := comm.Rank(), slices.Index(group.Ranks, rank); got != want || comm.Size() != len(group.Ranks) {
				t.Errorf("rank %d of %v is %d of %d", rank, group.Ranks, got, comm.Size())
			}
			made = append(made, comm)
		}
		for range 3 { // in the order in which they were made, on every rank
			for _, comm := range made {
				s.sequence(t, comm, uint64(comm.Size()), 20, 5000)
			}
			s.sequence(t, world, 3, 5, 5000)
		}
		for _, comm := range made {
			if err := comm.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		s.sequence(t, world, 4, 10, 5000)

		for _, ranks := range [][]int{{0, 4}, {1, 1}, {-1}} {
			if _, err := world.Split(Context, collective.Group{ID: 9, Ranks: ranks}); err == nil {
				t.Errorf("a group of %v was made", ranks)
			}
		}
	})
}
