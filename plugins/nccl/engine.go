// Package nccl is the backend that moves tensors with NCCL, NVIDIA's library of collectives between GPUs. drun's
// tensors lie in host memory, so they are staged: copied to the GPU, exchanged and reduced there, and copied back, in
// chunks that overlap. The program drun-backend-nccl beneath this package serves it to drun.
//
// Neither CUDA nor NCCL is needed to build it: libcuda.so.1 and libnccl.so.2 are looked for at run time, and Probe
// says what is missing.
package nccl

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"drun/collective"
	"drun/internal/try"
	"drun/plugins/internal/blocking"
	"drun/plugins/internal/bootstrap"
	"drun/plugins/internal/collectives"
	"drun/plugins/internal/mesh"
)

// engine is a rank's end of a group in NCCL. The mesh does what NCCL does not: noticing that a rank has left, was lost
// or gave up, and messages between two ranks. NCCL cannot receive from any rank; and a kernel that waits for a message
// next to one that waits for a collective hangs as soon as a CUDA call, NCCL's own included, synchronizes the GPU.
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

type counters struct {
	operations      [C.OPERATIONS]atomic.Int64
	splits          atomic.Int64
	direct, bounced atomic.Int64 // bytes between host and GPU
}

var functions = [C.OPERATIONS]string{
	C.BROADCAST: "ncclBroadcast", C.REDUCE: "ncclReduce", C.ALL_REDUCE: "ncclAllReduce", C.ALL_GATHER: "ncclAllGather",
	C.REDUCE_SCATTER: "ncclReduceScatter", C.SEND: "ncclSend", C.RECV: "ncclRecv", C.GATHER: "ncclGather",
	C.SCATTER: "ncclScatter",
}

// Statistics counts the calls of NCCL's functions, and the bytes that were copied between the host's memory and the GPU:
// by DMA, and through a buffer.
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
		list = collective.AllRanks(devices)
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

// How much a slot stages. Chunks of a few megabytes use the bus as well as larger ones.
const slotRoom = 8 << 20

func (b *Backend) Open(ctx context.Context, world collective.World) (_ collective.Comm, err error) {
	defer try.Caught(&err)
	if world.Size > 1 && world.Store == nil {
		return nil, errors.New("nccl needs a store in which the ranks find each other, and there is none")
	}
	devices := try.To(b.load())
	try.Ok(b.prepare(world))
	gpu := try.To(openGPU(b.options, devices, world, b.arena))
	options := b.options
	options.deterministic = world.Deterministic
	e := newEngine(gpu, world.Store, "nccl", options, world.Rank, world.Size)
	e.local = world.LocalSize == world.Size && world.NodeAddress == ""
	if err := e.connect(ctx, e.meet); err != nil {
		e.free()
		return nil, err
	}
	return blocking.New(b.Name(), e, world.Rank, world.Size), nil
}

