// Package bootstrap connects the ranks of a group over TCP, and lets in nobody else. The plugins use it.
//
// Each rank listens, says in the store where, and calls the lower ranks. Both sides of a connection prove, without
// sending it, that they know the group's secret, which is in the store: each sends a random challenge, and the answer
// is an HMAC of both challenges and both ranks. So anyone else who calls, or answers at the port of a rank that is
// gone, is rejected, and delays nobody: calls are answered concurrently.
package bootstrap

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
	"drun/internal/try"
)

const (
	// proofLimit is how long a proof may take, on either side.
	proofLimit = 5 * time.Second
	// mostCallers may be proving themselves at a time; others wait their turn.
	mostCallers = 512

	challengeBytes = 16
)

// probes end an idle connection whose peer has not answered for 20 seconds, such as that of a rank that only waits to
// receive. A process that is merely stopped answers, since its kernel does.
var probes = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}

// A Peer is another rank, and the connection to it.
type Peer struct {
	Conn    *net.TCPConn
	Address string // where it listens
}

// Connect connects rank with all others of a group of size ranks, and returns them by rank; its own entry is empty.
// host is the address to listen on, and prefix begins the group's keys in the store. ctx ends it.
func Connect(ctx context.Context, store collective.Store, prefix, host string, rank, size int) (_ []Peer, err error) {
	defer try.Caught(&err)
	g := &group{store: store, prefix: prefix, rank: rank, peers: make([]Peer, size)}
	if size == 1 {
		return g.peers, nil
	}
	try.FailIf(store == nil, "there is no key-value store in which the ranks could find each other")
	listener := try.To((&net.ListenConfig{KeepAliveConfig: probes}).Listen(ctx, "tcp", net.JoinHostPort(host, "0")))
	// A connection cannot notice the end of a WaitLimit in ctx, so a goroutine waits for it.
	inner, end := context.WithCancelCause(ctx)
	defer end(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = g.connect(inner, listener)
	}()
	if early := collective.Wait(ctx, done); early != nil {
		end(early)
		listener.Close()
		<-done
		err = fmt.Errorf("%s: %w", g.missing(), early)
	}
	listener.Close()
	end(nil) // also of callers that are late
	g.callers.Wait()
	if err != nil {
		for _, p := range g.peers {
			if p.Conn != nil {
				p.Conn.Close()
			}
		}
		return nil, err
	}
	return g.peers, nil
}

