// Package scratch makes temporary folders. Each is locked by the process that made
// it, so that other drun processes can recognise and remove those left by a killed process.
package scratch

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"drun/internal/try"
)

// Prefix is the beginning of the names of all such folders.
const Prefix = "drun-"

// marker is the file in each folder that its owner keeps locked. A folder without it is not drun's, or is still being made.
const marker = ".drun-owner"

// Dir is a folder that this process has made.
type Dir struct {
	Path string
	lock *os.File
}

var own struct {
	sync.Mutex
	dirs map[*Dir]bool
}

// making is held while a folder exists that is not yet in own.
var making sync.Mutex

// Parent returns the temporary folder, or /tmp if its name is too long for the sockets in it, whose paths have at most 108 bytes.
func Parent() string {
	if dir := os.TempDir(); len(dir) < 70 {
		return dir
	}
	return "/tmp"
}

// Make removes the folders of processes that are gone, and makes one whose name begins with Prefix and name.
func Make(name string) (*Dir, error) { return MakeIn(Parent(), Prefix+name) }

// MakeIn is Make in another folder, with names that begin with prefix.
func MakeIn(parent, prefix string) (_ *Dir, err error) {
	sweepAll(parent, prefix)
	making.Lock()
	defer making.Unlock()
	path, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, err
	}
	d := &Dir{Path: path}
	defer try.CaughtOr(&err, func() {
		d.Remove()
		err = fmt.Errorf("%s: %w", path, err)
	})
	// The marker gets its name only once it is locked, or another process could lock it first.
	fresh := filepath.Join(path, marker+".new")
	d.lock = try.To(os.OpenFile(fresh, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600))
	try.Ok(unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	try.Ok(os.Rename(fresh, filepath.Join(path, marker)))
	own.Lock()
	defer own.Unlock()
	if own.dirs == nil {
		own.dirs = map[*Dir]bool{}
	}
	own.dirs[d] = true
	return d, nil
}

func (d *Dir) Remove() {
	own.Lock()
	delete(own.dirs, d)
	own.Unlock()
	_ = removeAll(d.Path) // a later Make removes what remains
	if d.lock != nil {
		_ = d.lock.Close()
	}
}

// removeAll removes a folder, its marker last: without the marker, nothing would remove what is left after an error.
func removeAll(path string) error {
	list, err := os.ReadDir(path)
	for _, entry := range list {
		if entry.Name() != marker {
			err = errors.Join(err, os.RemoveAll(filepath.Join(path, entry.Name())))
		}
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(path)
}

// RemoveOwn removes all folders of this process, which is about to end. From then on Make blocks.
func RemoveOwn() {
	making.Lock() // never unlocked
	own.Lock()
	all := slices.Collect(maps.Keys(own.dirs))
	own.Unlock()
	for _, d := range all {
		d.Remove()
	}
}

// Sweep removes the folders whose owner is gone: only those of this user, with
// drun's marker in them, and nothing that a link leads to.
func Sweep() { sweepAll(Parent(), Prefix) }

func sweepAll(parent, prefix string) {
	list, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, entry := range list {
		if entry.IsDir() && strings.HasPrefix(entry.Name(), prefix) {
			sweep(filepath.Join(parent, entry.Name()))
		}
	}
}

func sweep(path string) {
	dir, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if unix.Fstat(dir, &st) != nil || int(st.Uid) != os.Geteuid() {
		return
	}
	fd, err := unix.Openat(dir, marker, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return // its owner is alive
	}
	// Only this user's processes could have put another folder in its place, as the temporary folder is sticky.
	_ = removeAll(path)
}
