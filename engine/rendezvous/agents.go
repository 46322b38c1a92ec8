package rendezvous

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// Agents accepts the agents of a run's other nodes on the store's own port. For each agent that proves the secret,
// take is called with its connection in a new goroutine; the connection is closed when take returns.
func (s *Server) Agents(secret string, take func(net.Conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agents, s.secret = take, secret
}

func (s *Server) forAgents() (take func(net.Conn), secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.agents, s.secret
}

// A RefusedError is the other side's reason for refusing this one.
type RefusedError struct{ Address, Reason string }

// A SecretError says that the two sides have different secrets.
type SecretError struct{ Address string }

func (e *SecretError) Error() string {
	return "the secret of the run at " + e.Address + " is another one than here"
}

func (e *RefusedError) Error() string { return fmt.Sprintf("%s refused: %s", e.Address, e.Reason) }

// DialAgent connects an agent to the first node's agent, at the address of its store. It retries until ctx ends,
// because the first node may start later.
func DialAgent(ctx context.Context, address, secret string) (net.Conn, error) {
	const retry, most = 50 * time.Millisecond, 10
	for refused := 0; ; {
		conn, err := dialAgent(ctx, address, secret)
		if errors.As(err, new(*RefusedError)) {
			refused++ // a server flooded with connections may accept the next one
		}
		if err == nil || refused == most || errors.As(err, new(*SecretError)) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(retry):
		}
	}
}

func dialAgent(ctx context.Context, address, secret string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: helloTimeout}
	socket, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if socket.LocalAddr().String() == socket.RemoteAddr().String() {
		// Nobody listened: the kernel gave this socket the very port that it was dialling.
		socket.Close()
		return nil, errors.New("nobody listens there")
	}
	k := newConn(secureClient(socket))
	err = k.during(ctx, func() error { return k.clientHandshake(secret, true) })
	var said *saidError
	var alert *net.OpError // of TLS
	switch {
	case errors.Is(err, errSecret):
		err = &SecretError{address}
	case errors.As(err, &said):
		err = &RefusedError{address, said.text}
	case err == nil:
		err = k.SetDeadline(time.Time{})
	case errors.As(err, new(tls.RecordHeaderError)), errors.As(err, &alert) && alert.Op == "remote error", errors.Is(err, io.ErrUnexpectedEOF):
		err = &RefusedError{address, "what listens there does not speak this drun's protocol: it is another program, or another release"}
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		err = &RefusedError{address, "what listens there does not wait for other processes of a run"}
	}
	if err != nil {
		k.Close()
		return nil, err
	}
	return k.Conn, nil
}
