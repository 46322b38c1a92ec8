//go:build mpi

package mpi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"drun/collective"
	"drun/internal/try"
)

// A place is what makes a process part of MPI: environment variables set by mpirun, by which it finds mpirun's daemon.
type place []string

// own reports whether a variable belongs to a place.
func own(variable string) bool {
	return strings.HasPrefix(variable, "OMPI_") || strings.HasPrefix(variable, "PMIX_")
}

// findPlace gives this process the place of its rank: one lent by rank 0 if the world is on this machine, else the one in
// which mpirun started drun. stop ends the lending.
func findPlace(ctx context.Context, world collective.World) (stop func(), err error) {
	if world.LocalSize == world.Size {
		return borrow(ctx, world)
	}
	nothing := func() {}
	rank := os.Getenv("PMIX_RANK")
	hint := "over several machines have Open MPI's mpirun start drun, one process a rank (mpirun -n 4 --host a,b drun run RECIPE.star --backend mpi)"
	switch size := os.Getenv("OMPI_COMM_WORLD_SIZE"); {
	case rank == "":
		return nothing, errors.New("mpirun has not started this rank's drun: " + hint)
	case rank != strconv.Itoa(world.Rank), size != "" && size != strconv.Itoa(world.Size):
		return nothing, fmt.Errorf("mpirun started this rank's drun as process %s of %s, but it is rank %d of %d: %s", rank, size, world.Rank, world.Size, hint)
	case os.Getenv("DRUN_RESTART_COUNT") != "" && os.Getenv("DRUN_RESTART_COUNT") != "0":
		return nothing, errors.New("over several machines MPI's processes can take part only once, so that ranks cannot start again: begin the run anew, with --resume auto")
	}
	return nothing, nil
}

// lendLimit is how long mpirun may take to start, even on a busy machine.
const lendLimit = 2 * time.Minute

// borrow takes a place from an mpirun that rank 0 starts: its processes take no part in MPI, but write down their
// places and wait. mpirun's daemon only checks how many processes take part, not which.
func borrow(ctx context.Context, world collective.World) (stop func(), err error) {
	defer try.Caught(&err)
	key := func(rank int) string { return fmt.Sprintf("mpi/place/%d", rank) }
	stop = func() {}
	if world.Rank == 0 {
		var places []place
		if places, stop, err = lend(ctx, world.Size); err != nil {
			places = make([]place, world.Size)
		}
		for rank, p := range places {
			value := []byte(strings.Join(p, "\x00"))
			if err != nil {
				value = []byte("!" + err.Error())
			}
			if world.Store != nil {
				try.Ok(world.Store.Set(ctx, key(rank), value))
			} else if rank == 0 && err == nil {
				return stop, p.take()
			}
		}
		if err != nil {
			return stop, err
		}
	}
	value := try.To(world.Store.Get(ctx, key(world.Rank)))
	if why, failed := strings.CutPrefix(string(value), "!"); failed {
		return stop, fmt.Errorf("rank 0 says that %s", why)
	}
	return stop, place(strings.Split(string(value), "\x00")).take()
}

// take puts the place into this process's environment.
func (p place) take() (err error) {
	defer try.Caught(&err)
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); own(name) && !strings.HasPrefix(name, "OMPI_MCA_") {
			try.Ok(os.Unsetenv(name))
		}
	}
	for _, variable := range p {
		name, value, _ := strings.Cut(variable, "=")
		try.Ok(os.Setenv(name, value))
	}
	return nil
}

// program finds Open MPI's mpirun; another MPI may have one too.
func program() (string, error) {
	for _, name := range []string{"mpirun.openmpi", "mpirun"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if out, err := exec.Command(path, "--version").Output(); err == nil && (bytes.Contains(out, []byte("Open MPI")) || bytes.Contains(out, []byte("OpenRTE"))) {
			return path, nil
		}
	}
	return "", errors.New("Open MPI's mpirun is not in $PATH (Debian, Ubuntu: apt-get install openmpi-bin)")
}

// lender writes down its place and its process ID. It ends when it is killed or, if nobody is left to do that, soon
// after the plugin; then it also removes what mpirun has made.
const lender = `{ env -0; echo "pid=$$"; } >"$0/$PMIX_RANK.new" && mv "$0/$PMIX_RANK.new" "$0/$PMIX_RANK"
while kill -0 "$1" 2>/dev/null; do sleep 1; done
rm -rf "$0"`

// lend starts mpirun with n processes on this machine and returns their places. stop ends them; so does the end of
// this process.
func lend(ctx context.Context, n int) (places []place, stop func(), err error) {
	stop = func() {}
	path, err := program()
	if err != nil {
		return nil, stop, err
	}
	// All of MPI's files lie in one folder, in memory if possible, since ranks share some of them. Its name differs from
	// those of drun's own shared memory, which never persists.
	dir, err := os.MkdirTemp("/dev/shm", "mpi-places-")
	if err != nil {
		dir, err = os.MkdirTemp("", "mpi-places-")
	}
	if err != nil {
		return nil, stop, err
	}
	var said bytes.Buffer
	cmd := exec.Command(path, "--oversubscribe", "--bind-to", "none", "--host", fmt.Sprintf("localhost:%d", n), "-n", strconv.Itoa(n),
		"--mca", "plm", "isolated", "sh", "-c", lender, dir, strconv.Itoa(os.Getpid()))
	cmd.Stdout, cmd.Stderr = &said, &said
	// Processes of one machine need no network.
	cmd.Env = []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_oob_tcp_if_include=lo", "OMPI_MCA_pml=ob1", "OMPI_MCA_btl=vader,self",
		"OMPI_MCA_orte_tmpdir_base=" + dir, "OMPI_MCA_btl_vader_backing_directory=" + dir}
	if n > runtime.NumCPU() {
		// MPI's own waits, as when it makes a communicator, must not take the core from the ranks that it waits for. mpirun
		// cannot see that cores are scarce, since it is told that there are enough places.
		cmd.Env = append(cmd.Env, "OMPI_MCA_mpi_yield_when_idle=1")
	}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if !own(name) && !strings.HasPrefix(name, "PMI_") && !strings.HasPrefix(name, "SLURM_") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, stop, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its status says nothing: it is told to end
		close(ended)
	}()
	var lenders []int
	stop = func() { // mpirun itself would take seconds to end
		_ = cmd.Process.Kill() // it may have ended
		_ = os.RemoveAll(dir)  // nobody needs it; if this process is killed meanwhile, the lenders do it
		for _, pid := range lenders {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		<-ended
	}
	ctx, cancel := context.WithTimeout(ctx, lendLimit)
	defer cancel()
	for rank := range n {
		var text []byte
		for {
			if text, err = os.ReadFile(filepath.Join(dir, strconv.Itoa(rank))); err == nil {
				break
			}
			select {
			case <-ended:
				stop()
				return nil, func() {}, fmt.Errorf("%s ended: %s", path, bytes.TrimSpace(said.Bytes()))
			case <-ctx.Done():
				stop()
				return nil, func() {}, fmt.Errorf("%s did not start %d processes within %v", path, n, lendLimit)
			case <-time.After(5 * time.Millisecond):
			}
		}
		var p place
		for _, variable := range strings.Split(string(text), "\x00") {
			if number, ok := strings.CutPrefix(variable, "pid="); ok {
				pid, err := strconv.Atoi(strings.TrimSpace(number))
				if err != nil {
					return nil, stop, err
				}
				lenders = append(lenders, pid)
			}
			if own(variable) {
				p = append(p, variable)
			}
		}
		places = append(places, p)
	}
	return places, stop, nil
}
