package tensor

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"syscall"

	"drun/internal/try"
)

// NewDiskPool makes a pool whose memory is a file in dir: the system keeps in memory what is in use and what there is room
// for. The file has no name, so nothing is left when the process ends.
func NewDiskPool(dir string) (_ *Pool, err error) {
	defer try.Caught(&err)
	var fs syscall.Statfs_t
	try.Ok(syscall.Statfs(dir, &fs))
	const tmpfs = 0x01021994
	try.FailIf(fs.Type == tmpfs, "%s is in memory, not on a disk", dir)
	file := try.To(os.CreateTemp(dir, ".offload-"))
	try.Ok(os.Remove(file.Name()))
	d := &disk{file: file}
	p := NewPool(math.MaxInt, d.grow)
	p.disk = d
	return p, nil
}

// disk is the file of a pool.
type disk struct {
	mu   sync.Mutex
	file *os.File
	size int64
	err  error // why it could not grow
}

// grow maps n more bytes, for which it reserves room: without, a full disk would kill the process when they are written.
func (d *disk) grow(n int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := syscall.Fallocate(int(d.file.Fd()), 0, d.size, int64(n))
	if errors.Is(err, syscall.EOPNOTSUPP) {
		err = d.fill(n)
	}
	var m []byte
	if err == nil {
		m, err = syscall.Mmap(int(d.file.Fd()), d.size, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	}
	if err != nil {
		d.err = err
		return nil
	}
	d.size += int64(n)
	return m
}

func (d *disk) fill(n int) error {
	zeros := make([]byte, 1<<20)
	for at := 0; at < n; at += len(zeros) {
		if _, err := d.file.WriteAt(zeros[:min(len(zeros), n-at)], d.size+int64(at)); err != nil {
			return err
		}
	}
	return nil
}

func (d *disk) refuse(op string, bytes int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Errorf("%s: cannot get %d bytes on disk, of which %d are in use: %w", op, bytes, d.size, d.err)
}

// OnDisk reports whether the bytes behind t are a file's.
func OnDisk(t *Tensor) bool { return t.st.pool != nil && t.st.pool.disk != nil }
