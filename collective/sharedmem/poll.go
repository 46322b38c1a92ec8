package sharedmem

import (
	"time"

	"golang.org/x/sys/unix"
)

// Poll is how a process polls for another's progress before it sleeps: sleeping and being woken take longer than most
// calls.
type Poll struct {
	Pauses int // looks first, a pause of some 20 ns before each
	Yields int // looks after those, each after letting another process run
}

// PollBeside returns a Poll for a number of processes on this machine that wait for
// each other. They spin only if each has a core, and yield less the more of them share
// a core, since each yield delays the others.
func PollBeside(processes int) Poll {
	p := Poll{Yields: 500 * Cores() / max(processes, Cores())}
	if processes <= Cores() {
		p.Pauses = 200
	}
	return p
}

// yieldTime bounds the yields of a wait. Next to a program that computes, each yield costs a time slice of the
// scheduler, and a sleeping process is woken sooner.
const yieldTime = 2 * time.Millisecond

// Until polls until ready returns true; it returns false when it is time to sleep.
func (p Poll) Until(ready func() bool) bool {
	for range p.Pauses {
		if ready() {
			return true
		}
		Pause()
	}
	if p.Yields > 0 {
		start := time.Now()
		for n := range p.Yields {
			if ready() {
				return true
			}
			if n%8 == 1 && time.Since(start) > yieldTime { // reading the clock takes a tenth of a yield
				return false
			}
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
	}
	return ready()
}
