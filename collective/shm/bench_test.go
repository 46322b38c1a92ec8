package shm_test

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/kernel/dtype"
)

func TestMain(m *testing.M) {
	disttest.Main(m, disttest.OpenShared, map[string]disttest.Worker{"bench": bench, "moving": moving, "endless": endless, "sum": sumOnce})
}

// bench is one rank of a benchmark: kind, bytes, repetitions, "arena" or
// "heap". It prints the nanoseconds of a call.
func bench(comm collective.Comm, args []string) error {
	bytes, _ := strconv.Atoi(args[1])
	times, _ := strconv.Atoi(args[2])
	x := collective.Of(make([]float32, bytes/4))
	if args[3] == "arena" {
		var err error
		if x, err = comm.(collective.Arena).Alloc(dtype.Float32, bytes/4); err != nil {
			return err
		}
	}
	n := comm.Size()
	big := collective.Of(make([]float32, n*bytes/4))
	even := collective.Evenly(nil, big.Count(), n)
	calls := map[string]collective.Call{
		"barrier":        collective.NewBarrier(),
		"all_reduce":     collective.NewAllReduce(x, dtype.Sum),
		"broadcast":      collective.NewBroadcast(x, 0),
		"all_gather":     collective.NewAllGather(x, big),
		"reduce_scatter": collective.NewReduceScatter(big, x, dtype.Sum),
		"all_to_all":     collective.NewAllToAll(big, collective.Of(make([]float32, n*bytes/4)), even, even),
	}
	call := calls[args[0]]
	ns, err := disttest.Timing(times, func() error {
		w, err := comm.Start(&call)
		if err != nil {
			return err
		}
		return w.Wait(disttest.Context)
	})
	fmt.Println(ns)
	return err
}

// BenchmarkProcesses measures calls among processes, the slowest rank's mean.
func BenchmarkProcesses(b *testing.B) {
	kinds := strings.Fields(cmp.Or(os.Getenv("BENCH_KINDS"), "all_reduce"))
	for _, kind := range kinds {
		for _, n := range []int{2, 4} {
			for _, bytes := range []int{4, 256, 4096, 65536, 1 << 20, 1 << 26} {
				for _, memory := range []string{"heap", "arena"} {
					if memory == "arena" && (kind != "all_reduce" || bytes < 4096) {
						continue
					}
					b.Run(fmt.Sprintf("%s/ranks=%d/bytes=%d/%s", kind, n, bytes, memory), func(b *testing.B) {
						p, _ := disttest.SpawnShared(b, n, "bench", nil, kind, strconv.Itoa(bytes), strconv.Itoa(max(b.N, 3)), memory)
						slowest := 0.0
						for rank := range n {
							out, err := p.Wait(rank)
							ns, parseErr := strconv.ParseFloat(out, 64)
							if err != nil || parseErr != nil {
								b.Fatalf("rank %d: %v: %s", rank, err, out)
							}
							slowest = max(slowest, ns)
						}
						b.ReportMetric(slowest, "ns/op")
						b.ReportMetric(float64(bytes)/slowest, "GB/s")
					})
				}
			}
		}
	}
}
