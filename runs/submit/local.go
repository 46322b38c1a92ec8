package submit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"drun/history"
	"drun/internal/exit"
	"drun/internal/memory"
	"drun/internal/try"
)

// local is the queue on this machine: the follower (follow.go) starts its jobs, one after the other as long as cores and memory
// suffice. A job is a shell in a session of its own, which outlives the terminal and the follower. While it lives, it holds the
// lock on the file lock of its folder; when it has ended, the file exit has its exit code.
type local struct{}

func (local) look(_ context.Context, r *Request, uid string) (place, error) {
	if r.Nodes > 1 {
		return place{}, exit.Errorf(exit.Usage, "--nnodes %d: the target local is one machine", r.Nodes)
	}
	if all := int64(memory.Machine()); r.Target.memory() > all {
		return place{}, exit.Errorf(exit.Usage, "--memory %s: this machine has %dG", r.Target.Get("memory"), all>>30)
	}
	return ownPlace(r, uid)
}

func (local) text(j *job) string { return fill("local.sh", j) }

// submit makes the job's folder; the follower finds the job in the history.
func (l local) submit(ctx context.Context, j *job) (string, error) {
	out, err := machine{}.send(ctx, j.Folder, j.files(l.text(j)), fill("data.sh", j))
	return "", differs(out, err)
}

func (local) drop(_ context.Context, j *job) { os.RemoveAll(j.Folder) }

// states tells what has become of jobs, ends those that are to end, and begins those for which there is room.
func (l local) states(ctx context.Context, jobs []*history.Job) (map[int64]State, error) {
	out := map[int64]State{}
	var waiting, running []*history.Job
	for _, j := range jobs {
		s := specOf(j)
		alive := locked(s.of("lock")) // before the file is looked for, which is there when the lock is free
		text, err := os.ReadFile(s.of("exit"))
		_, unstarted := os.Stat(s.of("lock"))
		switch {
		case err == nil:
			out[j.ID] = ended(j, string(text))
		case alive:
			out[j.ID] = State{Status: history.Running, Reason: "on this machine"}
			if running = append(running, j); j.Asked != nil {
				_ = l.cancel(ctx, j)
			}
		case unstarted == nil:
			out[j.ID] = State{Status: history.Lost, Reason: "its process ended without an exit code: it was killed, or the machine stopped"}
		case j.Asked != nil:
			out[j.ID] = State{Status: history.Cancelled}
		default:
			waiting = append(waiting, j)
		}
	}
	begin, why := next(waiting, running)
	for _, j := range begin {
		out[j.ID] = State{Status: history.Running, Reason: "on this machine"}
		if err := l.begin(j); err != nil {
			out[j.ID] = State{Status: history.Failed, Reason: err.Error()}
		}
	}
	for _, j := range waiting[len(begin):] {
		out[j.ID] = State{Status: history.Pending, Reason: why}
		why = fmt.Sprintf("after job %s", NameOf(j))
	}
	return out, nil
}

// ended is the state of a job whose script has left drun's exit code, perhaps with words.
func ended(j *history.Job, left string) State {
	text, why, _ := strings.Cut(strings.TrimSpace(left), " ")
	code, err := strconv.Atoi(text)
	if err != nil {
		return State{Status: history.Failed, Reason: fmt.Sprintf("its script has left %q for an exit code", left)}
	}
	s := State{Status: history.Status(exit.Code(code).Status()), Code: &code}
	switch {
	case code != 0 && j.Asked != nil:
		s.Status = history.Cancelled
	case code == int(exit.Interrupted):
		s.Reason = cmp.Or(why, "it was interrupted")
	case code > 128:
		s.Reason = fmt.Sprintf("drun was killed by signal %d", code-128)
	case code != 0:
		s.Reason = fmt.Sprintf("exit code %d: %s", code, cmp.Or(why, "drun jobs logs says more"))
	}
	return s
}

func locked(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}

// begin starts a job of the queue.
func (local) begin(j *history.Job) (err error) {
	defer try.Caught(&err)
	s := specOf(j)
	lock := try.To(os.OpenFile(s.of("lock"), os.O_CREATE|os.O_RDWR, 0o600))
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("the lock of the job: %w", err)
	}
	out := try.To(os.OpenFile(s.of("output"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))
	defer out.Close()
	cmd := exec.Command("sh", filepath.Join(s.Folder, "script"))
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = out, out, []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if s.Cell > 0 {
		cmd.Env = append(os.Environ(), CellVariable+"="+strconv.Itoa(s.Cell))
	}
	try.Ok(cmd.Start())
	_ = os.WriteFile(s.of("pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600)
	go func() { _ = cmd.Wait() }() // the file has its exit code
	return nil
}

func (local) cancel(_ context.Context, j *history.Job) error {
	s := specOf(j)
	text, err := os.ReadFile(s.of("pid"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !locked(s.of("lock")) {
		return nil // it has not begun, or has ended
	}
	pid, _ := strconv.Atoi(string(text))
	if err != nil || pid <= 1 {
		return fmt.Errorf("the process of the job is not known: %w", err)
	}
	return errors.Join(unix.Kill(-pid, unix.SIGTERM), os.Remove(s.of("pid"))) // a second signal would end it at once
}

func (local) logs(_ context.Context, j *history.Job) (string, error) {
	text, err := os.ReadFile(specOf(j).of("output"))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return string(text), err
}

// next are the jobs of the queue that may begin now, in their order: none passes one that waits for room.
func next(waiting, running []*history.Job) (begin []*history.Job, why string) {
	cores, bytes := runtime.NumCPU(), int64(memory.Machine())
	for _, j := range running {
		s := specOf(j)
		cores, bytes = cores-min(s.CPUs, runtime.NumCPU()), bytes-s.Memory
	}
	for _, j := range waiting {
		s := specOf(j)
		need := min(s.CPUs, runtime.NumCPU()) // one that wants more than there is runs alone
		switch {
		case need > cores:
			return begin, fmt.Sprintf("waits for %d cores, of which %d are free", need, max(cores, 0))
		case s.Memory > bytes:
			return begin, fmt.Sprintf("waits for %dM of memory, of which %dM are free", s.Memory>>20, max(bytes, 0)>>20)
		}
		cores, bytes, begin = cores-need, bytes-s.Memory, append(begin, j)
	}
	return begin, ""
}
