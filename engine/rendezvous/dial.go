package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Dial gives access to the store of a server. It connects on first use, and keeps one connection for each goroutine
// that uses it at the same time. The address may be that of a [Relay].
func Dial(address, token string) *Store {
	return &Store{link: &client{address: address, token: token}}
}

// client is the link over TCP. Each connection serves one call at a time, so a wait does not delay other calls, and
// closing the connection ends the call.
type client struct {
	address, token string

	mu     sync.Mutex
	idle   []*conn
	closed bool
}

func (c *client) do(ctx context.Context, q *request) (*reply, error) {
	k, err := c.take(ctx)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	var r reply
	err = k.during(ctx, func() error {
		if err := k.send(q); err != nil {
			return err
		}
		return k.receive(&r, maxMessage, time.Now().Add(q.Wait+ioTimeout))
	})
	if err != nil {
		k.Close()
		return nil, c.explain(ctx, err)
	}
	c.give(k)
	return &r, nil
}

// during runs an exchange on a connection, which is closed when ctx ends.
func (c *conn) during(ctx context.Context, exchange func() error) error {
	if ctx.Done() == nil {
		return exchange()
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	err := exchange()
	if !stop() && err == nil {
		return context.Cause(ctx) // it is being closed
	}
	return err
}

// explain returns why ctx ended if it has, otherwise the connection's error.
func (c *client) explain(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the key-value store at %s does not answer", c.address)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the key-value store at %s closed the connection", c.address)
	}
	return fmt.Errorf("the key-value store at %s: %w", c.address, err)
}

// take returns an idle connection, or a new one.
func (c *client) take(ctx context.Context) (*conn, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, net.ErrClosed
	}
	if n := len(c.idle); n > 0 {
		k := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		return k, nil
	}
	c.mu.Unlock()
	return c.connect(ctx)
}

func (c *client) give(k *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		k.Close()
		return
	}
	c.idle = append(c.idle, k)
}

// connect makes a connection. A server to which many connect at once may refuse the first try.
func (c *client) connect(ctx context.Context) (*conn, error) {
	const tries, pause = 12, 200 * time.Millisecond
	for n := 1; ; n++ {
		k, err := c.connectOnce(ctx)
		if err == nil || n == tries || !ended(err) || ctx.Err() != nil {
			if ended(err) || errors.Is(err, errSecret) {
				err = errors.New("it refused this rank: the token is of another run, or there are too many connections")
			}
			return k, err
		}
		time.Sleep(time.Duration(n)*pause/2 + rand.N(time.Duration(n)*pause))
	}
}

// ended reports whether the other side has closed the connection without a message.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func (c *client) connectOnce(ctx context.Context) (*conn, error) {
	if k, ok, err := dialNear(c.address); ok {
		return k, err
	}
	dialer := net.Dialer{Timeout: ioTimeout}
	socket, err := dialer.DialContext(ctx, "tcp", c.address)
	if err != nil {
		return nil, err
	}
	k := newConn(secureClient(socket))
	if err := k.during(ctx, func() error { return k.clientHandshake(c.token, false) }); err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

// Close closes idle connections at once, and the others when their call ends.
func (c *client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, k := range c.idle {
		k.Close()
	}
	c.idle = nil
	return nil
}
