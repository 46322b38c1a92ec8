package rendezvous

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	// maxConns limits the connections, also those that have not proven the secret.
	maxConns = 1 << 17
	// helloTimeout is the deadline for a connection's proof.
	helloTimeout = 7 * time.Second
)

// NewToken makes the secret that the ranks of a run share.
func NewToken() string { return rand.Text() }

// Server holds a run's store and serves it to ranks over TCP. A connection must
// begin with the handshake of secret.go; before that it can change nothing.
type Server struct {
	listener net.Listener
	table    *table
	done     chan struct{} // closed when the server is closed
	running  sync.WaitGroup

	mu     sync.Mutex
	token  string // of the ranks' connections
	conns  map[*conn]struct{}
	agents func(net.Conn) // nil: there are none
	secret string         // agents prove this instead of the token
	closed bool
}

// Listen starts a server. With port 0 it chooses a free port: see Addr.
func Listen(address, token string) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		host, port, _ := net.SplitHostPort(address) // it was listened to
		return nil, &InUseError{port, host}
	}
	if err != nil {
		return nil, fmt.Errorf("key-value store: %w", err)
	}
	s := &Server{listener: listener, token: token, table: newTable(), done: make(chan struct{}), conns: map[*conn]struct{}{}}
	s.running.Go(s.accept)
	return s, nil
}

// An InUseError says that another program listens where the store should.
type InUseError struct{ Port, Host string }

func (e *InUseError) Error() string {
	return fmt.Sprintf("port %s of %s is in use by another program: choose another one (--rdzv, MASTER_PORT)", e.Port, e.Host)
}

// Addr is where the server listens: host:port.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Renew gives the ranks that start now a store of their own, with another token. Requests of earlier ranks are
// ignored.
func (s *Server) Renew(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token, s.table = token, newTable()
	for c := range s.conns {
		if c.rank {
			c.Close()
		}
	}
}

// current is the store of the ranks with this token; nil: they belong to an earlier start.
func (s *Server) current(token string) *table {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token != s.token {
		return nil
	}
	return s.table
}

// Close ends all waits and connections, and the store.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.done)
	err := s.listener.Close()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
	return err
}

func (s *Server) accept() {
	for {
		socket, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, or the peer gave up: try again
			select {
			case <-s.done:
				return
			case <-time.After(20 * time.Millisecond):
			}
			continue
		}
		under, err := secureServer(socket)
		if err != nil {
			socket.Close()
			continue
		}
		c := newConn(under)
		if !s.welcome(c) {
			c.Close()
			continue
		}
		s.running.Go(func() { s.serve(c) })
	}
}

// welcome accepts a connection if there is room for it.
func (s *Server) welcome(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= maxConns {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) forget(c *conn) {
	c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// serve answers a connection's requests. A client waits in slices of at most pollSeldom, so its loss is noticed after one
// slice.
func (s *Server) serve(c *conn) {
	defer s.forget(c)
	late := time.AfterFunc(helloTimeout, func() { c.Close() })
	agents, token := (func(net.Conn))(nil), ""
	agent, own := c.serverHandshake(func(agent bool) (secret string, expected bool) {
		if !agent {
			s.mu.Lock()
			defer s.mu.Unlock()
			token = s.token
			return token, true
		}
		agents, secret = s.forAgents()
		return secret, agents != nil
	})
	if !late.Stop() || own == nil {
		return
	}
	s.mu.Lock()
	c.rank = !agent
	s.mu.Unlock()
	if c.send(own) != nil {
		return
	}
	if agent {
		if c.SetDeadline(time.Time{}) == nil {
			agents(c.Conn)
		}
		return
	}
	if table := s.current(token); table != nil {
		c.answerAll(&s.running, func(ctx context.Context, q *request) *reply { return table.do(q, ctx.Done()) })
	}
}

// maxWaits limits how many requests of a connection may be under way at a time.
const maxWaits = 1 << 12

// answerAll answers a connection's requests until it ends; those that wait do not hold up others.
func (c *conn) answerAll(running *sync.WaitGroup, answer func(ctx context.Context, q *request) *reply) {
	var sending sync.Mutex
	room := make(chan struct{}, maxWaits)
	ctx, gone := context.WithCancel(context.Background())
	defer gone()
	for {
		q := new(request)
		if err := c.receive(q, maxMessage, time.Time{}); err != nil {
			return
		}
		q.Wait = min(q.Wait, pollSeldom)
		room <- struct{}{}
		running.Go(func() {
			r := answer(ctx, q)
			r.ID = q.ID
			sending.Lock()
			err := c.send(r)
			sending.Unlock()
			if err != nil {
				c.Close()
			}
			<-room
		})
	}
}
