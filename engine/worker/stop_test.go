package worker

import (
	"errors"
	"testing"

	"go.starlark.net/starlark"
)

// A thread that a debugger holds goes on when the context ends, and must have been cancelled by then.
func TestStopCancelsTheThreadFirst(t *testing.T) {
	w := &worker{thread: &starlark.Thread{}}
	ended := false
	w.cancel = func(error) {
		ended = true
		if _, err := starlark.Eval(w.thread, "recipe.star", "1 + 1", nil); err == nil {
			t.Error("the recipe still executes")
		}
	}
	if w.stop(errors.New("interrupted")); !ended {
		t.Error("the context has not ended")
	}
}
