package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"drun/collective"
	"drun/element"
)

// mesh connects this rank with every other. A goroutine for each connection
// reads what comes and keeps it until somebody wants it, so that ranks that both
// send first do not block each other.
type mesh struct {
	rank  int
	peers []*peer // by rank; nil for this one

	mu      sync.Mutex
	wanted  []*want    // in the order in which they were asked for
	arrived []*message // that nobody has asked for yet
	left    []bool     // ranks that have closed their connection
	failure map[uint32]error
}

type peer struct {
	conn net.Conn
	mu   sync.Mutex // of writing
}

// header goes before every message.
type header struct {
	Group uint32
	Abort bool   // the data says why
	Seq   uint64 // of a collective, from 1; 0 for a message with a tag
	Tag   int64
	DType element.Type
	Bytes int64
}

type message struct {
	header
	from int
	data []byte
}

// want is somebody who waits for a message.
type want struct {
	from int // or collective.AnySource
	header
	ready   chan struct{}
	message *message
	err     error
}

func (w *want) fits(from int, h *header) bool {
	return (w.from == from || w.from == collective.AnySource) && w.Group == h.Group && w.Seq == h.Seq && w.Tag == h.Tag
}

func (w *want) end(m *message, err error) {
	w.message, w.err = m, err
	close(w.ready)
}

