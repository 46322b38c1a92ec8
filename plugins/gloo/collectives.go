//go:build gloo

package gloo

// #include "shim.h"
import "C"

import (
	"errors"
	"runtime"
	"sync"

	"drun/collective"
	"drun/internal/each"
	"drun/kernel/dtype"
	"drun/plugins/internal/collectives"
)

// Half precisions come as float32, and averages as sums.
var numbers = collectives.Numbers{
	Types: map[dtype.Type]int{dtype.Float32: C.FLOAT32, dtype.Float64: C.FLOAT64, dtype.Int64: C.INT64, dtype.Int32: C.INT32,
		dtype.Int8: C.INT8, dtype.Uint8: C.UINT8, dtype.Bool: C.BOOL, dtype.Complex64: C.COMPLEX64},
	Operations: map[dtype.ReduceOp]int{dtype.Sum: C.SUM, dtype.Product: C.PRODUCT, dtype.Min: C.MIN, dtype.Max: C.MAX,
		dtype.BAnd: C.BAND, dtype.BOr: C.BOR, dtype.BXor: C.BXOR},
}

func (e *engine) Barrier() error {
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_barrier(e.group, &failure[0]), &failure)
}

func (e *engine) Broadcast(data []byte, root int) error {
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_broadcast(e.group, pointer(data), C.size_t(len(data)), C.int(root), &failure[0]), &failure)
}

func (e *engine) AllGather(send, recv []byte, counts []int) error {
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_allgather(e.group, pointer(send), C.size_t(len(send)), pointer(recv), sizes(counts), &failure[0]), &failure)
}

func (e *engine) Gather(send, recv []byte, counts []int, root int) error {
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_gather(e.group, pointer(send), C.size_t(len(send)), pointer(recv), sizes(counts), C.int(root), &failure[0]), &failure)
}

func (e *engine) Scatter(send, recv []byte, counts []int, root int) error {
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_scatter(e.group, pointer(send), pointer(recv), C.size_t(len(recv)), sizes(counts), C.int(root), &failure[0]), &failure)
}

func (e *engine) AllToAll(send []byte, sent []int, recv []byte, received []int) error {
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_alltoallv(e.group, pointer(send), sizes(sent), pointer(recv), sizes(received), &failure[0]), &failure)
}

// sizes converts sizes in bytes for C; nil stays nil.
func sizes(counts []int) *C.int64_t {
	if counts == nil {
		return nil
	}
	all := each.Of(counts, func(n int) C.int64_t { return C.int64_t(n) })
	return &all[0]
}

// Reduces is always true: the shim gives Gloo drun's own operations.
func (e *engine) Reduces(dtype.Type, dtype.ReduceOp) bool { return true }

func (e *engine) AllReduce(send, recv collective.Buffer, op dtype.ReduceOp) error {
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_allreduce(e.group, C.int(numbers.Types[send.DType]), C.int(numbers.Operations[op]), C.size_t(send.DType.Size()),
		pointer(send.Data), pointer(recv.Data), C.size_t(send.Count()), &failure[0]), &failure)
}

func (e *engine) Reduce(send, recv collective.Buffer, op dtype.ReduceOp, root int) error {
	if recv.Data == nil { // Gloo needs an output on every rank
		recv.Data = e.Room(len(send.Data))
	}
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_reduce(e.group, C.int(numbers.Types[send.DType]), C.int(numbers.Operations[op]), C.size_t(send.DType.Size()),
		pointer(send.Data), pointer(recv.Data), C.size_t(send.Count()), C.int(root), &failure[0]), &failure)
}

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
