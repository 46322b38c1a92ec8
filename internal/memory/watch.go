package memory

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"drun/internal/exit"
)

const (
	fastest = 8 << 30 // bytes a second: no process allocates faster
	soonest = 5 * time.Millisecond
	latest  = 100 * time.Millisecond

	// A process that grows this far above its limit during a collection is stopped at once.
	collecting = 2 * time.Second
)

// Exceeded is the error of a rank that has used more than it may.
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
	garbage int // Go's collector begins in time for a heap of this size
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

// Overflow returns [Exceeded] for a panic with which Go refuses an impossible size, else nil.
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
