package transfer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
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

// Over ssh the requests go to a drun on the other machine (drun transfer-serve), over its standard input and output: one after another, as
// HTTP has them.

// reply collects an answer.
type reply struct {
	bytes.Buffer
	header http.Header
	status int
}

func (r *reply) Header() http.Header    { return r.header }
func (r *reply) WriteHeader(status int) { r.status = status }

// ServeStream answers the requests that arrive on in until it ends.
func ServeStream(handler http.Handler, in io.Reader, out io.Writer) error {
	for reader := bufio.NewReader(in); ; {
		r, err := http.ReadRequest(reader)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
		r.SetPathValue("method", strings.TrimPrefix(r.URL.Path, Path))
		w := &reply{header: http.Header{}, status: http.StatusOK}
		handler.ServeHTTP(w, r.WithContext(Local(r.Context())))
		_, _ = io.Copy(io.Discard, r.Body)
		answer := http.Response{StatusCode: w.status, ProtoMajor: 1, ProtoMinor: 1, Header: w.header, ContentLength: int64(w.Len()), Body: io.NopCloser(w)}
		if err := answer.Write(out); err != nil {
			return err
		}
	}
}

// pipe is a process that answers requests.
type pipe struct {
	mu    sync.Mutex
	in    *bufio.Reader
	out   io.WriteCloser
	kill  func()
	ended chan struct{}
	said  *tail
	host  string
}

func (p *pipe) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	defer context.AfterFunc(r.Context(), p.kill)() // an answer that nobody waits for would be taken for the next
	response, err := (*http.Response)(nil), r.Write(p.out)
	if err == nil {
		response, err = http.ReadResponse(p.in, r)
	}
	if err == nil {
		var body []byte
		body, err = io.ReadAll(response.Body)
		response.Body = io.NopCloser(bytes.NewReader(body))
	}
	if err != nil {
		p.kill()
		<-p.ended
		return nil, exit.WithHint(exit.Errorf(exit.Requirement, "the connection to %s has ended: %s", p.host, p.said.text()), "drun must be in the PATH there, and of about the same version: ssh "+p.host+" drun version")
	}
	return response, nil
}

// close ends the process by the end of its input and, if that does not help, otherwise.
func (p *pipe) close() error {
	_ = p.out.Close()
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
	}
	p.kill()
	<-p.ended
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
	ctx, kill := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], "-T", "--", host, there)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	p := &pipe{kill: kill, ended: make(chan struct{}), said: &tail{}, host: host}
	cmd.Stderr = p.said
	in, err := cmd.StdoutPipe()
	if err == nil {
		p.in = bufio.NewReader(in)
		p.out, err = cmd.StdinPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		kill()
		return nil, exit.Errorf(exit.Requirement, "%s could not be started: %w", command[0], err)
	}
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	r := NewRemote(&http.Client{Transport: p}, "http://host", "")
	r.where, r.Within, r.shut = host, 5*time.Minute, p.close
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
	return "it said nothing"
}