// connect meets the other ranks: each says in the store where it listens, and
// calls those of a lower rank. A secret keeps out anybody else on this machine.
func connect(ctx context.Context, world collective.World) (*mesh, error) {
	m := &mesh{rank: world.Rank, peers: make([]*peer, world.Size), left: make([]bool, world.Size), failure: map[uint32]error{}}
	if world.Size == 1 {
		return m, nil
	}
	if world.Store == nil {
		return nil, errors.New("there is no key-value store in which ranks could find each other")
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	secret := []byte(rand.Text())
	if world.Rank == 0 {
		err = world.Store.Set(ctx, "example/secret", secret)
	} else {
		secret, err = world.Store.Get(ctx, "example/secret")
	}
	if err == nil {
		err = world.Store.Set(ctx, key(world.Rank), []byte(listener.Addr().String()))
	}
	if err != nil {
		return nil, err
	}
	for rank := range world.Rank {
		if err := m.call(ctx, world, rank, secret); err != nil {
			m.close()
			return nil, fmt.Errorf("cannot reach rank %d: %w", rank, err)
		}
	}
	if err := m.answer(ctx, listener, secret); err != nil {
		m.close()
		return nil, err
	}
	for rank, p := range m.peers {
		if p != nil {
			go m.read(rank, p.conn)
		}
	}
	return m, nil
}

func key(rank int) string { return "example/rank/" + strconv.Itoa(rank) }

func (m *mesh) call(ctx context.Context, world collective.World, rank int, secret []byte) error {
	address, err := world.Store.Get(ctx, key(rank))
	if err != nil {
		return err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", string(address))
	if err != nil {
		return err
	}
	m.peers[rank] = &peer{conn: conn}
	_, err = conn.Write(append(secret[:len(secret):len(secret)], byte(world.Rank>>8), byte(world.Rank)))
	return err
}

// answer waits for the calls of all higher ranks.
func (m *mesh) answer(ctx context.Context, listener net.Listener, secret []byte) error {
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	for missing := len(m.peers) - 1 - m.rank; missing > 0; {
		conn, err := listener.Accept()
		if err != nil {
			return fmt.Errorf("%d ranks have not called: %w", missing, errors.Join(context.Cause(ctx), err))
		}
		hello := make([]byte, len(secret)+2)
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.ReadFull(conn, hello); err != nil || !bytes.Equal(hello[:len(secret)], secret) {
			conn.Close()
			continue
		}
		_ = conn.SetReadDeadline(time.Time{})
		rank := int(binary.BigEndian.Uint16(hello[len(secret):]))
		if rank <= m.rank || rank >= len(m.peers) || m.peers[rank] != nil {
			conn.Close()
			continue
		}
		m.peers[rank] = &peer{conn: conn}
		missing--
	}
	return nil
}

// send gives a message to a rank.
func (m *mesh) send(to int, h header, data []byte) error {
	h.Bytes = int64(len(data))
	var head bytes.Buffer
	_ = binary.Write(&head, binary.LittleEndian, h) // to memory
	p := m.peers[to]
	p.mu.Lock()
	defer p.mu.Unlock()
	parts := net.Buffers{head.Bytes(), data}
	if _, err := parts.WriteTo(p.conn); err != nil {
		if cause := m.failed(h.Group); cause != nil {
			return cause
		}
		return fmt.Errorf("cannot send to rank %d: %w", to, err)
	}
	return nil
}

// read takes what comes from a rank.
func (m *mesh) read(from int, conn net.Conn) {
	for {
		msg := &message{from: from}
		err := binary.Read(conn, binary.LittleEndian, &msg.header)
		if err == nil {
			msg.data = make([]byte, msg.Bytes)
			_, err = io.ReadFull(conn, msg.data)
		}
		switch {
		case err != nil:
			m.leave(from)
			return
		case msg.Abort:
			m.fail(msg.Group, fmt.Errorf("rank %d aborted: %s", from, msg.data))
		default:
			m.deliver(msg)
		}
	}
}

func (m *mesh) deliver(msg *message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, w := range m.wanted {
		if w.fits(msg.from, &msg.header) {
			m.wanted = slices.Delete(m.wanted, i, i+1)
			w.end(msg, nil)
			return
		}
	}
	m.arrived = append(m.arrived, msg)
}

// want asks for a message.
func (m *mesh) want(from int, h header) *want {
	w := &want{from: from, header: h, ready: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, msg := range m.arrived {
		if w.fits(msg.from, &msg.header) {
			m.arrived = slices.Delete(m.arrived, i, i+1)
			w.end(msg, nil)
			return w
		}
	}
	if err := m.hopeless(w); err != nil {
		w.end(nil, err)
	} else {
		m.wanted = append(m.wanted, w)
	}
	return w
}

// take waits for the message.
func (m *mesh) take(ctx context.Context, w *want) (*message, error) {
	if err := collective.Wait(ctx, w.ready); err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.wanted = slices.DeleteFunc(m.wanted, func(other *want) bool { return other == w })
		return nil, err
	}
	return w.message, w.err
}

// hopeless tells why a message will never come.
func (m *mesh) hopeless(w *want) error {
	if err := m.failure[w.Group]; err != nil {
		return err
	}
	if w.from != collective.AnySource && m.left[w.from] {
		return fmt.Errorf("rank %d has gone", w.from)
	}
	return nil
}

// sweep ends the waits that have become hopeless.
func (m *mesh) sweep() {
	m.wanted = slices.DeleteFunc(m.wanted, func(w *want) bool {
		err := m.hopeless(w)
		if err != nil {
			w.end(nil, err)
		}
		return err != nil
	})
}

func (m *mesh) leave(rank int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left[rank] = true
	m.sweep()
}

// fail ends all calls of a group; the first cause stays.
func (m *mesh) fail(group uint32, cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failure[group] == nil {
		m.failure[group] = cause
	}
	m.sweep()
}

func (m *mesh) failed(group uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failure[group]
}

// abort fails the group here and on the other ranks. A rank that does not read
// must not hold it up.
func (m *mesh) abort(group uint32, ranks []int, cause error) {
	m.fail(group, cause)
	for _, rank := range ranks {
		if rank != m.rank {
			conn := m.peers[rank].conn
			_ = conn.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
			_ = m.send(rank, header{Group: group, Abort: true}, []byte(cause.Error()))
			_ = conn.SetWriteDeadline(time.Time{})
		}
	}
}

func (m *mesh) close() {
	for _, p := range m.peers {
		if p != nil {
			_ = p.conn.Close()
		}
	}
}
