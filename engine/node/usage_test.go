package node

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"drun/history/records"
)

func TestUsageOfAProcess(t *testing.T) {
	before, err := usageOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	memory, err := unix.Mmap(-1, 0, 64<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // none is used already
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(memory) }()
	for start := time.Now(); time.Since(start) < 200*time.Millisecond; {
		for i := 0; i < len(memory); i += 4096 {
			memory[i]++
		}
	}
	after, err := usageOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if used := after.CPU - before.CPU; used < 0.01 || used > 60 {
		t.Errorf("it used %v seconds of a core", used)
	}
	if grown := after.Resident - before.Resident; grown < 32<<20 || after.Peak < after.Resident-(1<<20) {
		t.Errorf("it has %d bytes, and %d more than before; the peak is %d", after.Resident, grown, after.Peak)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if u, err := usageOf(gone.Process.Pid); err == nil {
		t.Errorf("a process that has ended uses %+v", u)
	}
}

// What this process does, on every core, is a part of what its machine does.
func TestUsageOfAMachine(t *testing.T) {
	m := newMeter()
	<-m.ready
	before, err := usageOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range runtime.NumCPU() {
		all.Go(func() {
			for start := time.Now(); time.Since(start) < 300*time.Millisecond; {
				continue
			}
		})
	}
	all.Wait()
	own, err := usageOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var u records.Usage
	m.measure(&u)
	used := own.CPU - before.CPU
	if u.MachineCPU < used-0.1 || u.MachineCPU > 60*float64(runtime.NumCPU()) || u.MachineMemory < own.Resident || u.MachineSent < 0 || u.MachineReceived < 0 {
		t.Errorf("the machine uses %+v, and this process %v seconds and %+v of it", u, used, own)
	}
}

// Samples become rarer as a run goes on.
func TestSamplesOfAWeek(t *testing.T) {
	n := 0
	for at := time.Duration(0); at < 7*24*time.Hour; at += nextSample(at) {
		n++
	}
	if n < 1000 || n > 5000 {
		t.Errorf("%d samples", n)
	}
}
