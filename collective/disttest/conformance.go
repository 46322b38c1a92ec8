package disttest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"drun/collective"
	"drun/kernel/dtype"
)

// Conformance is what every backend must pass: every operation, element type, reduce operation and root, sizes from
// nothing to several chunks, groups, messages, asynchronous calls, bad calls, and faults.
func Conformance(t *testing.T, factory Factory) { conformance(t, factory, suite{}) }

// ConformanceInAnyOrder is [Conformance] for a backend that combines contributions in any order: floats hold numbers
// whose sums and products are exact, so that the order does not matter.
func ConformanceInAnyOrder(t *testing.T, factory Factory) {
	conformance(t, factory, suite{exact: true})
}

type suite struct {
	exact bool // floats have sums and products without rounding
}

func conformance(t *testing.T, factory Factory, s suite) {
	values(t, factory, s)
	t.Run("oversubscribed", func(t *testing.T) {
		RunWith(t, factory, 16, func(t *testing.T, rank int, comm collective.Comm) {
			s.sequence(t, comm, 1, times(8, 20, 40), 3000)
		})
	})
	t.Run("mixed", func(t *testing.T) { s.mixed(t, factory) })
	t.Run("barrier", func(t *testing.T) { barriers(t, factory) })
	t.Run("async does not wait", func(t *testing.T) { RunWith(t, factory, 2, patient) })
	t.Run("messages", func(t *testing.T) { messages(t, factory) })
	t.Run("groups", func(t *testing.T) { groups(t, factory, s) })
	t.Run("bad calls", func(t *testing.T) { RunWith(t, factory, 2, badCalls) })
	t.Run("faults", func(t *testing.T) { faults(t, factory) })
	t.Run("endings", func(t *testing.T) { endings(t, factory) })
}

// InRankOrder tests the parts of [Conformance] whose results depend on the order, for a backend that has passed
// [ConformanceInAnyOrder] and combines contributions in rank order.
func InRankOrder(t *testing.T, factory Factory) { values(t, factory, suite{}) }

// values tests the parts of the suite that compare the results of single calls with the model.
func values(t *testing.T, factory Factory, s suite) {
	t.Run("collectives", func(t *testing.T) {
		for n := times(3, 1, 1); n <= times(3, 4, 4); n++ {
			RunWith(t, factory, n, s.everything)
		}
	})
	t.Run("numbers", func(t *testing.T) { RunWith(t, factory, 3, s.numbers) })
	t.Run("large", func(t *testing.T) { RunWith(t, factory, 3, s.large) })
	t.Run("random", func(t *testing.T) {
		seed := Seed(t)
		for _, n := range []int{2, 3, 5} {
			RunWith(t, factory, n, func(t *testing.T, rank int, comm collective.Comm) {
				s.sequence(t, comm, seed, times(15, 40, 100), times(10_000, 40_000, 40_000))
			})
		}
	})
}

// times chooses a count: for -short, by default, and where DRUN_TEST_LONG is set or a third-party backend is tested
// outside go test.
func times(short, usual, long int) int {
	switch {
	case !testing.Testing() || os.Getenv("DRUN_TEST_LONG") != "":
		return long
	case testing.Short():
		return short
	}
	return usual
}

