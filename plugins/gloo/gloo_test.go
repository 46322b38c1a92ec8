//go:build gloo

package gloo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/engine/rendezvous"
	"drun/kernel/dtype"
	"drun/plugins/internal/enginetest"
)

func TestMain(m *testing.M) {
	backend := func() collective.Backend { return New(FromEnvironment()) }
	enginetest.Main(m, backend, map[string]disttest.Worker{"endless": enginetest.Endless, "timing": timing})
}

func factory(o Options) disttest.Factory {
	return enginetest.InProcess(false, func(int) collective.Backend { return New(o) })
}

var inRankOrder = enginetest.InProcess(true, func(int) collective.Backend { return New(Options{}) })

func TestConformance(t *testing.T) {
	disttest.ConformanceInAnyOrder(t, factory(Options{}))
}

func TestConformanceInRankOrder(t *testing.T) {
	enginetest.InRankOrder(t, inRankOrder)
}

// A NaN that Gloo's algorithms make has the bits of the kernels' (an x86 processor's own is negative).
func TestNaNIsTheKernels(t *testing.T) {
	disttest.RunWith(t, factory(Options{}), 2, func(t *testing.T, rank int, comm collective.Comm) {
		for _, op := range []dtype.ReduceOp{dtype.Sum, dtype.Avg, dtype.Max} {
			x := []float32{float32(math.Inf(1 - 2*rank)), math.Float32frombits(0xFFC12345)}
			y := []float64{math.Inf(1 - 2*rank), math.Float64frombits(0xFFF8000000012345)}
			if op == dtype.Max {
				x, y = x[1:], y[1:]
			}
			for _, b := range []collective.Buffer{collective.Of(x), collective.Of(y)} {
				if err := disttest.Do(comm, collective.NewAllReduce(b, op)); err != nil {
					t.Error(err)
				}
			}
			for i := range x {
				if a, b := math.Float32bits(x[i]), math.Float64bits(y[i]); a != 0x7FC00000 || b != 0x7FF8000000000000 {
					t.Errorf("%v, element %d: %x and %x", op, i, a, b)
				}
			}
		}
	})
}

// In rank order the bits are those of shm, also where rounding shows.
func TestSameBitsAsSharedMemory(t *testing.T) {
	for _, ranks := range []int{2, 3} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) { sameBits(t, ranks) })
	}
}

func sameBits(t *testing.T, ranks int) {
	type sum struct {
		dtype dtype.Type
		kind  collective.Kind
		op    dtype.ReduceOp
		n     int
	}
	var sums []sum
	for _, dt := range []dtype.Type{dtype.Float32, dtype.Float64, dtype.Float16, dtype.BFloat16, dtype.Complex64} {
		for _, op := range []dtype.ReduceOp{dtype.Sum, dtype.Avg, dtype.Product, dtype.Max} {
			for _, kind := range []collective.Kind{collective.AllReduce, collective.Reduce} {
				for _, n := range []int{100, 60_000} { // gathered, and cut into parts
					if !op.Valid(dt) {
						continue
					}
					sums = append(sums, sum{dt, kind, op, n})
				}
			}
		}
	}
	results := func(factory disttest.Factory) map[sum][]byte {
		all := map[sum][]byte{}
		disttest.RunWith(t, factory, ranks, func(t *testing.T, rank int, comm collective.Comm) {
			for _, s := range sums {
				rng := rand.New(rand.NewPCG(uint64(s.n), uint64(rank)))
				data := make([]byte, s.n*s.dtype.Size())
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
				b := collective.Buffer{DType: s.dtype, Data: data}
				out := collective.Buffer{DType: s.dtype, Data: make([]byte, len(data))}
				if err := disttest.Do(comm, collective.Call{Kind: s.kind, Reduce: s.op, Root: 1, Send: b, Recv: out}); err != nil {
					t.Error(err)
				}
				if rank == 1 {
					all[s] = out.Data
				}
			}
		})
		return all
	}
	want, got := results(disttest.InProcess), results(inRankOrder)
	for _, s := range sums {
		if len(want[s]) == 0 || !bytes.Equal(got[s], want[s]) {
			t.Errorf("%v of %d %v, %v: other bits than shm's", s.kind, s.n, s.dtype, s.op)
		}
	}
}

