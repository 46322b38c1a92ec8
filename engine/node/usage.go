package node

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"drun/engine/cluster"
	"drun/history/records"
)

// What ranks use is sampled at these intervals: often in short runs, and in long ones as often as a plot can show.
const (
	sampleEvery = 5 * time.Second
	sampleParts = 500 // of the time elapsed
)

func nextSample(elapsed time.Duration) time.Duration { return max(sampleEvery, elapsed/sampleParts) }

// sample sends what the running ranks have used so far.
func (n *node) sample() {
	for rank, p := range n.procs {
		if p.exited {
			continue
		}
		if u, err := usageOf(p.cmd.Process.Pid); err == nil { // otherwise it is ending
			n.sendUsage(rank, u)
		}
	}
}

// sampleEnd sends what a rank used until its end, which the kernel has counted.
func (n *node) sampleEnd(p *process) {
	state := p.cmd.ProcessState
	if state == nil {
		return
	}
	u := &records.Usage{CPU: (state.UserTime() + state.SystemTime()).Seconds()}
	if r, ok := state.SysUsage().(*syscall.Rusage); ok {
		u.Peak = r.Maxrss << 10
	}
	n.sendUsage(p.rank, u)
}

func (n *node) sendUsage(rank int, u *records.Usage) {
	u.Time = time.Now()
	collectives, waiting := n.board.Spent(rank)
	u.Collectives, u.Waiting = collectives.Seconds(), waiting.Seconds()
	n.send(&cluster.ToCoordinator{Rank: rank, Usage: u})
}

// ticks is the unit of times in /proc, the same on all Linux machines.
const ticks = time.Second / 100

// usageOf reads what a process has used.
func usageOf(pid int) (*records.Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	// The name, in parentheses, may contain anything. After it come the state and numbers.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const user, system = 11, 12
	if len(fields) <= system {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	u := &records.Usage{}
	for _, i := range []int{user, system} {
		n, err := strconv.ParseInt(string(fields[i]), 10, 64)
		if err != nil {
			return nil, err
		}
		u.CPU += (time.Duration(n) * ticks).Seconds()
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(status)) {
		name, rest, _ := strings.Cut(line, ":")
		into := map[string]*int64{"VmRSS": &u.Resident, "VmHWM": &u.Peak}[name]
		if into == nil {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		if err != nil {
			return nil, err
		}
		*into = kib << 10
	}
	return u, nil
}
