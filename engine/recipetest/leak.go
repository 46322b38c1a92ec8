package recipetest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// state is what must be the same before and after a run.
type state struct {
	files  int // open files of this process
	shared map[string]bool
}

func snapshot(t *testing.T) state {
	t.Helper()
	s := state{shared: map[string]bool{}}
	for _, name := range list(t, "/dev/shm") {
		s.shared[name] = true
	}
	s.files = len(list(t, "/proc/self/fd"))
	return s
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// left lists the processes of a run that still exist.
func left(pids []int) (problems []string) {
	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil {
			problems = append(problems, fmt.Sprintf("process %d is left", pid))
		}
	}
	return problems
}

// leaks lists what runs that have all ended left behind: processes, shared memory (which has no name, only
// mappings), files and sockets.
func (s state) leaks(t *testing.T) (problems []string) {
	t.Helper()
	for _, pid := range children(t) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil {
			problems = append(problems, fmt.Sprintf("process %d is left: %q", pid, line))
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "memfd:drun") {
			problems = append(problems, "shared memory is still mapped: "+strings.TrimSpace(line))
		}
	}
	for _, name := range list(t, "/dev/shm") {
		if !s.shared[name] && strings.Contains(name, "drun") {
			problems = append(problems, "shared memory is left: "+name)
		}
	}
	if n := len(list(t, "/proc/self/fd")); n > s.files {
		problems = append(problems, fmt.Sprintf("%d descriptors are left open", n-s.files))
	}
	return problems
}

// children are the child processes of this one that still exist.
func children(t *testing.T) (pids []int) {
	t.Helper()
	for _, thread := range list(t, "/proc/self/task") {
		data, err := os.ReadFile("/proc/self/task/" + thread + "/children")
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(data)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}
