// The plugin that drun starts for --backend gloo.
package main

import (
	"drun/plugins/gloo"
	"drun/plugins/sdk"
)

func main() { sdk.Serve(gloo.New(gloo.FromEnvironment())) }
