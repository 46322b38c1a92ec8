package client

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"drun/collective"
	"drun/collective/disttest"
	"drun/plugins/host"
	"drun/plugins/internal/enginetest"
)

// TestOutsideModule builds the example as somebody else would: as a module of
// its own.
func TestOutsideModule(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a program, which takes minutes where other flags were built with before")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files, err := filepath.Glob(filepath.Join(root, "plugins/example/*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			enginetest.Copy(t, file, filepath.Join(dir, filepath.Base(file)), 0o644)
		}
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	// The versions are drun's, so that nothing need be downloaded. In a workspace drun's packages are the same as
	// in its own module, so that nothing is compiled a second time: with a replace directive, the kernels would be.
	for name, text := range map[string]string{
		"go.mod":  strings.Replace(string(mod), "module drun\n", "module example.com/mine\n", 1),
		"go.work": "go " + regexp.MustCompile(`(?m)^go (.*)$`).FindStringSubmatch(string(mod))[1] + "\nuse (\n\t.\n\t" + root + "\n)\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, host.Prefix+"example")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	comms := world(t, &host.Plugin{Name: "example", Path: path}, 2)
	done := make(chan error, 2)
	for _, c := range comms {
		go func() { done <- disttest.Do(c, collective.NewBarrier()) }()
	}
	for range comms {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
