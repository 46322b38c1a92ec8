package rendezvous

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Relay passes the requests of a node's ranks on to the run's store over one connection, so that the server has
// one for each node, not for each rank. The ranks reach it over a socket of this machine that only processes of
// this user may use, which could read the token as well.
type Relay struct {
	listener net.Listener
	trunk    trunk
	ctx      context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu    sync.Mutex
	conns map[*conn]struct{} // nil: the relay is closed
}

// near begins the address of a Relay.
const near = "@"

// NewRelay starts passing requests on to the store at an address. It connects at the first request.
func NewRelay(address, token string) (*Relay, error) {
	listener, err := net.Listen("unix", near+"drun-store-"+rand.Text())
	if err != nil {
		return nil, fmt.Errorf("cannot listen for this node's ranks: %w", err)
	}
	r := &Relay{listener: listener, conns: map[*conn]struct{}{}}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.trunk.client = client{address, token}
	r.running.Go(r.accept)
	return r, nil
}

// Addr is the address for Dial.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Store gives access within this process, without a socket, until Close.
func (r *Relay) Store() *Store { return &Store{link: sharedTrunk{&r.trunk}} }

// sharedTrunk is the trunk of a Relay, which Close of a Store leaves to the others.
type sharedTrunk struct{ *trunk }

func (sharedTrunk) Close() error { return nil }

// Close ends all connections.
func (r *Relay) Close() {
	r.stop()
	r.listener.Close()
	r.mu.Lock()
	for c := range r.conns {
		c.Close()
	}
	r.conns = nil
	r.mu.Unlock()
	_ = r.trunk.Close()
	r.running.Wait()
}

func (r *Relay) accept() {
	for {
		socket, err := r.listener.Accept()
		if r.ctx.Err() != nil {
			return
		}
		if err != nil { // out of descriptors
			time.Sleep(20 * time.Millisecond)
			continue
		}
		c := newConn(socket)
		r.mu.Lock()
		if r.conns == nil || !sameUser(socket) {
			c.Close()
		} else {
			r.conns[c] = struct{}{}
			r.running.Go(func() { r.serve(c) })
		}
		r.mu.Unlock()
	}
}

// sameUser reports whether a process of this user is at the other end.
func sameUser(socket net.Conn) bool {
	raw, err := socket.(*net.UnixConn).SyscallConn()
	if err != nil {
		return false
	}
	same := false
	err = raw.Control(func(fd uintptr) {
		peer, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		same = err == nil && int(peer.Uid) == os.Getuid()
	})
	return err == nil && same
}

// serve passes a connection's requests on.
func (r *Relay) serve(c *conn) {
	defer func() {
		c.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.conns, c)
	}()
	c.answerAll(&r.running, func(ctx context.Context, q *request) *reply {
		answer, err := r.trunk.do(ctx, q)
		if err != nil {
			return &reply{Error: err.Error()}
		}
		return answer
	})
}

// trunk is one connection for many requests at a time. Each has a number, which its reply repeats.
type trunk struct {
	client  client
	sending sync.Mutex // held while a request is sent, during which replies must still be read

	mu      sync.Mutex
	conn    *conn // nil: not connected
	closed  bool
	waiting map[uint64]chan *reply
	last    uint64
}

func (t *trunk) do(ctx context.Context, asked *request) (*reply, error) {
	q, answer := *asked, make(chan *reply, 1)
	if err := t.start(ctx, &q, answer); err != nil {
		return nil, t.client.explain(ctx, err)
	}
	late := time.NewTimer(q.Wait + ioTimeout)
	defer late.Stop()
	select {
	case r, ok := <-answer:
		if !ok {
			return nil, fmt.Errorf("the key-value store at %s closed the connection", t.client.address)
		}
		return r, nil
	case <-late.C:
		t.forget(q.ID)
		return nil, t.client.explain(ctx, os.ErrDeadlineExceeded)
	case <-ctx.Done():
		t.forget(q.ID)
		return nil, context.Cause(ctx)
	}
}

func (t *trunk) start(ctx context.Context, q *request, answer chan *reply) error {
	t.sending.Lock()
	defer t.sending.Unlock()
	c, err := t.connected(ctx)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.last++
	q.ID = t.last
	t.waiting[q.ID] = answer
	t.mu.Unlock()
	if err = c.send(q); err != nil {
		t.forget(q.ID)
		c.Close() // ends read
	}
	return err
}

// connected returns the connection, making it if there is none. The caller holds sending.
func (t *trunk) connected(ctx context.Context) (*conn, error) {
	t.mu.Lock()
	c, closed := t.conn, t.closed
	t.mu.Unlock()
	if closed {
		return nil, net.ErrClosed
	}
	if c != nil {
		return c, nil
	}
	c, err := t.client.connect(ctx)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		c.Close()
		return nil, net.ErrClosed
	}
	t.conn, t.waiting = c, map[uint64]chan *reply{}
	go t.read(c, t.waiting)
	return c, nil
}

// read distributes replies until the connection ends.
func (t *trunk) read(c *conn, waiting map[uint64]chan *reply) {
	for {
		r := new(reply)
		err := c.receive(r, maxMessage, time.Time{})
		t.mu.Lock()
		if err != nil {
			c.Close()
			if t.conn == c {
				t.conn = nil
			}
			for id, answer := range waiting {
				close(answer)
				delete(waiting, id)
			}
			t.mu.Unlock()
			return
		}
		if answer := waiting[r.ID]; answer != nil {
			delete(waiting, r.ID)
			answer <- r
		}
		t.mu.Unlock()
	}
}

func (t *trunk) forget(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, id)
}

// Close ends the connection, and with it all that wait for replies.
func (t *trunk) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.conn != nil {
		t.conn.Close()
	}
	return nil
}

// dialNear connects to a Relay, if the address is that of one.
func dialNear(address string) (c *conn, ok bool, err error) {
	if !strings.HasPrefix(address, near) {
		return nil, false, nil
	}
	socket, err := net.DialTimeout("unix", address, ioTimeout)
	if err != nil {
		return nil, true, err
	}
	return newConn(socket), true, nil
}
