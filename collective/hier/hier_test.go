package hier

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/collective/shm"
	"drun/engine/rendezvous"
	"drun/kernel/dtype"
)

// neighbours connects nodes that are all on this machine, through memory of their own.
type neighbours struct{}

func (neighbours) Name() string { return "neighbours" }

func (neighbours) Open(ctx context.Context, world collective.World) (collective.Comm, error) {
	f, err := shm.Rendezvous(ctx, world.Store, "neighbours", world.Rank, world.Size)
	if err != nil {
		return nil, err
	}
	return shm.Open(f, world.Rank, world.Size)
}

// placed makes worlds whose ranks are on nodes as place says.
func placed(place func(rank, size int) int, links int) disttest.Factory {
	return func(t testing.TB, n int) []collective.Comm {
		t.Helper()
		nodes := make([]int, n)
		for rank := range nodes {
			nodes[rank] = place(rank, n)
		}
		return disttest.Open(t, n, rendezvous.Memory(), false, func(int) collective.Backend {
			return &Backend{Far: neighbours{}, Nodes: nodes, Links: links}
		})
	}
}

var placements = map[string]func(rank, size int) int{
	"two nodes":      func(rank, size int) int { return 2 * rank / size },
	"pairs":          func(rank, size int) int { return rank / 2 },
	"round robin":    func(rank, size int) int { return rank % 2 },
	"one more":       func(rank, size int) int { return min(rank/2, 1) },
	"one each":       func(rank, size int) int { return rank },
	"there and back": func(rank, size int) int { return (rank + 1) / 2 % 2 },
}

func TestConformance(t *testing.T) {
	for name, place := range placements {
		if testing.Short() && name != "two nodes" {
			continue // of three ranks one has no link, of five too: it has every goroutine
		}
		t.Run(name, func(t *testing.T) { disttest.Conformance(t, placed(place, 0)) })
	}
}

// The ranks without a link have their messages passed on.
func TestConformanceWithOneLink(t *testing.T) {
	if testing.Short() {
		t.Skip("two nodes of three ranks have one link too")
	}
	disttest.Conformance(t, placed(placements["two nodes"], 1))
}

// Partial sums of half precisions go from node to node as float32, so that large ones are rounded once too.
func TestHalvesAreRoundedOnce(t *testing.T) {
	const n = 100_000
	for name, c := range map[string]struct {
		dtype       dtype.Type
		high, one   uint16
		highAndTwo  uint16
		inTheirType string
	}{
		"float16":  {dtype.Float16, 0x6800, 0x3C00, 0x6801, "2048 + 1 + 1 = 2048"},
		"bfloat16": {dtype.BFloat16, 0x4380, 0x3F80, 0x4381, "256 + 1 + 1 = 256"},
	} {
		for _, where := range []string{"two nodes", "one each"} {
			t.Run(name+" "+where, func(t *testing.T) {
				disttest.RunWith(t, placed(placements[where], 0), 3, func(t *testing.T, rank int, comm collective.Comm) {
					value := c.one
					if rank == 0 {
						value = c.high
					}
					x := collective.Buffer{DType: c.dtype, Data: bytes.Repeat(binary.LittleEndian.AppendUint16(nil, value), n)}
					if err := disttest.Do(comm, collective.NewAllReduce(x, dtype.Sum)); err != nil {
						t.Errorf("rank %d: %v", rank, err)
					} else if want := bytes.Repeat(binary.LittleEndian.AppendUint16(nil, c.highAndTwo), n); !bytes.Equal(x.Data, want) {
						t.Errorf("rank %d: %x..., want %x...; in their own type %s", rank, x.Data[:2], want[:2], c.inTheirType)
					}
				})
			})
		}
	}
}

// A reduction in parts uses the memory of one piece for the next, and keeps no more.
func TestPartsShareMemory(t *testing.T) {
	disttest.RunWith(t, placed(placements["round robin"], 0), 4, func(t *testing.T, rank int, comm collective.Comm) {
		numbers := make([]int64, 3<<19)
		for i := range numbers {
			numbers[i] = int64(rank + i)
		}
		if err := disttest.Do(comm, collective.NewAllReduce(collective.Of(numbers), dtype.Avg)); err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
		for i, n := range numbers {
			if n != int64(1+i) {
				t.Fatalf("rank %d: the average of element %d is %d", rank, i, n)
			}
		}
		held := 0
		for class, free := range comm.(*Comm).w.pool.free {
			held += len(free) << class
		}
		if held > 12<<20 {
			t.Errorf("rank %d keeps %d MiB after a reduction of 12 MiB", rank, held>>20)
		}
	})
}

