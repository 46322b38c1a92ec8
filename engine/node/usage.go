package node

import (
	"fmt"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"drun/engine/cluster"
	"drun/history/records"
	"drun/internal/try"
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
	if rank == n.start.Jobs[0].Placement.Rank {
		n.machine.measure(u)
	}
	n.send(&cluster.ToCoordinator{Rank: rank, Usage: u})
}

func usageOf(pid int) (_ *records.Usage, err error) {
	defer try.Caught(&err)
	p := try.To(procfs.NewProc(pid))
	stat, status := try.To(p.Stat()), try.To(p.NewStatus())
	try.FailIf(status.VmHWM == 0, "process %d has ended", pid)
	return &records.Usage{CPU: stat.CPUTime(), Resident: int64(status.VmRSS), Peak: int64(status.VmHWM)}, nil
}

// meter measures what all processes of the machine use, from when it was made.
type meter struct {
	fs     procfs.FS
	ready  chan struct{} // closed when before is known, which a start does not wait for
	before *machine      // nil: it cannot be measured
}

type machine struct {
	cpu            float64 // seconds
	memory         int64   // bytes in use
	sent, received int64   // bytes, of all interfaces but the loopback
}

func newMeter() *meter {
	m := &meter{ready: make(chan struct{})}
	go func() {
		defer close(m.ready)
		var err error
		if m.fs, err = procfs.NewDefaultFS(); err == nil {
			m.before, _ = m.read()
		}
	}()
	return m
}

func (m *meter) read() (_ *machine, err error) {
	defer try.Caught(&err)
	now := &machine{}
	c := try.To(m.fs.Stat()).CPUTotal // guests' time is in that of users
	now.cpu = c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ
	memory := try.To(m.fs.Meminfo())
	if memory.MemTotal == nil || memory.MemAvailable == nil {
		return nil, fmt.Errorf("the memory in use is unknown")
	}
	now.memory = int64(*memory.MemTotal-*memory.MemAvailable) << 10
	for name, line := range try.To(m.fs.NetDev()) {
		if name != "lo" {
			now.sent += int64(line.TxBytes)
			now.received += int64(line.RxBytes)
		}
	}
	return now, nil
}

func (m *meter) measure(u *records.Usage) {
	if <-m.ready; m.before == nil {
		return
	}
	if now, err := m.read(); err == nil {
		u.MachineCPU, u.MachineMemory = now.cpu-m.before.cpu, now.memory
		u.MachineSent, u.MachineReceived = now.sent-m.before.sent, now.received-m.before.received
	}
}
