package lang

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.starlark.net/starlark"
)

const (
	// MaxCallDepth is how deep calls may nest. Each takes about 2 kB of Go's
	// stack, so even what a recipe adds between two checks (a call takes at
	// least five steps) stays far below the 512 MB at which a process dies.
	MaxCallDepth = 5_000
	stepsBetween = 9_973 // a prime: the checks of a short loop fall on each of its steps

	heapEvery = 50 * time.Millisecond

	watchKey = "lang.watch"
)

// A watch is what a thread under Watch carries.
type watch struct {
	each  func(*starlark.Thread) // called at every check; may be nil
	cause atomic.Pointer[error]  // of the first Cancel
}

// Watch puts a new thread under watch, before it executes anything: recursion
// without end becomes an error of the recipe, and Cancel works on it. It takes
// the thread's OnMaxSteps for this.
func Watch(thread *starlark.Thread) {
	w := new(watch)
	thread.SetLocal(watchKey, w)
	thread.OnMaxSteps = func(thread *starlark.Thread) {
		thread.SetMaxExecutionSteps(thread.ExecutionSteps() + stepsBetween)
		if err := w.check(thread); err != nil {
			Cancel(thread, err)
		}
	}
	thread.SetMaxExecutionSteps(stepsBetween)
}

// LimitHeap makes it an error of the recipe on a thread under Watch when the
// process holds more than maxHeap bytes of Go's heap, until stop is called. A
// goroutine of its own checks this, since a loop of a few steps can double a string
// until no memory is left. What one builtin allocates in one call is seen only when
// it is done.
func LimitHeap(thread *starlark.Thread, maxHeap uint64) (stop func()) {
	done := make(chan struct{})
	go func() {
		heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		held := func() uint64 {
			metrics.Read(heap)
			return heap[0].Value.Uint64()
		}
		tick := time.NewTicker(heapEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if held() <= maxHeap {
				continue
			}
			runtime.GC() // some of it may be garbage
			if n := held(); n > maxHeap {
				Cancel(thread, fmt.Errorf("the recipe holds %d MB, more than its limit of %d MB", n>>20, maxHeap>>20))
				return
			}
		}
	}()
	return sync.OnceFunc(func() { close(done) })
}

// Observe calls fn on the thread's goroutine now and then while it executes, so
// that others can be told where it is.
func Observe(thread *starlark.Thread, fn func(*starlark.Thread)) {
	thread.Local(watchKey).(*watch).each = fn
}

func (w *watch) check(thread *starlark.Thread) error {
	if w.each != nil {
		w.each(thread)
	}
	if thread.CallStackDepth() > MaxCallDepth {
		return fmt.Errorf("recursion is deeper than %d calls (%s)", MaxCallDepth, recursive(thread))
	}
	return nil
}

// recursive says who recurses, by the innermost calls.
func recursive(thread *starlark.Thread) string {
	var names []string
	seen := make(map[string]bool)
	for depth := range 100 {
		if frame := thread.CallFrame(depth); isRecipe(frame.Pos) && !seen[frame.Name] {
			seen[frame.Name] = true
			names = append(names, frame.Name)
		}
	}
	if len(names) == 1 {
		return names[0] + " calls itself forever?"
	}
	if len(names) > 4 {
		names = append(names[:4], "…")
	}
	return strings.Join(names, ", ") + " call each other forever?"
}

// Cancel makes a thread under Watch fail soon with an error that wraps err; the
// first call counts. It may be called from any goroutine. What a builtin waits
// for is not interrupted: that is up to the builtin.
func Cancel(thread *starlark.Thread, err error) {
	if w, ok := thread.Local(watchKey).(*watch); ok {
		w.cause.CompareAndSwap(nil, &err)
	}
	thread.Cancel(err.Error())
}

// Cancelled returns the error that a thread under Watch was cancelled with, or
// nil.
func Cancelled(thread *starlark.Thread) error {
	if thread == nil {
		return nil
	}
	if w, ok := thread.Local(watchKey).(*watch); ok {
		if cause := w.cause.Load(); cause != nil {
			return *cause
		}
	}
	return nil
}

// causedByCancel reports whether err is what go.starlark.net makes of a
// cancelled thread, rather than an error that came before.
func causedByCancel(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if strings.HasPrefix(err.Error(), cancelPrefix) {
			return true
		}
	}
	return false
}

const cancelPrefix = "Starlark computation cancelled: "