func TestLayout(t *testing.T) {
	for _, c := range []struct {
		nodes       []int
		most, links int
		members     [][]int
	}{
		{[]int{0, 0, 1, 1}, 0, 2, [][]int{{0, 1}, {2, 3}}},
		{[]int{7, 3, 7, 3, 7}, 0, 2, [][]int{{0, 2, 4}, {1, 3}}},
		{[]int{0, 0, 0, 1}, 0, 1, [][]int{{0, 1, 2}, {3}}},
		{slices.Repeat([]int{0, 1}, 16), 0, MostLinks, nil},
		{slices.Repeat([]int{0, 1}, 16), 3, 3, nil},
	} {
		l := newLayout(c.nodes, c.most)
		if l.links != c.links || c.members != nil && fmt.Sprint(l.members) != fmt.Sprint(c.members) {
			t.Errorf("%v: %d links, members %v", c.nodes, l.links, l.members)
		}
	}
}

// Wherever the ranks that disagree are, all get to know, and soon.
func TestDisagreement(t *testing.T) {
	x := func(n int) collective.Buffer { return collective.Of(make([]float32, n)) }
	usual := func() collective.Call { return collective.NewAllReduce(x(1000), dtype.Sum) }
	for name, other := range map[string]collective.Call{
		"operation": collective.NewAllReduce(x(1000), dtype.Max),
		"size":      collective.NewAllReduce(x(1001), dtype.Sum),
		"large":     collective.NewAllReduce(x(100_000), dtype.Sum),
		"kind":      collective.NewBroadcast(x(1000), 1),
		"barrier":   collective.NewBarrier(),
	} {
		for _, odd := range [][]int{{2}, {0}, {2, 3}, {1, 3}} {
			t.Run(fmt.Sprint(name, odd), func(t *testing.T) {
				comms := placed(placements["two nodes"], 0)(t, 4)
				var all sync.WaitGroup
				for rank, comm := range comms {
					all.Go(func() {
						call := usual()
						if slices.Contains(odd, rank) {
							call = other
						}
						began := time.Now()
						if err := disttest.Do(comm, call); !errors.Is(err, collective.ErrFingerprint) {
							t.Errorf("rank %d: %v", rank, err)
						}
						if took := time.Since(began); took > 5*disttest.Bound() {
							t.Errorf("rank %d knew after %v", rank, took)
						}
					})
				}
				all.Wait()
			})
		}
	}
}

// The backend between the nodes counts nodes; errors name the ranks of the run.
func TestErrorsNameRanksOfTheWorld(t *testing.T) {
	w := &world{layout: newLayout([]int{0, 0, 1, 1}, 0), rank: 1}
	for said, want := range map[string]string{
		"joining as rank 1 of 2 failed":       "joining as rank 3 failed",
		"rank 0 at 10.0.0.1: reset by rank 1": "rank 1 at 10.0.0.1: reset by rank 3",
		"rank 7 is none":                      "rank 7 is none",
	} {
		var got *collective.BackendError
		if err := w.explain(&collective.BackendError{Backend: "x", Rank: 0, Msg: said}); !errors.As(err, &got) || got.Rank != 1 || got.Msg != want {
			t.Errorf("%q: %v", said, err)
		}
	}
}

// A message that is on its way when its sender closes still arrives, on its own node and on another.
func TestCloseSendsWhatIsLeft(t *testing.T) {
	for _, to := range []int{1, 2, 3} {
		comms := placed(placements["two nodes"], 0)(t, 4)
		data := bytes.Repeat([]byte{7}, 8<<20)
		send := collective.NewSend(collective.Of(slices.Clone(data)), to, 0)
		send.Async = true
		if _, err := comms[0].Start(&send); err != nil {
			t.Fatal(err)
		}
		got, closing := make([]byte, len(data)), make(chan struct{})
		received := make(chan error, 1)
		go func() {
			<-closing
			received <- disttest.Do(comms[to], collective.NewRecv(collective.Of(got), 0, 0))
		}()
		close(closing)
		if err := comms[0].Close(); err != nil {
			t.Errorf("to rank %d: close: %v", to, err)
		}
		select {
		case err := <-received:
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("to rank %d: %v", to, err)
			}
		case <-time.After(2 * disttest.Bound()):
			t.Fatalf("to rank %d: it does not arrive", to)
		}
	}
}
