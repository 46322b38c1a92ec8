package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// onterminal [-exit CODE] COMMAND…: runs a command on a terminal of its own; what it shows there is
// in the file terminal.
func onTerminal(ts *testscript.TestScript, args []string) {
	want := 0
	if len(args) > 1 && args[0] == "-exit" {
		_, err := fmt.Sscan(args[1], &want)
		ts.Check(err)
		args = args[2:]
	}
	master, slave := openTerminal(ts)
	defer master.Close()
	path := ""
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if file := filepath.Join(dir, args[0]); path == "" {
			if _, err := os.Stat(file); err == nil {
				path = file
			}
		}
	}
	cmd := &exec.Cmd{Path: path, Args: args, Dir: ts.MkAbs("."), Stdin: slave, Stdout: slave, Stderr: slave,
		Env:         []string{"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME"), "TERM=xterm", "NO_COLOR=1"},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: true}}
	ts.Check(cmd.Start())
	slave.Close()
	var shown bytes.Buffer
	file, err := os.Create(ts.MkAbs("terminal")) // as it comes: another command may wait for it
	ts.Check(err)
	defer file.Close()
	read := make(chan struct{})
	go func() { // ends with an error when the last process on the terminal does
		defer close(read)
		_, _ = io.Copy(io.MultiWriter(&shown, file), master)
	}()
	err = cmd.Wait()
	select {
	case <-read:
	case <-time.After(10 * time.Second):
		ts.Fatalf("a process is left on the terminal")
	}
	var status *exec.ExitError
	if code := cmd.ProcessState.ExitCode(); code != want || err != nil && !errors.As(err, &status) {
		ts.Fatalf("%v, want exit code %d:\n%s", err, want, shown.Bytes())
	}
}

func openTerminal(ts *testscript.TestScript) (master, slave *os.File) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	ts.Check(err)
	ts.Check(unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	ts.Check(err)
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	ts.Check(err)
	return master, slave
}

// harmless FILE…: nothing in what was shown does something to a terminal.
func harmless(ts *testscript.TestScript, args []string) {
	for _, name := range args {
		text := ts.ReadFile(name)
		bad := func(r rune) bool {
			return r < 0x20 && r != '\n' && r != '\t' || 0x7f <= r && r < 0xa0 || r == '\u202e'
		}
		if name == "terminal" {
			text = strings.ReplaceAll(text, "\r\n", "\n") // as the terminal ends lines
		}
		if i := strings.IndexFunc(text, bad); i >= 0 || !utf8.ValidString(text) {
			ts.Fatalf("%s has a control character at byte %d:\n%q", name, i, text)
		}
	}
}
