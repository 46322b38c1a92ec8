package engine

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A peer that is killed before it has read what it was sent resets the
// connection: it is gone, like one that closes it.
func TestPeerThatIsKilled(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewChannel(os.NewFile(uintptr(fds[0]), "ours"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Send(&ToWorker{Saved: &Saved{}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Close(fds[1]); err != nil {
		t.Fatal(err)
	}
	if err := c.Receive(new(ToAgent)); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want io.EOF", err)
	}
}
