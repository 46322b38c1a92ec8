package nccl

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/kernel/dtype"
)

// onGPU prepares a test on real GPUs: how many ranks it may use, and worlds of
// plugin processes. Where there are fewer GPUs than two, two ranks share one.
func onGPU(t *testing.T, deterministic bool) (ranks int, factory disttest.Factory) {
	if !onRealGPU {
		t.Skip("make test-gpu runs it: it needs GPUs")
	}
	b := New(FromEnvironment())
	gpus, err := b.load()
	if err != nil {
		t.Fatal(err)
	}
	ranks = max(2, gpus)
	if s := os.Getenv("DRUN_TEST_RANKS"); s != "" {
		if ranks, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s from %s, %s, up to %d ranks", b.Version(), libraries.nccl, count(gpus, "GPU"), ranks)
	t.Setenv("NCCLTEST_PLUGIN", "1")
	if gpus < ranks {
		t.Setenv("DRUN_NCCL_SHARE_GPU", "1")
	}
	worlds := asPlugin(deterministic, os.Stderr)
	return ranks, func(t testing.TB, n int) []collective.Comm {
		t.Helper()
		if n > ranks {
			t.Skipf("it needs more than %d ranks, which is what the GPUs here stand", ranks)
		}
		return worlds(t, n)
	}
}

// The suite skips what needs more ranks than there are, and goes on.
func TestGPUConformance(t *testing.T) {
	_, factory := onGPU(t, false)
	disttest.ConformanceInAnyOrder(t, factory)
}

func TestGPUConformanceInRankOrder(t *testing.T) {
	_, factory := onGPU(t, true)
	disttest.Conformance(t, factory)
}

// Groups and messages of two ranks, which the suite tries with more.
func TestGPUPairs(t *testing.T) {
	_, factory := onGPU(t, false)
	disttest.RunWith(t, factory, 2, func(t *testing.T, rank int, comm collective.Comm) {
		group, err := comm.Split(disttest.Context, collective.Group{ID: 1, Ranks: []int{1, 0}})
		if err != nil {
			t.Error(err)
			return
		}
		for range 3 {
			for _, c := range []collective.Comm{comm, group} {
				if err := exchange(c); err != nil {
					t.Error(err)
				}
			}
		}
		alone, err := comm.Split(disttest.Context, collective.Group{ID: 2, Ranks: []int{1}})
		if err != nil || (alone != nil) != (rank == 1) {
			t.Errorf("a group of rank 1 on rank %d: %v, %v", rank, alone, err)
		}
		if err := group.Close(); err != nil {
			t.Error(err)
		}
		if err := disttest.Do(comm, collective.NewBarrier()); err != nil {
			t.Error(err)
		}
	})
}

// exchange sends both ways at once, more than fits into a round, and reduces.
func exchange(comm collective.Comm) error {
	const n = 3<<20/4 + 5
	mine, other := make([]float32, n), make([]float32, n)
	for i := range mine {
		mine[i] = float32(comm.Rank()*1000 + i%777)
	}
	send := collective.NewSend(collective.Of(mine), 1-comm.Rank(), 3)
	send.Async = true
	sent, err := comm.Start(&send)
	if err != nil {
		return err
	}
	if err := disttest.Do(comm, collective.NewRecv(collective.Of(other), 1-comm.Rank(), 3)); err != nil {
		return err
	}
	if err := sent.Wait(disttest.Context); err != nil {
		return err
	}
	for i, got := range other {
		if want := float32((1-comm.Rank())*1000 + i%777); got != want {
			return fmt.Errorf("a message: [%d] is %v, not %v", i, got, want)
		}
	}
	if err := disttest.Do(comm, collective.NewAllReduce(collective.Of(mine), dtype.Sum)); err != nil {
		return err
	}
	for i, got := range mine {
		if want := float32(1000 + 2*(i%777)); got != want {
			return fmt.Errorf("a sum: [%d] is %v, not %v", i, got, want)
		}
	}
	return nil
}

// Latency and bandwidth of all_reduce, staged and with zero copy.
func TestGPUTiming(t *testing.T) {
	ranks, factory := onGPU(t, false)
	fmt.Printf("%5s %12s %22s %22s\n", "ranks", "bytes", "staged", "zero copy")
	for _, n := range []int{1, ranks} {
		var rows [2]map[int]float64
		sizes := []int{4, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20}
		for mode := range rows {
			t.Setenv("DRUN_NCCL_ZERO_COPY", strconv.Itoa(mode))
			rows[mode] = map[int]float64{}
			disttest.RunWith(t, factory, n, func(t *testing.T, rank int, comm collective.Comm) {
				for _, size := range sizes {
					b, err := comm.(collective.Arena).Alloc(dtype.Float32, size/4)
					if err != nil {
						t.Error(err)
						return
					}
					ns, err := disttest.Timing(min(200, max(20, (256<<20)/size)), func() error {
						return disttest.Do(comm, collective.NewAllReduce(b, dtype.Sum))
					})
					if err != nil {
						t.Error(err)
						return
					}
					if rank == 0 {
						rows[mode][size] = ns
					}
				}
			})
		}
		for _, size := range sizes {
			fmt.Printf("%5d %12d", n, size)
			for mode := range rows {
				ns := rows[mode][size]
				fmt.Printf(" %8.1f us %6.2f GB/s", ns/1e3, float64(size)/ns)
			}
			fmt.Println()
		}
	}
}
