//go:build gloo

package gloo

// #include "shim.h"
// #cgo CXXFLAGS: -std=c++17 -O3 -Wall -I${SRCDIR}/missing
// #cgo LDFLAGS: -lgloo
// #include <stdlib.h>
import "C"

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"unsafe"

	"drun/collective"
	"drun/collective/messages"
	"drun/collective/sharedmem"
	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/plugins/internal/blocking"
	"drun/plugins/internal/bootstrap"
	"drun/plugins/internal/collectives"

	"golang.org/x/sys/unix"
)

// engine is a rank's end of a group in Gloo: a context with a connection to every other rank.
type engine struct {
	collectives.Runner
	device *C.device // its own reference to what all groups share
	group  *C.group
	host   string // to listen on
	store  collective.Store
	prefix string         // of its keys in the store
	poll   sharedmem.Poll // to wait for other ranks: each has another process besides its plugin

	received C.header // of the message that Next announced
	paired   paired
}

var functions = [C.FUNCTIONS]string{
	C.ALLREDUCE: "allreduce", C.BROADCAST: "broadcast", C.REDUCE: "reduce", C.ALLGATHER: "allgather",
	C.ALLGATHERV: "allgatherv", C.GATHER: "gather", C.GATHERV: "gatherv", C.SCATTER: "scatter", C.SCATTERV: "scatterv",
	C.ALLTOALLV: "alltoallv", C.BARRIER: "barrier", C.SEND: "send", C.RECV: "recv",
}

func (e *engine) Statistics() map[string]int64 {
	var calls [C.FUNCTIONS]C.int64_t
	C.drun_gloo_calls(e.group, &calls[0])
	m := make(map[string]int64)
	for i, n := range calls {
		if n > 0 {
			m["gloo::"+functions[i]] = int64(n)
		}
	}
	return m
}

// Interrupt closes the connections, which ends everything that waits for them.
func (e *engine) Interrupt() { C.drun_gloo_interrupt(e.group) }

func (e *engine) Leave() { C.drun_gloo_leave(e.group) }

func (e *engine) Close() error {
	e.paired.close()
	e.free()
	return nil
}

func (e *engine) free() {
	if e.group != nil {
		C.drun_gloo_free(e.group)
		e.group = nil
	}
	if e.device != nil {
		C.drun_gloo_device_free(e.device)
		e.device = nil
	}
}

func (e *engine) Peer(rank int) (left bool, failed error) {
	var failure [C.ERR_SIZE]C.char
	state := C.drun_gloo_peer(e.group, C.int(rank), &failure[0])
	if state < 0 {
		return false, errors.New(C.GoString(&failure[0]))
	}
	return state > 0, nil
}

func (e *engine) Send(to int, h blocking.Header, data []byte) error {
	var failure [C.ERR_SIZE]C.char
	head := C.header{tag: C.int64_t(h.Tag), bytes: C.uint64_t(h.Bytes), dtype: C.uint64_t(h.DType)}
	return failed(C.drun_gloo_send(e.group, C.int(to), &head, pointer(data), &failure[0]), &failure)
}

func (e *engine) Next() (from int, h blocking.Header, err error) {
	var failure [C.ERR_SIZE]C.char
	var source C.int
	switch C.drun_gloo_next(e.group, &source, &e.received, &failure[0]) {
	case 0:
		return 0, h, collective.ErrClosed
	case 1:
		r := &e.received
		return int(source), blocking.Header{Key: uint64(r.slot),
			Header: messages.Header{Tag: int64(r.tag), Bytes: uint64(r.bytes), DType: dtype.Type(r.dtype)}}, nil
	}
	return 0, h, errors.New(C.GoString(&failure[0]))
}

func (e *engine) Fetch(from int, h blocking.Header, data []byte) error {
	if h.Key == 0 {
		copy(data, unsafe.Slice((*byte)(unsafe.Pointer(&e.received.data[0])), h.Bytes))
		return nil
	}
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_fetch(e.group, C.int(from), C.uint64_t(h.Key), pointer(data), C.size_t(len(data)), &failure[0]), &failure)
}

func (e *engine) Stop() { C.drun_gloo_stop(e.group) }

func failed(rc C.int, failure *[C.ERR_SIZE]C.char) error {
	if rc == 0 {
		return nil
	}
	return errors.New(C.GoString(&failure[0]))
}

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func (b *Backend) Probe(context.Context) error { return nil }

func (b *Backend) Version() string { return "gloo " + C.GoString(C.drun_gloo_version()) }

func (b *Backend) Open(ctx context.Context, world collective.World) (_ collective.Comm, err error) {
	defer try.Caught(&err)
	name, address := try.To2(b.options.place(world))
	d := try.To(openDevice(name, address))
	host, err := hostOf(name, address)
	if err != nil {
		C.drun_gloo_device_free(d)
		return nil, err
	}
	e := &engine{device: d, host: host, store: world.Store, prefix: "gloo", poll: sharedmem.PollBeside(2 * max(1, world.LocalSize)),
		Runner: collectives.Runner{Rank: world.Rank, Size: world.Size, InRankOrder: world.Deterministic}}
	if err := e.connect(ctx); err != nil {
		e.free()
		return nil, err
	}
	return blocking.New(b.Name(), e, world.Rank, world.Size), nil
}

