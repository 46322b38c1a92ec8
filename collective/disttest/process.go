package disttest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/shm"
)

// A Worker is what one rank does in a process of its own. What it prints
// comes back to the test; an error is printed too, and its exit code is 1.
type Worker func(comm collective.Comm, args []string) error

// Main runs a package's tests, or, in a process that [Spawn] started, the
// worker that it asked for. Call it from TestMain.
func Main(m *testing.M, workers map[string]Worker) {
	name, rank, size := os.Getenv("DISTTEST_WORKER"), os.Getenv("RANK"), os.Getenv("WORLD_SIZE")
	if name == "" {
		os.Exit(m.Run())
	}
	if err := work(workers[name], rank, size); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func work(worker Worker, rank, size string) error {
	r, err := strconv.Atoi(rank)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	comm, err := shm.Open(os.NewFile(3, "shm"), r, n)
	if err != nil {
		return err
	}
	if err := worker(comm, os.Args[1:]); err != nil {
		return err
	}
	return comm.Close()
}

// Processes are the ranks of a world, each a process.
type Processes struct {
	Shared *os.File // the shared memory, as the agent of a run holds it
	ranks  []*exec.Cmd
	output []*bytes.Buffer
}

// Spawn starts n processes of this test binary that run a worker given to
// [Main]. They inherit files as descriptors 4 and up, after the shared memory,
// and are killed when the test ends.
func Spawn(t testing.TB, n int, worker string, files []*os.File, args ...string) *Processes {
	t.Helper()
	shared, err := shm.Create(n)
	if err != nil {
		t.Fatal(err)
	}
	p := &Processes{Shared: shared}
	for rank := range n {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), "DISTTEST_WORKER="+worker, fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("WORLD_SIZE=%d", n))
		cmd.ExtraFiles = append([]*os.File{shared}, files...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out := new(bytes.Buffer)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p.ranks, p.output = append(p.ranks, cmd), append(p.output, out)
	}
	t.Cleanup(func() {
		for rank := range p.ranks {
			p.Kill(rank)
			_ = p.ranks[rank].Wait()
		}
		_ = shared.Close()
	})
	return p
}

// Kill sends SIGKILL to a rank.
func (p *Processes) Kill(rank int) { _ = p.ranks[rank].Process.Kill() }

// Wait waits for a rank to end, and gives what it printed and its status. It
// kills a rank that has not ended within [Limit].
func (p *Processes) Wait(rank int) (output string, err error) {
	timer := time.AfterFunc(Limit, func() { p.Kill(rank) })
	defer timer.Stop()
	err = p.ranks[rank].Wait()
	return strings.TrimSpace(p.output[rank].String()), err
}

// Timing repeats call in ten batches of times/10, after one batch to warm up,
// and gives the median batch's nanoseconds per call: the machine may be busy
// with other things for a while.
func Timing(times int, call func() error) (float64, error) {
	batch := max(1, times/10)
	var batches []float64
	for i := range 11 {
		start := time.Now()
		for range batch {
			if err := call(); err != nil {
				return 0, err
			}
		}
		if i > 0 {
			batches = append(batches, float64(time.Since(start))/float64(batch))
		}
	}
	slices.Sort(batches)
	return batches[len(batches)/2], nil
}
