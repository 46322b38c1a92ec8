package sharedmem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Core is the number of the core that this thread runs on; ^uint32(0) if unknown.
func Core() uint32 {
	var core uint32
	if _, _, err := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&core)), 0, 0); err != 0 {
		return ^uint32(0)
	}
	return core
}
