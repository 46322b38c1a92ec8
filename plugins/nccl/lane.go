package nccl

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unsafe"

	"drun/collective"
	"drun/internal/try"
)

// lane is a communicator with what its calls need: streams, and two slots of memory through which chunks take turns. One
// goroutine uses it at a time.
type lane struct {
	device *C.device
	memory *hostMemory
	comm   C.ncclComm_t
	c      *C.lane
	room   int // bytes that a slot stages; tokenSize more are in it

	using   sync.Mutex // held while the communicator is in use
	once    sync.Once
	aborted chan struct{} // closed when nothing runs any more after an abort
	stopped chan struct{} // closed when the abort begins

	counts *counters
}

// Slots end with room for what ranks tell each other besides the data.
const tokenSize = 256

func newLane(d *C.device, memory *hostMemory, comm C.ncclComm_t, room int, counts *counters) (*lane, error) {
	var why [C.ERR_SIZE]C.char
	c := C.drun_lane(d, C.size_t(room+tokenSize), &why[0])
	if c == nil {
		abandon(d, comm)
		return nil, errors.New(C.GoString(&why[0]))
	}
	return &lane{device: d, memory: memory, comm: comm, c: c, room: room, counts: counts,
		aborted: make(chan struct{}), stopped: make(chan struct{})}, nil
}

// round is one step of a pipeline: copies to the slot's device memory, operations on it, copies back. Offsets are into
// that memory.
type round struct {
	in, out    []part
	operations []C.operation
	base       C.CUdeviceptr
}

type part struct {
	data    []byte
	at      int
	bounced bool // it is copied through the bounce buffer
}

func (r *round) copyIn(data []byte, at int)  { r.in = append(r.in, part{data: data, at: at}) }
func (r *round) copyOut(data []byte, at int) { r.out = append(r.out, part{data: data, at: at}) }

// do adds an operation; peer is the root, where there is one.
func (r *round) do(kind C.int, send, recv, count, dtype, op, peer int) {
	r.operations = append(r.operations, C.operation{kind: kind, _type: C.int(dtype), op: C.int(op), peer: C.int(peer), count: C.size_t(count),
		send: r.base + C.CUdeviceptr(send), recv: r.base + C.CUdeviceptr(recv)})
}

