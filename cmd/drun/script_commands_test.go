package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"drun/history"
	"drun/internal/testlimit"
)

// exits CODE COMMAND…: runs a command that must end with that exit code. Its
// output is there for stdout and stderr.
func exits(ts *testscript.TestScript, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var status *exec.ExitError
	switch {
	case errors.As(err, &status):
		got = status.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// workersBeneath finds the workers whose run's folder is the script's.
func workersBeneath(ts *testscript.TestScript) map[int]string {
	dir := ts.Getenv("WORK")
	found := map[int]string{}
	entries, err := filepath.Glob("/proc/[0-9]*")
	ts.Check(err)
	for _, proc := range entries {
		cwd, err := os.Readlink(filepath.Join(proc, "cwd"))
		cwd = strings.TrimSuffix(cwd, " (deleted)")
		if err != nil || !strings.HasPrefix(cwd+"/", dir+"/") { // the name of a script's folder may begin another's
			continue
		}
		line, err := os.ReadFile(filepath.Join(proc, "cmdline"))
		program, _, _ := strings.Cut(string(line), "\x00")
		if err != nil || !strings.HasPrefix(filepath.Base(program), "drun") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(proc))
		ts.Check(err)
		found[pid] = strings.ReplaceAll(strings.TrimRight(string(line), "\x00"), "\x00", " ")
	}
	// What a worker has just forked, but not yet executed, still has its command line.
	maps.DeleteFunc(found, func(pid int, line string) bool {
		parent := parentOf(pid)
		return parent == 0 || found[parent] == line
	})
	return found
}

// matching waits until count processes of the script's runs have words in their
// command lines.
func matching(ts *testscript.TestScript, words string, count int) (pids []int) {
	if !testlimit.Until(10*time.Second, func() bool { pids = having(ts, words); return len(pids) >= count }) {
		ts.Fatalf("there are no %d processes %q", count, words)
	}
	return pids
}

// having are the processes of the script's runs that have words in their command lines.
func having(ts *testscript.TestScript, words string) (pids []int) {
	for pid, line := range workersBeneath(ts) {
		if strings.Contains(line, words) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// processes COUNT WORDS: exactly so many processes of the script's runs have the words in their command
// lines, or will have within ten seconds.
func processes(ts *testscript.TestScript, args []string) {
	count, err := strconv.Atoi(args[0])
	ts.Check(err)
	var there int
	if !testlimit.Until(10*time.Second, func() bool { there = len(having(ts, args[1])); return there == count }) {
		ts.Fatalf("there are %d processes %q", there, args[1])
	}
}

// logged RUN TEXT COUNT: waits until the ranks have printed so many lines that
// hold the text.
func logged(ts *testscript.TestScript, args []string) {
	count, err := strconv.Atoi(args[2])
	ts.Check(err)
	if !testlimit.Until(time.Minute, func() bool {
		return countPrinted(ts, args[0], args[1]) >= count && ts.Exec("drun", "logs", args[0]) == nil && strings.Count(ts.ReadFile("stdout"), args[1]) >= count
	}) {
		ts.Fatalf("run %s did not print %q %d times", args[0], args[1], count)
	}
}

// until PATTERN COMMAND…: repeats a command until it prints what matches, at most a minute.
func until(ts *testscript.TestScript, args []string) {
	pattern := regexp.MustCompile("(?m)" + args[0])
	if !testlimit.Until(time.Minute, func() bool {
		return ts.Exec(args[1], args[2:]...) == nil && pattern.MatchString(ts.ReadFile("stdout"))
	}) {
		ts.Fatalf("%q does not print %q:\n%s%s", args[1:], args[0], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

// countPrinted counts what drun logs would print of a text. It reads the history itself, since the start of a drun for each
// look would take most of what a script computes.
func countPrinted(ts *testscript.TestScript, run, text string) (n int) {
	db, err := history.OpenReadOnly(ts.MkAbs(cmp.Or(ts.Getenv("DRUN_HOME"), ".drun")))
	if err != nil {
		return 0 // not yet
	}
	defer db.Close()
	id, err := db.Find(run)
	if err != nil {
		return 0
	}
	_, _ = db.Logs(id, history.LogFilter{}, func(l history.LogLine) error {
		n += strings.Count(l.Text, text)
		return nil
	})
	return n
}

// sendSignal NAME WORDS…: sends a signal to processes of the script's runs, one for each of the words, at once: all are
// found before the first gets it, since it may end the others.
func sendSignal(ts *testscript.TestScript, args []string) {
	sig := unix.SignalNum("SIG" + args[0])
	if sig == 0 && args[0] != "0" { // none: the process need only be there
		ts.Fatalf("unknown signal %s", args[0])
	}
	var pids []int
	for _, words := range args[1:] {
		pids = append(pids, matching(ts, words, 1)[0])
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil && (pid == pids[0] || !errors.Is(err, syscall.ESRCH)) {
			ts.Fatalf("signal %s to process %d: %v", args[0], pid, err)
		}
	}
}

// stall SECONDS WORDS: stops each process of the script's runs that has the words in its command line, one after the other,
// for so long.
func stall(ts *testscript.TestScript, args []string) {
	s, err := strconv.ParseFloat(args[0], 64)
	ts.Check(err)
	for _, pid := range matching(ts, args[1], 1) {
		ts.Check(syscall.Kill(pid, syscall.SIGSTOP))
		time.Sleep(time.Duration(s * float64(time.Second)))
		ts.Check(syscall.Kill(pid, syscall.SIGCONT))
		time.Sleep(200 * time.Millisecond) // messages go again
	}
}

// suspended SECONDS COUNT WORDS: so many processes of the script's runs that have the words in their command line are stopped
// within ten seconds, and stay so for that long.
func suspended(ts *testscript.TestScript, args []string) {
	seconds, err := strconv.ParseFloat(args[0], 64)
	ts.Check(err)
	count, err := strconv.Atoi(args[1])
	ts.Check(err)
	stopped := func() (n int) {
		for _, pid := range matching(ts, args[2], count) {
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if bytes.Contains(stat, []byte(") T ")) {
				n++
			}
		}
		return n
	}
	for end := time.Now().Add(10 * time.Second); stopped() != count; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("%d of %d processes are stopped", stopped(), count)
		}
	}
	for end := time.Now().Add(time.Duration(seconds * float64(time.Second))); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if n := stopped(); n != count {
			ts.Fatalf("after a while %d of %d processes are stopped", n, count)
		}
	}
}

// nothing left: no process of the script's runs is there within a second, and no
// shared memory.
func nothingLeft(ts *testscript.TestScript, _ []string) {
	var left map[int]string
	testlimit.Until(10*time.Second, func() bool { left = workersBeneath(ts); return len(left) == 0 })
	for pid, line := range left {
		ts.Fatalf("process %d is left: %s", pid, line)
	}
	shared, err := filepath.Glob("/dev/shm/*drun*")
	ts.Check(err)
	if len(shared) > 0 {
		ts.Fatalf("shared memory is left: %v", shared)
	}
}

// badbytes FILE: writes a file that is not UTF-8.
func badBytes(ts *testscript.TestScript, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte("def main():\n    print(\"\xff\xfe\")\n"), 0o644))
}
