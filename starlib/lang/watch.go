package lang

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.starlark.net/starlark"

	"drun/internal/memory"
)

const (
	// MaxCallDepth is how deeply calls may nest. Each takes about 2 kB of Go's stack, so even what a recipe adds
	// between two checks (a call takes at least five steps) stays far below the 512 MB at which a process dies.
	MaxCallDepth = 5_000
	stepsBetween = 9_973 // a prime: the checks of a short loop fall on each of its steps

	// interrupting is how long a cancelled thread may take to end.
	interrupting = 300 * time.Millisecond

	// leaving is how long a thread may take whose builtin has returned and which is unwinding out of the recipe.
	leaving = 5 * time.Second

	watchKey = "lang.watch"
)

// A watch is the state of a thread under Watch.
type watch struct {
	each  func(*starlark.Thread) // called at every check; may be nil
	cause atomic.Pointer[error]  // of the first Cancel
	due   uint64                 // the step of the next check
	step  func(*starlark.Thread) uint64
	at    uint64 // the step at which step is called
}

// Watch puts a new thread under watch, before it executes anything: infinite recursion becomes an error of the
// recipe, and Cancel works on it. It takes the thread's OnMaxSteps for this.
func Watch(thread *starlark.Thread) {
	w := &watch{due: stepsBetween, at: Never}
	thread.SetLocal(watchKey, w)
	thread.OnMaxSteps = func(thread *starlark.Thread) {
		now := thread.ExecutionSteps()
		if now >= w.due {
			w.due = now + stepsBetween
			if err := w.check(thread); err != nil {
				Cancel(thread, err)
			}
		}
		if now >= w.at {
			w.at = w.step(thread)
		}
		thread.SetMaxExecutionSteps(min(w.due, w.at))
	}
	thread.SetMaxExecutionSteps(w.due)
}

// Bound ends a thread under Watch, with the error of [memory.Watch], when the process uses more memory than it may, until
// stop is called. If the thread does not end soon, because a builtin keeps allocating, stuck is called with the error and
// its position, and must end the process. A thread that is leaving the recipe by itself reports its own error.
func Bound(thread *starlark.Thread, stuck func(*Error)) (stop func()) {
	ended := make(chan struct{})
	unwatch := memory.Watch(func(exceeded error) {
		Cancel(thread, exceeded)
		go func() {
			after := func(limit time.Duration) bool {
				select {
				case <-ended:
					return false
				case <-time.After(limit):
					return true
				}
			}
			if !after(interrupting) {
				return
			}
			if e := whereStuck(thread, exceeded); e.Pos.IsValid() || after(leaving) {
				stuck(e)
			}
		}()
	})
	return sync.OnceFunc(func() {
		close(ended)
		unwatch()
	})
}

// whereStuck gives err the position of a thread that Cancel has not ended. The thread is inside a builtin, so its frames
// do not change; if it ends at this very moment, the position may be missing or wrong.
func whereStuck(thread *starlark.Thread, err error) (e *Error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			e = &Error{Msg: err.Error(), Cause: err}
		}
	}()
	e = explainEval(&starlark.EvalError{Msg: err.Error(), CallStack: thread.CallStack()})
	e.Cause = err
	return e
}

// Observe makes the thread call fn on its goroutine from time to time while it executes,
// so that fn can tell others where it is.
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

// recursive names the functions that recurse, judging by the innermost calls.
func recursive(thread *starlark.Thread) string {
	var names []string
	seen := make(map[string]bool)
	for depth := range 100 {
		if frame := thread.CallFrame(depth); IsRecipe(frame.Pos) && !seen[frame.Name] {
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

// Cancel makes a thread under Watch fail soon with an error that wraps err; the first call counts. It may be called
// from any goroutine. A builtin's wait is not interrupted: that is up to the builtin.
func Cancel(thread *starlark.Thread, err error) {
	if w, ok := thread.Local(watchKey).(*watch); ok {
		w.cause.CompareAndSwap(nil, &err)
	}
	thread.Cancel(err.Error())
}

// Cancelled returns the error that a thread under Watch was cancelled with, or nil.
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

// causedByCancel reports whether err is go.starlark.net's error for a cancelled thread, rather than an earlier error.
func causedByCancel(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if strings.HasPrefix(err.Error(), cancelPrefix) {
			return true
		}
	}
	return false
}

const cancelPrefix = "Starlark computation cancelled: "
