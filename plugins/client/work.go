package client

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"drun/collective"
	"drun/kernel/dtype"
	"drun/plugins/internal/wire"
)

type pluginCall struct {
	c         *Comm
	index     uint32
	slot      *wire.Slot
	kind      collective.Kind
	peer      int
	async     bool
	busy      bool         // a synchronous call whose Wait has not returned
	out       []byte       // where the result belongs, if the plugin writes it elsewhere
	result    wire.Span    // where the plugin writes it
	staged    [3]wire.Span // what to free
	collected atomic.Bool
	given     bool // abandoned: nobody wants the result
	err       error
	source    int
}

var _ collective.Receipt = (*pluginCall)(nil)

func (c *Comm) Start(call *collective.Call) (collective.Work, error) {
	if err := c.failed(); err != nil {
		return nil, err
	}
	if err := call.Check(c.rank, c.size); err != nil {
		return nil, err
	}
	if !c.enter() {
		return nil, c.failed()
	}
	defer c.mapping.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.sync
	if call.Async || w.busy {
		w = &pluginCall{c: c}
	} else {
		*w = pluginCall{c: c}
	}
	index, err := c.take()
	if err != nil {
		return nil, &collective.CallError{Kind: call.Kind, Problem: err.Error()}
	}
	w.index, w.slot, w.kind, w.peer, w.async, w.busy = index, c.arena.Slot(index), call.Kind, call.Peer, call.Async, !call.Async
	if err := w.write(call); err != nil {
		w.busy = false
		w.giveBack()
		return nil, &collective.CallError{Kind: call.Kind, Problem: err.Error()}
	}
	c.submit(w)
	return w, nil
}

// write writes the call into the slot, and its data where the plugin can read it.
func (w *pluginCall) write(call *collective.Call) (err error) {
	c, s := w.c, w.slot
	s.Comm, s.Kind, s.Reduce = c.number, uint8(call.Kind), uint8(call.Reduce)
	s.SendType, s.RecvType = uint8(call.Send.DType), uint8(call.Recv.DType)
	s.Root, s.Peer, s.Tag = int32(call.Root), int32(call.Peer), int64(call.Tag)
	s.Async, s.Paired, s.Limit = 0, 0, int64(call.Limit)
	if call.Async {
		s.Async = 1
	}
	if call.Paired {
		s.Paired = 1
	}
	s.Group, s.Seq, s.Fingerprint, s.Source, s.Status = call.Group, call.Seq, call.Fingerprint, -1, wire.Broken
	s.Send, s.Recv, s.Counts, s.RecvCounts = wire.Span{}, wire.Span{}, wire.Span{}, wire.Span{}

	send, recv := call.Uses(c.rank)
	var own bool
	if send {
		if s.Send, own, err = c.stage(call.Send.Data); err != nil {
			return err
		}
		if own {
			w.staged[0] = s.Send
			copy(c.at(s.Send), call.Send.Data)
		}
	}
	if recv {
		if send && same(call.Send.Data, call.Recv.Data) {
			s.Recv = s.Send
		} else if s.Recv, own, err = c.stage(call.Recv.Data); err != nil {
			return err
		} else if own {
			w.staged[1] = s.Recv
		}
		if own {
			w.out, w.result = call.Recv.Data, s.Recv
		}
	}
	return w.writeCounts(call)
}

func (w *pluginCall) writeCounts(call *collective.Call) (err error) {
	n := len(call.Counts) + len(call.RecvCounts)
	if n == 0 {
		return nil
	}
	if w.staged[2], err = w.c.memory.get(int64(8 * n)); err != nil {
		return err
	}
	all := collective.Slice[int64](collective.Buffer{DType: dtype.Int64, Data: w.c.at(w.staged[2])})
	for i, v := range call.Counts {
		all[i] = int64(v)
	}
	for i, v := range call.RecvCounts {
		all[len(call.Counts)+i] = int64(v)
	}
	at := w.staged[2].At
	if call.Counts != nil {
		w.slot.Counts = wire.Span{At: at, Bytes: int64(8 * len(call.Counts))}
	}
	if call.RecvCounts != nil {
		w.slot.RecvCounts = wire.Span{At: at + int64(8*len(call.Counts)), Bytes: int64(8 * len(call.RecvCounts))}
	}
	return nil
}

