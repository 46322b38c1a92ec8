// Package mesh connects each rank of a group with every other over TCP, and is the part of a [blocking.Engine] that
// carries messages and tracks which ranks have left or failed. The plugins for MPI and NCCL send messages over it, the
// example everything.
package mesh

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"

	"drun/collective"
	"drun/collective/messages"
	"drun/kernel/dtype"
	"drun/plugins/internal/blocking"
	"drun/plugins/internal/bootstrap"
)

// Mesh is a rank's end of the connections. A goroutine for each reads incoming messages and keeps them until they are
// asked for, so that two ranks that both send first do not block each other.
type Mesh struct {
	peers []*peer // by rank; nil for this one

	mu      sync.Mutex
	more    sync.Cond
	arrived []arrival // messages that Next has not returned
	stopped bool
	latest  arrival // what Next returned last
}

// arrival is a message, with the data that came in its frame.
type arrival struct {
	from   int
	header messages.Header
	data   []byte
}

// peer is another rank, and the connection to it.
type peer struct {
	rank    int
	address string
	conn    net.Conn
	writing sync.Mutex
	gone    chan struct{} // closed when the connection ends

	mu     sync.Mutex
	left   bool
	failed error
	parts  map[uint64]chan []byte // by key; each has room for its part
}

// A frame is the unit sent over a connection; Extra bytes follow it.
type frame struct {
	Kind, DType uint8
	_           [6]byte
	Tag         int64
	Key         uint64 // of a part
	Extra       uint64
}

const (
	message = iota + 1
	part
	goodbye
)

// Connect connects the ranks of a group: host is the address to listen on, and prefix begins the group's keys in the
// store.
func Connect(ctx context.Context, store collective.Store, prefix, host string, rank, size int) (*Mesh, error) {
	met, err := bootstrap.Connect(ctx, store, prefix, host, rank, size)
	if err != nil {
		return nil, fmt.Errorf("the ranks cannot reach each other: %w", err)
	}
	m := &Mesh{peers: make([]*peer, size)}
	m.more.L = &m.mu
	for rank, p := range met {
		if p.Conn != nil {
			m.peers[rank] = &peer{rank: rank, address: p.Address, conn: p.Conn, gone: make(chan struct{}), parts: map[uint64]chan []byte{}}
			go m.read(m.peers[rank])
		}
	}
	return m, nil
}

// read receives from a rank.
func (m *Mesh) read(p *peer) {
	defer close(p.gone)
	defer p.conn.Close()
	for {
		var f frame
		err := binary.Read(p.conn, binary.LittleEndian, &f)
		if err == nil && (f.Kind < message || f.Kind > goodbye) {
			err = errFrame
		}
		var data []byte
		if err == nil {
			data, err = readExtra(p.conn, f.Extra)
		}
		if err != nil {
			p.lost(err)
			return
		}
		switch f.Kind {
		case message:
			h := messages.Header{Tag: f.Tag, Bytes: f.Extra, DType: dtype.Type(f.DType)}
			m.mu.Lock()
			m.arrived = append(m.arrived, arrival{p.rank, h, data})
			m.more.Signal()
			m.mu.Unlock()
		case part:
			p.part(f.Key) <- data
		case goodbye:
			p.mu.Lock()
			p.left = true
			p.mu.Unlock()
		}
	}
}

var errFrame = errors.New("it sent something that is not a frame")

// readExtra allocates memory for large data only as it arrives: the length is not trusted.
func readExtra(from io.Reader, n uint64) ([]byte, error) {
	const most = 64 << 20
	if n <= most {
		data := make([]byte, n)
		_, err := io.ReadFull(from, data)
		return data, err
	}
	if n > math.MaxInt64 {
		return nil, errFrame
	}
	var data bytes.Buffer
	_, err := io.CopyN(&data, from, int64(n))
	return data.Bytes(), err
}

// lost records how the connection ended.
func (p *peer) lost(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left {
		return
	}
	what := err.Error()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		what = "it closed its connection, because it was lost or gave up"
	}
	p.failed = fmt.Errorf("rank %d at %s: %s", p.rank, p.address, what)
}

func (p *peer) part(key uint64) chan []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.parts[key] == nil {
		p.parts[key] = make(chan []byte, 1)
	}
	return p.parts[key]
}

func (m *Mesh) send(to int, f frame, data []byte) error {
	p := m.peers[to]
	f.Extra = uint64(len(data))
	head, err := binary.Append(make([]byte, 0, 64), binary.LittleEndian, f)
	if err != nil {
		return err
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	both := net.Buffers{head, data}
	if _, err := both.WriteTo(p.conn); err != nil {
		return p.ended(err)
	}
	return nil
}

// ended says why the rank cannot be reached; otherwise is the reason if it neither left nor was lost.
func (p *peer) ended(otherwise error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.failed != nil:
		return p.failed
	case p.left:
		return fmt.Errorf("rank %d has left the group", p.rank)
	}
	return fmt.Errorf("rank %d at %s: %w", p.rank, p.address, otherwise)
}

func (m *Mesh) Send(to int, h blocking.Header, data []byte) error {
	return m.send(to, frame{Kind: message, DType: uint8(h.DType), Tag: h.Tag}, data)
}

func (m *Mesh) Next() (from int, h blocking.Header, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.arrived) == 0 && !m.stopped {
		m.more.Wait()
	}
	if m.stopped {
		return 0, h, collective.ErrClosed
	}
	m.latest, m.arrived = m.arrived[0], m.arrived[1:]
	return m.latest.from, blocking.Header{Header: m.latest.header}, nil
}

// Fetch copies the data that came with the message that Next announced.
func (m *Mesh) Fetch(_ int, _ blocking.Header, data []byte) error {
	copy(data, m.latest.data)
	return nil
}

func (m *Mesh) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
	m.more.Broadcast()
}

// Give sends a part to a rank that calls [Mesh.Take] with the same key, which is used once.
func (m *Mesh) Give(to int, key uint64, data []byte) error {
	return m.send(to, frame{Kind: part, Key: key}, data)
}

// Take waits for the part with that key from a rank, or for the end of the connection.
func (m *Mesh) Take(from int, key uint64) ([]byte, error) {
	p := m.peers[from]
	came := p.part(key)
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.parts, key)
	}()
	select {
	case data := <-came:
		return data, nil
	case <-p.gone:
	}
	select {
	case data := <-came: // data that arrived before the end
		return data, nil
	default:
		return nil, p.ended(io.ErrUnexpectedEOF)
	}
}

func (m *Mesh) Peer(rank int) (left bool, failed error) {
	p := m.peers[rank]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left, p.failed
}

func (m *Mesh) Leave() {
	for rank, p := range m.peers {
		if p != nil {
			_ = m.send(rank, frame{Kind: goodbye}, nil) // a rank that is gone need not know
		}
	}
}

// Interrupt closes the connections, which ends all that waits for them here and on the other ranks.
func (m *Mesh) Interrupt() {
	m.Stop()
	for _, p := range m.peers {
		if p != nil {
			_ = p.conn.Close()
		}
	}
}

func (m *Mesh) Close() error {
	m.Interrupt()
	return nil
}