// Route returns the local address from which this machine reaches MASTER_ADDR; if that is unset, the default route's,
// and loopback on a machine without a network. No packet is sent.
func Route() (string, error) {
	to := os.Getenv("MASTER_ADDR")
	conn, err := net.Dial("udp", net.JoinHostPort(cmp.Or(to, "192.0.2.1"), "9")) // an address for documentation, which nobody has
	if err != nil && to == "" {
		return "127.0.0.1", nil
	}
	if err != nil {
		return "", fmt.Errorf("no network interface leads to %s (MASTER_ADDR): %w", to, err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).IP.String(), nil
}

// group is one rank's part in connecting the group.
type group struct {
	store   collective.Store
	prefix  string
	rank    int
	secret  []byte
	callers sync.WaitGroup

	mu    sync.Mutex
	peers []Peer
}

func (g *group) key(rank int) string { return fmt.Sprintf("%s/rank/%d", g.prefix, rank) }

func (g *group) connect(ctx context.Context, listener net.Listener) error {
	var err error
	if g.rank == 0 {
		g.secret = make([]byte, sha256.Size)
		rand.Read(g.secret) // never fails
		err = g.store.Set(ctx, g.prefix+"/secret", g.secret)
	} else {
		g.secret, err = g.store.Get(ctx, g.prefix+"/secret")
	}
	if err != nil {
		return fmt.Errorf("rank 0 has not come: %w", err)
	}
	joined := make(chan struct{}, len(g.peers))
	g.callers.Go(func() { g.answer(ctx, listener, joined) })
	if err := g.store.Set(ctx, g.key(g.rank), []byte(listener.Addr().String())); err != nil {
		return fmt.Errorf("cannot publish the address of rank %d: %w", g.rank, err)
	}
	for rank := range g.peers {
		if rank == g.rank {
			continue
		}
		address, err := g.store.Get(ctx, g.key(rank))
		if err != nil {
			return fmt.Errorf("rank %d has not come: %w", rank, err)
		}
		g.mu.Lock()
		g.peers[rank].Address = string(address)
		g.mu.Unlock()
	}
	for rank := range g.rank {
		if err := g.call(ctx, rank); err != nil {
			return fmt.Errorf("cannot connect to rank %d at %s: %w", rank, g.peers[rank].Address, err)
		}
	}
	for range len(g.peers) - 1 - g.rank {
		select {
		case <-joined:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// missing names the ranks that have not connected.
func (g *group) missing() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []string
	for rank, p := range g.peers {
		if rank == g.rank || p.Conn != nil {
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

// take assigns a connection to a rank once both sides have proven themselves; otherwise it closes the connection.
func (g *group) take(ctx context.Context, conn net.Conn, prove func() (rank int, err error)) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	rank, err := prove()
	_ = conn.SetDeadline(time.Time{})
	g.mu.Lock()
	defer g.mu.Unlock()
	if !stop() {
		return context.Cause(ctx)
	}
	if err == nil && g.peers[rank].Conn != nil {
		err = fmt.Errorf("rank %d has connected already", rank)
	}
	if err != nil {
		conn.Close()
		return err
	}
	g.peers[rank].Conn = conn.(*net.TCPConn)
	return nil
}

// call connects to a rank and proves this rank's identity.
func (g *group) call(ctx context.Context, rank int) error {
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAliveConfig: probes}
	conn, err := dialer.DialContext(ctx, "tcp", g.peers[rank].Address)
	if err != nil {
		return err
	}
	return g.take(ctx, conn, func() (int, error) {
		if err := g.proveCall(conn, rank); err != nil {
			return rank, fmt.Errorf("whoever answers is not that rank: %w", err)
		}
		return rank, nil
	})
}

func (g *group) proveCall(conn net.Conn, rank int) (err error) {
	defer try.Caught(&err)
	// The other side may be busy: it gets longer than it allows us.
	_ = conn.SetDeadline(time.Now().Add(4 * proofLimit))
	var both [2 * challengeBytes]byte
	try.To(io.ReadFull(conn, both[:challengeBytes]))
	rand.Read(both[challengeBytes:])
	hello := append([]byte(nil), both[challengeBytes:]...)
	hello = binary.BigEndian.AppendUint32(hello, uint32(g.rank))
	hello = append(hello, g.proof("call", both[:], g.rank, rank)...)
	try.To(conn.Write(hello))
	var answer [sha256.Size]byte
	try.To(io.ReadFull(conn, answer[:]))
	if !hmac.Equal(answer[:], g.proof("answer", both[:], g.rank, rank)) {
		return errors.New("it does not know the group's secret")
	}
	return nil
}

// proof is the answer to two challenges that only those who know the secret can compute.
func (g *group) proof(what string, challenges []byte, caller, called int) []byte {
	h := hmac.New(sha256.New, g.secret)
	fmt.Fprintf(h, "%s %s %d %d ", what, g.prefix, caller, called)
	h.Write(challenges)
	return h.Sum(nil)
}

// answer lets in the ranks that call, until the listener is closed.
func (g *group) answer(ctx context.Context, listener net.Listener, joined chan<- struct{}) {
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
		g.callers.Go(func() {
			defer func() { <-turns }()
			if g.take(ctx, conn, func() (int, error) { return g.proveAnswer(conn) }) == nil {
				joined <- struct{}{}
			}
		})
	}
}

// proveAnswer finds out which rank calls.
func (g *group) proveAnswer(conn net.Conn) (rank int, err error) {
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
	if rank <= g.rank || rank >= len(g.peers) || !hmac.Equal(hello[challengeBytes+4:], g.proof("call", both[:], rank, g.rank)) {
		return 0, errors.New("a stranger")
	}
	_, err = conn.Write(g.proof("answer", both[:], rank, g.rank))
	return rank, err
}
