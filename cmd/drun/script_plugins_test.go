package main

import (
	"os/exec"

	"github.com/rogpeppe/go-internal/testscript"
)

// buildPlugins puts the program that starts plugins, and the example plugin,
// into a folder.
func buildPlugins(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: plugins DIR")
	}
	dir := ts.MkAbs(args[0])
	for name, pkg := range map[string]string{"drun-plugin-host": "drun/cmd/drun-plugin-host", "drun-backend-example": "drun/plugins/example"} {
		if out, err := exec.Command("go", "build", "-o", dir+"/"+name, pkg).CombinedOutput(); err != nil {
			ts.Fatalf("%v\n%s", err, out)
		}
	}
}
