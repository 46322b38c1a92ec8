package memory

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// limited sets the limit to this much more than the process uses, until the test ends.
func limited(t *testing.T, more int) {
	t.Helper()
	runtime.GC()
	limit.Store(int64(Used() + more))
	t.Cleanup(func() { Share(1, 0) })
}

// hold fills the heap with n bytes.
func hold(n int) [][]byte {
	var held [][]byte
	for range n >> 20 {
		held = append(held, make([]byte, 1<<20))
	}
	return held
}

func TestWatch(t *testing.T) {
	limited(t, 64<<20)
	over := make(chan error, 1)
	stop := Watch(func(err error) { over <- err })
	defer stop()
	// Garbage does not count as used.
	for range 20 {
		hold(16 << 20)
	}
	select {
	case err := <-over:
		t.Fatalf("garbage counts: %v", err)
	default:
	}
	held := hold(80 << 20)
	if err := <-over; !strings.HasPrefix(err.Error(), "used more than its ") || !strings.HasSuffix(err.Error(), " of memory") {
		t.Error(err)
	}
	runtime.KeepAlive(held)
}

// Memory outside Go's heap counts too, and what is kept for reuse is freed first.
func TestOutside(t *testing.T) {
	limited(t, 64<<20)
	defer Outside(outside, relieve)
	use, keep := 32<<20, 96<<20
	Outside(func() (int, int) { return use, keep }, func() { keep = 0 })
	w := watch{done: make(chan struct{})}
	if left, over := w.look(); over || keep != 0 || left > 32<<20 || left < 16<<20 {
		t.Errorf("%d bytes are left (over: %v), %d are kept", left, over, keep)
	}
	use = 80 << 20
	if _, over := w.look(); !over {
		t.Error("what is outside of Go's heap does not count")
	}
}

// Go's garbage collector has its own pace again after the watch ends.
func TestStop(t *testing.T) {
	limited(t, 64<<20)
	before := debug.SetMemoryLimit(-1)
	stop := Watch(func(error) { t.Error("exceeded") })
	for debug.SetMemoryLimit(-1) == before {
		time.Sleep(time.Millisecond)
	}
	stop()
	stop()
	if now := debug.SetMemoryLimit(-1); now != before {
		t.Errorf("the collector is held to %d bytes after the end", now)
	}
}

func TestFits(t *testing.T) {
	limited(t, 256<<20)
	for _, c := range []struct {
		n, each int
		fits    bool
	}{
		{0, 1 << 60, true}, {1 << 60, 0, true}, {-1, 16, true}, {1, 1, true}, {1 << 20, 64, true}, {200 << 20, 1, true},
		{1 << 20, 1024, false}, {1 << 62, 16, false}, {1 << 62, 1 << 62, false}, {Limit() + 1, 1, false},
	} {
		if err := Fits(c.n, c.each, "it"); (err == nil) != c.fits {
			t.Errorf("%d times %d: %v", c.n, c.each, err)
		}
	}
	if err := Fits(1<<30, 16, "a list"); err == nil || !strings.HasPrefix(err.Error(), "a list takes 16.0 GiB, and this rank may use ") {
		t.Error(err)
	}
	// Garbage is collected to make room.
	hold(200 << 20)
	if err := Fits(200<<20, 1, "it"); err != nil {
		t.Error(err)
	}
}

func TestOverflow(t *testing.T) {
	panicked := func(f func()) (p any) {
		defer func() { p = recover() }()
		f()
		return nil
	}
	huge := 1 << 60
	for _, f := range []func(){func() { _ = make([]int, huge) }, func() { _ = make([]int, 0, huge) }, func() { strings.NewReplacer("a", strings.Repeat("b", 1<<20)); new(strings.Builder).Grow(huge) }} {
		if p := panicked(f); p == nil || Overflow(p) == nil {
			t.Errorf("%v", p)
		}
	}
	var none []int
	for _, p := range []any{"text", nil, panicked(func() { _ = none[huge] })} {
		if err := Overflow(p); err != nil {
			t.Errorf("%v: %v", p, err)
		}
	}
}

func TestRefused(t *testing.T) {
	for line, want := range map[string]bool{
		"fatal error: runtime: out of memory": true, "fatal error: runtime: cannot allocate memory": true,
		"runtime: out of memory: cannot allocate 4194304-byte block (1 in use)": true,
		"fatal error: all goroutines are asleep - deadlock!":                    false,
		"the disk is out of memory":                                             false,
	} {
		if Refused(line) != want {
			t.Errorf("%s: %v", line, !want)
		}
	}
}
