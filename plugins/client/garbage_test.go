package client

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"drun/collective"
	"drun/collective/disttest"
	"drun/kernel/dtype"
	"drun/plugins/internal/wire"
)

// A plugin can write anything into the slots: what drun reads there ends in
// errors, never in a crash.
func TestSlotsThatHoldGarbage(t *testing.T) {
	arena, err := wire.CreateArena()
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	x := &process{plugin: example(t), arena: arena}
	c := newComm(newPort(x, alone), 0, 0, 1)
	rng := rand.New(rand.NewPCG(disttest.Seed(t), 0))
	for range 20_000 {
		call := collective.NewAllReduce(collective.Of(make([]float32, 4)), dtype.Sum)
		if rng.IntN(2) == 0 {
			call = collective.NewRecv(collective.Of(make([]float32, 4)), collective.AnySource, 0)
		}
		w := &pluginCall{c: c}
		if w.index, err = c.take(); err != nil {
			t.Fatal(err)
		}
		w.slot, w.kind, w.peer, w.async = arena.Slot(w.index), call.Kind, call.Peer, true
		if err := w.write(&call); err != nil {
			t.Fatal(err)
		}
		raw := unsafe.Slice((*byte)(unsafe.Pointer(w.slot)), unsafe.Sizeof(*w.slot))
		for range 1 + rng.IntN(len(raw)) {
			raw[rng.IntN(len(raw))] = byte(rng.Uint32())
		}
		if rng.IntN(2) == 0 {
			w.slot.State.Store(wire.Submitted)
			_ = c.underWay(uint32(rng.IntN(2)))
		}
		w.slot.State.Store(wire.Ended)
		if !w.collect() {
			t.Fatal("a call that has ended is not collected")
		}
	}
}
