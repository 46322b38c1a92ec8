package sharedmem

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Operations of futex(2). Not the private ones: the waiters are in other processes.
const (
	futexWait = 0
	futexWake = 1
)

// Sleep sleeps while *w == value, at most d. It may return early for any
// reason; the caller looks at its condition again.
func Sleep(w *Word, value uint32, d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	// Not a raw system call: the scheduler must be able to run others meanwhile.
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWait, uintptr(value),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// Wake wakes every process that sleeps on w.
func Wake(w *Word) {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWake, 1<<30, 0, 0, 0)
}

// Yielding is a wait that gives its processor to others before it sleeps.
type Yielding struct {
	left  int
	start time.Time
}

// yieldTime bounds such a wait. Beside a program that computes, each turn costs a
// time slice of the scheduler, and a process that sleeps is woken sooner.
const yieldTime = 2 * time.Millisecond

// Yields makes a wait of at most n turns.
func Yields(n int) Yielding { return Yielding{left: n, start: time.Now()} }

// Next lets another process run on this processor; false without doing so when it is
// time to sleep.
func (y *Yielding) Next() bool {
	if y.left == 0 || time.Since(y.start) > yieldTime {
		return false
	}
	y.left--
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	return true
}
