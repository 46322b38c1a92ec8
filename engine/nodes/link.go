// Package nodes is what the agents of a run say to each other when the run has
// several: one a machine, or one a rank that was started by itself. The first
// one, the head, keeps the run; the others, its members, start their ranks for
// it. engine/launch is both sides.
package nodes

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxamacker/cbor/v2"
)

const (
	beatEvery = 2 * time.Second
	// goneAfter is how long nothing at all may come from the other side.
	goneAfter = 20 * time.Second
	// greeting bounds a message of one who has not been let in, and mostBytes
	// every other: a rank's part of a checkpoint is one.
	greeting  = 1 << 20
	mostBytes = 64 << 30
	// queued bounds the messages that Await lets wait, and mostQueued all of them:
	// one who takes so little is as good as gone.
	queued     = 1000
	mostQueued = 100 * queued
)

// Link carries messages between two agents. What is sent is queued, so that an
// agent never waits for another; those who produce much call Await.
type Link struct {
	conn net.Conn
	in   *bufio.Reader
	most uint64

	mu     sync.Mutex
	room   sync.Cond
	queue  []any
	closed bool
	wake   chan struct{}
	done   chan struct{}

	traffic atomic.Int64
}

// NewLink makes a link of a connection, which it closes.
func NewLink(conn net.Conn) *Link {
	l := &Link{conn: conn, most: greeting, wake: make(chan struct{}, 1), done: make(chan struct{})}
	l.in, l.room.L = bufio.NewReaderSize(watched{conn}, 1<<16), &l.mu
	go l.write()
	return l
}

// watched bounds the time in which nothing comes.
type watched struct{ net.Conn }

func (w watched) Read(p []byte) (int, error) {
	if err := w.SetReadDeadline(time.Now().Add(goneAfter)); err != nil {
		return 0, err
	}
	return w.Conn.Read(p)
}

// Trust lets large messages through: the other side belongs to the run.
func (l *Link) Trust() { l.most = mostBytes }

// Local and Remote are the addresses of the two sides.
func (l *Link) Local() net.Addr { return l.conn.LocalAddr() }

// Remote is the other side's.
func (l *Link) Remote() net.Addr { return l.conn.RemoteAddr() }

// Send queues a message.
func (l *Link) Send(msg any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if len(l.queue) >= mostQueued {
		l.closed, l.queue = true, nil
		l.conn.Close() // Receive tells it
		l.room.Broadcast()
	} else {
		l.queue = append(l.queue, msg)
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Traffic is how many bytes of messages have come and gone.
func (l *Link) Traffic() int64 { return l.traffic.Load() }

// Done is closed when nothing is sent any more: the link was closed, or broke.
func (l *Link) Done() <-chan struct{} { return l.done }

// Await waits while many messages are queued.
func (l *Link) Await() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) >= queued && !l.closed {
		l.room.Wait()
	}
}

// Receive reads the next message. io.EOF: the other side is gone.
func (l *Link) Receive(msg any) error {
	for {
		var head [8]byte
		if _, err := io.ReadFull(l.in, head[:]); err != nil {
			return gone(err)
		}
		n := binary.LittleEndian.Uint64(head[:])
		if n == 0 {
			continue // a heartbeat
		}
		if n > l.most {
			return fmt.Errorf("a message of %d bytes: at most %d are possible", n, l.most)
		}
		l.traffic.Add(int64(n))
		body := &io.LimitedReader{R: l.in, N: int64(n)}
		if err := decoding.NewDecoder(body).Decode(msg); err != nil {
			return gone(err)
		}
		if _, err := io.Copy(io.Discard, body); err != nil {
			return gone(err)
		}
		return nil
	}
}

func gone(err error) error {
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("nothing has come for %v", goneAfter)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.As(err, new(*net.OpError)):
		return io.EOF
	}
	return err
}

// decoding has no bounds on counts but the message's size, and takes text as it
// is: a recipe's strings hold any bytes.
var decoding = func() cbor.DecMode {
	mode, err := cbor.DecOptions{MaxArrayElements: 1<<31 - 1, UTF8: cbor.UTF8DecodeInvalid}.DecMode()
	if err != nil {
		panic(err) // the options are constants
	}
	return mode
}()

// write sends what is queued, and heartbeats meanwhile.
func (l *Link) write() {
	defer close(l.done)
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		l.mu.Lock()
		queue, closed := l.queue, l.closed
		l.queue = nil
		l.room.Broadcast()
		l.mu.Unlock()
		for _, msg := range queue {
			if l.put(msg) != nil {
				l.conn.Close() // Receive tells it
				l.fail()
				return
			}
		}
		if closed {
			return
		}
		select {
		case <-l.wake:
		case <-beat.C:
			if l.put(nil) != nil {
				l.conn.Close()
				l.fail()
				return
			}
		}
	}
}

func (l *Link) fail() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed, l.queue = true, nil
	l.room.Broadcast()
}

// put writes one message; nil is a heartbeat.
func (l *Link) put(msg any) error {
	var head [8]byte
	var body []byte
	if msg != nil {
		var err error
		if body, err = cbor.Marshal(msg); err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(head[:], uint64(len(body)))
		l.traffic.Add(int64(len(body)))
	}
	const piece = 1 << 20 // so that the deadline is one of progress
	for data := append(head[:], body[:min(len(body), piece)]...); ; data = body[:min(len(body), piece)] {
		if err := l.conn.SetWriteDeadline(time.Now().Add(goneAfter)); err != nil {
			return err
		}
		if _, err := l.conn.Write(data); err != nil {
			return err
		}
		if body = body[min(len(body), piece):]; len(body) == 0 {
			return nil
		}
	}
}

// Close sends what is queued, as far as the other side takes it soon, and ends
// the link.
func (l *Link) Close() {
	l.mu.Lock()
	l.closed = true
	select {
	case l.wake <- struct{}{}:
	default:
	}
	l.mu.Unlock()
	select {
	case <-l.done:
	case <-time.After(2 * time.Second):
	}
	l.conn.Close()
}
