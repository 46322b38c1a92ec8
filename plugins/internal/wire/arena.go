package wire

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"drun/collective"
	"drun/collective/sharedmem"
	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"

	"golang.org/x/sys/unix"
)

// Slots is the largest number of calls under way.
const Slots = 1 << 14

// Layout of the arena: the header, the ring of submitted slots, the slots, the
// data. Memory that is never touched costs nothing.
const (
	ringAt  = 4096
	slotsAt = ringAt + 4*Slots
	DataAt  = 16 << 20
)

const magic = 0x616e657261726421 // "!drarena"

// Sizes of address space that are tried for an arena: the first that the process's limits allow is used.
const (
	mostBytes  = 1 << 40
	leastBytes = 64 << 20
)

// Arena is memory shared by drun and a plugin: an anonymous file, readable only by its user, whose size is sealed.
type Arena struct {
	File *os.File
	Mem  []byte
	*header
	ring  *[Slots]uint32
	slots *[Slots]Slot
	used  atomic.Uint32 // slots below have been submitted; known only to drun's side
}

// header holds the words that both sides wait on. One side writes each line.
type header struct {
	magic, size uint64
	_           [sharedmem.CacheLine - 16]byte
	tail        atomic.Uint32 // slots submitted, by drun
	_           [sharedmem.CacheLine - 4]byte
	head        atomic.Uint32 // slots taken, by the plugin
	_           [sharedmem.CacheLine - 4]byte
	Work        sharedmem.Gate // wakes the plugin for the next slot
	_           [sharedmem.CacheLine - 8]byte
	Standby     sharedmem.Gate // wakes it while it may be blocked in a synchronous call
}

// States of a slot.
const (
	Free = iota
	Submitted
	Ended
)

// Slot is one call on its way to the plugin and back. Offsets are into the arena. It is a layout of shared memory, so all of a
// call is in one struct without pointers.
type Slot struct {
	State sharedmem.Word
	Comm  uint32
	Over  sharedmem.Gate // where drun waits for the end, one gate per call, so that it wakes nobody else

	Kind, Reduce, SendType, RecvType, Async, Status uint8

	Paired             uint8
	_                  [1]byte
	Root, Peer         int32
	Tag                int64
	Send, Recv         Span
	Counts, RecvCounts Span // of int64; at 0: nil
	Limit              int64
	Seq, Fingerprint   uint64
	Group              uint32
	Source             int32
	textBytes          uint32
	text               [maxText]byte
	_                  [4]byte
}

const maxText = 480

// Span is a piece of the arena, in bytes.
type Span struct{ At, Bytes int64 }

// SetText stores why the call failed, truncated to fit.
func (s *Slot) SetText(text string) { s.textBytes = uint32(copy(s.text[:], text)) }

// Text is what SetText stored. Its length is not trusted.
func (s *Slot) Text() string { return string(s.text[:min(s.textBytes, maxText)]) }

// CreateArena makes an arena.
func CreateArena() (*Arena, error) {
	fd, err := unix.MemfdCreate("drun-arena", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("cannot create the arena: %w", err)
	}
	file := os.NewFile(uintptr(fd), "arena")
	if err := unix.Fchmod(fd, 0o600); err != nil {
		file.Close()
		return nil, fmt.Errorf("cannot protect the arena: %w", err)
	}
	a := &Arena{File: file}
	for size := mostBytes; size >= leastBytes; size /= 4 {
		if err = unix.Ftruncate(fd, int64(size)); err == nil {
			a.Mem, err = sharedmem.Map(file, 0, size)
		}
		if err == nil {
			break
		}
	}
	if err == nil {
		// A peer that shrinks the file would make our next access fatal.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("cannot map the arena: %w", err)
	}
	a.overlay()
	a.size = uint64(len(a.Mem))
	a.magic = magic
	return a, nil
}

// OpenArena maps the arena that this process inherited.
func OpenArena(file *os.File) (_ *Arena, err error) {
	defer try.Caught(&err)
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("no arena: %w", err)
	}
	try.FailIf(info.Size() < leastBytes, "the inherited descriptor is not an arena")
	a := &Arena{File: file}
	a.Mem = try.To(sharedmem.Map(file, 0, int(info.Size())))
	a.overlay()
	try.FailIf(a.magic != magic || a.size != uint64(len(a.Mem)), "the inherited descriptor is not an arena")
	return a, nil
}

func (a *Arena) overlay() {
	a.header = sharedmem.At[header](a.Mem, 0)
	a.ring = sharedmem.At[[Slots]uint32](a.Mem, ringAt)
	a.slots = sharedmem.At[[Slots]Slot](a.Mem, slotsAt)
}

// Close unmaps the arena. Nothing may use its memory any more.
func (a *Arena) Close() error {
	err := sharedmem.Unmap(a.Mem)
	return errors.Join(err, a.File.Close())
}

func (a *Arena) Slot(i uint32) *Slot { return &a.slots[i%Slots] }

// Submit passes a slot to the plugin. The caller holds a lock.
func (a *Arena) Submit(i uint32) {
	tail := a.tail.Load()
	a.ring[tail%Slots] = i
	a.slots[i].State.Store(Submitted)
	a.used.Store(max(a.used.Load(), i+1))
	a.tail.Store(tail + 1)
}

// WakeAll wakes all waits for slots, because something other than a call has ended.
func (a *Arena) WakeAll() {
	for i := range a.used.Load() {
		a.slots[i].Over.Open()
	}
}

// Waiting reports whether a slot has been submitted and not taken.
func (a *Arena) Waiting() bool { return a.head.Load() != a.tail.Load() }

// Take returns the next submitted slot, if there is one. The caller holds a lock.
func (a *Arena) Take() (*Slot, bool) {
	head := a.head.Load()
	if head == a.tail.Load() {
		return nil, false
	}
	s := a.Slot(a.ring[head%Slots])
	a.head.Store(head + 1)
	return s, true
}

// Bytes returns the memory of a span, which must lie within the data.
func (a *Arena) Bytes(s Span) ([]byte, error) {
	if s.Bytes == 0 {
		return nil, nil
	}
	if s.At < DataAt || s.Bytes < 0 || s.At > int64(len(a.Mem))-s.Bytes {
		return nil, fmt.Errorf("bytes %d to %d are not in the arena", s.At, s.At+s.Bytes)
	}
	return a.Mem[s.At : s.At+s.Bytes : s.At+s.Bytes], nil
}

// Where finds data in the arena; ok is false if it lies elsewhere.
func (a *Arena) Where(data []byte) (s Span, ok bool) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(data))) - uintptr(unsafe.Pointer(unsafe.SliceData(a.Mem)))
	if at < DataAt || at >= uintptr(len(a.Mem)) {
		return Span{}, false
	}
	return Span{int64(at), int64(len(data))}, true
}

// Ints returns the counts in a span; nil if there are none.
func (a *Arena) Ints(s Span) ([]int, error) {
	if s.At == 0 {
		return nil, nil
	}
	raw, err := a.Bytes(s)
	if err != nil {
		return nil, err
	}
	return each.Of(collective.Slice[int64](collective.Buffer{DType: dtype.Int64, Data: raw}), func(n int64) int { return int(n) }), nil
}
