package sharedmem

import (
	"context"
	"sync/atomic"
	"time"
	"unsafe"

	"drun/collective"

	"golang.org/x/sys/unix"
)

// Operations of futex(2). Not the private ones: the waiters are in other processes.
const (
	futexWait = 0
	futexWake = 1
)

// Sleep sleeps while *w == value, at most d. It may return early for any reason; the caller checks its condition again.
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

// A Gate lets processes sleep until something in shared memory has changed. Whoever changes it calls Open, which
// costs one load while nobody sleeps.
type Gate struct {
	turn     Word
	sleepers atomic.Uint32
}

// Open wakes all sleepers after a change that they may wait for.
func (g *Gate) Open() {
	if g.sleepers.Load() != 0 {
		g.turn.Add(1)
		Wake(&g.turn)
	}
}

// Sleep returns when ready holds, when the gate is opened, or after d.
func (g *Gate) Sleep(d time.Duration, ready func() bool) {
	g.sleepers.Add(1)
	defer g.sleepers.Add(^uint32(0))
	turn := g.turn.Load()
	if !ready() {
		Sleep(&g.turn, turn, d)
	}
}

// Wait sleeps until ready holds or ctx ends. A sleeper that is killed leaves its count behind, which only costs later
// calls of Open a system call.
func (g *Gate) Wait(ctx context.Context, ready func() bool) error {
	g.sleepers.Add(1)
	defer g.sleepers.Add(^uint32(0))
	sleep := collective.NewSleep(ctx)
	for {
		turn := g.turn.Load()
		if ready() {
			return nil
		}
		slice, err := sleep.Next()
		if err != nil {
			return err
		}
		Sleep(&g.turn, turn, slice)
	}
}
