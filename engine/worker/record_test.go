package worker

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"drun/engine"
	"drun/history/records"

	"golang.org/x/sys/unix"
)

// channels are the two ends of a control channel.
func channels(t *testing.T) (worker, agent *engine.Channel) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var both [2]*engine.Channel
	for i, fd := range fds {
		if both[i], err = engine.NewChannel(os.NewFile(uintptr(fd), "control")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { both[i].Close() })
	}
	return both[0], both[1]
}

// A record is sent soon after it was made, whenever that was.
func TestRecordsAreSentInTime(t *testing.T) {
	ours, theirs := channels(t)
	r := newRecorder(t.Context(), ours, true)
	defer r.close()
	late := 0
	for i := range 10 {
		time.Sleep(time.Duration(i*13) * time.Millisecond)
		made := time.Now()
		r.Log(records.Point{Name: "x", Step: int64(i), Value: 1, Exact: true})
		var msg engine.ToAgent
		if err := theirs.Receive(&msg); err != nil || len(msg.Records.Points) != 1 || msg.Records.Points[0].Step != int64(i) {
			t.Fatalf("%+v, %v", msg, err)
		}
		if time.Since(made) > 80*time.Millisecond {
			late++
		}
	}
	if late > 5 { // a busy machine may delay some
		t.Errorf("%d of 10 were late", late)
	}
}

// What a recipe records ahead of an agent that does not read is bounded; the
// recipe goes on when the agent reads, or the run is aborted.
func TestRecordsAreBounded(t *testing.T) {
	note := strings.Repeat("x", 100_000)
	for name, record := range map[string]func(r *recorder){
		"notes":   func(r *recorder) { r.Note(records.Note{Text: note}) },
		"tags":    func(r *recorder) { r.Tag([]string{note[:200]}) },
		"metrics": func(r *recorder) { r.Log(records.Point{Name: note[:200], Step: 1, Value: 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := channels(t)
			ctx, abort := context.WithCancelCause(t.Context())
			r := newRecorder(ctx, ours, true)
			made, done := 0, make(chan int)
			stop := make(chan struct{})
			go func() {
				for {
					select {
					case <-stop:
						done <- made
						return
					default:
						record(r)
						made++
					}
				}
			}()
			stuck := func() bool {
				for range 100 {
					time.Sleep(50 * time.Millisecond)
					before := r.queue.Size()
					if before > 2*limits.Full {
						t.Fatalf("%d bytes are waiting", before)
					}
					if before >= limits.Full {
						return true
					}
				}
				return false
			}
			if !stuck() {
				t.Fatal("the recipe was not held up")
			}
			var msg engine.ToAgent // so the recipe goes on
			if err := theirs.Receive(&msg); err != nil {
				t.Fatal(err)
			}
			if !stuck() {
				t.Fatal("the recipe did not come back to its bound")
			}
			close(stop)
			abort(errors.New("aborted"))
			select {
			case <-done:
			case <-time.After(5 * time.Second):
				t.Error("an abort does not let go of the recipe")
			}
			theirs.Close()
		})
	}
}
