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
