//go:build mpi

package mpi

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/kernel/dtype"
	"drun/plugins/client"
	"drun/plugins/host"
	"drun/plugins/internal/enginetest"
	"drun/plugins/sdk"
)

func TestMain(m *testing.M) {
	if os.Getenv("MPITEST_PLUGIN") != "" { // the test binary is the plugin
		sdk.Serve(New())
	}
	os.Exit(m.Run())
}

// asPlugin makes worlds in which each rank is a plugin's process, as in a run: a process takes part in MPI once.
func asPlugin(t *testing.T, deterministic bool) disttest.Factory {
	t.Helper()
	if _, err := program(); err != nil {
		t.Skip("Open MPI is not installed: apt-get install libopenmpi-dev openmpi-bin pkgconf")
	}
	t.Setenv("MPITEST_PLUGIN", "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return enginetest.InProcess(deterministic, func(int) collective.Backend {
		return &client.Backend{Plugin: &host.Plugin{Name: "mpi", Path: self}, Stderr: os.Stderr}
	})
}

func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("starts mpirun a hundred times")
	}
	disttest.ConformanceInAnyOrder(t, asPlugin(t, false))
}

// In rank order, sums have the bits of shm's.
func TestDeterministic(t *testing.T) {
	disttest.RunWith(t, asPlugin(t, true), 3, func(t *testing.T, rank int, comm collective.Comm) {
		x := []float32{1e8, 1, -1e8}[rank]
		data := make([]float32, 50_000)
		for i := range data {
			data[i] = x + float32(i%7)
		}
		if err := disttest.Do(comm, collective.NewAllReduce(collective.Of(data), dtype.Sum)); err != nil {
			t.Error(err)
		}
		for i, got := range data {
			v := float32(i % 7)
			if want := (float32(1e8) + v + (1 + v)) + (-1e8 + v); got != want {
				t.Errorf("element %d is %v, want %v", i, got, want)
				return
			}
		}
	})
}

// Sums of 8 bits wrap around, in which Open MPI's do not everywhere; and what is lent is given back.
func TestNothingLeftBehind(t *testing.T) {
	t.Run("world", func(t *testing.T) {
		disttest.RunWith(t, asPlugin(t, false), 3, func(t *testing.T, rank int, comm collective.Comm) {
			x := make([]uint8, 100_000)
			for i := range x {
				x[i] = 100
			}
			if err := disttest.Do(comm, collective.NewAllReduce(collective.Of(x), dtype.Sum)); err != nil {
				t.Error(err)
			}
			if x[0] != 300-256 || x[len(x)-1] != 300-256 {
				t.Errorf("100 three times is %d", x[0])
			}
		})
	})
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		out, _ := exec.Command("pgrep", "-g", "0", "-f", "mpi-places-").Output() // none: it fails
		left, _ := filepath.Glob("/dev/shm/mpi-places-*")
		var own []string
		for _, dir := range left {
			if info, err := os.Stat(dir); err == nil && info.ModTime().After(began) {
				own = append(own, dir)
			}
		}
		if len(own) == 0 && len(strings.TrimSpace(string(out))) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("left: %v %s", own, out)
		}
	}
}

var began = time.Now()

// On several machines there must be a place of mpirun's.
func TestPlaces(t *testing.T) {
	for _, c := range []struct{ env, fault string }{
		{"", "mpirun has not started this rank's drun"},
		{"PMIX_RANK=1 OMPI_COMM_WORLD_SIZE=4", ""},
		{"PMIX_RANK=1", ""},
		{"PMIX_RANK=2 OMPI_COMM_WORLD_SIZE=4", "as process 2 of 4, but it is rank 1 of 4"},
		{"PMIX_RANK=1 OMPI_COMM_WORLD_SIZE=2", "as process 1 of 2, but it is rank 1 of 4"},
		{"PMIX_RANK=1 OMPI_COMM_WORLD_SIZE=4 DRUN_RESTART_COUNT=0", ""},
		{"PMIX_RANK=1 OMPI_COMM_WORLD_SIZE=4 DRUN_RESTART_COUNT=1", "can take part only once"},
	} {
		for _, name := range []string{"PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "DRUN_RESTART_COUNT"} {
			t.Setenv(name, "")
		}
		for _, variable := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(variable, "=")
			t.Setenv(name, value)
		}
		_, err := findPlace(disttest.Context, collective.World{Rank: 1, Size: 4, LocalRank: 1, LocalSize: 2})
		if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s: %v, want %q", c.env, err, c.fault)
		}
	}
}
