package nccl

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/kernel/dtype"
	"drun/plugins/internal/enginetest"
)

const arenaBytes = 64 << 20

// arena maps memory as drun's is for plugins: the calls' buffers are in it.
func arena() ([]byte, error) {
	return syscall.Mmap(-1, 0, arenaBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_ANONYMOUS)
}

// inArenas makes worlds in this process whose ranks have an arena each.
func inArenas(t *testing.T, ranks int, o Options) (disttest.Factory, [][]byte) {
	arenas := make([][]byte, ranks)
	for i := range arenas {
		mem, err := arena()
		if err != nil {
			t.Fatal(err)
		}
		arenas[i] = mem
	}
	return enginetest.InProcess(false, func(rank int) collective.Backend {
		b := New(o)
		b.Map(arenas[rank])
		return b
	}), arenas
}

func statistics(comm collective.Comm) map[string]int64 {
	return comm.(interface{ Statistics() map[string]int64 }).Statistics()
}

// sum reduces n floats from some odd place of the arena, and checks the result.
func sum(comm collective.Comm, mem []byte, n int) error {
	data := mem[3<<20+64:][:4*n]
	x := collective.Slice[float32](collective.Buffer{DType: dtype.Float32, Data: data})
	for i := range x {
		x[i] = float32(i%1000 + comm.Rank())
	}
	if err := disttest.Do(comm, collective.NewAllReduce(collective.Of(x), dtype.Sum)); err != nil {
		return err
	}
	ranks := comm.Size()
	for i := range x {
		if want := float32(ranks*(i%1000) + ranks*(ranks-1)/2); x[i] != want {
			return fmt.Errorf("[%d] is %v, not %v", i, x[i], want)
		}
	}
	return nil
}

// Tensors in the arena are copied to the GPU and back without a copy between,
// in rounds; with zero copy NCCL gets them as they are.
func TestArenaByDMA(t *testing.T) {
	const n = 10<<20/4 + 7
	for _, zeroCopy := range []bool{false, true} {
		o := FromEnvironment()
		o.ZeroCopy = zeroCopy
		factory, arenas := inArenas(t, 2, o)
		want := map[string]int64{"bytes by DMA": 2 * 4 * n, "ncclAllReduce": 2}
		if zeroCopy {
			want = map[string]int64{"ncclAllReduce": 1}
		}
		disttest.RunWith(t, factory, 2, func(t *testing.T, rank int, comm collective.Comm) {
			if err := sum(comm, arenas[rank], n); err != nil {
				t.Error(err)
			}
			got := statistics(comm)
			for _, name := range []string{"bytes by DMA", "bytes through a buffer", "ncclAllReduce"} {
				if got[name] != want[name] {
					t.Errorf("zero copy %v: %s: %d, not %d", zeroCopy, name, got[name], want[name])
				}
			}
		})
	}
}

func init() { workers["sum"] = sumAlone }

// sumAlone reduces a tensor of an arena of its own; its world's is not used.
func sumAlone(collective.Comm, []string) error {
	mem, err := arena()
	if err != nil {
		return err
	}
	b := New(FromEnvironment())
	b.Map(mem)
	comm, err := b.Open(disttest.Context, collective.World{Size: 1, LocalSize: 1})
	if err != nil {
		return err
	}
	if err := sum(comm, mem, 10<<20/4+7); err != nil {
		return err
	}
	counts := statistics(comm)
	fmt.Println("by DMA:", counts["bytes by DMA"], "through a buffer:", counts["bytes through a buffer"])
	return comm.Close()
}

// Where host memory cannot be locked, or not more of it, results are the same.
func TestMemoryThatCannotBeLocked(t *testing.T) {
	const all = 2 * (10<<20 + 28)
	for _, c := range []struct{ fail, says string }{
		{"cuMemHostRegister_v2:1:2", fmt.Sprint("by DMA: 0 through a buffer: ", all)},
		{"cuMemHostRegister_v2:1:712", fmt.Sprint("by DMA: 0 through a buffer: ", all)},
		{"cuMemHostAlloc:1:2,cuMemHostAlloc:2:2,cuMemHostAlloc:3:2,cuMemHostAlloc:4:2,cuMemHostRegister_v2:1:2", fmt.Sprint("by DMA: 0 through a buffer: ", all)},
		{"cuMemHostAlloc:3:2,cuMemHostAlloc:4:2", fmt.Sprint("by DMA: ", all, " through a buffer: 0")},
	} {
		out, err := enginetest.Spawn(t, 1, "sum", "FAKE_FAIL="+c.fail, given(t)).Wait(0)
		if err != nil || !strings.Contains(out, c.says) || strings.Contains(out, "fake:") {
			t.Errorf("%s: %v: %s", c.fail, err, out)
		}
		if registering := strings.Contains(c.fail, "Register"); registering != strings.Contains(out, "cannot be locked for DMA") {
			t.Errorf("%s: it says %s", c.fail, out)
		}
	}
}
