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
	"unsafe"

	"drun/collective"
	"drun/collective/sharedmem"
	"drun/plugins/internal/blocking"
	"drun/plugins/internal/bootstrap"
	"drun/plugins/internal/collectives"

	"golang.org/x/sys/unix"
)

// Probe reports that Gloo can run here: it is linked in.
func (b *Backend) Probe(context.Context) error { return nil }

// Version is the library's.
func (b *Backend) Version() string { return "gloo " + C.GoString(C.drun_gloo_version()) }

// Open connects this rank with every other.
func (b *Backend) Open(ctx context.Context, world collective.World) (collective.Comm, error) {
	name, address, err := b.options.place(world)
	if err != nil {
		return nil, err
	}
	d, err := openDevice(name, address)
	if err != nil {
		return nil, err
	}
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
func (e *engine) connect(ctx context.Context) error {
	peers, err := bootstrap.Connect(ctx, e.store, e.prefix, e.host, e.Rank, e.Size)
	if err != nil {
		return err
	}
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
		if err := e.give(rank, p); err != nil {
			return err
		}
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
