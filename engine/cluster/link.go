// Package cluster makes one run of several processes: it gathers them, assigns the ranks' places, and carries
// messages between the coordinator and the nodes. A node is a process that starts ranks: one per machine, or one
// per rank for ranks that were started by themselves. engine/run is the coordinator and engine/node a node, also on
// the coordinator's own machine, which it reaches over a link within the process.
package cluster

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"drun/engine"
	"drun/internal/queue"
	"drun/internal/try"
)

// Link carries messages between the coordinator and a node.
type Link[In, Out any] interface {
	// Send queues a message. It never waits; a producer of many messages calls Wait.
	Send(*Out)
	// Wait waits while many messages are queued.
	Wait()
	// Receive waits for the next message. io.EOF: the other side is gone.
	Receive() (*In, error)
	// Close sends what is queued, as far as the other side accepts it soon, and ends the link.
	Close()
	// Traffic is the number of bytes of messages received and sent.
	Traffic() int64
}

// Pace is how often each side of a link must hear from the other.
type Pace struct {
	Beat time.Duration // at least one message or heartbeat in this time
	Gone time.Duration // how long the other side may be silent
}

// Steady is the pace of a run whose nodes stay.
var Steady = Pace{Beat: 2 * time.Second, Gone: 20 * time.Second}

const (
	// greeting limits a message of a process that has not joined, nodeBytes one of a node, whose ranks' states come
	// in pieces, and mostBytes any other, which may be a rank's part of a checkpoint. In bytes.
	greeting  = 1 << 20
	nodeBytes = 1 << 30
	mostBytes = 64 << 30
	// queued limits the messages in the queue before Wait waits, where a large one counts as several; mostQueued
	// limits all of them: a peer that reads so little is treated as lost.
	queued     = 1000
	mostQueued = 100 * queued
)

// Conn is a Link over a connection between two machines.
type Conn[In, Out any] struct {
	conn    net.Conn
	pace    Pace
	in      *bufio.Reader
	most    atomic.Uint64 // bytes that a received message may have
	queue   *queue.Queue[[]*Out]
	done    chan struct{}
	traffic atomic.Int64
}

// NewConn makes a link over a connection, which the link closes.
func NewConn[In, Out any](conn net.Conn, pace Pace) *Conn[In, Out] {
	l := &Conn[In, Out]{conn: conn, pace: pace, queue: queue.New[[]*Out](queue.Limits{Full: queued}), done: make(chan struct{})}
	l.most.Store(greeting)
	l.in = bufio.NewReaderSize(watched{conn, pace.Gone}, 1<<14)
	go l.write()
	return l
}

// watched limits how long a connection may be silent.
type watched struct {
	net.Conn
	gone time.Duration
}

// A process that was stopped (Ctrl-Z) finds the time over when it goes on, whatever has arrived meanwhile: it then listens
// once more.
func (w watched) Read(p []byte) (int, error) {
	const onTime = 200 * time.Millisecond
	for again := false; ; again = true {
		end := time.Now().Add(w.gone)
		if err := w.SetReadDeadline(end); err != nil {
			return 0, err
		}
		n, err := w.Conn.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || again || time.Since(end) < onTime {
			return n, err
		}
	}
}

// Debugger makes a link between the coordinator and a debugger, of which either may be stopped for as long as it likes.
func Debugger(conn net.Conn) *Conn[engine.Debugging, engine.Debugging] {
	l := NewConn[engine.Debugging, engine.Debugging](conn, Pace{Beat: time.Hour, Gone: 1000 * time.Hour})
	l.Trust()
	return l
}

// Trust admits large messages: the other side belongs to the run.
func (l *Conn[In, Out]) Trust() { l.most.Store(mostBytes) }

// trustNode admits messages as large as a node's.
func (l *Conn[In, Out]) trustNode() { l.most.Store(nodeBytes) }

func (l *Conn[In, Out]) Local() net.Addr { return l.conn.LocalAddr() }

func (l *Conn[In, Out]) Send(msg *Out) {
	size := 1
	if m, ok := any(msg).(interface{ size() int }); ok {
		size = m.size()
	}
	if l.queue.Add(size, func(b *[]*Out) { *b = append(*b, msg) }) > mostQueued {
		l.fail()
	}
}

// fail ends the link; Receive then reports it.
func (l *Conn[In, Out]) fail() {
	l.conn.Close()
	l.queue.Close()
}

