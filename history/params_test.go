package history

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A run that is resumed gets the very bytes, also those that are no UTF-8.
func TestParamsKeepTheirBytes(t *testing.T) {
	for _, want := range []string{"", "a", "\xc3", "\xff\x00é", "\ufffd"} {
		kind, text, err := encodeParam(want)
		ok(t, err)
		if got, err := decodeParam(kind, text); got != want || err != nil {
			t.Errorf("%q came back as %q, %v, from %s %s", want, got, err, kind, text)
		}
	}
}

// A home may come from anywhere: a pipe by the name of a spool holds up nobody.
func TestPipeAsSpool(t *testing.T) {
	home := t.TempDir()
	r := begin(t, open(t, home), RunInfo{Name: "x"})
	ok(t, r.Spool(everything()))
	path := r.Spooled()
	r.Leave()
	ok(t, unix.Unlink(path))
	ok(t, unix.Mkfifo(path, 0o600))
	ok(t, os.Mkdir(filepath.Join(home, "copy"), 0o700))
	done := make(chan error)
	go func() {
		db, err := Open(home)
		if err == nil {
			db.Close()
			_, err = Copy(home, filepath.Join(home, "copy"), func(string, int64) bool { return true })
		}
		done <- err
	}()
	select {
	case err := <-done:
		ok(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("the history does not open")
	}
}
