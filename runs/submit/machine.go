package submit

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"drun/engine/launch"
	"drun/internal/exit"
	"drun/internal/try"
)

// machine is where a target's commands run: another machine, by ssh, or this one.
type machine struct{ host string }

// sshFailed is what ssh ends with if it fails itself.
const sshFailed = 255

// atMost bounds every command on a machine; one that sends files has as long as these take, as long as the connection lives.
const atMost = time.Minute

// CommandError says that a command on a target has failed.
type CommandError struct {
	Code  int
	Words string // on its standard error
}

func (e *CommandError) Error() string {
	return cmp.Or(e.Words, fmt.Sprintf("exit code %d", e.Code))
}

// UnreachableError says that a target's machine did not answer.
type UnreachableError struct{ Host, Words, Do string }

func (e *UnreachableError) Error() string       { return e.Host + " cannot be reached: " + e.Words }
func (e *UnreachableError) Hint() string        { return e.Do }
func (e *UnreachableError) ExitCode() exit.Code { return exit.RankLost }

var shared sync.Map // options that share a host's connection, by host

// SSH is the command that reaches a host, up to its options. Commands for a host share one connection, which ends a minute after
// the last of them, unless the user's configuration has its own way to share connections.
func SSH(host string) []string {
	ssh := strings.Fields(cmp.Or(os.Getenv("DRUN_SSH"), "ssh"))
	options, known := shared.Load(host)
	if !known {
		options = []string(nil)
		ctx, cancel := context.WithTimeout(context.Background(), atMost)
		config, _ := exec.CommandContext(ctx, ssh[0], slices.Concat(ssh[1:], []string{"-G", "--", host})...).Output()
		cancel()
		own := bytes.Contains(config, []byte("\ncontrolpath ")) || !bytes.Contains(config, []byte("\ncontrolmaster false\n"))
		dir, is := filepath.Join(os.TempDir(), fmt.Sprintf("drun-ssh-%d", os.Getuid())), unix.Stat_t{}
		_ = os.Mkdir(dir, 0o700)
		name := fmt.Sprintf("/%.8x", sha256.Sum256([]byte(strings.Join(append(ssh, host), " ")))) // another name of the host may have another key
		const longest = 107 - len(".0123456789abcdef")                                            // the name of a socket, which ssh makes under a longer one
		if !own && len(dir+name) <= longest && unix.Lstat(dir, &is) == nil && is.Mode == unix.S_IFDIR|0o700 && int(is.Uid) == os.Getuid() {
			options = []string{"-o", "ControlMaster=auto", "-o", "ControlPersist=60", "-o", "ControlPath=" + dir + name}
		}
		shared.Store(host, options)
	}
	return slices.Concat(ssh, launch.SSHOptions, options.([]string))
}

// run has the machine's shell execute a script, whose standard input is in, and returns what it prints.
func (m machine) run(ctx context.Context, script string, in io.Reader) (string, error) {
	if in == nil {
		limited, cancel := context.WithTimeout(ctx, atMost)
		defer cancel()
		ctx = limited
	}
	args := []string{"sh", "-c", script}
	if m.host != "" {
		args = append(SSH(m.host), "--", m.host, "exec sh -c "+launch.Quote(script))
	}
	out, err := execute(ctx, in, args...)
	failed := (*CommandError)(nil)
	switch {
	case err != nil && ctx.Err() != nil && in == nil:
		return "", &UnreachableError{cmp.Or(m.host, "this machine"), fmt.Sprintf("no answer within %v", atMost), ""}
	case m.host == "" || !errors.As(err, &failed) || failed.Code != sshFailed:
		return out, err
	}
	hint := ""
	if strings.Contains(failed.Words, "Permission denied") || strings.Contains(failed.Words, "verification failed") || strings.Contains(failed.Words, "password") {
		hint = "drun answers no question for a password: ssh must reach the host with a key, as ssh " + m.host + " true shows (ssh-copy-id, ssh-add)"
	}
	return "", &UnreachableError{m.host, failed.Words, hint}
}

// execute runs a command, whose standard input is in, and returns what it prints; *CommandError has the end of its standard error.
func execute(ctx context.Context, in io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = time.Second // older versions of ssh that share a connection keep standard error open
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &errs
	switch err := cmd.Run(); {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return out.String(), nil
	case cmd.ProcessState == nil:
		return "", exit.Errorf(exit.Usage, "%s cannot be started: %w", args[0], err)
	}
	lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
	return out.String(), &CommandError{cmd.ProcessState.ExitCode(), strings.Join(lines[max(0, len(lines)-3):], "; ")}
}

// packed is a file that is sent to a machine.
type packed struct {
	name    string // beneath the folder it is sent to
	content []byte // unless from is given
	from    string // the file here
	mode    int64
}

// send puts files into a folder of a machine, which is made, then executes a script there and returns what that prints.
func (m machine) send(ctx context.Context, folder string, files []packed, then string) (string, error) {
	reader, writer := io.Pipe()
	go func() {
		writer.CloseWithError(write(writer, files))
	}()
	defer reader.Close()
	return m.run(ctx, "umask 077; mkdir -p "+launch.Quote(folder)+" && cd "+launch.Quote(folder)+" && tar -xf - || exit\n"+then, reader)
}

func write(to io.Writer, files []packed) (err error) {
	defer try.Caught(&err)
	w := tar.NewWriter(to)
	for _, f := range files {
		in, size := io.Reader(bytes.NewReader(f.content)), int64(len(f.content))
		if f.from != "" {
			file := try.To(os.Open(f.from))
			defer file.Close()
			in, size = file, try.To(file.Stat()).Size()
		}
		try.Ok(w.WriteHeader(&tar.Header{Name: f.name, Mode: cmp.Or(f.mode, 0o600), Size: size, Typeflag: tar.TypeReg}))
		try.To(io.CopyN(w, in, size))
	}
	return w.Close()
}

// pairs reads lines of a key and a value.
func pairs(text string) map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		out[key] = append(out[key], value)
	}
	return out
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