func (l *Conn[In, Out]) Traffic() int64 { return l.traffic.Load() }

// Done is closed once nothing is sent any more: the link was closed, or broke.
func (l *Conn[In, Out]) Done() <-chan struct{} { return l.done }

func (l *Conn[In, Out]) Wait() { l.queue.Wait() }

func (l *Conn[In, Out]) Receive() (*In, error) {
	for {
		var head [8]byte
		if _, err := io.ReadFull(l.in, head[:]); err != nil {
			return nil, l.gone(err)
		}
		n := binary.LittleEndian.Uint64(head[:])
		if n == 0 {
			continue // a heartbeat
		}
		if most := l.most.Load(); n > most {
			return nil, fmt.Errorf("a message of %d bytes: at most %d are possible", n, most)
		}
		l.traffic.Add(int64(n))
		msg, body := new(In), &io.LimitedReader{R: l.in, N: int64(n)}
		if err := engine.Decoding.NewDecoder(body).Decode(msg); err != nil {
			return nil, l.gone(err)
		}
		if _, err := io.Copy(io.Discard, body); err != nil {
			return nil, l.gone(err)
		}
		return msg, nil
	}
}

func (l *Conn[In, Out]) gone(err error) error {
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("nothing was received for %v", l.pace.Gone)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.As(err, new(*net.OpError)):
		return io.EOF
	}
	return err
}

// write sends what is queued, and heartbeats in between.
func (l *Conn[In, Out]) write() {
	defer close(l.done)
	beat := time.NewTicker(l.pace.Beat)
	defer beat.Stop()
	for {
		batch, _, closed := l.queue.Take()
		for _, msg := range batch {
			if l.put(msg) != nil {
				l.fail()
				return
			}
		}
		if closed {
			return
		}
		select {
		case <-l.queue.Ready():
		case <-beat.C:
			if l.put(nil) != nil {
				l.fail()
				return
			}
		}
	}
}

// put writes one message; nil is a heartbeat.
func (l *Conn[In, Out]) put(msg *Out) (err error) {
	defer try.Caught(&err)
	var head [8]byte
	var body []byte
	if msg != nil {
		body = try.To(engine.Encoding.Marshal(msg))
		binary.LittleEndian.PutUint64(head[:], uint64(len(body)))
		l.traffic.Add(int64(len(body)))
	}
	const piece = 1 << 20 // so that the deadline measures progress
	for data := append(head[:], body[:min(len(body), piece)]...); ; data = body[:min(len(body), piece)] {
		try.Ok(l.conn.SetWriteDeadline(time.Now().Add(l.pace.Gone)))
		try.To(l.conn.Write(data))
		if body = body[min(len(body), piece):]; len(body) == 0 {
			return nil
		}
	}
}

func (l *Conn[In, Out]) Close() {
	l.queue.Close()
	select {
	case <-l.done:
	case <-time.After(2 * time.Second):
	}
	l.conn.Close()
}

// pipe is one end of a link within the process.
type pipe[In, Out any] struct {
	in    *queue.Queue[[]*In]
	out   *queue.Queue[[]*Out]
	taken []*In // received from in, not yet returned
}

// Pipe links the coordinator to the node on its own machine.
func Pipe() (coordinator Link[ToCoordinator, ToNode], node Link[ToNode, ToCoordinator]) {
	up, down := queue.New[[]*ToCoordinator](queue.Limits{Full: queued}), queue.New[[]*ToNode](queue.Limits{Full: queued})
	return &pipe[ToCoordinator, ToNode]{in: up, out: down}, &pipe[ToNode, ToCoordinator]{in: down, out: up}
}

func (p *pipe[In, Out]) Send(msg *Out) { p.out.Add(1, func(b *[]*Out) { *b = append(*b, msg) }) }
func (p *pipe[In, Out]) Wait()         { p.out.Wait() }

func (p *pipe[In, Out]) Receive() (*In, error) {
	for len(p.taken) == 0 {
		<-p.in.Ready()
		var closed bool
		if p.taken, _, closed = p.in.Take(); closed {
			p.in.Flush() // for the next call
			if len(p.taken) == 0 {
				return nil, io.EOF
			}
		}
	}
	msg := p.taken[0]
	p.taken = p.taken[1:]
	return msg, nil
}

func (p *pipe[In, Out]) Close() {
	p.out.Close()
	p.in.Close()
}

func (p *pipe[In, Out]) Traffic() int64 { return 0 }
