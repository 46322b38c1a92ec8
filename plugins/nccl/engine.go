package nccl

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"sync/atomic"

	"drun/collective"
	"drun/plugins/internal/collectives"
	"drun/plugins/internal/mesh"
)

// engine is a rank's end of a group in NCCL. The mesh does what NCCL does not:
// noticing that a rank has left, was lost or gave up, and messages between two
// ranks. NCCL cannot receive from any rank; and a kernel that waits for a message
// next to one that waits for a collective hangs as soon as a CUDA call, NCCL's
// own included, synchronizes the GPU.
type engine struct {
	*gpu
	*mesh.Mesh
	collectives.Runner
	store   collective.Store
	prefix  string // of its keys in the store
	local   bool   // all ranks are on this machine
	options Options
	lane    *lane // of the collectives
	counts  counters
}

// gpu is what all groups of a rank share. The last group to be freed ends it.
type gpu struct {
	device  *C.device
	memory  *hostMemory
	engines atomic.Int32
}

// counters count what the engine does.
type counters struct {
	operations      [C.OPERATIONS]atomic.Int64
	splits          atomic.Int64
	direct, bounced atomic.Int64 // bytes between host and GPU
}

var functions = [C.OPERATIONS]string{
	C.BROADCAST: "ncclBroadcast", C.REDUCE: "ncclReduce", C.ALL_REDUCE: "ncclAllReduce", C.ALL_GATHER: "ncclAllGather",
	C.REDUCE_SCATTER: "ncclReduceScatter", C.SEND: "ncclSend", C.RECV: "ncclRecv", C.GATHER: "ncclGather",
	C.SCATTER: "ncclScatter", C.ALL_TO_ALL: "ncclAlltoAll",
}

// Statistics counts the calls of NCCL's functions, and the bytes that were
// copied between the host's memory and the GPU: by DMA, and through a buffer.
func (e *engine) Statistics() map[string]int64 {
	m := map[string]int64{"bytes by DMA": e.counts.direct.Load(), "bytes through a buffer": e.counts.bounced.Load()}
	for kind, name := range functions {
		if n := e.counts.operations[kind].Load(); n > 0 {
			m[name] = n
		}
	}
	if n := e.counts.splits.Load(); n > 0 {
		m["ncclCommSplit"] = n
	}
	return m
}

// Interrupt ends what is blocked here and, by closing the connections, on the other ranks.
func (e *engine) Interrupt() {
	e.lane.interrupt()
	e.Mesh.Interrupt()
}

// Close ends the communicator.
func (e *engine) Close() error {
	e.free()
	return nil
}

func (e *engine) free() {
	if e.lane != nil {
		e.lane.close()
	}
	if e.Mesh != nil {
		e.Mesh.Interrupt()
	}
	e.release()
}

// openGPU takes the device for a local rank.
func openGPU(o Options, devices int, world collective.World, arena []byte) (*gpu, error) {
	ordinal, err := o.choose(devices, world)
	if err != nil {
		return nil, err
	}
	var why [C.ERR_SIZE]C.char
	d := C.drun_device(C.int(ordinal), &why[0])
	if d == nil {
		return nil, fmt.Errorf("cannot use GPU %d: %w", ordinal, errors.New(C.GoString(&why[0])))
	}
	return &gpu{device: d, memory: newHostMemory(d, arena)}, nil
}

func (g *gpu) release() {
	if g.engines.Add(-1) > 0 {
		return
	}
	g.memory.release()
	C.drun_device_free(g.device)
}

// choose returns the number of the GPU for a local rank. Each rank has its own, unless sharing was asked for.
func (o Options) choose(devices int, world collective.World) (int, error) {
	list := o.Devices
	if list == nil {
		for i := range devices {
			list = append(list, i)
		}
	}
	if len(list) < world.LocalSize && !o.ShareGPU {
		return 0, fmt.Errorf("there are %d ranks on this machine, but only %s for them, and NCCL takes one each: use fewer ranks, "+
			"or set DRUN_NCCL_SHARE_GPU=1 to let ranks share (slow; for tests)", world.LocalSize, count(len(list), "GPU"))
	}
	ordinal := list[world.LocalRank%len(list)]
	if ordinal >= devices {
		return 0, fmt.Errorf("DRUN_NCCL_DEVICES names GPU %d, but this machine has %s, counted from 0", ordinal, count(devices, "GPU"))
	}
	return ordinal, nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
