package board_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/engine/board"
)

func TestMain(m *testing.M) { disttest.Main(m, map[string]disttest.Worker{"bench": bench}) }

// bench measures an all_reduce of 4 bytes as a recipe makes it, and without
// the guard. It prints both in nanoseconds.
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
	x := []float32{1}
	measure := func(c collective.Comm) (float64, error) {
		return disttest.Timing(times, func() error {
			call := collective.NewAllReduce(collective.Of(x), collective.Sum)
			call.Pos = at(12)
			w, err := c.Start(&call)
			if err != nil {
				return err
			}
			return w.Wait(disttest.Context)
		})
	}
	with, err := measure(guarded)
	if err != nil {
		return err
	}
	without, err := measure(comm)
	if err != nil {
		return err
	}
	fmt.Println(with, without)
	return nil
}

func BenchmarkGuard(b *testing.B) {
	for _, n := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("ranks=%d", n), func(b *testing.B) {
			f, err := board.Create(n)
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			p := disttest.Spawn(b, n, "bench", []*os.File{f}, strconv.Itoa(max(b.N, 3)))
			var with, without float64
			for rank := range n {
				out, err := p.Wait(rank)
				var w, wo float64
				if _, scanErr := fmt.Sscan(out, &w, &wo); err != nil || scanErr != nil {
					b.Fatalf("rank %d: %v: %s", rank, err, out)
				}
				with, without = max(with, w), max(without, wo)
			}
			b.ReportMetric(with, "ns/op")
			b.ReportMetric(with-without, "ns-of-guard/op")
		})
	}
}
