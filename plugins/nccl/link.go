package nccl

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"drun/collective"
)

// newMesh meets the other ranks of a group: each says in the store where it
// listens, and calls those of a lower rank. A secret keeps out anybody else.
func newMesh(ctx context.Context, store collective.Store, prefix string, local bool, rank, size int) (*mesh, error) {
	m := &mesh{rank: rank, peers: make([]*peer, size)}
	m.arrived.more.L = &m.arrived.mu
	if size == 1 {
		return m, nil
	}
	host, err := address(local)
	if err != nil {
		return m, err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return m, err
	}
	defer listener.Close()
	if err := m.link(ctx, store, prefix, listener); err != nil {
		return m, fmt.Errorf("the ranks cannot reach each other: %w", err)
	}
	for _, p := range m.peers {
		if p != nil {
			go m.read(p)
		}
	}
	return m, nil
}

// address is where this rank listens: on loopback if all are on this machine,
// else on the interface of the route to MASTER_ADDR.
func address(local bool) (string, error) {
	if local {
		return "127.0.0.1", nil
	}
	to := os.Getenv("MASTER_ADDR")
	if to == "" {
		to = "192.0.2.1" // of nobody: the default route
	}
	conn, err := net.Dial("udp", net.JoinHostPort(to, "9")) // sends nothing
	if err != nil {
		return "", fmt.Errorf("no network interface leads to %s (MASTER_ADDR): %w", to, err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).IP.String(), nil
}

func (m *mesh) link(ctx context.Context, store collective.Store, prefix string, listener net.Listener) error {
	secret := []byte(rand.Text())
	var err error
	if m.rank == 0 {
		err = store.Set(ctx, prefix+"/secret", secret)
	} else {
		secret, err = store.Get(ctx, prefix+"/secret")
	}
	if err != nil {
		return err
	}
	// The other ranks' addresses are for messages too.
	key := func(rank int) string { return prefix + "/rank/" + strconv.Itoa(rank) }
	if err := store.Set(ctx, key(m.rank), []byte(listener.Addr().String())); err != nil {
		return err
	}
	addresses := make([]string, len(m.peers))
	for rank := range m.peers {
		if rank == m.rank {
			continue
		}
		text, err := store.Get(ctx, key(rank))
		if err != nil {
			return fmt.Errorf("rank %d has not come: %w", rank, err)
		}
		addresses[rank] = string(text)
	}
	for rank := range m.rank {
		if err := m.call(ctx, rank, addresses[rank], secret); err != nil {
			return fmt.Errorf("rank %d at %s: %w", rank, addresses[rank], err)
		}
	}
	return m.answer(ctx, listener, addresses, secret)
}

func (m *mesh) add(rank int, address string, conn net.Conn) {
	m.peers[rank] = &peer{rank: rank, address: address, conn: conn, gone: make(chan struct{}), grants: map[uint64]chan struct{}{}}
}

// call connects to a rank and says who calls.
func (m *mesh) call(ctx context.Context, rank int, address string, secret []byte) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	m.add(rank, address, conn)
	_, err = conn.Write(binary.LittleEndian.AppendUint32(bytes.Clone(secret), uint32(m.rank)))
	return err
}

// helloLimit is how long a caller may take to say who it is.
const helloLimit = 5 * time.Second

// answer waits for the calls of all higher ranks.
func (m *mesh) answer(ctx context.Context, listener net.Listener, addresses []string, secret []byte) error {
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	// A patience in ctx has no end that a listener would notice.
	sleep := collective.NewSleep(ctx)
	for missing := len(m.peers) - 1 - m.rank; missing > 0; {
		slice, err := sleep.Next()
		if err != nil {
			return fmt.Errorf("%d ranks have not called: %w", missing, err)
		}
		_ = listener.(*net.TCPListener).SetDeadline(time.Now().Add(max(slice, time.Millisecond)))
		conn, err := listener.Accept()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%d ranks have not called: %w", missing, errors.Join(context.Cause(ctx), err))
		}
		hello := make([]byte, len(secret)+4)
		_ = conn.SetReadDeadline(time.Now().Add(helloLimit))
		_, err = io.ReadFull(conn, hello)
		_ = conn.SetReadDeadline(time.Time{})
		rank := int(binary.LittleEndian.Uint32(hello[len(secret):]))
		if err != nil || !bytes.Equal(hello[:len(secret)], secret) || rank <= m.rank || rank >= len(m.peers) || m.peers[rank] != nil {
			conn.Close()
			continue
		}
		m.add(rank, addresses[rank], conn)
		missing--
	}
	return nil
}
