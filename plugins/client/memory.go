package client

import (
	"fmt"
	"math/bits"
	"sync"

	"drun/plugins/internal/wire"
)

// memory hands out pieces of the arena. Sizes are rounded up to four classes
// per power of two, so that a returned piece fits later requests.
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
