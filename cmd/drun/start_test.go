package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

// Every rank is a process of its own, and initialises every package before it does anything: what only errors
// and other commands need (expressions, tables) is made when it is first used.
func TestLittleToInitialise(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run", "^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	packages := regexp.MustCompile(`(?m)^init (drun/\S+) @.*, (\d+) bytes`).FindAllSubmatch(out, -1)
	if len(packages) < 10 {
		t.Fatalf("the trace has %d packages of drun's:\n%s", len(packages), out)
	}
	for _, p := range packages {
		if n, err := strconv.Atoi(string(p[2])); err != nil || n > 64<<10 {
			t.Errorf("the variables of package %s take %s bytes before the program starts: make what it may not need at its first use, with sync.OnceValue", p[1], p[2])
		}
	}
}
