package nccl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"drun/collective"
	"drun/collective/messages"
	"drun/element"
	"drun/plugins/internal/blocking"
)

// mesh connects the ranks of a group for what NCCL does not do: announcing
// messages, for NCCL cannot receive from any rank, and noticing that a rank has
// left, was lost or gave up.
type mesh struct {
	rank    int
	peers   []*peer // by rank; nil for this one
	arrived queue
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
	grants map[uint64]chan struct{}
}

// A frame is what goes over a connection; Extra bytes follow it.
type frame struct {
	Kind  uint8
	DType uint8
	_     [2]byte
	Extra uint32
	Tag   int64
	Bytes uint64
	Key   uint64
}

const (
	message  = iota + 1 // its data is in the frame
	announce            // its data can be fetched; the id of a new communicator may be in the frame
	grant               // the data is awaited
	goodbye
)

// arrival is a message as Next gives it out.
type arrival struct {
	from int
	frame
	extra []byte
}

// read takes what comes from a rank.
func (m *mesh) read(p *peer) {
	defer close(p.gone)
	defer p.conn.Close()
	for {
		a := arrival{from: p.rank}
		err := binary.Read(p.conn, binary.LittleEndian, &a.frame)
		if err == nil && a.Extra > inlineSize {
			err = errors.New("it sent what is no frame")
		}
		if err == nil {
			a.extra = make([]byte, a.Extra)
			_, err = io.ReadFull(p.conn, a.extra)
		}
		if err != nil {
			p.lost(err)
			return
		}
		switch a.Kind {
		case message, announce:
			m.arrived.put(a)
		case grant:
			p.mu.Lock()
			if waiting := p.grants[a.Key]; waiting != nil {
				close(waiting)
				delete(p.grants, a.Key)
			}
			p.mu.Unlock()
		case goodbye:
			p.mu.Lock()
			p.left = true
			p.mu.Unlock()
		}
	}
}

// lost notes how the connection ended.
func (p *peer) lost(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left || p.failed != nil {
		return
	}
	what := err.Error()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		what = "it closed its connection, for it was lost or gave up"
	}
	p.failed = fmt.Errorf("rank %d at %s: %s", p.rank, p.address, what)
}

// send writes a frame.
func (p *peer) send(f frame, extra []byte) error {
	f.Extra = uint32(len(extra))
	head, err := binary.Append(make([]byte, 0, 64), binary.LittleEndian, f)
	if err != nil {
		return err
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	parts := net.Buffers{head, extra}
	if _, err := parts.WriteTo(p.conn); err != nil {
		if left, failed := p.state(); failed != nil {
			return failed
		} else if left {
			return fmt.Errorf("rank %d has left the group", p.rank)
		}
		return fmt.Errorf("rank %d at %s: %w", p.rank, p.address, err)
	}
	return nil
}

func (p *peer) state() (left bool, failed error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left, p.failed
}

// expect gives a channel that is closed when the peer awaits the data of key.
func (p *peer) expect(key uint64) <-chan struct{} {
	granted := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grants[key] = granted
	return granted
}

func (m *mesh) peer(rank int) (left bool, failed error) { return m.peers[rank].state() }

// leave tells the others that this rank goes in good order.
func (m *mesh) leave() {
	for _, p := range m.peers {
		if p != nil {
			_ = p.send(frame{Kind: goodbye}, nil) // who is gone need not know
		}
	}
}

// close ends the connections, and Next.
func (m *mesh) close() {
	m.stop()
	for _, p := range m.peers {
		if p != nil {
			_ = p.conn.Close()
		}
	}
}

func (m *mesh) stop() { m.arrived.stop() }

// queue holds the messages that have been announced, in their order.
type queue struct {
	mu      sync.Mutex
	more    sync.Cond
	all     []arrival
	stopped bool
}

func (q *queue) put(a arrival) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all = append(q.all, a)
	q.more.Signal()
}

func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.more.Broadcast()
}

// take waits for the next message.
func (q *queue) take() (arrival, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.all) == 0 && !q.stopped {
		q.more.Wait()
	}
	if q.stopped {
		return arrival{}, collective.ErrClosed
	}
	a := q.all[0]
	q.all = q.all[1:]
	return a, nil
}

func (a *arrival) header() blocking.Header {
	return blocking.Header{Header: messages.Header{Tag: a.Tag, Bytes: a.Bytes, DType: element.Type(a.DType)}, Key: a.Key}
}
