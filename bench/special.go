package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"drun/internal/try"
)

// itself runs a command of this program in a separate process.
func itself(command string) func(context.Context) ([]figure, error) {
	return printed([]string{"/proc/self/exe", command}, 0)
}

// gloo runs the raw Gloo benchmark; its ranks find each other through a folder that must be new each time.
func gloo(p *peers, ranks int) func(context.Context) ([]figure, error) {
	return func(ctx context.Context) (_ []figure, err error) {
		defer try.Caught(&err)
		return printed([]string{p.built("allreduce_gloo"), try.To(os.MkdirTemp(p.folder, "gloo-"))}, ranks)(ctx)
	}
}

// sized watches an agent: the last figure is the largest size, in MiB, that of gave while it ran; those before are
// what it printed.
func sized(name string, args []string, of func(agent int) float64) func(context.Context) ([]figure, error) {
	return func(ctx context.Context) ([]figure, error) {
		ctx, cancel := context.WithTimeout(ctx, timeLimit)
		defer cancel()
		var output, said bytes.Buffer
		agent := exec.CommandContext(ctx, args[0], args[1:]...)
		agent.Stdout, agent.Stderr = &output, &said
		if err := agent.Start(); err != nil {
			return nil, err
		}
		ended := make(chan error, 1)
		go func() { ended <- agent.Wait() }()
		peak := 0.0
		for {
			select {
			case err := <-ended:
				if err != nil || peak == 0 {
					return nil, fmt.Errorf("%s: no process was seen: %v: %s", strings.Join(args, " "), err, said.String()) //nolint:errorlint // there may be no error
				}
				return append(parseFigures(output.String()), figure{name, peak, "MiB"}), nil
			case <-time.After(20 * time.Millisecond):
				peak = max(peak, of(agent.Process.Pid))
			}
		}
	}
}

// onlySize is sized without what the agent printed.
func onlySize(name string, args []string, of func(agent int) float64) func(context.Context) ([]figure, error) {
	return func(ctx context.Context) ([]figure, error) {
		figures, err := sized(name, args, of)(ctx)
		return figures[max(0, len(figures)-1):], err
	}
}

// ownSize returns the peak size, in MiB, of a process; 0 if it has ended.
func ownSize(pid int) float64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return peakResident(string(status))
}

// peakResident reads VmHWM, in MiB, from a process's status.
func peakResident(status string) (kib float64) {
	_, size, _ := strings.Cut(status, "VmHWM:")
	_, _ = fmt.Sscan(size, &kib)
	return kib / 1024
}

func commandLine(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(line)
}

// largestChild returns the largest peak, in MiB, of a process's children. One that has not executed its program yet shows its
// parent's memory, and does not count.
func largestChild(parent int) float64 {
	largest := 0.0
	own := commandLine(parent)
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, path := range threads {
		children, _ := os.ReadFile(path)
		for _, child := range strings.Fields(string(children)) {
			if pid, _ := strconv.Atoi(child); commandLine(pid) != own {
				largest = max(largest, ownSize(pid))
			}
		}
	}
	return largest
}

// plainFile writes the bytes of a state into a file, and synchronises it.
func plainFile(folder string) func(context.Context) ([]figure, error) {
	return func(context.Context) (_ []figure, err error) {
		defer try.Caught(&err)
		path := filepath.Join(folder, "plain")
		defer os.Remove(path)
		data := make([]byte, mib)
		figures := []figure{}
		for range 4 {
			started := time.Now()
			f := try.To(os.Create(path))
			for i := range 256 {
				for at := 0; at < mib; at += 4096 { // another page each
					binary.LittleEndian.PutUint64(data[at:], uint64(started.UnixNano())+uint64(i))
				}
				try.To(f.Write(data))
			}
			try.Ok(errors.Join(f.Sync(), f.Close()))
			figures = append(figures, figure{"durable save of 256 MiB", time.Since(started).Seconds(), "s"})
			os.Remove(path)
		}
		return figures, nil
	}
}

// digitsHistory trains digits.star three times into a new history: twice the same, and with another number of
// threads. The accuracy, and whether the metrics are equal, are read from the history.
func digitsHistory(drun, folder string) func(context.Context) ([]figure, error) {
	return func(ctx context.Context) (_ []figure, err error) {
		defer try.Caught(&err)
		home := try.To(os.MkdirTemp(folder, "digits-"))
		query := func(into any, args ...string) error {
			output, err := exec.CommandContext(ctx, drun, append(args, "--json", "--home", home)...).Output()
			if err != nil {
				return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
			}
			return json.Unmarshal(output, into)
		}
		for _, more := range [][]string{nil, nil, {"--threads", "2"}} {
			args := append([]string{drun, "run", "examples/digits.star", "-n", "2", "--home", home}, more...)
			try.To2((command{args, 0}).run(ctx))
		}
		var first struct {
			Seconds float64
			Metrics map[string]struct{ Last float64 }
		}
		try.Ok(query(&first, "show", "1"))
		figures := []figure{
			{"digits.star, 2 ranks, accuracy", first.Metrics["acc"].Last, ""},
			{"digits.star, 2 ranks, time", first.Seconds, "s"},
		}
		for run, what := range map[int]string{2: "when repeated", 3: "with 2 threads"} {
			var differing []struct{ Count, Of float64 }
			try.Ok(query(&differing, "sql", differenceQuery(1, run)))
			try.FailIf(len(differing) != 1 || differing[0].Of == 0, "digits.star recorded no metrics")
			figures = append(figures, figure{"digits.star, rows that differ " + what, differing[0].Count, ""})
		}
		return figures, nil
	}
}

// differenceQuery counts the metric rows in which two runs differ by any bit, and all rows of the first.
func differenceQuery(a, b int) string {
	const rows = "select name, step, rank, value, bits from metrics where exact and run = %d"
	one, other := fmt.Sprintf(rows, a), fmt.Sprintf(rows, b)
	return fmt.Sprintf("select (select count(*) from (%[1]s except %[2]s)) + (select count(*) from (%[2]s except %[1]s)) as count,"+
		" (select count(*) from (%[1]s)) as of", one, other)
}
