package main

import (
	"context"
	"os"

	"drun/engine/worker"
)

func main() {
	if worker.Invoked() {
		os.Exit(worker.Main())
	}
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