// Seed returns a random seed, or the one in DRUN_TEST_SEED, and logs it.
func Seed(t testing.TB) uint64 {
	seed := rand.Uint64() >> 32
	if s := os.Getenv("DRUN_TEST_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("DRUN_TEST_SEED=%d", seed)
	return seed
}

// everything tries each kind with each type and each operation on little data: each number of ranks with three of the
// counts, and each count with some number of ranks.
func (s suite) everything(t *testing.T, rank int, comm collective.Comm) {
	seed := uint64(0)
	for _, kind := range kindsOfCollective {
		for _, dt := range dtype.Types() {
			for _, op := range dtype.ReduceOps() {
				if kind.Reduces() && !modelled(dt, op) || !kind.Reduces() && op != dtype.Sum {
					continue
				}
				for i, count := range []int{0, 1, 15, 17, 1111} { // 15: engines have paths of their own for few
					seed++
					if (i+comm.Size())%5 > 2 {
						continue
					}
					tr := trial{kind: kind, dtype: dt, op: op, root: int(seed) % comm.Size(), seed: seed, exact: s.exact}
					tr.counts = equal(comm.Size(), count)
					if err := tr.check(comm); err != nil {
						t.Error(err)
						return
					}
				}
			}
		}
	}
}

func equal(ranks, count int) []int {
	return slices.Repeat([]int{count}, ranks)
}

// large tries each kind with more data than any buffer holds: reductions with two types, the others, to which elements
// are just bytes, with one.
func (s suite) large(t *testing.T, rank int, comm collective.Comm) {
	for i, kind := range kindsOfCollective {
		for _, dt := range []dtype.Type{dtype.Float32, dtype.Int8} {
			if !kind.Reduces() && (dt == dtype.Float32) != (i%2 == 0) {
				continue
			}
			tr := trial{kind: kind, dtype: dt, seed: uint64(i), exact: s.exact, counts: []int{300_001, 600_003, 5}}
			if kind == collective.AllReduce || kind == collective.Reduce || kind == collective.Broadcast {
				tr.counts = equal(3, 600_003)
			} else {
				tr.uneven = true
			}
			if err := tr.check(comm); err != nil {
				t.Error(err)
			}
		}
	}
}

// sequence makes n random calls, the same on every rank.
func (s suite) sequence(t *testing.T, comm collective.Comm, seed uint64, n, most int) {
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range n {
		tr := s.draw(rng, comm.Size(), most)
		if err := tr.check(comm); err != nil {
			t.Errorf("call %d: %v", i, err)
			return
		}
	}
}

func (s suite) draw(rng *rand.Rand, ranks, most int) trial {
	tr := trial{
		kind: kindsOfCollective[rng.IntN(len(kindsOfCollective))], dtype: dtype.Types()[rng.IntN(10)],
		root: rng.IntN(ranks), seed: rng.Uint64() >> 40, uneven: rng.IntN(2) == 0, exact: s.exact,
	}
	for tr.op = dtype.ReduceOps()[rng.IntN(8)]; !modelled(tr.dtype, tr.op); {
		tr.op = dtype.ReduceOps()[rng.IntN(8)]
	}
	// Small counts are as likely as large ones.
	count := func() int { return rng.IntN(1 + rng.IntN(1+rng.IntN(most))) }
	tr.counts = equal(ranks, count())
	if tr.uneven {
		for i := range tr.counts {
			tr.counts[i] = count()
		}
	}
	return tr
}

// barriers lets each rank in turn arrive late: no other may continue before it has arrived.
func barriers(t *testing.T, factory Factory) {
	for _, n := range []int{2, 3, 5} {
		came := make([]atomic.Bool, 2*n)
		Each(t, factory(t, n), func(rank int, comm collective.Comm) error {
			for i := range came {
				if rank == i%n {
					time.Sleep(10 * time.Millisecond)
					came[i].Store(true)
				}
				call := collective.NewBarrier()
				call.Async = i >= n
				if err := Do(comm, call); err != nil {
					return err
				}
				if !came[i].Load() {
					return fmt.Errorf("of %d ranks it went on before rank %d had come (async %v)", n, i%n, call.Async)
				}
			}
			return nil
		})
	}
}

// patient starts a call to which the other rank comes late.
func patient(t *testing.T, rank int, comm collective.Comm) {
	if rank == 1 {
		time.Sleep(100 * time.Millisecond)
	}
	x := []float32{float32(rank)}
	call := collective.NewAllReduce(collective.Of(x), dtype.Sum)
	call.Async = true
	start := time.Now()
	w, err := comm.Start(&call)
	if err != nil {
		t.Error(err)
		return
	}
	if took := time.Since(start); took > 50*time.Millisecond {
		t.Errorf("an asynchronous call took %v to start", took)
	}
	if rank == 0 && w.Done() {
		t.Error("the work is done before the other rank came")
	}
	if err := w.Wait(Context); err != nil {
		t.Error(err)
	} else if !w.Done() || x[0] != 1 {
		t.Errorf("after Wait: done %v, result %v", w.Done(), x[0])
	}
}

// badCalls must be refused with a CallError on the rank that makes them, and leave the group usable.
func badCalls(t *testing.T, rank int, comm collective.Comm) {
	three, four := collective.Of(make([]float32, 3)), collective.Of(make([]float32, 4))
	for i, call := range []collective.Call{
		{},
		collective.NewBroadcast(three, 2),
		collective.NewBroadcast(three, -1),
		collective.NewAllReduce(three, dtype.BXor),
		collective.NewAllGather(three, four),
		collective.NewScatter(four, three, rank),
		{Kind: collective.AllReduce, Send: three, Recv: four},
		{Kind: collective.AllReduce, Send: three, Recv: collective.Of(make([]int32, 3))},
		{Kind: collective.AllGather, Send: three, Recv: four, Counts: []int{3, 1, 0}},
		{Kind: collective.AllGather, Send: three, Recv: four, Counts: []int{5, -1}},
		collective.NewAllToAll(three, four, nil, nil),
		collective.NewAllToAll(four, four, []int{1, 2}, []int{2, 2}),
		collective.NewSend(three, rank, 0),
		collective.NewSend(three, 2, 0),
		collective.NewSend(three, collective.AnySource, 0), // which is for receives
		collective.NewRecv(three, rank, 0),
		collective.NewRecv(three, -2, 0),
	} {
		var bad *collective.CallError
		if err := Do(comm, call); !errors.As(err, &bad) {
			t.Errorf("bad call %d: %v", i, err)
		}
	}
	if err := Do(comm, collective.NewBarrier()); err != nil {
		t.Error(fmt.Errorf("after bad calls: %w", err))
	}
}
