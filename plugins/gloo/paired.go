//go:build gloo

package gloo

// #include "shim.h"
import "C"

import (
	"errors"
	"runtime"
	"sync"

	"drun/collective"
)

// paired holds the paired messages in flight; one goroutine waits for them to end.
type paired struct {
	mu     sync.Mutex
	ends   map[uint64]underway // by key
	key    uint64
	more   *sync.Cond // signals a new message, or the end; nil before the first
	closed bool
	wg     sync.WaitGroup
}

// underway is a paired message whose end has not been reported.
type underway struct {
	end  func(error)
	data []byte // used only by Gloo: it must stay in memory
}

func (e *engine) Post(kind collective.Kind, peer int, tag int64, data []byte, end func(error)) error {
	p := &e.paired
	p.mu.Lock()
	if p.more == nil {
		p.more, p.ends = sync.NewCond(&p.mu), map[uint64]underway{}
		p.wg.Go(e.awaitEnds)
	}
	p.key++
	key := p.key
	p.ends[key] = underway{end, data}
	p.mu.Unlock()
	sends := C.int(0)
	if kind == collective.Send {
		sends = 1
	}
	var failure [C.ERR_SIZE]C.char
	rc := C.drun_gloo_post(e.group, C.uint64_t(key), sends, C.int(peer), C.int64_t(tag), pointer(data), C.size_t(len(data)), &failure[0])
	if rc == 0 {
		p.more.Signal()
		return nil
	}
	p.take(key)
	if rc < 0 {
		return errors.New(C.GoString(&failure[0]))
	}
	end(nil)
	return nil
}

// take removes and returns a message that has ended.
func (p *paired) take(key uint64) underway {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.ends[key]
	delete(p.ends, key)
	return u
}

// any waits until a message is in flight; false if there will be none.
func (p *paired) any() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.ends) == 0 && !p.closed {
		p.more.Wait()
	}
	return len(p.ends) > 0
}

func (e *engine) awaitEnds() {
	var ended [8]C.transfer_end
	for e.paired.any() {
		for i := range C.drun_gloo_ended(e.group, &ended[0], C.int(len(ended))) {
			t := &ended[i]
			e.paired.take(uint64(t.key)).end(failed(t.rc, &t.err))
		}
		runtime.Gosched() // lets the waiter run now, not only once the runtime notices that this goroutine is in C again
	}
}

// close ends the wait once nothing is in flight.
func (p *paired) close() {
	p.mu.Lock()
	p.closed = true
	if p.more != nil {
		p.more.Signal()
	}
	p.mu.Unlock()
	p.wg.Wait()
}
