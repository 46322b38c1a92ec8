package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Processes of one machine whose clocks differ, as containers' may, do not count as sharing memory: the
// board's times are of one clock.
func TestAnotherClockIsAnotherMachine(t *testing.T) {
	if os.Getenv("DRUN_TEST_MACHINE") != "" {
		fmt.Println("machine:", Machine())
		return
	}
	other := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, append(args, os.Args[0], "-test.run=^TestAnotherClockIsAnotherMachine$")...)
		cmd.Env = append(os.Environ(), "DRUN_TEST_MACHINE=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		_, rest, _ := strings.Cut(string(out), "machine: ")
		line, _, _ := strings.Cut(rest, "\n")
		return line
	}
	if same := other("env"); same != Machine() {
		t.Errorf("another process is on %q, this one on %q", same, Machine())
	}
	if exec.Command("unshare", "--time", "true").Run() != nil {
		t.Skip("mounts and namespaces take root (in a container, CAP_SYS_ADMIN)")
	}
	if shifted := other("unshare", "--time", "--monotonic", "3600", "--fork"); shifted == Machine() || shifted == "" {
		t.Errorf("with another clock it is on %q too", shifted)
	}
}
