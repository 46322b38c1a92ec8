package checkpoints

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// strace skips a test where there is none, or it may not trace.
func strace(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is not installed: apt-get install strace")
	}
	if err := exec.Command("strace", "-o", os.DevNull, "true").Run(); err != nil {
		t.Skip("strace may not trace here: run as root (in a container, CAP_SYS_PTRACE)")
	}
}

// calls are the system calls of a process that saves a checkpoint, in order: those
// that write to, or synchronise, the files beneath its home.
func calls(t *testing.T, env ...string) []string {
	t.Helper()
	strace(t)
	home, trace := t.TempDir(), filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command("strace", "-f", "-y", "-qq", "-s", "0", "-o", trace, "-e", "trace=write,pwrite64,writev,pwritev,fsync,fdatasync,ftruncate",
		os.Args[0])
	cmd.Env = append(os.Environ(), append(env, "DRUN_TEST_SAVE="+home, "DRUN_TEST_SAVES=1")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(trace)
	ok(t, err)
	var list []string
	// A call that another thread's interrupts is two lines: it counts when it has ended.
	begun := map[string]string{}
	line := regexp.MustCompile(`^(\d+) +(<\.\.\. )?(\w+)(?:\(\d+<([^>]*)>)?`)
	for _, l := range strings.Split(string(text), "\n") {
		m := line.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		thread, resumed, call, path := m[1], m[2] != "", m[3], m[4]
		if resumed {
			path = begun[thread]
		} else if begun[thread] = path; strings.Contains(l, "<unfinished") {
			continue
		}
		name, beneath := strings.CutPrefix(path, home)
		if !beneath {
			continue
		}
		switch {
		case name == "/checkpoints":
			name = "folder"
		case packName().MatchString(filepath.Base(name)):
			name = "pack"
		}
		verb := "write "
		if strings.Contains(call, "sync") {
			verb = "sync "
		}
		if next := verb + strings.TrimPrefix(name, "/"); len(list) == 0 || list[len(list)-1] != next {
			list = append(list, next)
		}
	}
	return list
}

// A save is durable in this order: the pack, the folder that names it, then the
// catalog that refers to it.
func TestDurableInOrder(t *testing.T) {
	inOrder(t, calls(t), "write pack", "sync pack", "sync folder", "write checkpoints.db-wal", "sync checkpoints.db-wal")
}

// One that is small is in the catalog alone.
func TestSmallDurableInOrder(t *testing.T) {
	list := calls(t, "DRUN_TEST_SMALL=1")
	inOrder(t, list, "write checkpoints.db-wal", "sync checkpoints.db-wal")
	if slices.Contains(list, "write pack") || slices.Contains(list, "sync folder") {
		t.Errorf("there is a pack:\n%s", strings.Join(list, "\n"))
	}
}

// inOrder checks that the last of each of these calls comes before the last of the next.
func inOrder(t *testing.T, list []string, order ...string) {
	t.Helper()
	before := -1
	for _, want := range order {
		last := -1
		for i, call := range list {
			if call == want {
				last = i
			}
		}
		if last <= before {
			t.Errorf("the last %q is not where it should be:\n%s", want, strings.Join(list, "\n"))
		}
		before = last
	}
}
