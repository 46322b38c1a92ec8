package node

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"drun/collective/sharedmem"
	"drun/engine"
	"drun/engine/board"
	"drun/engine/cluster"
	"drun/internal/exit"
	"drun/internal/memory"
	"drun/internal/try"

	"golang.org/x/sys/unix"
)

type process struct {
	rank     int
	cmd      *exec.Cmd
	channel  *engine.Channel
	outbox   chan *engine.ToWorker
	output   sync.WaitGroup // its stdout and stderr are being read
	pipes    []*os.File
	limit    int  // of its memory, in bytes
	reported bool // it has reported how its rank ended
	exited   bool
	killed   atomic.Bool // by drun, while it was still running
	refused  atomic.Bool // the system refused it memory: it ends by itself
}

// spawn starts a worker and queues its job; beside is how many processes of this machine wait for each other. The worker
// inherits its end of the control channel as descriptor 3 and the shared files after it. The channel is its lifeline: a
// worker whose node is gone ends. One that is stopped and cannot read the channel is killed by the kernel when the
// thread that started it ends; the caller is therefore locked to its thread.
func spawn(exe string, beside int, job *engine.Job, env []string, shared []*os.File, onLine func(rank int, stderr bool, text string)) (_ *process, err error) {
	defer try.Caught(&err)
	ours, theirs := try.To2(socketpair())
	defer theirs.Close()
	p := &process{rank: job.Placement.Rank, limit: memory.Of(job.Memory, job.Placement.LocalSize), outbox: make(chan *engine.ToWorker, outboxSize)}
	p.send(&engine.ToWorker{Job: job}) // the first message, whoever sends others
	p.channel = try.To(engine.NewChannel(ours))
	cmd := exec.Command(exe)
	cmd.Args = []string{"drun", engine.WorkerArg, "rank", strconv.Itoa(job.Placement.Rank)}
	cmd.Env = append(os.Environ(), env...)
	cmd.ExtraFiles = append([]*os.File{theirs}, shared...)
	// In a process group of its own: a signal from the terminal reaches only the node, and what a worker started
	// can be killed with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var ends [2]*os.File
	for i := range ends {
		r, w := try.To2(os.Pipe())
		ends[i], p.pipes = w, append(p.pipes, r)
	}
	cmd.Stdout, cmd.Stderr = ends[0], ends[1]
	p.cmd = cmd
	err = sharedmem.StartBeside(beside, cmd.Start)
	for _, w := range ends {
		w.Close()
	}
	if err != nil {
		p.channel.Close()
		return nil, fmt.Errorf("cannot start rank %d: %w", job.Placement.Rank, err)
	}
	for i, r := range p.pipes {
		p.output.Go(func() {
			lines(r, func(text string) {
				if i == 1 && memory.Refused(text) {
					p.refused.Store(true)
				}
				if i == 0 || !p.refused.Load() { // the rest is Go's report of all its threads
					onLine(job.Placement.Rank, i == 1, text)
				}
			})
			r.Close()
		})
	}
	return p, nil
}

// environment tells a worker, and tools that look, its place, its run and where the processes of the run have met.
func environment(job *engine.Job, endpoint string) []string {
	env := job.Placement.Environ()
	if host, port, err := net.SplitHostPort(endpoint); err == nil {
		env = append(env, "MASTER_ADDR="+host, "MASTER_PORT="+port)
	}
	return append(env,
		"DRUN_RUN_ID="+strconv.FormatInt(job.RunID, 10),
		"DRUN_RESTART_COUNT="+strconv.Itoa(job.RestartCount),
		// For the recipe's thread, the collector's and the control channel's. More would only cost memory where
		// many ranks share a large machine.
		"GOMAXPROCS="+strconv.Itoa(max(2, job.Threads)),
	)
}

// outboxSize is more than a worker can be sent before it reads: its job, a reply to each open request, of which only
// those to the store can be several, and the cancellation.
const outboxSize = 1 << 12

