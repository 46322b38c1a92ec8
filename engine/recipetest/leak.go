package recipetest

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// state is what a run must leave as it was.
type state struct {
	files  int // open in this process
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

// leaks names what a run with these processes left behind.
func (s state) leaks(t *testing.T, pids []int) (problems []string) {
	t.Helper()
	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil {
			problems = append(problems, fmt.Sprintf("process %d is left", pid))
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
