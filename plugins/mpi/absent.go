//go:build !mpi

package mpi

import (
	"context"

	"drun/collective"
)

// Probe says that Open MPI is missing.
func (b *Backend) Probe(context.Context) error { return errAbsent }

// Open says that Open MPI is missing.
func (b *Backend) Open(context.Context, collective.World) (collective.Comm, error) {
	return nil, errAbsent
}
