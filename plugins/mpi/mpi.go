// Package mpi is the backend that moves tensors with Open MPI, for clusters whose fast network speaks only through MPI.
// The program drun-backend-mpi beneath this package serves it to drun.
//
// A process takes part in MPI under an identity that mpirun has given it: a place. drun starts a plugin's processes
// itself, so that their places come from elsewhere (places.go): from the mpirun that started drun, one process a rank, or,
// on one machine, from an mpirun that the plugin of rank 0 starts for that.
//
// It is built with the tag mpi where Open MPI's headers are (Debian and Ubuntu: libopenmpi-dev; make plugins finds
// out). Without the tag, Open says so.
package mpi

import "errors"

// Backend is the engine over Open MPI.
type Backend struct{}

// New gives the backend.
func New() *Backend { return &Backend{} }

// Name is what --backend calls it.
func (b *Backend) Name() string { return "mpi" }

var errAbsent = errors.New("this program was built without Open MPI; install it (Debian, Ubuntu: apt-get install libopenmpi-dev openmpi-bin pkgconf) and run make plugins")
