package shm_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/collective/shm"
	"drun/kernel/dtype"
)

// endless reduces until it fails.
func endless(comm collective.Comm, args []string) error {
	small, large := make([]float32, 1), make([]float32, 1<<20)
	for {
		for _, x := range [][]float32{small, large} {
			if err := disttest.Do(comm, collective.NewAllReduce(collective.Of(x), dtype.Max)); err != nil {
				return err
			}
		}
	}
}

func sumOnce(comm collective.Comm, args []string) error {
	x := []float32{float32(comm.Rank() + 1)}
	err := disttest.Do(comm, collective.NewAllReduce(collective.Of(x), dtype.Sum))
	fmt.Println(x[0])
	return err
}

func TestProcesses(t *testing.T) {
	p, _ := disttest.SpawnShared(t, 4, "sum", nil)
	for rank := range 4 {
		if out, err := p.Wait(rank); err != nil || out != "10" {
			t.Errorf("rank %d: %v: %s", rank, err, out)
		}
	}
}

func TestKilledRank(t *testing.T) {
	const n = 3
	p, shared := disttest.SpawnShared(t, n, "endless", nil)
	agent, err := shm.Open(disttest.Dup(t, shared), 0, n)
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	time.Sleep(100 * time.Millisecond)
	p.Kill(1)
	if _, err := p.Wait(1); !killed(err) {
		t.Errorf("rank 1 ended with %v", err)
	}
	start := time.Now()
	agent.Abort(errors.New("rank 1 was killed"))
	for _, rank := range []int{0, 2} {
		if out, err := p.Wait(rank); err == nil || !strings.Contains(out, "aborted") {
			t.Errorf("rank %d ended with %v: %s", rank, err, out)
		}
	}
	if took := time.Since(start); took > disttest.Bound() {
		t.Errorf("the survivors ended after %v", took)
	}
	if left, _ := filepath.Glob("/dev/shm/*drun*"); len(left) > 0 {
		t.Errorf("left in /dev/shm: %v", left)
	}
}

func killed(err error) bool {
	type status interface{ Sys() any }
	s, ok := err.(status)
	return ok && s.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
}

func TestResidentSize(t *testing.T) {
	const n = 16
	comms := disttest.InProcess(t, n)
	before := resident(t)
	done := make(chan error)
	for _, c := range comms {
		go func() {
			done <- disttest.Do(c, collective.NewAllReduce(collective.Of(make([]float32, 64)), dtype.Sum))
		}()
	}
	for range comms {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if grown := resident(t) - before; grown > 8<<20 {
		t.Errorf("a small call made %d KiB of shared memory resident", grown>>10)
	}
}

// resident is how much shared memory this process has touched, in bytes.
func resident(t *testing.T) int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var kib int
		if n, _ := fmt.Sscanf(line, "RssShmem: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	t.Fatal("no RssShmem")
	return 0
}

func TestBadRegions(t *testing.T) {
	for _, n := range []int{0, -1, 5000} {
		if _, err := shm.Create(n); err == nil {
			t.Errorf("a world of %d ranks was made", n)
		}
	}
	f, err := shm.Create(2)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, world := range [][2]int{{2, 2}, {-1, 2}, {0, 3}} {
		if _, err := shm.Open(f, world[0], world[1]); err == nil {
			t.Errorf("opened as rank %d of %d", world[0], world[1])
		}
	}
	other, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := shm.Open(other, 0, 2); err == nil {
		t.Error("opened an ordinary file as shared memory")
	}
}
