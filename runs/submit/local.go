package submit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	if all := memoryHere(); all > 0 && r.Target.memory() > all {
		return place{}, exit.Errorf(exit.Usage, "--memory %s: this machine has %dG", r.Target.Get("memory"), all>>30)
	}
	return ownPlace(r, uid)
}

func (l local) send(_ context.Context, j *job) (err error) {
	defer try.Caught(&err)
	try.Ok(os.MkdirAll(j.folder, 0o700))
	for _, f := range j.files(l.text(j)) {
		try.Ok(os.WriteFile(filepath.Join(j.folder, f.name), f.content, fs.FileMode(cmp.Or(f.mode, 0o600))))
	}
	return nil
}

func (local) text(j *job) string {
	text := "#!/bin/sh\ntrap : HUP INT TERM\ncd " + words([]string{j.dir}) + " || exit\n"
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "DRUN_") && !strings.Contains(name, "SECRET") && !strings.Contains(name, "TOKEN") && name != "DRUN_HOME" {
			text += "export " + name + "=" + words([]string{value}) + "\n"
		}
	}
	exit := "exit"
	if j.Cells != nil {
		exit = "exit-$" + CellVariable
	}
	return text + j.environment(CellVariable) + j.command() + "\ncode=$?\ncd " + words([]string{j.folder}) +
		" && echo $code >" + exit + ".part && mv " + exit + ".part " + exit + "\nexit $code\n"
}

func (local) submit(context.Context, *job) (string, error) { return "", nil }

func (local) drop(_ context.Context, j *job) { os.RemoveAll(j.folder) }

// of names a file of a job's run.
func (s spec) of(name string) string {
	if s.Cell > 0 {
		name += "-" + strconv.Itoa(s.Cell)
	}
	return filepath.Join(s.Folder, name)
}

func (local) states(_ context.Context, jobs []*history.Job) (map[int64]State, error) {
	out := map[int64]State{}
	for _, j := range jobs {
		s := specOf(j)
		alive := locked(s.of("lock")) // before the file is looked for, which is there when the lock is free
		text, err := os.ReadFile(s.of("exit"))
		_, unstarted := os.Stat(s.of("lock"))
		switch code, problem := strconv.Atoi(strings.TrimSpace(string(text))); {
		case err == nil && problem == nil:
			out[j.ID] = ended(j, code)
		case alive:
			out[j.ID] = State{Status: history.Running, Reason: "on this machine"}
		case unstarted != nil:
			out[j.ID] = State{Status: history.Pending, Reason: j.Reason}
		default:
			out[j.ID] = State{Status: history.Lost, Reason: "its process ended without an exit code: it was killed, or the machine stopped"}
		}
	}
	return out, nil
}

// ended is the state of a job that drun has ended with an exit code.
func ended(j *history.Job, code int) State {
	s := State{Status: history.Status(exit.Code(code).Status()), Code: &code}
	switch {
	case code != 0 && j.Asked != nil:
		s.Status, s.Reason = history.Cancelled, "by drun jobs cancel"
	case code == int(exit.Interrupted):
		s.Reason = "it was interrupted"
	case code > 128:
		s.Reason = fmt.Sprintf("drun was killed by signal %d", code-128)
	case code != 0:
		s.Reason = fmt.Sprintf("exit code %d: drun jobs logs says more", code)
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

// begin starts a job of the queue. done is called when it has ended.
func (local) begin(j *history.Job, done func()) (err error) {
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
	go func() {
		_ = cmd.Wait() // the file has its exit code
		done()
	}()
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
	return unix.Kill(-pid, unix.SIGTERM)
}

func (local) logs(_ context.Context, j *history.Job, to io.Writer) error {
	f, err := os.Open(specOf(j).of("output"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(to, f)
	return err
}

// memoryHere is how much memory the machine has; 0: not known.
func memoryHere() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// next are the jobs of the queue that may begin now, in their order: none passes one that waits for room.
func next(waiting, running []*history.Job) (begin []*history.Job, why string) {
	cores, memory := runtime.NumCPU(), memoryHere()
	for _, j := range running {
		s := specOf(j)
		cores, memory = cores-min(s.CPUs, runtime.NumCPU()), memory-s.Memory
	}
	for _, j := range waiting {
		s := specOf(j)
		need := min(s.CPUs, runtime.NumCPU()) // one that wants more than there is runs alone
		switch {
		case need > cores:
			return begin, fmt.Sprintf("waits for %d cores, of which %d are free", need, max(cores, 0))
		case s.Memory > memory:
			return begin, fmt.Sprintf("waits for %dM of memory, of which %dM are free", s.Memory>>20, max(memory, 0)>>20)
		}
		cores, memory, begin = cores-need, memory-s.Memory, append(begin, j)
	}
	return begin, ""
}
