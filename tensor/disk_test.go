package tensor

import (
	"os"
	"strings"
	"testing"
	"unsafe"

	"drun/kernel/dtype"
)

// An optimizer's buffers are where its parameters are; small ones, too. Nothing stands in the folder.
func TestDiskPool(t *testing.T) {
	dir := t.TempDir()
	p, err := NewDiskPool(dir)
	if err != nil {
		t.Skip(err) // temporary files may be in memory
	}
	defer p.disk.file.Close()
	c, before := NewContext(), Memory().InUse
	for _, n := range []int{3, 5000, 2 << 20} {
		s := new(Storage)
		if err := s.allocFrom(p, "test", 4*n); err != nil {
			t.Fatal(err)
		}
		param, err := OnStorage(c, s, 0, []int{n}, dtype.Float32)
		if err != nil {
			t.Fatal(err)
		}
		buffer, err := NewFlatBuffer(param, n, dtype.Float32)
		if err != nil || !OnDisk(param) || !OnDisk(buffer) {
			t.Fatalf("%d elements: %v, %v, %v", n, err, OnDisk(param), OnDisk(buffer))
		}
		if err := buffer.Fill(Float(1)); err != nil {
			t.Fatal(err)
		}
	}
	info, err := p.disk.file.Stat()
	if err != nil || info.Size() != p.disk.size || info.Size() < 16<<20 {
		t.Errorf("the file has %v bytes of %d, %v", info.Size(), p.disk.size, err)
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
	if more := Memory().InUse - before; more > 1<<20 {
		t.Errorf("%d bytes of memory are in use for it", more)
	}
	// A system that cannot reserve room writes zeros.
	if err := p.disk.fill(3 << 20); err != nil {
		t.Error(err)
	}
	m := p.disk.grow(3 << 20)
	if m == nil || *(*byte)(unsafe.Pointer(&m[len(m)-1])) != 0 {
		t.Errorf("after zeros: %v", p.disk.err)
	}
	// A disk that gives no more is an error.
	p.disk.file.Close()
	if _, err := p.get("optimizer", 64<<20); err == nil || !strings.Contains(err.Error(), "optimizer: cannot get 67108864 bytes on disk") {
		t.Errorf("of a file that is closed: %v", err)
	}
}

func TestDiskPoolInMemory(t *testing.T) {
	if _, err := NewDiskPool("/dev/shm"); err == nil || !strings.Contains(err.Error(), "is in memory") {
		t.Errorf("in /dev/shm: %v", err)
	}
	if _, err := NewDiskPool("/nowhere"); err == nil {
		t.Error("in a folder that there is not")
	}
}
