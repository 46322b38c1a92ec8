package launch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"drun/internal/each"
	"drun/internal/exit"
)

// The lines with which drun says on a host's standard error that it has begun, and that the node's ranks have.
const (
	Started = "drun: the node has started"
	Joined  = "drun: the node's ranks have started"
)

// What a shell on another machine ends with if drun cannot be started there, and ssh, if it fails.
const (
	noFolder  = 97
	noProgram = 98
	sshFailed = 255
)

// node is a node on another machine.
type node struct {
	index   int
	host    string
	cmd     *exec.Cmd
	control io.WriteCloser // takes signals for the node, a number a line; the node ends when it is closed
	done    chan struct{}  // closed when ssh has ended
	err     error          // then

	mu      sync.Mutex
	started bool
	joined  bool     // its ranks have started: node 0 sees what becomes of it
	late    bool     // ended because drun had not started
	told    bool     // to end by this process, and not by the user
	words   []string // on standard error before drun started: ssh's and the shell's own
}

func (l *Launch) start(index int) *node {
	n := &node{index: index, host: l.Hosts[index].Name, done: make(chan struct{})}
	n.cmd = exec.Command(l.SSH[0], slices.Concat(l.SSH[1:], SSHOptions, []string{"--", n.host, "exec sh -c " + Quote(l.script(index))})...)
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for node 0, which tells the others
	n.cmd.WaitDelay = time.Second                           // a shared connection (ControlPersist) keeps standard error open
	out, errs := &lines{l: l, to: l.Stdout}, &lines{l: l, to: l.Stderr, hide: n.heard}
	n.cmd.Stdout, n.cmd.Stderr = out, errs
	n.control, n.err = n.cmd.StdinPipe()
	if n.err == nil {
		n.err = n.cmd.Start()
	}
	if n.err != nil {
		close(n.done)
		return n
	}
	late := time.AfterFunc(startWithin, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.late = !n.started; n.late {
			n.kill()
		}
	})
	go func() {
		_, _ = io.WriteString(n.control, l.Secret+"\n") // if it fails, ssh has ended, and says why
		n.err = n.cmd.Wait()
		late.Stop()
		out.flush()
		errs.flush()
		close(n.done)
	}()
	return n
}

// script is what a node's shell does.
func (l *Launch) script(index int) string {
	words := slices.Concat([]string{"exec", "env"}, each.Of(l.Environ, Quote), []string{`"$p"`}, each.Of(l.Args(index), Quote))
	return "cd " + Quote(l.Dir) + " 2>/dev/null || exit " + strconv.Itoa(noFolder) +
		"; p=" + Quote(l.Program) + `; test -x "$p" || p=drun; command -v "$p" >/dev/null || exit ` + strconv.Itoa(noProgram) +
		"; " + strings.Join(words, " ")
}

// Quote makes one word of a shell of any text.
func Quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// heard takes a line of standard error and reports whether it is not for the user.
func (n *node) heard(line string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case line == Started:
		n.started = true
	case line == Joined:
		n.joined = true
	case n.started:
		return n.told && strings.HasPrefix(line, "drun: interrupted by ")
	case len(n.words) < 100:
		n.words = append(n.words, line)
	}
	return true
}

// obey has a node run to its end, and passes on signals; when ctx ends, it is told to end.
func (n *node) obey(ctx context.Context, l *Launch) error {
	told := ctx.Done()
	for {
		sig := os.Signal(syscall.SIGTERM)
		select {
		case <-n.done:
			if code := n.code(); n.is(&n.started) && code != sshFailed {
				return exit.WithCode(errors.New(""), exit.Code(code)) // it has said all
			}
			return n.fault(l.Program, l.Dir)
		case <-told:
			told = nil
			n.willEnd()
		case sig = <-l.Signals:
		}
		if number, ok := sig.(syscall.Signal); ok {
			_, _ = io.WriteString(n.control, strconv.Itoa(int(number))+"\n")
		}
	}
}

func (n *node) willEnd() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = true
}

// is reads one of n's flags.
func (n *node) is(flag *bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return *flag
}

// code is what ssh has ended with: the node's exit code, or sshFailed.
func (n *node) code() int {
	if n.cmd.ProcessState == nil {
		return sshFailed
	}
	return n.cmd.ProcessState.ExitCode()
}

func (n *node) kill() {
	select {
	case <-n.done: // another process may have its number
	default:
		_ = syscall.Kill(-n.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// fault is why a node that has ended failed; nil: it did not.
func (n *node) fault(program, dir string) error {
	code := n.code()
	n.mu.Lock()
	began, late, words := n.started, n.late, strings.Join(n.words[max(0, len(n.words)-3):], "; ")
	n.mu.Unlock()
	lost := func(hint, format string, args ...any) error {
		return exit.WithHint(exit.Errorf(exit.RankLost, "node %d: "+format, append([]any{n.index}, args...)...), hint)
	}
	switch {
	case code == 0:
		return nil
	case n.cmd.ProcessState == nil:
		return exit.WithHint(exit.Errorf(exit.Usage, "node %d: %s cannot be started: %w", n.index, n.cmd.Path, n.err), "install OpenSSH's client, or set DRUN_SSH to the command that takes its place")
	case began && code == sshFailed:
		return lost("", "the connection to %s has ended", n.host)
	case began:
		return exit.Errorf(exit.Code(code), "node %d: drun on %s ended with exit code %d", n.index, n.host, code)
	case code == noFolder:
		return exit.WithHint(exit.Errorf(exit.Usage, "node %d: %s has no folder %s", n.index, n.host, dir), "--hosts needs the recipe's folder at the same place on every machine: on a shared disk, or as a copy")
	case code == noProgram:
		return exit.WithHint(exit.Errorf(exit.Usage, "node %d: %s has no drun, neither %s nor in the PATH of a shell that ssh starts", n.index, n.host, program), "copy drun and drun-plugin-host there")
	case late:
		return lost("does ssh "+n.host+" true end?", "drun has not started on %s within %v", n.host, startWithin)
	}
	if code != sshFailed {
		return lost("", "the shell on %s ended with exit code %d: %s", n.host, code, words)
	}
	hint := ""
	if strings.Contains(words, "Permission denied") || strings.Contains(words, "verification failed") {
		hint = "ssh must reach the host without a question: try ssh " + n.host + " true"
	}
	return lost(hint, "%s cannot be reached: %s", n.host, words)
}

// lines writes whole lines, so that those of several nodes do not mix.
type lines struct {
	l    *Launch
	to   io.Writer
	hide func(line string) bool // nil: none is hidden
	rest []byte
}

func (w *lines) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 {
			return len(p), nil
		}
		w.show(w.rest[:i+1])
		w.rest = w.rest[i+1:]
	}
}

func (w *lines) show(line []byte) {
	if w.hide != nil && w.hide(strings.TrimRight(string(line), "\r\n")) {
		return
	}
	w.l.output.Lock()
	defer w.l.output.Unlock()
	_, _ = w.to.Write(line) // the run goes on if nobody reads
}

func (w *lines) flush() {
	if len(w.rest) > 0 {
		w.show(append(w.rest, '\n'))
	}
}
