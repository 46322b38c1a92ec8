// Package memory limits a rank's memory: it knows the rank's share of the machine's memory, how much the process uses,
// and what to do when it uses more. The worker and the prompt start [Watch], which observes the process as a whole;
// code that knows a size before it allocates calls [Fits].
package memory

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"drun/internal/exit"
)

var (
	limit atomic.Int64 // 0: not looked up yet
	heap  atomic.Int64 // Go's heap, when it was last measured

	// outside returns the memory that Go does not know of: what is in use, and what is kept for reuse.
	outside = func() (used, kept int) { return 0, 0 }
	relieve = func() {} // frees what is kept
)

// Of returns the limit of each of the ranks that share these bytes: a tenth is left for the system and drun itself.
func Of(bytes, ranks int) int { return max(bytes/max(ranks, 1)/10*9, 1) }

// Share limits the process to its share of this machine's memory, which is divided among this many ranks. bytes is
// that memory; 0: it is looked up.
func Share(ranks, bytes int) {
	if bytes == 0 {
		bytes = Machine()
	}
	limit.Store(int64(Of(bytes, ranks)))
}

// Limit returns how many bytes this process may use: without [Share], as if it were the only rank of this machine.
func Limit() int {
	if n := limit.Load(); n > 0 {
		return int(n)
	}
	Share(1, 0)
	return int(limit.Load())
}

// LargestValue returns how many bytes one value from a file or another rank may take. For a moment it exists several
// times: encoded, decoded, and as values of the recipe.
func LargestValue() int { return max(Limit()/8, min(128<<20, Limit()/2)) }

// Outside sets the functions for memory that Go does not know of: count returns what is in use, and what is kept for reuse;
// relief frees the latter.
func Outside(count func() (used, kept int), relief func()) { outside, relieve = count, relief }

// Heap returns how much of Go's heap was in use, garbage included, when it was last measured.
func Heap() int { return int(heap.Load()) }

// Look measures Go's heap.
func Look() int {
	s := [1]metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s[:])
	n := int(s[0].Value.Uint64())
	heap.Store(int64(n))
	return n
}

// Used returns how many bytes the process uses, garbage included.
func Used() int {
	used, _ := outside()
	return Look() + used
}

// Collect runs a garbage collection. Memory outside Go's heap is freed a moment after its owners.
func Collect() {
	runtime.GC()
	for before := Used(); ; {
		time.Sleep(time.Millisecond)
		now := Used()
		if now >= before {
			return
		}
		before = now
	}
}

// Fits returns an error, beginning with what, if n times each more bytes would be too much. Small sizes, which the
// watch notices in time, are not checked.
func Fits(n, each int, what string) error {
	if n <= 0 || each <= 0 || n <= Limit()/64/each {
		return nil
	}
	if n <= Limit()/each {
		if bytes := n * each; Used()+bytes <= Limit() {
			return nil
		} else if Collect(); Used()+bytes <= Limit() {
			return nil
		}
	}
	return fmt.Errorf("%s takes %s, and this rank may use %s, of which %s are in use", what,
		Text(float64(n)*float64(each)), Text(float64(Limit())), Text(float64(Used())))
}

