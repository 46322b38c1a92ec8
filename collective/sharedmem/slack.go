package sharedmem

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Crowded reports whether so many processes of this machine, which wait for each other, share cores.
func Crowded(processes int) bool { return processes > Cores() }

// slack is how late timers may be in processes that take all cores.
const slack = time.Millisecond

// StartBeside calls start, which starts one of so many processes. Where they leave no core free its timers may be late: Go's runtime
// has a thread that looks every 20 µs, by the kernel's leave every 70, for others that block, and in processes that wait for each
// other at every message that took up to a third of the processor time. It begins anew after each sleep of a rank, and takes the core from a
// rank for which another waits.
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
