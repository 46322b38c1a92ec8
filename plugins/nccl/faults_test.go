package nccl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/engine/rendezvous"
	"drun/kernel/dtype"
	"drun/plugins/internal/enginetest"
)

func init() {
	workers["endless"] = enginetest.Endless
	workers["tour"] = tour
	workers["besides"] = besides
	workers["splitting"] = splitting
}

// tour uses all that the backend has, once; a rank's failure ends its part.
func tour(comm collective.Comm, _ []string) error {
	n := comm.Size()
	f := func(n int) collective.Buffer { return collective.Of(make([]float32, n)) }
	part := 3_000_000 // more than a round
	if n > 1 {
		part = 30_000
	}
	two := slices.Repeat([]int{2}, n)
	calls := []collective.Call{
		collective.NewBarrier(),
		collective.NewAllReduce(f(part), dtype.Sum), collective.NewAllReduce(f(part), dtype.Max),
		collective.NewBroadcast(f(part), 0), collective.NewReduce(f(5), f(5), dtype.Sum, 0),
		collective.NewAllGather(f(2), f(2*n)), collective.NewGather(f(2), f(2*n), 0), collective.NewScatter(f(2*n), f(2), 0),
		collective.NewReduceScatter(f(2*n), f(2), dtype.Sum), collective.NewAllToAll(f(2*n), f(2*n), two, two),
	}
	for _, c := range calls {
		if err := disttest.Do(comm, c); err != nil {
			return err
		}
	}
	ranks := []int{0}
	if n > 1 {
		ranks = []int{1, 0}
	}
	group, err := comm.Split(disttest.Context, collective.Group{ID: 1, Ranks: ranks})
	if err != nil {
		return err
	}
	if group != nil {
		if err := disttest.Do(group, collective.NewBarrier()); err != nil {
			return err
		}
		if err := group.Close(); err != nil {
			return err
		}
	}
	if n > 1 && comm.Rank() < 2 {
		big := f(10_000)
		first, second := collective.NewSend(big, 1, 0), collective.NewRecv(big, 1, 1)
		if comm.Rank() == 1 {
			first, second = collective.NewRecv(big, 0, 0), collective.NewSend(big, 0, 1)
		}
		if err := disttest.Do(comm, first); err != nil {
			return err
		}
		return disttest.Do(comm, second)
	}
	return nil
}

func TestTour(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		p := enginetest.Spawn(t, n, "tour", given(t))
		for rank := range n {
			if out, err := p.Wait(rank); err != nil || out != "" {
				t.Errorf("rank %d of %d: %v: %s", rank, n, err, out)
			}
		}
	}
}

// besides has rank 1 send a message and go on to a collective, while rank 0 takes the
// message first.
func besides(comm collective.Comm, _ []string) error {
	x := collective.Of(make([]float32, 100_000))
	if comm.Rank() == 1 {
		send := collective.NewSend(x, 0, 0)
		send.Async = true
		sent, err := comm.Start(&send)
		if err != nil {
			return err
		}
		if err := disttest.Do(comm, collective.NewBarrier()); err != nil {
			return err
		}
		return sent.Wait(disttest.Context)
	}
	time.Sleep(200 * time.Millisecond) // rank 1's barrier is on its GPU
	if err := disttest.Do(comm, collective.NewRecv(x, 1, 0)); err != nil {
		return err
	}
	return disttest.Do(comm, collective.NewBarrier())
}

// splitting has rank 0 split the world, in which rank 1 takes no part, until it is aborted.
func splitting(comm collective.Comm, _ []string) error {
	if comm.Rank() == 1 {
		select {}
	}
	time.AfterFunc(200*time.Millisecond, func() { comm.Abort(errors.New("enough")) })
	_, err := comm.Split(disttest.Context, collective.Group{ID: 1, Ranks: []int{0, 1}})
	return err
}

// A rank that waits for the others to split is let go by an abort.
func TestAbortEndsSplit(t *testing.T) {
	p := enginetest.Spawn(t, 2, "splitting")
	start := time.Now()
	out, err := p.Wait(0)
	p.Kill(1)
	if err == nil || !strings.Contains(out, "enough") {
		t.Errorf("rank 0: %v: %s", err, out)
	}
	if took := time.Since(start); took > disttest.Bound() {
		t.Errorf("rank 0 ended after %v", took)
	}
}

