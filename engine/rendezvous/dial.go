package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"time"
)

// Dial gives access to the store of a server, or of a [Relay], over one connection, which is made on first use.
func Dial(address, token string) *Store {
	return &Store{link: &trunk{client: client{address, token}}}
}

// client makes connections to a store.
type client struct{ address, token string }

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
