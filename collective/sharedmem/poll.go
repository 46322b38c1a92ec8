package sharedmem

import (
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Poll is how a process polls for another's progress before it sleeps: sleeping and being woken take longer than most
// calls.
type Poll struct {
	Pauses int // looks first, a pause of some 20 ns before each
	Yields int // looks after those, each after letting another process run
}

// PollBeside returns a Poll for a number of processes on this machine that wait for each other. They spin only if each
// has a core, and yield less the more of them share a core, since each yield delays the others.
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

// Core is the number of the core that this thread runs on; ^uint32(0) if unknown.
func Core() uint32 {
	var core uint32
	if _, _, err := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&core)), 0, 0); err != 0 {
		return ^uint32(0)
	}
	return core
}

// Pause tells the processor that it is in a loop that waits for memory.
func Pause()

// Crowded reports whether this many processes of this machine, which wait for each other, must share cores.
func Crowded(processes int) bool { return processes > Cores() }

// slack is how late timers may be in processes that use all cores.
const slack = time.Millisecond

// StartBeside calls start, which starts one of this many processes. If they leave no core free its timers may be
// late: a thread of Go's runtime looks for blocked threads every 20 µs (in practice every 70), and in processes
// that wait for each other at every message that took up to a third of the processor time. It starts again after
// each sleep of a rank, and takes the core from a rank for which another waits.
func StartBeside(processes int, start func() error) error {
	if processes < max(2, Cores()) {
		return start()
	}
	// A process inherits the slack of the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0) == nil {
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }() // as before
	}
	return start()
}
