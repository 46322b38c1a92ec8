// Package sharedmem provides memory that the processes of one machine share, and ways to wait on it. The shm backend
// and the status board use it.
//
// A region is an anonymous memory file: it has no name, so nothing is left when the last process that holds it ends,
// for whatever reason. It is sparse: a page costs memory only once it is touched.
package sharedmem

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Size of a region in bytes of address space; memory that is never touched costs nothing.
const Size = 1 << 42

// CacheLine keeps words of different ranks apart. It is two lines, since processors prefetch the neighbour.
const CacheLine = 128

// Create makes a region. Other processes get it by inheriting the file.
func Create(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot create shared memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.Truncate(Size); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot size shared memory: %w", err)
	}
	return f, nil
}

// Map maps the window [offset, offset+size) of a region; the caller rounds both to whole pages ([PageRound]).
func Map(f *os.File, offset int64, size int) ([]byte, error) {
	return mmap(f, offset, size, unix.MAP_SHARED)
}

func mmap(f *os.File, offset int64, size, sharing int) (mem []byte, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("cannot map shared memory: %w", err)
	}
	rawErr := raw.Control(func(fd uintptr) {
		mem, err = unix.Mmap(int(fd), offset, size, unix.PROT_READ|unix.PROT_WRITE, sharing)
	})
	if err = errors.Join(err, rawErr); err != nil {
		return nil, fmt.Errorf("cannot map %d bytes of shared memory: %w", size, err)
	}
	return mem, nil
}

// A View is a private, copy-on-write copy of the beginning of a region: only written pages cost memory.
// It ends with the last reference to it. The region must not change any more.
type View struct{ Mem []byte }

// NewView makes a view of the first bytes of a region, all of which have been written.
func NewView(f *os.File, size int) (*View, error) {
	mem, err := mmap(f, 0, size, unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	v := &View{mem}
	_ = unix.Madvise(v.Mem, unix.MADV_POPULATE_READ) // a hint, of newer kernels
	runtime.AddCleanup(v, func(mem []byte) { _ = unix.Munmap(mem) }, v.Mem)
	return v, nil
}

// Unmap unmaps a window. No pointer into it may be used any more.
func Unmap(mem []byte) error { return unix.Munmap(mem) }

// Discard frees the memory behind a window of the region for every process.
func Discard(f *os.File, offset int64, size int) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	// Best effort: if it fails, the memory is freed with the region.
	_ = raw.Control(func(fd uintptr) {
		_ = unix.Fallocate(int(fd), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, int64(size))
	})
}

// PageRound rounds n up to whole pages.
func PageRound(n int) int {
	page := os.Getpagesize()
	return (n + page - 1) / page * page
}

// At overlays a T on the memory at offset. T holds no pointers, and offset is aligned for it.
func At[T any](mem []byte, offset int) *T {
	var zero T
	_ = mem[offset : offset+int(unsafe.Sizeof(zero))]
	return (*T)(unsafe.Pointer(&mem[offset]))
}

// Word is a 32-bit word that processes wait on.
type Word = atomic.Uint32

// Cores is the number of processors that this process may run on.
func Cores() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err == nil {
		if n := set.Count(); n > 0 {
			return n
		}
	}
	return 1
}
