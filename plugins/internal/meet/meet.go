// Package meet connects the ranks of a group over TCP, and lets in nobody else. The plugins use it.
//
// Each rank listens, says in the store where, and calls the lower ranks. Both
// sides of a connection prove, without sending it, that they know the group's
// secret, which is in the store: each sends a random challenge, and the answer
// is an HMAC of both challenges and both ranks. So anyone else who calls, or
// answers at the port of a rank that is gone, is rejected, and delays nobody:
// calls are answered concurrently.
package meet

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"drun/collective"
)

const (
	// proofLimit is how long a proof may take, on either side.
	proofLimit = 5 * time.Second
	// mostCallers may be proving themselves at a time; others wait their turn.
	mostCallers = 512

	challengeBytes = 16
)

// probes end an idle connection whose peer has not answered for 20 seconds,
// such as that of a rank that only waits to receive. A process that is merely
// stopped answers, since its kernel does.
var probes = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}

// A Peer is another rank, and the connection to it.
type Peer struct {
	Conn    *net.TCPConn
	Address string // where it listens
}

// Ranks connects rank with all others of a group of size ranks, and returns
// them by rank; its own entry is empty. host is the address to listen on, and
// prefix begins the group's keys in the store. ctx ends it.
func Ranks(ctx context.Context, store collective.Store, prefix, host string, rank, size int) ([]Peer, error) {
	m := &meeting{store: store, prefix: prefix, rank: rank, peers: make([]Peer, size), open: map[net.Conn]bool{}}
	if size == 1 {
		return m.peers, nil
	}
	if store == nil {
		return nil, errors.New("there is no key-value store in which the ranks could find each other")
	}
	listener, err := (&net.ListenConfig{KeepAliveConfig: probes}).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	// A connection cannot notice the end of a WaitLimit in ctx, so a goroutine waits for it.
	inner, end := context.WithCancelCause(ctx)
	defer end(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = m.meet(inner, listener)
	}()
	if early := collective.Wait(ctx, done); early != nil {
		end(early)
		m.closeAll()
		listener.Close()
		<-done
		err = fmt.Errorf("%s: %w", m.missing(), early)
	}
	listener.Close()
	m.closeAll() // including late ones
	m.callers.Wait()
	if err != nil {
		for _, p := range m.peers {
			if p.Conn != nil {
				p.Conn.Close()
			}
		}
		return nil, err
	}
	return m.peers, nil
}

// Route returns the local address from which this machine reaches MASTER_ADDR; if that is unset, the default route's,
// and loopback on a machine without a network. No packet is sent.
func Route() (string, error) {
	to := os.Getenv("MASTER_ADDR")
	conn, err := net.Dial("udp", net.JoinHostPort(cmp.Or(to, "192.0.2.1"), "9")) // that of nobody
	if err != nil && to == "" {
		return "127.0.0.1", nil
	}
	if err != nil {
		return "", fmt.Errorf("no network interface leads to %s (MASTER_ADDR): %w", to, err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).IP.String(), nil
}

// meeting is one rank's part in connecting the group.
type meeting struct {
	store   collective.Store
	prefix  string
	rank    int
	secret  []byte
	callers sync.WaitGroup

	mu     sync.Mutex
	peers  []Peer
	open   map[net.Conn]bool // not proven yet
	closed bool
}

func (m *meeting) key(rank int) string { return fmt.Sprintf("%s/rank/%d", m.prefix, rank) }

func (m *meeting) meet(ctx context.Context, listener net.Listener) error {
	var err error
	if m.rank == 0 {
		m.secret = make([]byte, sha256.Size)
		rand.Read(m.secret) // never fails
		err = m.store.Set(ctx, m.prefix+"/secret", m.secret)
	} else {
		m.secret, err = m.store.Get(ctx, m.prefix+"/secret")
	}
	if err != nil {
		return fmt.Errorf("rank 0 has not come: %w", err)
	}
	joined := make(chan struct{}, len(m.peers))
	go m.answer(listener, joined)
	if err := m.store.Set(ctx, m.key(m.rank), []byte(listener.Addr().String())); err != nil {
		return fmt.Errorf("cannot publish the address of rank %d: %w", m.rank, err)
	}
	for rank := range m.peers {
		if rank == m.rank {
			continue
		}
		address, err := m.store.Get(ctx, m.key(rank))
		if err != nil {
			return fmt.Errorf("rank %d has not come: %w", rank, err)
		}
		m.mu.Lock()
		m.peers[rank].Address = string(address)
		m.mu.Unlock()
	}
	for rank := range m.rank {
		if err := m.call(ctx, rank); err != nil {
			return fmt.Errorf("cannot connect to rank %d at %s: %w", rank, m.peers[rank].Address, err)
		}
	}
	for range len(m.peers) - 1 - m.rank {
		select {
		case <-joined:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// missing names the ranks that have not connected.
func (m *meeting) missing() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for rank, p := range m.peers {
		if rank == m.rank || p.Conn != nil {
			continue
		}
		s := fmt.Sprintf("rank %d", rank)
		if p.Address != "" {
			s += " at " + p.Address
		}
		all = append(all, s)
	}
	return strings.Join(all, ", ") + " did not connect"
}

// add records a connection until it is proven; false if it is too late.
func (m *meeting) add(conn net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		conn.Close()
		return false
	}
	m.open[conn] = true
	return true
}

// take assigns a proven connection to a rank; false if it has one.
func (m *meeting) take(rank int, conn net.Conn) bool {
	_ = conn.SetDeadline(time.Time{})
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.peers[rank].Conn != nil {
		return false
	}
	delete(m.open, conn)
	m.peers[rank].Conn = conn.(*net.TCPConn)
	return true
}

func (m *meeting) drop(conn net.Conn) {
	conn.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, conn)
}

// closeAll closes all connections that are not proven.
func (m *meeting) closeAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for conn := range m.open {
		conn.Close()
	}
}

