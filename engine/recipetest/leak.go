package recipetest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// openFiles is how many files this process has open.
func openFiles(t *testing.T) int {
	t.Helper()
	return len(list(t, "/proc/self/fd"))
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

// leaks lists what runs that have all ended left behind: processes, shared memory (which has no name, only mappings), and
// files and sockets beyond those that were open before.
func leaks(t *testing.T, before int) (problems []string) {
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
	if n := openFiles(t); n > before {
		problems = append(problems, fmt.Sprintf("%d descriptors are left open", n-before))
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
