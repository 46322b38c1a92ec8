// Package client starts a plugin and makes it a [collective.Backend]: control requests go through go-plugin's gRPC,
// calls through the arena. cmd/drun-plugin-host links it, with everything that gRPC needs; cmd/drun does not, so that
// runs without plugins start as fast as ever.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"drun/collective"
	"drun/internal/exit"
	"drun/plugins/host"
	"drun/plugins/internal/wire"
)

// Backend is a backend served by a plugin: each Open starts a process, which ends with the world's Comm.
type Backend struct {
	Plugin *host.Plugin
	Stderr io.Writer // gets what the plugin writes there, each line after its name
	// OnDeath is called, from any goroutine, when the process has ended without being told to. It may be nil.
	OnDeath func(error)
}

var _ collective.Backend = (*Backend)(nil)

func (b *Backend) Name() string { return b.Plugin.Name }

func (b *Backend) Open(ctx context.Context, world collective.World) (collective.Comm, error) {
	x, err := start(ctx, b.Plugin, world, wire.DescribeRequest{}, b.Stderr)
	if err != nil {
		return nil, err
	}
	x.onDeath = b.OnDeath
	comm, err := b.join(ctx, x, world)
	if err != nil {
		x.kill()
		x.release()
		return nil, err
	}
	return comm, nil
}

func (b *Backend) join(ctx context.Context, x *process, world collective.World) (*Comm, error) {
	if x.about.Problem != "" {
		return nil, exit.Last(fmt.Errorf("it cannot run here: %s", x.about.Problem))
	}
	c := newComm(newPort(x, world), 0, world.Rank, world.Size)
	opened, err := c.ask(ctx, func(ctx context.Context) (*wire.Opened, error) {
		return wire.Open.Ask(ctx, x.control, &wire.OpenRequest{Rank: world.Rank, Size: world.Size,
			LocalRank: world.LocalRank, LocalSize: world.LocalSize, Store: world.Store != nil,
			Deterministic: world.Deterministic, NodeAddress: world.NodeAddress})
	})
	switch {
	case errors.Is(err, collective.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("the plugin did not join the world in time, and was killed%s", x.lastWords())
	case err != nil:
		return nil, err
	}
	return c, c.matches(opened)
}

// About is what a plugin says about itself.
type About struct {
	Version string `json:"version"`
	Problem string `json:"problem"` // why it cannot run here; "" if it can
}

// Probe starts the plugin briefly to ask it about itself.
func Probe(ctx context.Context, p *host.Plugin) (About, error) {
	about, err := ask(ctx, p, wire.DescribeRequest{})
	return About{Version: about.Version, Problem: about.Problem}, err
}

// Properties starts the plugin briefly to ask for its properties.
func Properties(ctx context.Context, p *host.Plugin) (collective.Properties, error) {
	about, err := ask(ctx, p, wire.DescribeRequest{NoProbe: true})
	return about.Properties, err
}

func ask(ctx context.Context, p *host.Plugin, what wire.DescribeRequest) (wire.Description, error) {
	x, err := start(ctx, p, collective.World{}, what, io.Discard)
	if err != nil {
		return wire.Description{}, err
	}
	about := *x.about
	x.shut()
	x.release()
	return about, nil
}
