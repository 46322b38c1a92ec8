// Package programs provides drun's programs to tests, built once for all packages that start them.
package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"drun/internal/try"
)

// Dir is the environment variable in which make test says where it has built them.
const Dir = "DRUN_TEST_PROGRAMS"

// The programs: the package of each, the build tags that it needs, and its folder, since drun looks for backends in a folder
// beside itself.
var known = map[string]struct{ pkg, tags, in string }{
	"drun":                 {pkg: "cmd/drun"},
	"drun-plugin-host":     {pkg: "cmd/drun-plugin-host"},
	"drun-backend-example": {pkg: "plugins/example", in: "plugins"},
	"drun-backend-nccl":    {pkg: "plugins/nccl/drun-backend-nccl", in: "plugins"},
	"drun-backend-gloo":    {pkg: "plugins/gloo/drun-backend-gloo", tags: "gloo", in: "plugins"},
	"drun-backend-mpi":     {pkg: "plugins/mpi/drun-backend-mpi", tags: "mpi", in: "plugins"},
}

var (
	mu    sync.Mutex
	built = map[string]string{}
)

// Path returns the file of a program. If make has not built it, Path builds it into bin/test of the repository, which
// takes no time if it is up to date.
func Path(name string) (string, error) {
	mu.Lock()
	defer mu.Unlock()
	if path := built[name]; path != "" {
		return path, nil
	}
	p, ok := known[name]
	if !ok {
		return "", fmt.Errorf("there is no program %q to build", name)
	}
	dir := os.Getenv(Dir)
	path := filepath.Join(dir, p.in, name)
	if dir == "" {
		mod, err := exec.Command("go", "env", "GOMOD").Output()
		if err != nil {
			return "", fmt.Errorf("go env GOMOD: %w", err)
		}
		path = filepath.Join(filepath.Dir(strings.TrimSpace(string(mod))), "bin", "test", p.in, name)
		if out, err := exec.Command("go", "build", "-tags", p.tags, "-o", path, "drun/"+p.pkg).CombinedOutput(); err != nil {
			return "", fmt.Errorf("building %s: %w\n%s", name, err, out)
		}
	}
	if _, err := os.Stat(path); err != nil { // this also makes it an input of the test for go test's cache
		return "", fmt.Errorf("%w: make test builds it", err)
	}
	built[name] = path
	return path, nil
}

// Link puts programs into a folder, each under its own name.
func Link(dir string, names ...string) (err error) {
	defer try.Caught(&err)
	try.Ok(os.MkdirAll(dir, 0o755))
	for _, name := range names {
		try.Ok(os.Symlink(try.To(Path(name)), filepath.Join(dir, name)))
	}
	return nil
}
