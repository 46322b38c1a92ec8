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

	"drun/internal/scratch"

	"github.com/rogpeppe/go-internal/testscript"
)

// built is where the programs are that start plugins and are plugins, once a
// script has asked for them.
var built programs

type programs struct {
	once sync.Once
	dir  string
	err  error
}

// buildPlugins puts the example plugin and, where its library is, the one for
// Gloo into a folder, and the program that starts plugins beside drun.
func buildPlugins(ts *testscript.TestScript, args []string) {
	built.once.Do(func() {
		drun, err := exec.LookPath("drun")
		ts.Check(err)
		build := func(to string, packages ...string) {
			out, err := exec.Command("go", append([]string{"build", "-tags", "gloo", "-o", to}, packages...)...).CombinedOutput()
			if err != nil && built.err == nil {
				built.err = fmt.Errorf("%w\n%s", err, out)
			}
		}
		build(filepath.Dir(drun), "drun/cmd/drun-plugin-host")
		if haveGloo() {
			build(built.dir, "drun/plugins/gloo/drun-backend-gloo")
		}
		build(filepath.Join(built.dir, "drun-backend-example"), "drun/plugins/example")
	})
	ts.Check(built.err)
	ts.Check(os.MkdirAll(ts.MkAbs(args[0]), 0o755))
	programs, err := os.ReadDir(built.dir)
	ts.Check(err)
	for _, p := range programs { // copies, since scripts change them
		program, err := os.ReadFile(filepath.Join(built.dir, p.Name()))
		ts.Check(err)
		ts.Check(os.WriteFile(filepath.Join(ts.MkAbs(args[0]), p.Name()), program, 0o755))
	}
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
