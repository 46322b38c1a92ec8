package shm

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"drun/collective/sharedmem"
)

// Ranks know of each other which core they were on.
func TestSharesCore(t *testing.T) {
	f, err := Create(2)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var ranks [2]*Comm
	for rank := range ranks {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if ranks[rank], err = Open(os.NewFile(uintptr(fd), "shm"), rank, 2); err != nil {
			t.Fatal(err)
		}
		defer ranks[rank].Close()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &all) }()
	var cores []int
	for core := range 1024 {
		if all.IsSet(core) {
			cores = append(cores, core)
		}
	}
	on := func(core int) {
		t.Helper()
		var one unix.CPUSet
		one.Set(core)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Skipf("a process cannot choose its core here: %v", err)
		}
		if got := sharedmem.Core(); got != uint32(core) {
			t.Fatalf("this is core %d, not %d", got, core)
		}
	}
	on(cores[0])
	if ranks[0].sharesCore(1) {
		t.Error("a rank that has noted nothing is on this core")
	}
	if !ranks[1].sharesCore(0) || !ranks[0].sharesCore(1) {
		t.Error("a rank does not see another on its own core")
	}
	if len(cores) < 2 {
		return
	}
	on(cores[1])
	if ranks[0].sharesCore(1) {
		t.Error("a rank sees on its own core one that is on another")
	}
	ranks[1].noteCore()
	if !ranks[0].sharesCore(1) {
		t.Error("a rank does not see that another has moved")
	}
}
