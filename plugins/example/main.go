// Command drun-backend-example is a complete backend in few lines: ranks of one
// machine that send each other everything over TCP. It is there to be read and
// copied; docs/writing-a-backend.md explains it.
package main

import (
	"context"

	"drun/collective"
	"drun/plugins/sdk"
)

func main() { sdk.Serve(backend{}) }

type backend struct{}

func (backend) Name() string    { return "example" }
func (backend) Version() string { return "1.0" }

// Open connects this rank with all others.
func (backend) Open(ctx context.Context, world collective.World) (collective.Comm, error) {
	m, err := connect(ctx, world)
	if err != nil {
		return nil, err
	}
	ranks := make([]int, world.Size)
	for i := range ranks {
		ranks[i] = i
	}
	return newComm(m, 0, world.Rank, ranks), nil
}
