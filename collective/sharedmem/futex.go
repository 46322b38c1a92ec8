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

// Sleep sleeps while *w == value, at most d. It may return early for any reason; the caller checks its condition
// again.
func Sleep(w *Word, value uint32, d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	sleep(w, value, &ts)
}

// sleep gives up its thread's right to run Go code before it sleeps. With an ordinary system call the runtime's monitor has to
// notice that it blocks, and polls every 20 µs to do so: a tenth of the processor time of processes that wait for each other.
//
//go:norace
//go:nosplit
func sleep(w *Word, value uint32, limit *unix.Timespec) {
	entersyscallblock()
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWait, uintptr(value),
		uintptr(unsafe.Pointer(limit)), 0, 0)
	exitsyscall()
}

// The runtime keeps these two for users outside of it (go.dev/issue/67401).

//go:linkname entersyscallblock runtime.entersyscallblock
func entersyscallblock()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

// Wake wakes every process that sleeps on w.
func Wake(w *Word) {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWake, 1<<30, 0, 0, 0)
}