// doInPlace adds an operation on the host's memory.
func (r *round) doInPlace(kind C.int, send, recv []byte, count, dtype, op int) {
	address := func(b []byte) C.CUdeviceptr { return C.CUdeviceptr(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
	r.operations = append(r.operations, C.operation{kind: kind, _type: C.int(dtype), op: C.int(op), count: C.size_t(count), send: address(send), recv: address(recv)})
}

func (r *round) reset(base C.CUdeviceptr) {
	r.in, r.out, r.operations, r.base = r.in[:0], r.out[:0], r.operations[:0], base
}

// run carries out n rounds, each filled in by plan.
func (l *lane) run(n int, plan func(r *round, i int)) error {
	l.using.Lock()
	err := l.rounds(n, plan)
	l.using.Unlock()
	if err != nil {
		// Copies may still be under way: after this they are not.
		l.interrupt()
		<-l.aborted
	}
	return err
}

var errInterrupted = errors.New("interrupted")

func (l *lane) rounds(n int, plan func(r *round, i int)) (err error) {
	defer try.Caught(&err)
	var rounds [C.SLOTS]round
	for i := range n + C.SLOTS {
		at := i % C.SLOTS
		r := &rounds[at]
		if i >= C.SLOTS && i-C.SLOTS < n {
			try.Ok(l.finish(at, r))
		}
		if i < n {
			r.reset(l.c.slots[at].room)
			plan(r, i)
			try.Ok(l.start(at, r, n == 1))
		}
	}
	return nil
}

func (l *lane) bounce(slot int) []byte {
	return unsafe.Slice((*byte)(l.c.slots[slot].bounce), l.room+tokenSize)
}

// start begins a round in a slot.
func (l *lane) start(at int, r *round, alone bool) error {
	bounce := l.bounce(at)
	in := l.pieces(r.in, bounce, r.base)
	out := l.pieces(r.out, bounce, r.base)
	for _, p := range r.in {
		if p.bounced {
			copy(bounce[p.at:], p.data)
		}
	}
	for _, o := range r.operations {
		l.counts.operations[o.kind].Add(1)
	}
	one := C.int(0)
	if alone {
		one = 1
	}
	var why [C.ERR_SIZE]C.char
	return l.result(C.drun_round(l.c, C.int(at), l.comm, one, unsafe.SliceData(in), C.int(len(in)),
		unsafe.SliceData(r.operations), C.int(len(r.operations)), unsafe.SliceData(out), C.int(len(out)), &why[0]), &why)
}

// pieces says for each part where it is copied from or to: the host's memory itself if DMA can reach it, else the
// bounce buffer.
func (l *lane) pieces(parts []part, bounce []byte, base C.CUdeviceptr) (all []C.piece) {
	for i := range parts {
		p := &parts[i]
		data, at := p.data, p.at
		if len(data) == 0 {
			continue
		}
		if p.bounced = !l.memory.ready(data); p.bounced {
			data = bounce[at:][:len(data)]
			l.counts.bounced.Add(int64(len(data)))
		} else {
			l.counts.direct.Add(int64(len(data)))
		}
		for len(data) > 0 {
			n := len(data)
			if !p.bounced {
				n = l.memory.cut(data)
			}
			all = append(all, C.piece{host: C.uintptr_t(uintptr(unsafe.Pointer(&data[0]))), device: base + C.CUdeviceptr(at), bytes: C.size_t(n)})
			data, at = data[n:], at+n
		}
	}
	return all
}

// finish waits for a round and takes its results out of the bounce buffer.
func (l *lane) finish(at int, r *round) error {
	var why [C.ERR_SIZE]C.char
	if err := l.result(C.drun_wait(l.c, C.int(at), l.comm, &why[0]), &why); err != nil {
		return err
	}
	for _, p := range r.out {
		if p.bounced {
			copy(p.data, l.bounce(at)[p.at:][:len(p.data)])
		}
	}
	return nil
}

func (l *lane) result(rc C.int, why *[C.ERR_SIZE]C.char) error {
	switch rc {
	case C.DONE:
		return nil
	case C.STOPPED:
		return errInterrupted
	}
	return errors.New(C.GoString(&why[0]))
}

// How long a caller inside NCCL gets to notice that it should stop. Then the communicator is aborted under it, which is
// the only way to end a blocked NCCL call.
const stopLimit = 250 * time.Millisecond

// interrupt ends what runs on the lane, without waiting. If NCCL hangs in it, whoever waits for the call has the
// process killed.
func (l *lane) interrupt() {
	l.once.Do(func() {
		close(l.stopped)
		C.drun_lane_stop(l.c)
		go func() {
			for end := time.Now().Add(stopLimit); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
				if l.using.TryLock() {
					defer l.using.Unlock()
					break
				}
			}
			abandon(l.device, l.comm)
			for C.drun_lane_busy(l.c) != 0 {
				time.Sleep(100 * time.Microsecond)
			}
			close(l.aborted)
		}()
	})
}

// close ends the lane; nobody uses it any more.
func (l *lane) close() {
	if !collective.IsClosed(l.stopped) && !finish(l.device, l.comm) {
		l.interrupt()
	}
	if collective.IsClosed(l.stopped) {
		<-l.aborted
	}
	C.drun_lane_free(l.c)
}

// hostMemory is the arena, whose blocks are prepared for DMA when a call first uses them: only what is used gets locked.
type hostMemory struct {
	device *C.device
	base   uintptr
	end    uintptr

	mu     sync.Mutex
	blocks map[uintptr]bool // by number: whether it is ready
	tried  bool             // and failed: no more is locked
}

const blockSize = 4 << 20

func newHostMemory(d *C.device, arena []byte) *hostMemory {
	m := &hostMemory{device: d, blocks: map[uintptr]bool{}}
	m.base = uintptr(unsafe.Pointer(unsafe.SliceData(arena)))
	m.end = m.base + uintptr(len(arena))
	return m
}

// ready prepares data for DMA and reports whether that worked.
func (m *hostMemory) ready(data []byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	if len(data) == 0 || at < m.base || at+uintptr(len(data)) > m.end {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for n := (at - m.base) / blockSize; n <= (at-m.base+uintptr(len(data))-1)/blockSize; n++ {
		if !m.blocks[n] && !m.register(n) {
			return false
		}
	}
	return true
}

func (m *hostMemory) register(n uintptr) bool {
	if m.tried {
		return false
	}
	from := m.base + n*blockSize
	var why [C.ERR_SIZE]C.char
	if C.drun_register(m.device, C.uintptr_t(from), C.size_t(min(blockSize, m.end-from)), &why[0]) != C.DONE {
		m.tried = true
		fmt.Fprintf(os.Stderr, "host memory cannot be locked for DMA, so tensors are copied once more: %s (see ulimit -l)\n", C.GoString(&why[0]))
		return false
	}
	m.blocks[n] = true
	return true
}

// cut returns how much of n bytes at data lies in its first block: a copy must not cross blocks.
func (m *hostMemory) cut(data []byte) int {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	return min(len(data), int(blockSize-(at-m.base)%blockSize))
}

// release undoes what ready did.
func (m *hostMemory) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n := range m.blocks {
		C.drun_unregister(m.device, C.uintptr_t(m.base+n*blockSize))
	}
	clear(m.blocks)
}
