package nccl

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/kernel/dtype"
)

// Each collective is NCCL's own of that name where it has one; docs/backends.md
// has this table too.
func TestCallsOfEachCollective(t *testing.T) {
	f := func(n int) collective.Buffer { return collective.Of(make([]float32, n)) }
	half := func(n int) collective.Buffer {
		return collective.Buffer{DType: dtype.BFloat16, Data: make([]byte, 2*n)}
	}
	const native = 1 << 10 // more than is gathered by all
	disttest.RunWith(t, inProcess(false), 3, func(t *testing.T, rank int, comm collective.Comm) {
		own := func(c collective.Call) collective.Call { c.Counts = []int{1, 2, 3}; return c }
		root := func(at, root, others int) int {
			if rank == at {
				return root
			}
			return others
		}
		type calls = map[string]int
		for _, c := range []struct {
			what string
			call collective.Call
			want calls
		}{
			{"barrier", collective.NewBarrier(), calls{"ncclAllReduce": 1}},
			{"sum", collective.NewAllReduce(f(5), dtype.Sum), calls{"ncclAllReduce": 1}},
			{"average", collective.NewAllReduce(f(5), dtype.Avg), calls{"ncclAllReduce": 1}},
			{"maximum of floats", collective.NewAllReduce(f(5), dtype.Max), calls{"ncclAllGather": 1}},
			{"large maximum of floats", collective.NewAllReduce(f(50*native), dtype.Max), calls{"ncclSend": 2, "ncclRecv": 2, "ncclBroadcast": 3}},
			{"half", collective.NewAllReduce(half(5), dtype.Sum), calls{"ncclAllGather": 1}},
			{"broadcast", collective.NewBroadcast(f(5), 1), calls{"ncclBroadcast": 1}},
			{"reduce", collective.NewReduce(f(5), f(5), dtype.Sum, 2), calls{"ncclReduce": 1, "ncclBroadcast": 1}},
			{"all_gather", collective.NewAllGather(f(2), f(6)), calls{"ncclAllGather": 1}},
			{"uneven all_gather", own(collective.NewAllGather(f(rank+1), f(6))), calls{"ncclBroadcast": 3}},
			{"gather", collective.NewGather(f(2), f(6), 0), calls{"ncclGather": 1, "ncclBroadcast": 1}},
			{"uneven gather", own(collective.NewGather(f(rank+1), f(6), 0)), calls{"ncclSend": root(0, 0, 1), "ncclRecv": root(0, 2, 0), "ncclBroadcast": 1}},
			{"scatter", collective.NewScatter(f(6), f(2), 0), calls{"ncclScatter": 1}},
			{"uneven scatter", own(collective.NewScatter(f(6), f(rank+1), 0)), calls{"ncclSend": root(0, 2, 0), "ncclRecv": root(0, 0, 1), "ncclBroadcast": 1}},
			{"all_to_all", collective.NewAllToAll(f(6), f(6), []int{2, 2, 2}, []int{2, 2, 2}), calls{"ncclSend": 2, "ncclRecv": 2}},
			{"reduce_scatter", collective.NewReduceScatter(f(6), f(2), dtype.Sum), calls{"ncclReduceScatter": 1}},
			{"uneven reduce_scatter", own(collective.NewReduceScatter(f(6), f(rank+1), dtype.Sum)), calls{"ncclReduce": 3}},
			{"reduce_scatter of a maximum", collective.NewReduceScatter(f(6), f(2), dtype.Max), calls{"ncclSend": 2, "ncclRecv": 2}},
		} {
			before := statistics(comm)
			if err := disttest.Do(comm, c.call); err != nil {
				t.Error(err)
			}
			got := calls{}
			for name, n := range statistics(comm) {
				if n -= before[name]; n > 0 && strings.HasPrefix(name, "nccl") {
					got[name] = int(n)
				}
			}
			maps.DeleteFunc(c.want, func(_ string, n int) bool { return n == 0 })
			if !maps.Equal(got, c.want) {
				t.Errorf("%s on rank %d: %v, not %v", c.what, rank, got, c.want)
			}
		}
	})
}

// Older libraries lack functions and know less of a communicator's
// configuration. A process loads one, so each is tried in a process of its own.
func TestOlderLibraries(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs the suite three times")
	}
	long := os.Getenv("DRUN_TEST_LONG") != ""
	for name, parts := range map[string]string{
		"nccl-2.29": "messages|groups",             // it knows less of a configuration
		"nccl-2.18": "collectives|numbers",         // it lacks functions
		"nccl-2.14": "collectives|messages|groups", // and ncclCommSplit
	} {
		args := []string{"-test.run=^TestConformance$/^(" + parts + ")$|^TestGroupsAreSplit$", "-test.count=1", "-test.short"}
		if long {
			args = []string{"-test.run=^TestConformance$|^TestGroupsAreSplit$", "-test.count=1"}
		}
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), "NCCLTEST_BUILT=1", "DRUN_NCCL_LIB="+filepath.Join(filepath.Dir(os.Getenv("DRUN_NCCL_LIB")), name))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// Groups come from ncclCommSplit, in which all ranks take part, or where that is
// missing from a meeting of their own.
func TestGroupsAreSplit(t *testing.T) {
	want := int64(1)
	if filepath.Base(os.Getenv("DRUN_NCCL_LIB")) == "nccl-2.14" {
		want = 0
	}
	disttest.RunWith(t, inProcess(false), 3, func(t *testing.T, rank int, comm collective.Comm) {
		if _, err := comm.Split(disttest.Context, collective.Group{ID: 4, Ranks: []int{2, 1}}); err != nil {
			t.Error(err)
		}
		if got := statistics(comm)["ncclCommSplit"]; got != want {
			t.Errorf("rank %d has split %d times, not %d", rank, got, want)
		}
	})
}
