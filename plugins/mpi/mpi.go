// Package mpi is the backend that moves tensors with Open MPI, for clusters whose fast network is accessible only
// through MPI. The program drun-backend-mpi beneath this package serves it to drun.
//
// A process takes part in MPI under an identity assigned by mpirun: a place. drun starts a plugin's processes itself, so
// their places come from elsewhere (places.go): from the mpirun that started drun with one process per rank or, on one
// machine, from an mpirun that the plugin of rank 0 starts for this.
//
// It is built with the tag mpi, which needs Open MPI's headers (Debian and Ubuntu: libopenmpi-dev; make plugins looks
// for them). Without the tag, Open returns an error.
package mpi

import (
	"errors"

	"drun/collective"
)

// Backend is the engine over Open MPI.
type Backend struct{}

// New returns the backend.
func New() *Backend { return &Backend{} }

func (b *Backend) Name() string { return "mpi" }

// Properties say that mpirun has numbered the ranks of a whole run.
func (b *Backend) Properties() collective.Properties { return collective.Properties{WholeWorld: true} }

var errAbsent = errors.New("this program was built without Open MPI; install it (Debian, Ubuntu: apt-get install libopenmpi-dev openmpi-bin pkgconf) and run make plugins")
