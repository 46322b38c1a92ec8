package nccl

import (
	"context"
	"fmt"
	"net"
	"os"

	"drun/collective"
	"drun/plugins/internal/meet"
)

// newMesh meets the other ranks of a group.
func newMesh(ctx context.Context, store collective.Store, prefix string, local bool, rank, size int) (*mesh, error) {
	m := &mesh{rank: rank, peers: make([]*peer, size)}
	m.arrived.more.L = &m.arrived.mu
	host, err := address(local || size == 1)
	if err != nil {
		return m, err
	}
	met, err := meet.Ranks(ctx, store, prefix, host, rank, size)
	if err != nil {
		return m, fmt.Errorf("the ranks cannot reach each other: %w", err)
	}
	for rank, p := range met {
		if p.Conn != nil {
			m.peers[rank] = &peer{rank: rank, address: p.Address, conn: p.Conn, gone: make(chan struct{}), grants: map[uint64]chan struct{}{}}
			go m.read(m.peers[rank])
		}
	}
	return m, nil
}

// address is where this rank listens: on loopback if all are on this machine,
// else on the interface of the route to MASTER_ADDR.
func address(local bool) (string, error) {
	if local {
		return "127.0.0.1", nil
	}
	to := os.Getenv("MASTER_ADDR")
	if to == "" {
		to = "192.0.2.1" // of nobody: the default route
	}
	conn, err := net.Dial("udp", net.JoinHostPort(to, "9")) // sends nothing
	if err != nil {
		return "", fmt.Errorf("no network interface leads to %s (MASTER_ADDR): %w", to, err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).IP.String(), nil
}
