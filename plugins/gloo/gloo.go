// Package gloo is the backend that moves tensors with Gloo, a collective communication library for CPUs and networks,
// through a thin C++ shim. The program drun-backend-gloo beneath this package serves it to drun.
//
// It is built with the tag gloo, which needs Gloo's headers (Debian and Ubuntu: libgloo-dev; make plugins looks for
// them). Without the tag, Open returns an error.
package gloo

import (
	"cmp"
	"errors"
	"os"

	"drun/collective"
)

// Options of the backend; the zero value chooses by itself.
type Options struct {
	// Interface is the network interface, by name ("eth0") or by an address that it has ("10.0.0.7"). Empty: loopback
	// if all ranks are on this machine, else the one through which the nodes' agents are connected, or that of the
	// route to MASTER_ADDR.
	Interface string
}

// FromEnvironment reads DRUN_GLOO_INTERFACE or, as PyTorch does, GLOO_SOCKET_IFNAME.
func FromEnvironment() Options {
	return Options{Interface: cmp.Or(os.Getenv("DRUN_GLOO_INTERFACE"), os.Getenv("GLOO_SOCKET_IFNAME"))}
}

// Backend is the Gloo engine.
type Backend struct{ options Options }

// New returns the backend.
func New(options Options) *Backend { return &Backend{options} }

func (b *Backend) Name() string { return "gloo" }

// Properties say that it is the default between nodes.
func (b *Backend) Properties() collective.Properties { return collective.Properties{BetweenNodes: 2} }

var errAbsent = errors.New("this program was built without Gloo; install its headers (Debian, Ubuntu: apt-get install libgloo-dev g++) and run make plugins")
