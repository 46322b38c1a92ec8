package tensor

import (
	"testing"
	"time"
	"unsafe"
)

func TestPoolLimitAndTrim(t *testing.T) {
	p := &Pool{free: map[int][]unsafe.Pointer{}, maxUsed: 8 << 20}
	big := must(p.get("test", 5<<20))
	fail[unsafe.Pointer](t, "test: cannot allocate", "in use")(p.get("test", 5<<20))
	p.put(big, 5<<20)
	if p.used != 0 || p.mapped == 0 {
		t.Fatalf("used %d, mapped %d after the only buffer came back", p.used, p.mapped)
	}
	// Another size does not fit beside the free buffer: that is unmapped.
	other := must(p.get("test", 7<<20))
	if p.mapped > p.maxUsed {
		t.Errorf("%d bytes are mapped, more than the limit", p.mapped)
	}
	if len(p.free[classBytes(5<<20)]) != 0 {
		t.Error("the free buffer was kept")
	}
	p.put(other, 7<<20)
	fail[unsafe.Pointer](t, "this rank may use 8388608 of this machine")(p.get("test", 9<<20))
}

// A class holds what is asked for, wastes at most a quarter above a page's
// share, and is its own class.
func TestClassBytes(t *testing.T) {
	for n := pooledBytes; n < 1<<24; n += n/7 + 1 {
		size := classBytes(n)
		if size < n || size > n+n/4+4096 || classBytes(size) != size {
			t.Fatalf("classBytes(%d) = %d, whose class is %d", n, size, classBytes(size))
		}
	}
}

// Small classes share a mapping: buffers must not overlap.
func TestSlabs(t *testing.T) {
	p := &Pool{free: map[int][]unsafe.Pointer{}, maxUsed: 1 << 30}
	var all [][]uint64
	for i := range 500 {
		n := pooledBytes + i*100
		b := unsafe.Slice((*uint64)(must(p.get("test", n))), n/8)
		for j := range b {
			b[j] = uint64(i)
		}
		all = append(all, b)
	}
	for i, b := range all {
		for _, v := range b {
			if v != uint64(i) {
				t.Fatalf("buffer %d holds what was written to buffer %d", i, v)
			}
		}
	}
}

// Garbage comes back beside the computation, before anybody has to wait for it: an eighth of what is in use, or what the
// pool tolerates anyway.
func TestGarbageComesBack(t *testing.T) {
	for _, held := range []int{0, 1 << 30} {
		p := &Pool{free: map[int][]unsafe.Pointer{}, maxUsed: 4 << 30, used: held, base: held}
		const bytes = 4 << 20
		limit := max(slack, held/8)
		for range limit/4*3/bytes + 2 {
			s := &Storage{bytes: bytes}
			s.take(p, must(p.get("test", bytes)))
		}
		if p.mapped > limit {
			t.Fatalf("%d bytes were taken: too many for this test", p.mapped)
		}
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			p.mu.Lock()
			used := p.used - held
			p.mu.Unlock()
			if used <= 2*bytes {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("beside %d bytes in use %d did not come back", held, used)
			}
		}
	}
}

// A collection that began before the garbage arose is not the one that a full pool needs.
func TestFullPoolCollectsAgain(t *testing.T) {
	p := &Pool{free: map[int][]unsafe.Pointer{}, maxUsed: 16 << 20}
	s := &Storage{bytes: 12 << 20}
	s.take(p, must(p.get("test", s.bytes)))
	p.ends = make(chan struct{})
	go func() {
		time.Sleep(10 * time.Millisecond)
		p.mu.Lock()
		defer p.mu.Unlock()
		close(p.ends)
		p.ends = nil
	}()
	must(p.get("test", 10<<20))
}