// over reports whether Wait can stop sleeping.
func (w *pluginCall) over() bool {
	return w.collected.Load() || w.slot.State.Load() == wire.Ended || w.c.failed() != nil
}

func (w *pluginCall) Done() bool {
	if !w.c.enter() {
		return true
	}
	defer w.c.mapping.RUnlock()
	return w.over()
}

// Source is the sender of a received message, once it is Done.
func (w *pluginCall) Source() int {
	if !w.collected.Load() && w.kind == collective.Recv && w.c.enter() {
		defer w.c.mapping.RUnlock()
		if w.slot.State.Load() == wire.Ended {
			return int(w.slot.Source)
		}
	}
	return w.source
}

// Wait returns when the plugin has ended the call.
func (w *pluginCall) Wait(ctx context.Context) error {
	c := w.c
	if !w.async && !w.busy {
		return &collective.CallError{Kind: w.kind, Problem: "this work has been waited for already"}
	}
	if !c.enter() {
		if w.collected.Load() {
			return w.err
		}
		return c.failed()
	}
	early := w.end(ctx)
	c.mapping.RUnlock()
	if early != nil {
		return early
	}
	return w.explain(ctx, w.err)
}

// end waits until the call has ended; the error is that of ctx or the group, if that ends first.
func (w *pluginCall) end(ctx context.Context) (early error) {
	c := w.c
	if !w.over() && (w.async || !c.poll.Until(w.over)) {
		early = w.slot.Over.Wait(ctx, w.over)
	}
	c.mu.Lock()
	if w.collected.Load() || w.collect() {
		w.busy = false
	} else {
		w.leave()
		if early == nil {
			early = c.failed()
		}
	}
	if len(c.pending) > 0 {
		c.collectEnded()
	}
	c.mu.Unlock()
	return early
}

// leave abandons a synchronous call that continues in the plugin: its memory is freed when it ends. The caller holds mu.
func (w *pluginCall) leave() {
	if w.async {
		return // it can be waited for again
	}
	rest := &pluginCall{c: w.c, index: w.index, slot: w.slot, kind: w.kind, staged: w.staged, given: true}
	w.c.pending = append(w.c.pending, rest)
	w.busy = false
}

// collect takes the result of a call that has ended; false while it is running. The caller holds mu.
func (w *pluginCall) collect() bool {
	if w.slot.State.Load() != wire.Ended {
		return false
	}
	s := w.slot
	w.err = wire.Decode(s.Status, s.Text(), w.kind, w.c.plugin.Name, w.c.port.rank)
	if w.err == nil && !w.given {
		copy(w.out, w.c.at(w.result))
		w.err = w.received(int(s.Source))
	}
	if w.err != nil && !errors.As(w.err, new(*collective.CallError)) {
		w.c.finish(w.err)
		w.err = w.c.end.Cause() // the first cause: an aborted engine only says that it was aborted
	}
	if !w.async {
		w.c.blocked--
	}
	w.giveBack()
	w.collected.Store(true)
	return true
}

// received sets the source of a message.
func (w *pluginCall) received(source int) error {
	w.source = w.peer
	if w.kind != collective.Recv || w.peer != collective.AnySource {
		return nil
	}
	if source < 0 || source >= w.c.size {
		return w.c.broken("it does not say which rank a message came from")
	}
	w.source = source
	return nil
}

// giveBack frees the slot and the call's part of the arena. The caller holds mu.
func (w *pluginCall) giveBack() {
	for i, s := range w.staged {
		w.c.memory.put(s)
		w.staged[i] = wire.Span{}
	}
	w.out = nil
	w.slot.State.Store(wire.Free)
	w.c.slots = append(w.c.slots, w.index)
}

// linger is how long an engine's error waits for the reason why the run ended: an engine that says that its peer is
// gone is rarely the first to fail.
const linger = 200 * time.Millisecond

// explain prefers the reason why the plugin or the run has ended to the engine's error.
func (w *pluginCall) explain(ctx context.Context, err error) error {
	if !errors.As(err, new(*collective.BackendError)) {
		return err
	}
	sleep := collective.NewSleep(ctx)
	for end := time.Now().Add(linger); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if dead := w.c.dead.Load(); dead != nil {
			return *dead
		}
		if _, cause := sleep.Next(); cause != nil && !errors.Is(cause, collective.ErrTimeout) {
			return cause
		}
	}
	return err
}