// call connects to a rank and proves this rank's identity.
func (m *meeting) call(ctx context.Context, rank int) error {
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAliveConfig: probes}
	conn, err := dialer.DialContext(ctx, "tcp", m.peers[rank].Address)
	if err != nil {
		return err
	}
	if !m.add(conn) {
		return context.Cause(ctx)
	}
	if err := m.proveCall(conn, rank); err != nil {
		m.drop(conn)
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return fmt.Errorf("whoever answers is not that rank: %w", err)
	}
	if !m.take(rank, conn) {
		return context.Cause(ctx)
	}
	return nil
}

func (m *meeting) proveCall(conn net.Conn, rank int) error {
	// The other side may be busy: it gets longer than it allows us.
	_ = conn.SetDeadline(time.Now().Add(4 * proofLimit))
	var both [2 * challengeBytes]byte
	if _, err := io.ReadFull(conn, both[:challengeBytes]); err != nil {
		return err
	}
	rand.Read(both[challengeBytes:])
	hello := append([]byte(nil), both[challengeBytes:]...)
	hello = binary.BigEndian.AppendUint32(hello, uint32(m.rank))
	hello = append(hello, m.proof("call", both[:], m.rank, rank)...)
	if _, err := conn.Write(hello); err != nil {
		return err
	}
	var answer [sha256.Size]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return err
	}
	if !hmac.Equal(answer[:], m.proof("answer", both[:], m.rank, rank)) {
		return errors.New("it does not know the group's secret")
	}
	return nil
}

// proof is the answer to two challenges that only those who know the secret can compute.
func (m *meeting) proof(what string, challenges []byte, caller, called int) []byte {
	h := hmac.New(sha256.New, m.secret)
	fmt.Fprintf(h, "%s %s %d %d ", what, m.prefix, caller, called)
	h.Write(challenges)
	return h.Sum(nil)
}

// answer lets in the ranks that call, until the listener is closed.
func (m *meeting) answer(listener net.Listener, joined chan<- struct{}) {
	turns := make(chan struct{}, mostCallers)
	for {
		conn, err := listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // too many open files, for example: callers wait
			continue
		}
		turns <- struct{}{}
		if !m.add(conn) {
			return
		}
		m.callers.Go(func() {
			defer func() { <-turns }()
			rank, err := m.proveAnswer(conn)
			if err != nil || !m.take(rank, conn) {
				m.drop(conn)
				return
			}
			joined <- struct{}{}
		})
	}
}

// proveAnswer finds out which rank calls.
func (m *meeting) proveAnswer(conn net.Conn) (rank int, err error) {
	_ = conn.SetDeadline(time.Now().Add(proofLimit))
	var both [2 * challengeBytes]byte
	rand.Read(both[:challengeBytes])
	if _, err := conn.Write(both[:challengeBytes]); err != nil {
		return 0, err
	}
	var hello [challengeBytes + 4 + sha256.Size]byte
	if _, err := io.ReadFull(conn, hello[:]); err != nil {
		return 0, err
	}
	copy(both[challengeBytes:], hello[:])
	rank = int(binary.BigEndian.Uint32(hello[challengeBytes:]))
	if rank <= m.rank || rank >= len(m.peers) || !hmac.Equal(hello[challengeBytes+4:], m.proof("call", both[:], rank, m.rank)) {
		return 0, errors.New("a stranger")
	}
	_, err = conn.Write(m.proof("answer", both[:], rank, m.rank))
	return rank, err
}
