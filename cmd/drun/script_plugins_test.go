package main

import (
	"os/exec"

	"github.com/rogpeppe/go-internal/testscript"
)

// buildPlugins puts the program that starts plugins, the example plugin and, where
// its library is, the one for Gloo into a folder.
func buildPlugins(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: plugins DIR")
	}
	dir := ts.MkAbs(args[0])
	programs := map[string]string{"drun-plugin-host": "drun/cmd/drun-plugin-host", "drun-backend-example": "drun/plugins/example"}
	if haveGloo() {
		programs["drun-backend-gloo"] = "drun/plugins/gloo/drun-backend-gloo"
	}
	for name, pkg := range programs {
		if out, err := exec.Command("go", "build", "-tags", "gloo", "-o", dir+"/"+name, pkg).CombinedOutput(); err != nil {
			ts.Fatalf("%v\n%s", err, out)
		}
	}
}
