//go:build !gloo

package gloo

import (
	"context"

	"drun/collective"
)

func (b *Backend) Probe(context.Context) error { return errAbsent }

func (b *Backend) Open(context.Context, collective.World) (collective.Comm, error) {
	return nil, errAbsent
}