// prepare sets NCCL's environment variables, unless the user has.
func (b *Backend) prepare(world collective.World) error {
	settings := map[string]string{"NCCL_DEBUG": "WARN"} // its reasons belong in the log
	if b.options.ShareGPU && world.LocalSize > 1 {
		if version() >= 23000 {
			settings["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
		} else {
			// Ranks that appear to be on different machines may use the same GPU.
			settings["NCCL_HOSTID"] = fmt.Sprintf("drun-rank-%d", world.Rank)
			settings["NCCL_NET"] = "Socket"
			settings["NCCL_SOCKET_IFNAME"] = "lo"
		}
	}
	for name, value := range settings {
		if os.Getenv(name) == "" {
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
	}
	if b.options.Log != nil {
		return syscall.Dup3(int(b.options.Log.Fd()), 1, 0) // NCCL prints to stdout
	}
	return nil
}

func newEngine(g *gpu, store collective.Store, prefix string, o Options, rank, size int) *engine {
	e := &engine{gpu: g, store: store, prefix: prefix, options: o}
	e.Runner = collectives.Runner{Library: e, Rank: rank, Size: size, InRankOrder: o.deterministic && size > 2}
	g.engines.Add(1)
	return e
}

// connect makes the group's connections: the mesh, for what NCCL cannot do, and the communicator that join returns.
func (e *engine) connect(ctx context.Context, join func(context.Context) (C.ncclComm_t, error)) (err error) {
	defer try.Caught(&err)
	// NCCL first: all ranks must call it, so one that failed before would block the others.
	comm := try.To(join(ctx))
	e.lane = try.To(newLane(e.device, e.memory, comm, slotRoom, &e.counts))
	host := "127.0.0.1"
	if !e.local && e.Size > 1 {
		host, err = bootstrap.Route()
	}
	if err == nil {
		e.Mesh, err = mesh.Connect(ctx, e.store, e.prefix, host, e.Rank, e.Size)
	}
	if err != nil {
		e.lane.interrupt() // the others may not come to finalise it
	}
	return err
}

// meet joins the communicator whose ID rank 0 puts into the store, or returns the reason that rank 0 gives there.
func (e *engine) meet(ctx context.Context) (C.ncclComm_t, error) {
	var id uniqueID
	var err error
	if e.Rank == 0 {
		id, err = newUniqueID(e.device)
	}
	if e.Size > 1 {
		err = e.share(ctx, &id, err)
	}
	if err != nil {
		return nil, fmt.Errorf("the ranks cannot meet: %w", err)
	}
	return newCommunicator(ctx, e.device, id, e.Size, e.Rank)
}

// share gives rank 0's id to the others, or its failure.
func (e *engine) share(ctx context.Context, id *uniqueID, failed error) error {
	key := e.prefix + "/id"
	if e.Rank == 0 {
		value := append([]byte{1}, id[:]...)
		if failed != nil {
			value = append([]byte{0}, failed.Error()...)
		}
		return errors.Join(failed, e.store.Set(ctx, key, value))
	}
	value, err := e.store.Get(ctx, key)
	switch {
	case err != nil:
		return err
	case len(value) > 0 && value[0] == 0:
		return fmt.Errorf("rank 0 says that %s", value[1:])
	case len(value) != 1+len(id):
		return fmt.Errorf("rank 0 published %d bytes in place of NCCL's id", len(value))
	}
	copy(id[:], value[1:])
	return nil
}

func (e *engine) Split(ctx context.Context, group collective.Group, rank int) (blocking.Engine, error) {
	sub := newEngine(e.gpu, e.store, fmt.Sprintf("%s/group %d of %d", e.prefix, group.ID, group.Ranks[0]), e.options, rank, len(group.Ranks))
	sub.local = e.local
	join := sub.meet
	if has("ncclCommSplit") {
		join = func(ctx context.Context) (C.ncclComm_t, error) {
			e.counts.splits.Add(1)
			return e.lane.split(ctx, group.Ranks[0], rank)
		}
	}
	if err := sub.connect(ctx, join); err != nil {
		sub.free()
		return nil, err
	}
	return sub, nil
}

// Outside takes part in the split of a group that this rank is not in.
func (e *engine) Outside(ctx context.Context, _ collective.Group) error {
	if !has("ncclCommSplit") {
		return nil
	}
	e.counts.splits.Add(1)
	_, err := e.lane.split(ctx, C.NCCL_SPLIT_NOCOLOR, 0)
	return err
}

// Options of the backend; the zero value chooses by itself.
type Options struct {
	// NCCL and CUDA are the libraries' files, or the folders they are in. Empty: the loader's search path, then where
	// packages put them.
	NCCL, CUDA string
	// Devices are the GPUs of this machine's ranks, by local rank. Empty: the GPU of the local rank's number.
	Devices []int
	// ShareGPU lets several ranks use one GPU. It is slow, and meant for tests.
	ShareGPU bool
	// ZeroCopy lets NCCL's all_reduce access host memory directly where it can, instead of staging.
	ZeroCopy bool
	// Log gets what NCCL prints. Nil: it goes where NCCL sends it.
	Log *os.File

	problem       error // of the environment
	deterministic bool  // contributions are gathered and combined in rank order, as the World asks
}

// FromEnvironment reads DRUN_NCCL_LIB, DRUN_CUDA_LIB, DRUN_NCCL_DEVICES ("2,3"), DRUN_NCCL_SHARE_GPU and
// DRUN_NCCL_ZERO_COPY.
func FromEnvironment() Options {
	o := Options{
		NCCL: os.Getenv("DRUN_NCCL_LIB"), CUDA: os.Getenv("DRUN_CUDA_LIB"),
		ShareGPU: os.Getenv("DRUN_NCCL_SHARE_GPU") == "1", ZeroCopy: os.Getenv("DRUN_NCCL_ZERO_COPY") == "1",
	}
	if list := os.Getenv("DRUN_NCCL_DEVICES"); list != "" {
		for s := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(s))
			if err != nil || n < 0 {
				o.problem = fmt.Errorf("DRUN_NCCL_DEVICES is %q, but takes the numbers of GPUs, as in 0,1", list)
				break
			}
			o.Devices = append(o.Devices, n)
		}
	}
	return o
}

// Backend is the NCCL engine.
type Backend struct {
	options Options
	arena   []byte // where the calls' buffers lie, if that is known
}

// New returns the backend.
func New(options Options) *Backend { return &Backend{options: options} }

func (b *Backend) Name() string { return "nccl" }

// Properties say that it is the default between nodes if there is no better one.
func (b *Backend) Properties() collective.Properties {
	return collective.Properties{BetweenNodes: 1, OwnOrder: true}
}

// Map tells the backend where the calls' buffers lie, so that it can prepare that memory for DMA as it is used.
func (b *Backend) Map(arena []byte) { b.arena = arena }
