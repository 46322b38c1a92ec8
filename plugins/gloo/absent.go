//go:build !gloo

package gloo

import (
	"context"

	"drun/collective"
)

// Probe says that Gloo is missing.
func (b *Backend) Probe(context.Context) error { return errAbsent }

// Open says that Gloo is missing.
func (b *Backend) Open(context.Context, collective.World) (collective.Comm, error) {
	return nil, errAbsent
}
