package main

import (
	"net/http"
	"os"
	"strings"

	"drun/runs/transfer"
)

// serverAt is the server with an address.
func serverAt(address string) (*transfer.Remote, error) {
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return transfer.NewRemote(client, strings.TrimRight(address, "/"), os.Getenv("DRUN_TOKEN")), nil
}
