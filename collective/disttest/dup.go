package disttest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Dup returns another descriptor of f, as a process that inherits it would have.
func Dup(t testing.TB, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}
