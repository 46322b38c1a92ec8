// The plugin that drun starts for --backend nccl.
package main

import (
	"os"

	"drun/plugins/nccl"
	"drun/plugins/sdk"
)

func main() {
	options := nccl.FromEnvironment()
	options.Log = os.Stderr
	sdk.Serve(nccl.New(options))
}