// Text formats a number of bytes for people.
func Text(bytes float64) string {
	for _, unit := range []struct {
		name string
		size float64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}} {
		if bytes >= unit.size {
			return fmt.Sprintf("%.1f %s", bytes/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%.0f KiB", bytes/1024)
}

// Machine returns how many bytes of memory this machine, or the control group, has for drun. Looking it up reads several
// files, so a node does it once and tells its ranks.
var Machine = sync.OnceValue(func() int { return machine("/") })

// machine returns the memory of this machine, or of the process's control groups if they have less. Files are looked for under root.
func machine(root string) int {
	limit := math.MaxInt / 2
	if raw, err := os.ReadFile(filepath.Join(root, "proc/meminfo")); err == nil {
		for line := range strings.Lines(string(raw)) {
			if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
				if kb, err := strconv.Atoi(f[1]); err == nil {
					limit = kb << 10
				}
			}
		}
	}
	for _, file := range groupFiles(root) {
		if raw, err := os.ReadFile(file); err == nil {
			if n, err := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil && n > 0 {
				limit = min(limit, n)
			}
		}
	}
	return limit
}

// groupFiles names the files that may hold a limit: of the process's control group and of each one around it, version
// 2 and version 1. In a container the group's path may be the host's, and the limit is at the top.
func groupFiles(root string) []string {
	raw, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	var files []string
	for line := range strings.Lines("0::/\n1:memory:/\n" + string(raw)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) < 3 {
			continue
		}
		var dir, name string
		switch {
		case part[1] == "":
			dir, name = "sys/fs/cgroup", "memory.max"
		case strings.Contains(","+part[1]+",", ",memory,"):
			dir, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for group := filepath.Join("/", part[2]); ; group = filepath.Dir(group) {
			files = append(files, filepath.Join(root, dir, group, name))
			if group == "/" {
				break
			}
		}
	}
	return files
}

const (
	fastest = 8 << 30 // bytes a second: no process allocates faster
	soonest = 5 * time.Millisecond
	latest  = 100 * time.Millisecond

	// A process that grows this far above its limit during a collection is stopped at once.
	collecting = 2 * time.Second
)

// Exceeded returns the error of a rank that has used more than it may.
func Exceeded(limit int) error {
	return exit.WithHint(fmt.Errorf("used more than its %s of memory", Text(float64(limit))),
		"the ranks share the machine's memory: use fewer ranks or smaller batches, or keep less")
}

// Watch calls exceeded, once, when the process uses more memory than it may, garbage aside, until stop is called.
func Watch(exceeded func(error)) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	before := debug.SetMemoryLimit(-1)
	go func() {
		defer close(ended)
		defer debug.SetMemoryLimit(before)
		w := watch{done: done}
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-done:
				return
			case <-timer.C:
			}
			left, over := w.look()
			if over {
				exceeded(Exceeded(Limit()))
				return
			}
			timer.Reset(min(max(time.Duration(float64(left)/fastest*float64(time.Second)), soonest), latest))
		}
	}()
	return sync.OnceFunc(func() { close(done); <-ended })
}

type watch struct {
	done    chan struct{}
	garbage int // how much garbage Go's collector is set to allow
}

// look returns how many bytes the process has left, or that it has used more than it may.
func (w *watch) look() (left int, over bool) {
	limit := Limit()
	used, kept := outside()
	heap := Look()
	// Near the limit Go must collect before garbage exceeds it. With large tensors that would be all the time.
	if garbage := max(limit-limit/16-used, limit/4); garbage < w.garbage-limit/32 || garbage > w.garbage+limit/32 {
		w.garbage = garbage
		debug.SetMemoryLimit(int64(garbage))
	}
	if heap+used+kept > limit && kept > limit/32 {
		relieve()
	}
	if heap+used <= limit {
		return limit - heap - used, false
	}
	collected := make(chan struct{})
	go func() {
		Collect()
		close(collected)
	}()
	for deadline := time.Now().Add(collecting); ; {
		select {
		case <-w.done:
			return 0, false
		case <-collected:
			// If hardly anything was garbage, Go would collect again at once.
			left := limit - limit/16 - Used()
			return max(left, 0), left < 0
		case <-time.After(soonest):
			// A collection does not end while Go copies a large string.
			if Used() > limit+limit/4 || time.Now().After(deadline) {
				return 0, true
			}
		}
	}
}

// Overflow returns [Exceeded] for a panic by which Go refuses an impossible size, else nil.
func Overflow(panicked any) error {
	err, _ := panicked.(error)
	if err == nil {
		return nil
	}
	var fault runtime.Error
	if errors.Is(err, bytes.ErrTooLarge) || errors.As(err, &fault) && (strings.Contains(err.Error(), "slice: len out of range") || strings.Contains(err.Error(), "slice: cap out of range")) {
		return Exceeded(Limit())
	}
	return nil
}

// Refused reports whether a line of a process's stderr is Go saying that the system has no more memory for it, so
// that it ends.
func Refused(line string) bool {
	return strings.HasPrefix(line, "runtime: out of memory") || strings.HasPrefix(line, "fatal error: ") && (strings.Contains(line, "out of memory") ||
		strings.Contains(line, "cannot allocate memory") || strings.Contains(line, "cannot map pages"))
}
