package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"drun/internal/programs"
	"drun/internal/scratch"

	"github.com/klauspost/compress/zstd"
	"github.com/rogpeppe/go-internal/testscript"
)

// linkPluginHost puts the program that starts plugins beside drun, in the folder that testscript removes.
var linkPluginHost = sync.OnceValue(func() error {
	drun, err := exec.LookPath("drun")
	if err != nil {
		return err
	}
	return programs.Link(filepath.Dir(drun), "drun-plugin-host")
})

// plugins DIR [mpi]: puts the example plugin and, where its library is, the one for
// Gloo into a folder, on demand that for MPI, and the program that starts plugins beside drun.
func buildPlugins(ts *testscript.TestScript, args []string) {
	ts.Check(linkPluginHost())
	plugins := []string{"drun-backend-example"}
	if haveGloo() {
		plugins = append(plugins, "drun-backend-gloo")
	}
	if slices.Contains(args, "mpi") {
		plugins = append(plugins, "drun-backend-mpi")
	}
	ts.Check(os.MkdirAll(ts.MkAbs(args[0]), 0o755))
	for _, name := range plugins { // copies, since scripts change them
		path, err := programs.Path(name)
		ts.Check(err)
		program, err := os.ReadFile(path)
		ts.Check(err)
		ts.Check(os.WriteFile(filepath.Join(ts.MkAbs(args[0]), name), program, 0o755))
	}
}

// keptplugin DIR: unpacks the plugin that was built against an earlier SDK.
func keptPlugin(ts *testscript.TestScript, args []string) {
	ts.Check(linkPluginHost())
	packed, err := os.ReadFile("../../plugins/example/testdata/drun-backend-example-2154be81-linux-amd64.zst")
	ts.Check(err)
	unpacker, err := zstd.NewReader(nil)
	ts.Check(err)
	program, err := unpacker.DecodeAll(packed, nil)
	ts.Check(err)
	ts.Check(os.MkdirAll(ts.MkAbs(args[0]), 0o755))
	ts.Check(os.WriteFile(filepath.Join(ts.MkAbs(args[0]), "drun-backend-example"), program, 0o755))
}

// folders N: soon there are so many of drun's folders in $TMPDIR.
func scratchFolders(ts *testscript.TestScript, args []string) {
	var found []string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var err error
		found, err = filepath.Glob(filepath.Join(ts.Getenv("TMPDIR"), scratch.Prefix+"*", "*"))
		ts.Check(err)
		found = slices.DeleteFunc(found, func(path string) bool { return strings.HasSuffix(path, ".new") })
		for i := range found {
			found[i] = filepath.Dir(found[i])
		}
		found = slices.Compact(found)
		if fmt.Sprint(len(found)) == args[0] {
			return
		}
	}
	ts.Fatalf("there are %d folders: %v", len(found), found)
}
