// Command drun-backend-example is a complete backend in few lines: ranks of one machine that send everything over TCP.
// It is meant to be read and copied; docs/writing-a-backend.md explains it.
package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"drun/collective"
	"drun/plugins/sdk"
)

func main() { sdk.Serve(backend{}) }

type backend struct{}

func (backend) Name() string    { return "example" }
func (backend) Version() string { return "1.0" }

// Open connects this rank with all others.
func (b backend) Open(ctx context.Context, world collective.World) (collective.Comm, error) {
	e, err := connect(ctx, world.Store, b.Name(), world.Rank, world.Size)
	if err != nil {
		return nil, err
	}
	return sdk.NewComm(b.Name(), e, world.Rank, world.Size), nil
}

// engine is a rank's end of a group. The mesh carries messages and knows the state of the other ranks.
type engine struct {
	*sdk.Mesh
	store      collective.Store
	prefix     string // of the group's keys in the store
	rank, size int
	calls      atomic.Int64 // collectives, which have the same number on every rank
}

func connect(ctx context.Context, store collective.Store, prefix string, rank, size int) (*engine, error) {
	mesh, err := sdk.Connect(ctx, store, prefix, "127.0.0.1", rank, size)
	if err != nil {
		return nil, err
	}
	return &engine{Mesh: mesh, store: store, prefix: prefix, rank: rank, size: size}, nil
}

// Split makes the engine of a group, in which this rank is number rank.
func (e *engine) Split(ctx context.Context, group collective.Group, rank int) (sdk.Engine, error) {
	sub, err := connect(ctx, e.store, fmt.Sprintf("%s/group %d of %d", e.prefix, group.ID, group.Ranks[0]), rank, len(group.Ranks))
	if err != nil {
		return nil, err
	}
	return sub, nil
}

// Statistics are optional: see sdk.Counter.
func (e *engine) Statistics() map[string]int64 {
	return map[string]int64{"calls": e.calls.Load()}
}
