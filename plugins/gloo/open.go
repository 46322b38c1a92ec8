//go:build gloo

package gloo

// #include "shim.h"
// #cgo CXXFLAGS: -std=c++17 -O3 -Wall
// #cgo LDFLAGS: -lgloo
// #include <stdlib.h>
import "C"

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"drun/collective"
	"drun/plugins/internal/blocking"
	"drun/plugins/internal/ordered"
)

// Probe reports that Gloo can run here: it is linked in.
func (b *Backend) Probe(context.Context) error { return nil }

// Version is that of the library.
func (b *Backend) Version() string { return "gloo " + C.GoString(C.drun_gloo_version()) }

// Open connects this rank with every other.
func (b *Backend) Open(ctx context.Context, world collective.World) (collective.Comm, error) {
	if world.Size > 1 && world.Store == nil {
		return nil, errors.New("gloo needs a store in which the ranks find each other, and there is none")
	}
	name, address, err := b.options.place(world)
	if err != nil {
		return nil, err
	}
	d, err := openDevice(name, address)
	if err != nil {
		return nil, err
	}
	e := &engine{device: d, store: world.Store, prefix: "gloo", deterministic: b.options.Deterministic, rank: world.Rank, size: world.Size}
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

// connect makes the group's connections. Each rank publishes one address for
// each other rank.
func (e *engine) connect(ctx context.Context) error {
	var failure [C.ERR_SIZE]C.char
	e.reducer = ordered.Reducer{Mover: mover{e}, Rank: e.rank, Size: e.size}
	e.group = C.drun_gloo_group(e.device, C.int(e.rank), C.int(e.size), &failure[0])
	if e.group == nil {
		return errors.New(C.GoString(&failure[0]))
	}
	if e.size > 1 {
		if err := e.publish(ctx); err != nil {
			return err
		}
		// A connection waits for the other side; the end of ctx ends that.
		interrupted := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(interrupted)
			C.drun_gloo_interrupt(e.group)
		})
		err := e.dial(ctx)
		if !stop() {
			<-interrupted // the group is freed next
			return fmt.Errorf("connecting was given up: %w", errors.Join(context.Cause(ctx), err))
		}
		if err != nil {
			return err
		}
	}
	if C.drun_gloo_ready(e.group, &failure[0]) != 0 {
		return errors.New(C.GoString(&failure[0]))
	}
	return nil
}

func (e *engine) publish(ctx context.Context) error {
	var failure [C.ERR_SIZE]C.char
	for peer := range e.size {
		if peer == e.rank {
			continue
		}
		var address [C.ADDRESS_SIZE]C.char
		n := C.drun_gloo_address(e.group, C.int(peer), &address[0], &failure[0])
		if n < 0 {
			return errors.New(C.GoString(&failure[0]))
		}
		if err := e.store.Set(ctx, e.key(e.rank, peer), C.GoBytes(unsafe.Pointer(&address[0]), n)); err != nil {
			return fmt.Errorf("cannot publish the address of rank %d: %w", e.rank, err)
		}
	}
	return nil
}

func (e *engine) dial(ctx context.Context) error {
	var failure [C.ERR_SIZE]C.char
	ports := map[int]int{} // ranks, by the port of their address
	for peer := range e.size {
		if peer == e.rank {
			continue
		}
		address, err := e.store.Get(ctx, e.key(peer, e.rank))
		if err != nil {
			return fmt.Errorf("rank %d has not come: %w", peer, err)
		}
		if len(address) == 0 {
			return fmt.Errorf("rank %d published an empty address", peer)
		}
		if C.drun_gloo_connect(e.group, C.int(peer), (*C.char)(unsafe.Pointer(&address[0])), C.int(len(address)), &failure[0]) != 0 {
			return fmt.Errorf("cannot connect to %s", C.GoString(&failure[0]))
		}
		if len(address) > 4 { // a sockaddr: its port is in the same place for IPv4 and IPv6
			ports[int(binary.BigEndian.Uint16(address[2:]))] = peer
		}
	}
	for _, port := range looped() {
		if peer, ok := ports[port]; ok {
			return fmt.Errorf("cannot connect to rank %d at port %d: it is not there any more, and the connection led back to this rank", peer, port)
		}
	}
	return nil
}

// key is where a rank tells a peer its address.
func (e *engine) key(rank, peer int) string { return fmt.Sprintf("%s/%d/%d", e.prefix, rank, peer) }

// Split connects the ranks of a group among themselves, over the same interface.
func (e *engine) Split(ctx context.Context, group collective.Group, rank int) (blocking.Engine, error) {
	sub := &engine{device: C.drun_gloo_device_share(e.device), store: e.store, deterministic: e.deterministic, rank: rank, size: len(group.Ranks),
		prefix: fmt.Sprintf("%s/group %d of %d", e.prefix, group.ID, group.Ranks[0])}
	if err := sub.connect(ctx); err != nil {
		sub.free()
		return nil, err
	}
	return sub, nil
}
