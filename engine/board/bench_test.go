package board_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/engine/board"
	"drun/kernel/dtype"
)

func TestMain(m *testing.M) {
	disttest.Main(m, disttest.OpenShared, map[string]disttest.Worker{"bench": bench})
}

// benched are the calls that are measured, as a recipe makes them.
var benched = map[string]func(x []float32) collective.Call{
	"barrier":    func([]float32) collective.Call { return collective.NewBarrier() },
	"all_reduce": func(x []float32) collective.Call { return collective.NewAllReduce(collective.Of(x), dtype.Sum) },
}

// measure gives the nanoseconds of a call with the guard and without, those of
// the quickest of batches in turn: the machine may be busy with other things.
func measure(guarded, bare collective.Comm, kind string, times int) (with, without float64, err error) {
	const batches = 50
	x := []float32{1}
	var results [2][]float64
	for range batches {
		for i, comm := range []collective.Comm{guarded, bare} {
			start := time.Now()
			for range max(1, times/batches) {
				call := benched[kind](x)
				call.Pos = at(12)
				w, err := comm.Start(&call)
				if err == nil {
					err = w.Wait(disttest.Context)
				}
				if err != nil {
					return 0, 0, err
				}
			}
			results[i] = append(results[i], float64(time.Since(start))/float64(max(1, times/batches)))
		}
	}
	return slices.Min(results[0]), slices.Min(results[1]), nil
}

// bench is one rank in a process of its own.
func bench(comm collective.Comm, args []string) error {
	times, _ := strconv.Atoi(args[0])
	b, err := board.Open(os.NewFile(4, "board"), comm.Rank())
	if err != nil {
		return err
	}
	guarded, err := board.Guard(comm, b)
	if err != nil {
		return err
	}
	with, without, err := measure(guarded, comm, args[1], times)
	fmt.Println(with, without)
	return err
}

// BenchmarkGuard tells what the board costs a small call: of one rank, of two in
// this process, of two and four in processes of their own.
func BenchmarkGuard(b *testing.B) {
	for _, kind := range []string{"barrier", "all_reduce"} {
		for _, n := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/in-process=%d", kind, n), func(b *testing.B) {
				f, err := board.Create(n)
				if err != nil {
					b.Fatal(err)
				}
				defer f.Close()
				var with, without [2]float64
				disttest.Each(b, disttest.InProcess(b, n), func(rank int, comm collective.Comm) error {
					guarded, err := board.Guard(comm, open(b, f, rank))
					if err == nil {
						with[rank], without[rank], err = measure(guarded, comm, kind, b.N)
					}
					return err
				})
				report(b, max(with[0], with[1]), max(without[0], without[1]))
			})
		}
		for _, n := range []int{2, 4} {
			b.Run(fmt.Sprintf("%s/processes=%d", kind, n), func(b *testing.B) {
				f, err := board.Create(n)
				if err != nil {
					b.Fatal(err)
				}
				defer f.Close()
				p, _ := disttest.SpawnShared(b, n, "bench", []*os.File{f}, strconv.Itoa(b.N), kind)
				var with, without float64
				for rank := range n {
					out, err := p.Wait(rank)
					var w, wo float64
					if _, scanErr := fmt.Sscan(out, &w, &wo); err != nil || scanErr != nil {
						b.Fatalf("rank %d: %v: %s", rank, err, out)
					}
					with, without = max(with, w), max(without, wo)
				}
				report(b, with, without)
			})
		}
	}
}

func report(b *testing.B, with, without float64) {
	b.ReportMetric(with, "ns/op")
	b.ReportMetric(without, "ns-without-board/op")
	b.ReportMetric(with-without, "ns-of-board/op")
}