func openDevice(name, address string) (*C.device, error) {
	var failure, about [C.ERR_SIZE]C.char
	cname, caddress := C.CString(name), C.CString(address)
	defer C.free(unsafe.Pointer(cname))
	defer C.free(unsafe.Pointer(caddress))
	d := C.drun_gloo_device(cname, caddress, &about[0], &failure[0])
	if d == nil {
		return nil, fmt.Errorf("cannot use the network interface %s%s: %s", name, address, C.GoString(&failure[0]))
	}
	return d, nil
}

// connect makes the group's connections and passes them to Gloo.
func (e *engine) connect(ctx context.Context) (err error) {
	defer try.Caught(&err)
	peers := try.To(bootstrap.Connect(ctx, e.store, e.prefix, e.host, e.Rank, e.Size))
	for _, p := range peers {
		if p.Conn != nil {
			defer p.Conn.Close() // Gloo has a descriptor of its own
		}
	}
	var failure [C.ERR_SIZE]C.char
	e.Library = e
	e.group = C.drun_gloo_group(e.device, C.int(e.Rank), C.int(e.Size), C.int(e.poll.Pauses), C.int(e.poll.Yields), &failure[0])
	if e.group == nil {
		return errors.New(C.GoString(&failure[0]))
	}
	for rank, p := range peers {
		if p.Conn == nil {
			continue
		}
		try.Ok(e.give(rank, p))
	}
	if C.drun_gloo_ready(e.group, &failure[0]) != 0 {
		return errors.New(C.GoString(&failure[0]))
	}
	return nil
}

// give passes Gloo the connection to a rank.
func (e *engine) give(rank int, p bootstrap.Peer) error {
	raw, err := p.Conn.SyscallConn()
	if err != nil {
		return err
	}
	socket := -1
	if err2 := raw.Control(func(fd uintptr) { socket, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); err2 != nil {
		err = err2
	}
	if err != nil {
		return fmt.Errorf("the connection to rank %d: %w", rank, err)
	}
	address := C.CString(p.Address)
	defer C.free(unsafe.Pointer(address))
	var failure [C.ERR_SIZE]C.char
	return failed(C.drun_gloo_connect(e.group, C.int(rank), C.int(socket), address, &failure[0]), &failure)
}

// Split connects the ranks of a group among themselves, over the same interface.
func (e *engine) Split(ctx context.Context, group collective.Group, rank int) (blocking.Engine, error) {
	sub := &engine{device: C.drun_gloo_device_share(e.device), host: e.host, store: e.store, poll: e.poll,
		prefix: fmt.Sprintf("%s/group %d of %d", e.prefix, group.ID, group.Ranks[0]),
		Runner: collectives.Runner{Rank: rank, Size: len(group.Ranks), InRankOrder: e.InRankOrder}}
	if err := sub.connect(ctx); err != nil {
		sub.free()
		return nil, err
	}
	return sub, nil
}

// place chooses the network interface, by name or by one of its addresses.
func (o Options) place(world collective.World) (name, address string, err error) {
	switch {
	case net.ParseIP(o.Interface) != nil:
		return "", o.Interface, nil
	case o.Interface != "":
		if _, err := net.InterfaceByName(o.Interface); err != nil {
			return "", "", fmt.Errorf("there is no network interface %s; this machine has %s", o.Interface, interfaces())
		}
		return o.Interface, "", nil
	case world.NodeAddress != "": // the one through which the agents have met
		return "", world.NodeAddress, nil
	case world.LocalSize == world.Size:
		return "", "127.0.0.1", nil
	}
	if address, err = bootstrap.Route(); err != nil {
		return "", "", fmt.Errorf("%w; name one in DRUN_GLOO_INTERFACE: this machine has %s", err, interfaces())
	}
	return "", address, nil
}

// hostOf returns the address to listen on: the chosen one, or the interface's first.
func hostOf(name, address string) (string, error) {
	if name == "" {
		return address, nil
	}
	i, err := net.InterfaceByName(name)
	if err != nil {
		return "", fmt.Errorf("the network interface %s: %w", name, err)
	}
	all, err := i.Addrs()
	if err != nil {
		return "", fmt.Errorf("the network interface %s: %w", name, err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if n.IP.To4() == nil && n.IP.IsLinkLocalUnicast() {
				return n.IP.String() + "%" + name, nil
			}
			return n.IP.String(), nil
		}
	}
	return "", fmt.Errorf("the network interface %s has no address", name)
}

func interfaces() string {
	all, err := net.Interfaces()
	if err != nil || len(all) == 0 {
		return "none"
	}
	names := each.Of(all, func(f net.Interface) string { return f.Name })
	return strings.Join(names, ", ")
}
