// The plugin that drun starts for --backend mpi.
package main

import (
	"drun/plugins/mpi"
	"drun/plugins/sdk"
)

func main() { sdk.Serve(mpi.New()) }
