package distributed_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"drun/collective/disttest"
	"drun/starlib"
)

// Whatever number stands where a builtin takes one, it gives a value, or an error
// with the recipe's line: no panic, and no wait without an end.
func TestExtremeNumbers(t *testing.T) {
	if testing.Short() {
		t.Skip("it tries arguments, one after the other")
	}
	integers := []string{"-(1 << 70)", "-(1 << 63)", "-(1 << 62)", "-(1 << 31)", "-5", "-1", "0", "1", "2", "3", "4", "1 << 31", "1 << 32",
		"1 << 61", "1 << 62", "3 << 61", "(1 << 63) - 1", "1 << 63", "1 << 70", `int("1" + "0" * 400)`}
	times := append([]string{`float("nan")`, `float("inf")`, `float("-inf")`, "-0.0", "1e-300", "1e9", "1e300"}, integers...)
	calls := []string{
		`broadcast(t, N)`, `broadcast("x", N)`, `reduce(t, N)`, `gather(t, N)`, `gather("x", N)`, `scatter(None, N)`,
		`scatter([1] * n if dist.rank() == N else None, N)`, `broadcast_tensors([t], N)`,
		`all_to_all(t, [N] * n, [N] * n)`, `all_to_all(t, [N] + [0] * (n - 1), [4] + [0] * (n - 1))`, `all_to_all(t, [2] * n, [N, 4 - N][:n])`,
		`all_to_all(empty, [N] * n, [0] * n)`,
		`isend(1, N)`, `isend(1, 1 - dist.rank(), tag = N)`, `irecv(N)`, `irecv(1 - dist.rank(), tag = N)`,
		`new_group([N])`, `new_group([0, N])`, `new_subgroups(N)`, `init_parallelism(N)`, `init_parallelism(1, N)`, `init_parallelism(N, N)`, `init_parallelism(rank_offset = N)`,
		`init_parallelism(N, 4)`, `shard(t, N)`, `shard(empty, N)`,
		`all_reduce(N)`, `all_reduce(N, "product")`, `all_reduce(N, "avg")`, `all_reduce(N, "bxor")`, `reduce(N, 0)`, `reduce(N, 0, "max")`,
		`average_metrics({"a": 1.0}, N)`, `average_metrics({"a": N}, 2)`, `reduce_dict({"a": N})`, `reduce_dict({"a": N}, average = False)`,
	}
	timed := []string{
		`barrier(timeout = N)`, `all_reduce(t, timeout = N)`, `all_reduce(1, async_op = True, timeout = N).wait()`, `all_gather("x", timeout = N)`,
		`broadcast_tensors([t], timeout = N)`, `new_group([0], timeout = N)`, `shared_random_seed(timeout = N)`, `master_first(lambda: 1, timeout = N)`,
		`irecv(1 - dist.rank(), timeout = N)`, `isend(1, 1 - dist.rank(), timeout = N)`, `copy_to_group(t, timeout = N)`, `ddp(nn.linear(2, 2), timeout = N)`,
	}
	try := func(call, number string, size int) {
		errs := make([]error, size)
		var wg sync.WaitGroup
		for rank, comm := range disttest.InProcess(t, size) {
			wg.Go(func() {
				place := &starlib.Rank{Rank: rank, WorldSize: size, LocalRank: rank, LocalSize: size, NumNodes: 1}
				source := fmt.Sprintf("def main():\n    t, empty, n = tensor.ones(4, 2), tensor.ones(0, 3), dist.world_size()\n    N = %s\n    dist.%s\n", number, call)
				if errs[rank] = execute(place, comm, source); errs[rank] != nil {
					comm.Abort(errs[rank])
				}
			})
		}
		ended := make(chan struct{})
		go func() { wg.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(disttest.Limit):
			t.Fatalf("%s, N = %s, %d ranks: no end", call, number, size)
		}
		for rank, err := range errs {
			if err != nil && (strings.Contains(err.Error(), "internal error") || !strings.Contains(err.Error(), "test.star:4:")) {
				t.Errorf("%s, N = %s, rank %d of %d: %v", call, number, rank, size, err)
			}
		}
	}
	for _, size := range []int{2, 4} {
		for _, call := range calls {
			for _, number := range integers {
				try(call, number, size)
			}
		}
		for _, call := range timed {
			for _, number := range times {
				try(call, number, size)
			}
		}
	}
}
