package wire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drun/collective"

	"golang.org/x/sys/unix"
)

// An error that has gone to a plugin's slot and back is of the same kind.
func TestErrorsComeBack(t *testing.T) {
	for _, err := range []error{nil, collective.ErrFingerprint, collective.ErrTimeout, collective.ErrClosed} {
		status, text := Encode(err)
		if got := Decode(status, text, collective.Barrier, "x", 1); !errors.Is(got, err) {
			t.Errorf("%v became %v", err, got)
		}
	}
	status, text := Encode(fmt.Errorf("in a call: %w", &collective.CallError{Kind: collective.Send, Problem: "too long"}))
	var bad *collective.CallError
	if err := Decode(status, text, collective.Send, "x", 1); !errors.As(err, &bad) || bad.Problem != "too long" || bad.Kind != collective.Send {
		t.Error(err)
	}
	status, text = Encode(errors.New("no cable"))
	var broken *collective.BackendError
	if err := Decode(status, text, collective.Send, "x", 1); !errors.As(err, &broken) || broken.Msg != "no cable" || broken.Rank != 1 {
		t.Error(err)
	}
	for status, want := range map[uint8]string{Panicked: "it panicked: oh", 99: "status 99, which does not exist"} {
		if err := Decode(status, "oh", collective.Send, "x", 1); !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
}

func arena(t *testing.T) *Arena {
	t.Helper()
	a, err := CreateArena()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// What the other side claims about the arena is not believed.
func TestSpansThatLieElsewhere(t *testing.T) {
	a := arena(t)
	size := int64(len(a.Mem))
	for _, s := range []Span{{0, 8}, {DataAt - 1, 8}, {DataAt, -8}, {size - 4, 8}, {size, 8}, {1 << 62, 1 << 62}, {DataAt, 1 << 62}, {-8, 8}} {
		if data, err := a.Bytes(s); err == nil {
			t.Errorf("%v: %d bytes", s, len(data))
		}
	}
	data, err := a.Bytes(Span{DataAt, 16})
	if err != nil || len(data) != 16 || cap(data) != 16 {
		t.Fatalf("%d of %d, %v", len(data), cap(data), err)
	}
	if s, ok := a.Where(data); !ok || s != (Span{DataAt, 16}) {
		t.Errorf("%v %v", s, ok)
	}
	if _, ok := a.Where(make([]byte, 8)); ok {
		t.Error("memory of the heap is taken for the arena's")
	}
	if counts, err := a.Ints(Span{}); counts != nil || err != nil {
		t.Errorf("%v %v", counts, err)
	}
	var s Slot
	s.SetText(strings.Repeat("x", 2*maxText))
	s.textBytes = 1 << 30
	if n := len(s.Text()); n != maxText {
		t.Errorf("a text of %d bytes", n)
	}
}

// Both sides see each other's calls, in order.
func TestRing(t *testing.T) {
	ours := arena(t)
	fd, err := unix.Dup(int(ours.File.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := OpenArena(os.NewFile(uintptr(fd), "arena"))
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if _, ok := theirs.Take(); ok || theirs.Waiting() {
		t.Fatal("a call that nobody made")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	done := make(chan bool)
	go func() {
		defer close(done)
		for n := 0; n < 3*Slots; {
			if s, ok := theirs.Take(); ok {
				if s.Tag != int64(n) {
					t.Errorf("call %d comes as number %d", s.Tag, n)
					cancel()
					return
				}
				s.State.Store(Ended)
				n++
				s.Over.Open()
				continue
			}
			theirs.Work.Sleep(time.Second, theirs.Waiting)
		}
	}()
	for n := range 3 * Slots {
		s := ours.Slot(uint32(n))
		if n >= Slots {
			if err := s.Over.Wait(ctx, func() bool { return s.State.Load() == Ended }); err != nil {
				t.Fatalf("call %d, of which the slot is still taken: %v", n, err)
			}
		}
		s.Tag = int64(n)
		ours.Submit(uint32(n % Slots))
		ours.Work.Open()
	}
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal("calls are lost")
	}
}

func TestFilesThatAreNoArena(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, size := range []int64{0, leastBytes} {
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenArena(f); err == nil {
			t.Errorf("a file of %d zeros is taken for an arena", size)
		}
		f.Close()
	}
}

// A plugin that was built before there were properties has none, and takes requests with fields that it does not know.
func TestPluginsWithoutProperties(t *testing.T) {
	var c codec
	old, err := c.Marshal(struct{ Name, Version, Problem string }{"x", "1", "none"})
	if err != nil {
		t.Fatal(err)
	}
	var d Description
	if err := c.Unmarshal(old, &d); err != nil || d != (Description{Name: "x", Version: "1", Problem: "none"}) {
		t.Errorf("%+v, %v", d, err)
	}
	request, err := c.Marshal(&DescribeRequest{NoProbe: true})
	if err == nil {
		err = c.Unmarshal(request, new(struct{}))
	}
	if err != nil {
		t.Error(err)
	}
}
