package run

import (
	"context"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"drun/engine/cluster"
	"drun/internal/exit"
	"drun/internal/testlimit"
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

// A debugger that comes when the run no longer listens, or whose coming was not seen any more, does not wait for ever.
func TestDebuggerAtTheEnd(t *testing.T) {
	c := &coordinator{events: events{make(chan event, 1), make(chan struct{})}}
	come := func() *debugger {
		theirs, ours := net.Pipe()
		t.Cleanup(func() { theirs.Close() })
		if err := theirs.SetDeadline(time.Now().Add(testlimit.Time(10 * time.Second))); err != nil {
			t.Fatal(err)
		}
		c.come(ours)
		return cluster.Debugger(theirs)
	}
	seen := come()
	close(c.over)
	for _, d := range []*debugger{seen, come(), come()} {
		if m, err := d.Receive(); err != nil || m.Over == nil || *m.Over != "the run has ended" {
			t.Errorf("%+v, %v", m, err)
		}
	}
}
