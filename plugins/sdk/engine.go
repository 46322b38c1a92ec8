package sdk

import (
	"context"

	"drun/collective"
	"drun/collective/reduction"
	"drun/kernel/dtype"
	"drun/plugins/internal/blocking"
	"drun/plugins/internal/mesh"
)

// An Engine carries out blocking calls, one collective at a time; [NewComm] makes a Comm of it. Each group has its own Engine.
type Engine = blocking.Engine

// A Header announces a message.
type Header = blocking.Header

// NewComm makes the Comm of rank among size ranks of the backend called name: it adds
// order, asynchronous calls, limits, aborts, and the matching of messages by tag.
func NewComm(name string, engine Engine, rank, size int) collective.Comm {
	return blocking.New(name, engine, rank, size)
}

// A Mesh connects a rank with every other of its group over TCP. It is an Engine
// without Do and Split; an engine can send any other data with Give and Take.
type Mesh = mesh.Mesh

// Connect meets the other ranks of a group and lets in nobody else: host is the address
// to listen on, and prefix begins the group's keys in the store.
func Connect(ctx context.Context, store collective.Store, prefix, host string, rank, size int) (*Mesh, error) {
	return mesh.Connect(ctx, store, prefix, host, rank, size)
}

// Reduce combines the ranks' contributions, given in the order of the ranks and
// each as long as out, which may be one of them. It supports every dtype and
// operation of the contract, with the same bits as drun's own backend.
func Reduce(out collective.Buffer, parts [][]byte, op dtype.ReduceOp) {
	reduction.Combine(out, parts, op)
}
