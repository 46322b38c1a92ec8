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

// A program is built when the first script asks for it, for all tests of the package: the linker takes seconds.
type program struct {
	pkg, tags string
	once      sync.Once
	err       error
}

var (
	pluginHost    = &program{pkg: "cmd/drun-plugin-host"}
	examplePlugin = &program{pkg: "plugins/example"}
	glooPlugin    = &program{pkg: "plugins/gloo/drun-backend-gloo", tags: "gloo"}
	mpiPlugin     = &program{pkg: "plugins/mpi/drun-backend-mpi", tags: "mpi"}
)

// at is the program as a file of this name beside drun, in the folder that testscript removes.
func (p *program) at(name string) (path string, err error) {
	drun, err := exec.LookPath("drun")
	if err != nil {
		return "", err
	}
	path = filepath.Join(filepath.Dir(drun), name)
	p.once.Do(func() {
		if out, err := exec.Command("go", "build", "-tags", p.tags, "-o", path, "drun/"+p.pkg).CombinedOutput(); err != nil {
			p.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	return path, p.err
}

// plugins DIR [mpi]: puts the example plugin and, where its library is, the one for
// Gloo into a folder, on demand that for MPI, and the program that starts plugins beside drun.
func buildPlugins(ts *testscript.TestScript, args []string) {
	_, err := pluginHost.at("drun-plugin-host")
	ts.Check(err)
	plugins := map[string]*program{"drun-backend-example": examplePlugin}
	if haveGloo() {
		plugins["drun-backend-gloo"] = glooPlugin
	}
	if slices.Contains(args, "mpi") {
		plugins["drun-backend-mpi"] = mpiPlugin
	}
	ts.Check(os.MkdirAll(ts.MkAbs(args[0]), 0o755))
	for name, p := range plugins { // copies, since scripts change them
		path, err := p.at("built-" + name)
		ts.Check(err)
		program, err := os.ReadFile(path)
		ts.Check(err)
		ts.Check(os.WriteFile(filepath.Join(ts.MkAbs(args[0]), name), program, 0o755))
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
