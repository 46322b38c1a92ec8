package sharedmem

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

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
