package run

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"

	"drun/internal/exit"
)

// A signal that comes as a wait ends is told as what it is, or not at all.
func TestSignalAtTheEndOfAWait(t *testing.T) {
	told := 0
	for range 1000 {
		signals := make(chan os.Signal, 1)
		p := &plan{Options: Options{Hooks: Hooks{Signals: signals}}}
		_, err := interruptible(p, func(context.Context) (int, error) {
			signals <- syscall.SIGTERM
			return 1, nil
		})
		if err != nil {
			told++
			if !strings.HasPrefix(err.Error(), "interrupted by SIGTERM") || exit.CodeOf(err) != exit.Interrupted {
				t.Fatal(err)
			}
		}
	}
	if told == 0 {
		t.Error("none of 1000 was told")
	}
}
