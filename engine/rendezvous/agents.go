package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Agents lets the agents of a run's other nodes in, at the store's own port:
// take gets the connection of each that shows the secret, in a goroutine of its
// own, and the connection is closed when take returns.
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

// A RefusedError is what the other side said instead of letting this one in.
type RefusedError struct{ Address, Reason string }

func (e *RefusedError) Error() string { return fmt.Sprintf("%s refused: %s", e.Address, e.Reason) }

// DialAgent connects an agent with that of the first node, at the address of its
// store. It tries until ctx ends, since the first node may start later.
func DialAgent(ctx context.Context, address, secret string) (net.Conn, error) {
	const retry = 50 * time.Millisecond
	for {
		conn, err := dialAgent(ctx, address, secret)
		if err == nil || errors.As(err, new(*RefusedError)) {
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
		// Nobody listens there, and the port that this side was given is that very one.
		socket.Close()
		return nil, errors.New("nobody listens there")
	}
	k := newConn(socket)
	var r reply
	err = k.during(ctx, func() error {
		if err := k.send(&hello{Version: version, Token: secret, Agent: true}); err != nil {
			return err
		}
		return k.receive(&r, maxMessage, time.Now().Add(helloTimeout))
	})
	switch {
	case err == nil && r.Error != "":
		err = &RefusedError{address, r.Error}
	case err == nil:
		err = socket.SetDeadline(time.Time{})
	case errors.Is(err, io.EOF):
		err = &RefusedError{address, "what listens there does not wait for other processes of a run"}
	}
	if err != nil {
		k.Close()
		return nil, err
	}
	return socket, nil
}