// CUDA's calls may wait until the GPU is idle, and NCCL makes such calls. A message
// must not need one while a collective waits for the message's receiver.
func TestMessageBesideCollective(t *testing.T) {
	p := enginetest.Spawn(t, 2, "besides", "FAKE_SYNC=1")
	for rank := range 2 {
		if out, err := p.Wait(rank); err != nil || out != "" {
			t.Errorf("rank %d: %v: %s", rank, err, out)
		}
	}
}

// Each function of both libraries that can fail does, with each of its codes
// somewhere: the rank says what failed, breaks no rule on its way out, and ends
// in time; so do the others.
func TestEveryError(t *testing.T) {
	type fault struct {
		function string
		call     int
		code     int
		ranks    int
	}
	var faults []fault
	for i, name := range []string{"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute",
		"cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc_v2", "cuStreamCreate", "cuEventCreate", "cuMemcpyHtoDAsync_v2",
		"cuMemcpyDtoHAsync_v2", "cuEventRecord", "cuEventQuery", "cuStreamWaitEvent"} {
		faults = append(faults, fault{name, 1, []int{1, 2, 201, 719, 999}[i%5], 1})
	}
	for _, name := range []string{"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuEventRecord", "cuEventQuery", "cuMemAlloc_v2", "cuEventCreate"} {
		faults = append(faults, fault{name, 3, 719, 2})
	}
	for i, name := range []string{"ncclGetUniqueId", "ncclCommInitRankConfig", "async.ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclCommSplit",
		"ncclGroupStart", "ncclGroupEnd", "ncclAllReduce", "ncclBroadcast", "ncclReduce", "ncclAllGather", "ncclReduceScatter",
		"ncclGather", "ncclScatter", "async.ncclBroadcast", "async.ncclGather"} {
		faults = append(faults, fault{name, 1, 1 + i%6, 1}, fault{name, 1, 1 + (i+3)%6, 2})
	}
	for code := 1; code <= 6; code++ {
		faults = append(faults, fault{"ncclAllReduce", 2, code, 2}, fault{"async.ncclAllReduce", 2, code, 2}, fault{"ncclGroupEnd", 3, code, 1})
	}
	faults = append(faults, fault{"ncclSend", 1, 3, 2}, fault{"ncclRecv", 1, 3, 2}, fault{"async.ncclSend", 1, 6, 2})
	for i, f := range faults {
		if testing.Short() && i%8 != 0 {
			continue
		}
		name := fmt.Sprintf("%s %d with %d of %d", f.function, f.call, f.code, f.ranks)
		env := []string{fmt.Sprintf("FAKE_FAIL=%s:%d:%d", f.function, f.call, f.code), "NCCL_DEBUG=VERSION"}
		start := time.Now()
		p := enginetest.Spawn(t, f.ranks, "tour", env...)
		failed := 0
		for rank := range f.ranks {
			out, err := p.Wait(rank)
			if err != nil {
				failed++
			}
			if strings.Contains(out, "fake:") || strings.Contains(out, "panic") || err != nil && !strings.HasPrefix(out, "error: ") {
				t.Errorf("%s: rank %d: %v: %s", name, rank, err, out)
			}
			function := strings.TrimPrefix(strings.TrimSuffix(f.function, "_v2"), "async.")
			known := strings.Contains(out, function) || strings.HasPrefix(f.function, "async.") && strings.Contains(out, "failed:") ||
				strings.HasPrefix(f.function, "ncclGroup") && strings.Contains(out, "failed:") || f.function == "cuEventQuery" && strings.Contains(out, "the work on the GPU")
			if err != nil && f.ranks == 1 && !known {
				t.Errorf("%s: it does not say so: %s", name, out)
			}
		}
		if failed == 0 {
			t.Errorf("%s: nobody noticed", name)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
	}
}

func TestKilledRank(t *testing.T) { enginetest.Killed(t, "nccl") }

// A rank that does not come is waited for as long as Open may take.
func TestOpenWithoutAPeer(t *testing.T) {
	for rank, says := range []string{"joining NCCL", "the ranks cannot meet"} {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := New(FromEnvironment()).Open(ctx, collective.World{Rank: rank, Size: 2, LocalRank: rank, LocalSize: 2, Store: rendezvous.Memory()})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), says) {
			t.Errorf("rank %d opened alone: %v", rank, err)
		}
		if took := time.Since(start); took > disttest.Bound() {
			t.Errorf("it took %v", took)
		}
	}
	if _, err := New(FromEnvironment()).Open(context.Background(), collective.World{Size: 2, LocalSize: 2}); err == nil {
		t.Error("opened without a store")
	}
}
