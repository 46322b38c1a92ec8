package main

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"drun/engine/run"
)

// suspending has Ctrl-Z (SIGTSTP) stop the ranks of a run, which are in process groups of their own, before this process, and
// SIGCONT continue them. end gives the signal back.
func suspending(o *run.Options) (end func()) {
	if signal.Ignored(syscall.SIGTSTP) {
		return func() {}
	}
	var mu sync.Mutex
	ranks := map[int]bool{} // by process ID: a sweep has several runs
	spawned := o.OnSpawn
	o.OnSpawn = func(rank, pid int) {
		mu.Lock()
		ranks[pid] = true
		mu.Unlock()
		if spawned != nil {
			spawned(rank, pid)
		}
	}
	all := func(sig syscall.Signal) {
		mu.Lock()
		defer mu.Unlock()
		for pid := range ranks {
			if parentOf(pid) == os.Getpid() {
				_ = syscall.Kill(-pid, sig)
			} else { // it has ended
				delete(ranks, pid)
			}
		}
	}
	stops, continues := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(stops, syscall.SIGTSTP)
	signal.Notify(continues, syscall.SIGCONT)
	go func() {
		for range stops {
			select {
			case <-continues: // of an earlier stop
			default:
			}
			all(syscall.SIGSTOP)
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			<-continues
			all(syscall.SIGCONT)
		}
	}()
	return func() {
		signal.Stop(stops)
		signal.Stop(continues)
		close(stops)
	}
}

// parentOf returns a process's parent, 0 if there is no such process.
func parentOf(pid int) int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // after the name, which may have anything in it
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	return parent
}
