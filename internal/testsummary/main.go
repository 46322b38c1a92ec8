// Command testsummary says what a test command did not do. Wrapped around `go test` it prints what that prints, and
// records the outcome of each test; the report over all records lists what failed and what was skipped, by reason.
//
//	testsummary -to FILE go test ARGUMENTS
//	testsummary -report FILE...
//
// A test's reason says what is missing and how to get it, always in the same words: "strace is not installed:
// apt-get install strace". For a test with its own make target it is "make TARGET runs it". Lines of a file
// that are not JSON are reasons without a test, for a Makefile's echo.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	to := flag.String("to", "", "the file in which it is written down what became of each test")
	summary := flag.Bool("report", false, "list what the files named say")
	flag.Parse()
	status, err := 0, error(nil)
	if *summary {
		err = report(os.Stdout, flag.Args())
	} else {
		status, err = run(*to, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsummary:", err)
		status = max(status, 1)
	}
	os.Exit(status)
}

// run runs go test and returns its exit status.
func run(to string, command []string) (status int, err error) {
	if to == "" || len(command) < 2 || command[0] != "go" || command[1] != "test" {
		return 2, errors.New("usage: testsummary -to FILE go test ARGUMENTS, or testsummary -report FILE...")
	}
	kept, err := os.Create(to)
	if err != nil {
		return 1, err
	}
	cmd := exec.Command("go", append([]string{"test", "-json"}, command[2:]...)...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM) // go test ends at Ctrl-C, and this after it
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	err = follow(events, os.Stdout, kept)
	failed := (*exec.ExitError)(nil)
	switch waited := cmd.Wait(); {
	case errors.As(waited, &failed):
		fmt.Println("FAIL")
		status = max(1, failed.ExitCode()) // -1: by a signal
	case waited != nil:
		err = errors.Join(err, waited)
	}
	return status, errors.Join(err, kept.Close())
}
