package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"drun/internal/exit"
)

// Over ssh the requests go to a drun on the other machine (drun transfer-serve), over its standard input and output.

// stream is a process's standard input and output as a connection.
type stream struct {
	io.Reader
	io.WriteCloser
	done func()
	once sync.Once
}

func (s *stream) Close() error {
	err := s.WriteCloser.Close()
	s.once.Do(s.done)
	return err
}

type nowhere struct{}

func (nowhere) Network() string { return "pipe" }
func (nowhere) String() string  { return "pipe" }

func (s *stream) LocalAddr() net.Addr              { return nowhere{} }
func (s *stream) RemoteAddr() net.Addr             { return nowhere{} }
func (s *stream) SetDeadline(time.Time) error      { return nil }
func (s *stream) SetReadDeadline(time.Time) error  { return nil }
func (s *stream) SetWriteDeadline(time.Time) error { return nil }

// one is a listener with one connection.
type one struct {
	conn   net.Conn
	gone   chan struct{}
	served bool
}

func (l *one) Accept() (net.Conn, error) {
	if !l.served {
		l.served = true
		return l.conn, nil
	}
	<-l.gone
	return nil, net.ErrClosed
}
func (l *one) Close() error   { return nil }
func (l *one) Addr() net.Addr { return nowhere{} }

// ServeStream answers the requests that arrive on in until it ends.
func ServeStream(side Side, in io.Reader, out io.WriteCloser) error {
	gone := make(chan struct{})
	conn := &stream{Reader: in, WriteCloser: out, done: func() { close(gone) }}
	mux := http.NewServeMux()
	mux.Handle("POST "+Path+"{method}", Handler(side))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { mux.ServeHTTP(w, r.WithContext(Local(r.Context()))) })}
	if err := server.Serve(&one{conn: conn, gone: gone}); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// OverSSH is the home in a folder of another machine. command is ssh, or what stands for it, with its arguments, program is drun
// there, "" where this one or that in the PATH is meant; write tells whether runs are to be entered there.
func OverSSH(command []string, host, program, folder string, write bool) (*Remote, error) {
	if host == "" || host[0] == '-' || strings.ContainsAny(host, " \t\n") {
		return nil, exit.Errorf(exit.Usage, "%q is no name of a host", host)
	}
	if program == "" { // another machine may have it at the same path
		program, _ = os.Executable()
	}
	there := "p=" + quoted(program) + "; test -x \"$p\" || p=drun; exec \"$p\" transfer-serve --home " + quoted(folder)
	if write {
		there += " --write"
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], "-T", "--", host, there)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	said := &tail{}
	cmd.Stderr = said
	in, err := cmd.StdoutPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	out, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, exit.Errorf(exit.Requirement, "%s could not be started: %w", command[0], err)
	}
	ended := make(chan struct{})
	conn := &stream{Reader: in, WriteCloser: out, done: func() {}}
	used := false
	transport := &http.Transport{MaxConnsPerHost: 1, DialContext: func(context.Context, string, string) (net.Conn, error) {
		if used {
			<-ended
			return nil, exit.WithHint(exit.Errorf(exit.Requirement, "the connection to %s has ended: %s", host, said.text()), "drun must be in the PATH there, and of about the same version: ssh "+host+" drun version")
		}
		used = true
		return conn, nil
	}}
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	r := NewRemote(&http.Client{Transport: transport}, "http://"+"host", "")
	r.where, r.Within = host, 5*time.Minute
	r.shut = func() error {
		_ = out.Close()
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
		}
		cancel()
		<-ended
		return nil
	}
	return r, nil
}

// quoted is a word for a shell. A path that begins with ~/ or is relative is taken from the user's folder there.
func quoted(folder string) string {
	word := func(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
	if rest, is := strings.CutPrefix(folder, "~/"); is {
		return "~/" + word(rest)
	}
	return word(path.Clean(folder))
}

// tail keeps the end of what a process says.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.buf.Len() > 4096 {
		t.buf.Next(t.buf.Len() - 2048)
	}
	return t.buf.Write(p)
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := strings.TrimSpace(t.buf.String()); text != "" {
		return text
	}
	return fmt.Sprint("it said nothing")
}