// Each collective is Gloo's own function, called once.
func TestEachCollectiveIsGloosOwn(t *testing.T) {
	f := func(n int) collective.Buffer { return collective.Of(make([]float32, n)) }
	disttest.RunWith(t, factory(Options{}), 3, func(t *testing.T, rank int, comm collective.Comm) {
		uneven := []int{1, 2, 3}
		own := func(c collective.Call) collective.Call { c.Counts = uneven; return c }
		for _, c := range []struct {
			want string
			call collective.Call
		}{
			{"allreduce", collective.NewAllReduce(f(5), dtype.Sum)},
			{"broadcast", collective.NewBroadcast(f(5), 1)},
			{"reduce", collective.NewReduce(f(5), f(5), dtype.Max, 2)},
			{"allgather", collective.NewAllGather(f(2), f(6))},
			{"allgatherv", own(collective.NewAllGather(f(rank+1), f(6)))},
			{"gather", collective.NewGather(f(2), f(6), 0)},
			{"gatherv", own(collective.NewGather(f(rank+1), f(6), 0))},
			{"scatter", collective.NewScatter(f(6), f(2), 0)},
			{"scatterv", own(collective.NewScatter(f(6), f(rank+1), 0))},
			{"alltoallv", collective.NewAllToAll(f(6), f(6), []int{2, 2, 2}, []int{2, 2, 2})},
			{"alltoallv", collective.NewReduceScatter(f(6), f(2), dtype.Sum)},
			{"barrier", collective.NewBarrier()},
		} {
			before := statistics(comm)
			if err := disttest.Do(comm, c.call); err != nil {
				t.Error(err)
			}
			for name, n := range statistics(comm) {
				want := before[name]
				if name == "gloo::"+c.want {
					want++
				}
				if n != want {
					t.Errorf("%v: %s was called %d times", c.call.Kind, name, n-before[name])
				}
			}
			if statistics(comm)["gloo::"+c.want] == 0 {
				t.Errorf("%v did not call %s", c.call.Kind, c.want)
			}
		}
	})
}

func statistics(comm collective.Comm) map[string]int64 {
	return comm.(interface{ Statistics() map[string]int64 }).Statistics()
}

func TestKilledRank(t *testing.T) { enginetest.Killed(t, "gloo") }

func TestOpenWithoutAPeer(t *testing.T) {
	store := rendezvous.Memory()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := New(Options{}).Open(ctx, collective.World{Rank: 0, Size: 2, LocalSize: 2, Store: store})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("opened without rank 1: %v", err)
	}
	// A peer that gave an address and went away.
	for key, value := range map[string]string{"gloo/secret": "s", "gloo/rank/0": deadAddress(t)} {
		if err := store.Set(context.Background(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel = context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err = New(Options{}).Open(ctx, collective.World{Rank: 1, Size: 2, LocalSize: 2, Store: store})
	if err == nil {
		t.Error("opened with a dead rank 0")
	} else if !strings.Contains(err.Error(), "rank 0 at") {
		t.Errorf("a dead rank 0: %v", err)
	}
	if took := time.Since(start); took > disttest.Bound() {
		t.Errorf("it took %v", took)
	}
	if _, err := New(Options{}).Open(context.Background(), collective.World{Size: 2, LocalSize: 2}); err == nil {
		t.Error("opened without a store")
	}
}

// deadAddress gives an address at which nobody listens any more.
func deadAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func TestInterfaces(t *testing.T) {
	local, apart := collective.World{Size: 2, LocalSize: 2}, collective.World{Size: 2, LocalSize: 1}
	met := apart
	met.NodeAddress = "127.0.0.9"
	for _, c := range []struct {
		option        string
		world         collective.World
		name, address string
	}{
		{"", local, "", "127.0.0.1"},
		{"lo", local, "lo", ""},
		{"lo", apart, "lo", ""},
		{"127.0.0.1", apart, "", "127.0.0.1"},
		{"", met, "", "127.0.0.9"},
		{"lo", met, "lo", ""},
		{"", apart, "", "127.0.0.1"}, // the route to MASTER_ADDR
	} {
		t.Setenv("MASTER_ADDR", "127.0.0.1")
		name, address, err := Options{Interface: c.option}.place(c.world)
		if err != nil || name != c.name || address != c.address {
			t.Errorf("%q: %q, %q, %v", c.option, name, address, err)
		}
	}
	for _, option := range []string{"nosuch0", "203.0.113.9"} {
		_, err := New(Options{Interface: option}).Open(context.Background(), collective.World{Size: 1, LocalSize: 1})
		if err == nil || !strings.Contains(err.Error(), option) {
			t.Errorf("interface %s: %v", option, err)
		}
	}
	t.Setenv("GLOO_SOCKET_IFNAME", "eth7")
	if got := FromEnvironment().Interface; got != "eth7" {
		t.Errorf("the environment's interface is %q", got)
	}
}

// timing prints microseconds per all_reduce of so many bytes.
func timing(comm collective.Comm, args []string) error {
	for _, bytes := range []int{4, 4 << 10, 64 << 10, 1 << 20, 16 << 20} {
		x := make([]float32, bytes/4)
		times := max(20, min(2000, (64<<20)/bytes))
		ns, err := disttest.Timing(times, func() error {
			return disttest.Do(comm, collective.NewAllReduce(collective.Of(x), dtype.Sum))
		})
		if err != nil {
			return err
		}
		if comm.Rank() == 0 {
			fmt.Printf("%d %.1f\n", bytes, ns/1e3)
		}
	}
	return nil
}

func TestCloseAtAnyTime(t *testing.T) { disttest.Disorder(t, factory(Options{})) }
