package client

import (
	"fmt"
	"math/bits"
	"sync"
	"unsafe"

	"drun/collective"
	"drun/collective/sharedmem"
	"drun/kernel/dtype"
	"drun/plugins/internal/wire"
)

// port passes the calls of all groups to the plugin and takes them back.
type port struct {
	*process
	memory   memory
	poll     sharedmem.Poll // to wait for the end of a call
	aborting sync.WaitGroup

	// Held for reading by whoever touches the arena, except the goroutines of aborting; close holds it exclusively
	// when it unmaps the arena.
	mapping sync.RWMutex
	over    bool // the arena must not be touched any more

	mu      sync.Mutex
	slots   []uint32      // free ones that were used before
	fresh   uint32        // those from here on were not
	pending []*pluginCall // asynchronous and abandoned calls, oldest first
	blocked int           // synchronous calls under way, as far as is known
}

func newPort(x *process, world collective.World) *port {
	return &port{process: x, memory: memory{arena: x.arena}, poll: sharedmem.PollBeside(besides(world))}
}

// submit hands a call to the plugin. The caller holds mu.
func (p *port) submit(w *pluginCall) {
	before := p.blocked
	if w.async {
		p.pending = append(p.pending, w)
	} else {
		p.blocked++
	}
	p.arena.Submit(w.index)
	// The plugin's first executor may be busy with a synchronous call.
	if before > 0 {
		p.arena.Standby.Open()
	} else {
		p.arena.Work.Open()
	}
}

// take returns a free slot. The caller holds mu.
func (p *port) take() (uint32, error) {
	if len(p.slots) == 0 && p.fresh == wire.Slots {
		p.collectEnded()
	}
	if n := len(p.slots); n > 0 {
		i := p.slots[n-1]
		p.slots = p.slots[:n-1]
		return i, nil
	}
	if p.fresh == wire.Slots {
		return 0, fmt.Errorf("%d calls are under way: wait for some of them", wire.Slots)
	}
	p.fresh++
	return p.fresh - 1, nil
}

// collectEnded collects the pending calls that have ended, so that their results are in place even if nobody waits
// for them. The caller holds mu.
func (p *port) collectEnded() {
	left := p.pending[:0]
	for _, w := range p.pending {
		if !w.collected.Load() && !w.collect() {
			left = append(left, w)
		}
	}
	clear(p.pending[len(left):])
	p.pending = left
}

// underWay describes an unfinished call of a group; "" if there is none.
func (p *port) underWay(number uint32) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.fresh {
		s := p.arena.Slot(i)
		if s.State.Load() != wire.Submitted || number != 0 && s.Comm != number {
			continue
		}
		dt, bytes := dtype.Type(s.SendType), s.Send.Bytes
		if bytes == 0 {
			dt, bytes = dtype.Type(s.RecvType), s.Recv.Bytes
		}
		d := collective.Description{Kind: collective.Kind(s.Kind), DType: dt, Reduce: dtype.ReduceOp(s.Reduce),
			Root: int(s.Root), Peer: int(s.Peer), Tag: int(s.Tag), Count: int(bytes) / dt.Size()}
		return d.String()
	}
	return ""
}

// condemn kills the plugin, and says why.
func (p *port) condemn(msg string) {
	fmt.Fprintf(p.words, "%s", msg+"\n")
	p.die(msg)
	p.kill()
}

// enter keeps the arena mapped until mapping is unlocked; false if it is unmapped already.
func (p *port) enter() bool {
	p.mapping.RLock()
	if p.over {
		p.mapping.RUnlock()
		return false
	}
	return true
}

// close ends the plugin's process.
func (p *port) close() {
	p.shut()
	p.end()
	// The Works of all groups end, and their Waits with them.
	err := collective.ErrClosed
	p.dead.CompareAndSwap(nil, &err)
	p.arena.WakeAll()
	p.mapping.Lock()
	p.over = true
	p.mapping.Unlock()
	p.aborting.Wait()
	p.release()
}

// stage returns a span that the plugin can reach: data itself if it lies in the arena, else room for a copy.
func (p *port) stage(data []byte) (span wire.Span, own bool, err error) {
	if len(data) == 0 {
		return wire.Span{}, false, nil
	}
	if span, ok := p.arena.Where(data); ok {
		return span, false, nil
	}
	span, err = p.memory.get(int64(len(data)))
	return span, true, err
}

func (p *port) at(s wire.Span) []byte { return p.arena.Mem[s.At : s.At+s.Bytes : s.At+s.Bytes] }

func same(a, b []byte) bool {
	return len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b)
}

// memory hands out pieces of the arena. Sizes are rounded up to four classes per power of two, so that a returned piece
// fits later requests.
type memory struct {
	arena *wire.Arena

	mu   sync.Mutex
	next int64
	free map[int64][]int64 // offsets, by class
}

func classOf(n int64) int64 {
	step := int64(1) << max(bits.Len64(uint64(n-1))-3, 8)
	return (n + step - 1) / step * step
}

// get returns n bytes, uninitialised.
func (m *memory) get(n int64) (wire.Span, error) {
	if n == 0 {
		return wire.Span{}, nil
	}
	class := classOf(n)
	m.mu.Lock()
	defer m.mu.Unlock()
	if list := m.free[class]; len(list) > 0 {
		at := list[len(list)-1]
		m.free[class] = list[:len(list)-1]
		return wire.Span{At: at, Bytes: n}, nil
	}
	if m.next == 0 {
		m.next, m.free = wire.DataAt, map[int64][]int64{}
	}
	if class > int64(len(m.arena.Mem))-m.next {
		return wire.Span{}, fmt.Errorf("the arena of %d bytes has no room for %d more", len(m.arena.Mem), n)
	}
	at := m.next
	m.next += class
	return wire.Span{At: at, Bytes: n}, nil
}

func (m *memory) put(s wire.Span) {
	if s.Bytes == 0 {
		return
	}
	class := classOf(s.Bytes)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free[class] = append(m.free[class], s.At)
}
