package shm_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/kernel/dtype"
)

// moving is one rank of BenchmarkMoving: kind, bytes of the larger of its buffers,
// repetitions. It prints the nanoseconds of the quickest call, and those of
// copying as many bytes while the other ranks do: in turn, since the machine may
// be busy with other things.
func moving(comm collective.Comm, args []string) error {
	bytes, _ := strconv.Atoi(args[1])
	times, _ := strconv.Atoi(args[2])
	n := comm.Size()
	of := func(bytes int) collective.Buffer { // with pages of its own
		x := make([]float32, bytes/4)
		for i := range x {
			x[i] = 1
		}
		return collective.Of(x)
	}
	whole, other, part := of(bytes), of(bytes), of(bytes/n)
	even := collective.Evenly(nil, whole.Count(), n)
	call, ok := map[string]collective.Call{
		"broadcast":      collective.NewBroadcast(whole, 0),
		"reduce":         collective.NewReduce(whole, other, dtype.Sum, 0),
		"all_reduce":     collective.NewAllReduce(whole, dtype.Max),
		"all_gather":     collective.NewAllGather(part, whole),
		"gather":         collective.NewGather(part, whole, 0),
		"scatter":        collective.NewScatter(whole, part, 0),
		"reduce_scatter": collective.NewReduceScatter(whole, part, dtype.Sum),
		"all_to_all":     collective.NewAllToAll(whole, other, even, even),
	}[args[0]]
	if !ok {
		return fmt.Errorf("no call %s", args[0])
	}
	quickest := func(best *float64, fn func() error) error {
		if err := disttest.Do(comm, collective.NewBarrier()); err != nil {
			return err
		}
		start := time.Now()
		err := fn()
		*best = min(*best, float64(time.Since(start)))
		return err
	}
	calls, copies := math.Inf(1), math.Inf(1)
	for i := range times + 1 {
		err := quickest(&calls, func() error {
			if err := disttest.Do(comm, call); err != nil {
				return err
			}
			return disttest.Do(comm, collective.NewBarrier()) // a root may be done before the others
		})
		if err == nil {
			err = quickest(&copies, func() error { copy(other.Data, whole.Data); return nil })
		}
		if err != nil {
			return err
		}
		if i == 0 { // pages that were never touched
			calls, copies = math.Inf(1), math.Inf(1)
		}
	}
	fmt.Println(calls, copies)
	return nil
}

// BenchmarkMoving measures collectives of 16 MiB among processes: how many times
// as long they take as each rank takes to copy 16 MiB.
func BenchmarkMoving(b *testing.B) {
	const bytes = 16 << 20
	for _, n := range []int{2, 4} {
		for _, kind := range []string{"broadcast", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "reduce", "all_reduce"} {
			b.Run(fmt.Sprintf("%s/ranks=%d", kind, n), func(b *testing.B) {
				p, _ := disttest.SpawnShared(b, n, "moving", nil, kind, strconv.Itoa(bytes), strconv.Itoa(max(b.N, 3)))
				var calls, copies float64
				for rank := range n {
					out, err := p.Wait(rank)
					var c, m float64
					if _, scanErr := fmt.Sscan(out, &c, &m); err != nil || scanErr != nil {
						b.Fatalf("rank %d: %v: %s", rank, err, out)
					}
					calls, copies = max(calls, c), max(copies, m)
				}
				b.ReportMetric(calls, "ns/op")
				b.ReportMetric(bytes/copies, "GB/s-of-copies")
				b.ReportMetric(calls/copies, "times-a-copy")
			})
		}
	}
}
