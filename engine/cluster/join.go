package cluster

import (
	"net"
	"slices"

	"drun/engine/rendezvous"
)

// Joining makes this process one of several that run a recipe together: the
// processes of several nodes, or one a rank, as torchrun's variables start them. The
// first of them is the coordinator; it listens, and the others find it.
type Joining struct {
	Address string // host:port of the first
	Secret  string // that all must know; "" will do only where nobody else reaches the port
	Index   int    // of this process
	Count   int    // of processes
	// Place is that of the only rank, where it was started by itself; nil: a
	// node of several ranks.
	Place *rendezvous.Place
}

// Several reports whether the user has said that there are several nodes.
func (j *Joining) Several() bool {
	return j.Place == nil || j.Place.Nodes > 1 || j.Place.LocalSize != rendezvous.Unknown && j.Place.LocalSize < j.Count
}

// Name is what the process is called: "node 1", or "rank 1".
func (j *Joining) Name() string { return (&Hello{Index: j.Index, Place: j.Place}).Noun() }

// listenAddress is where the coordinator listens. A machine's own name often leads to
// an address that others cannot reach, so that only numbers are taken as they are.
func listenAddress(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "localhost" || net.ParseIP(host) != nil && ownAddress(host) {
		return address
	}
	return net.JoinHostPort("", port)
}

// ownAddress reports whether the address is one of this machine's interfaces;
// that of a service in front of it is not.
func ownAddress(host string) bool {
	ip := net.ParseIP(host)
	if ip.IsLoopback() || ip.IsUnspecified() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip)
	})
}

// addressOf is an address without its port.
func addressOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return ""
	}
	return host
}