// send queues a message. One goroutine sends them in order, since a worker that is stopped or busy may take its time.
func (p *process) send(msg *engine.ToWorker) {
	select {
	case p.outbox <- msg:
	default: // it no longer reads
	}
}

type event struct {
	rank int
	msg  *engine.ToAgent
	exit *cluster.Exit
}

// serve sends the worker what is queued, and passes on its messages, then its end. wait holds up a worker that sends
// more than can be stored.
func (p *process) serve(events chan<- event, wait func()) {
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case msg := <-p.outbox:
				if p.channel.Send(msg) != nil {
					return // it is dead, as listen notices
				}
			case <-ended:
				return
			}
		}
	}()
	p.listen(events, wait)
	close(ended)
}

// listen passes on the worker's messages and, once its output has been read, its end.
func (p *process) listen(events chan<- event, wait func()) {
	for {
		msg := new(engine.ToAgent)
		err := p.channel.Receive(msg)
		if err != nil && !errors.Is(err, io.EOF) {
			// The message cannot be understood or answered, so the worker would wait for ever.
			events <- event{rank: p.rank, msg: &engine.ToAgent{Failure: &engine.Failure{Rank: p.rank, Code: exit.RankLost, When: board.Now(),
				Message: fmt.Sprintf("rank %d sent a message that cannot be read: %v (a bug in drun, not in the recipe: please report it)", p.rank, err)}}}
			p.kill()
		}
		if err != nil {
			break
		}
		events <- event{rank: p.rank, msg: msg}
		wait()
	}
	p.sweep()
	p.drain()        // before the process is reaped, which frees its group's number
	_ = p.cmd.Wait() // its state says how it ended
	end := how(p.cmd.ProcessState)
	end.Ours = p.killed.Load()
	events <- event{rank: p.rank, exit: end}
}

// sweep waits for the worker's end and kills what it started and left behind. The worker is not reaped yet, so that
// the group's number is still its own.
func (p *process) sweep() {
	pid := p.cmd.Process.Pid
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			_ = unix.Kill(-pid, unix.SIGKILL)
		}
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// drain waits until all the worker's output has been read, but not for something it started that holds the pipes
// open.
func (p *process) drain() {
	defer p.channel.Close()
	read := make(chan struct{})
	go func() {
		p.output.Wait()
		close(read)
	}()
	select {
	case <-read:
	case <-time.After(drainAtMost):
		for _, pipe := range p.pipes {
			pipe.Close()
		}
		select { // a reader may be held up by whoever reads drun's own output
		case <-read:
		case <-time.After(drainAtMost):
		}
	}
}

const drainAtMost = time.Second

// kill ends the worker and whatever it started.
func (p *process) kill() {
	var ended unix.Siginfo // of a process that has ended by itself and is not reaped yet
	if err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, &ended, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err == nil && ended.Signo == 0 {
		p.killed.Store(true)
	}
	if err := unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		_ = p.cmd.Process.Kill()
	}
}

func how(state *os.ProcessState) *cluster.Exit {
	status, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled():
		return &cluster.Exit{Text: fmt.Sprintf("killed by signal %d (%s)", status.Signal(), unix.SignalName(status.Signal())), Killed: true, Signal: int(status.Signal())}
	case state.ExitCode() == 0:
		return &cluster.Exit{Text: "exited", Clean: true}
	}
	return &cluster.Exit{Text: fmt.Sprintf("exited with status %d", state.ExitCode())}
}

func socketpair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("control channel: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control"), nil
}

// maxLine is the length in bytes at which a line is cut.
const maxLine = 64 << 10

// lines calls each for every line of r. Bytes that are not UTF-8 are replaced, since the lines are kept as text.
func lines(r io.Reader, each func(text string)) {
	buf := bufio.NewReaderSize(r, maxLine)
	for {
		text, err := buf.ReadSlice('\n')
		if len(text) > 0 {
			each(strings.ToValidUTF8(strings.TrimRight(string(text), "\r\n"), "\ufffd"))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}
