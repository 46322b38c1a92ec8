package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestTwoBuilds builds drun from two sources, and starts a run with one that a node of the other joins: both name both
// versions, and which node has which; also where the builds know of no commits, as from a tarball.
func TestTwoBuilds(t *testing.T) {
	if os.Getenv("DRUN_TEST_BUILDS") == "" {
		t.Skip("make builds runs it: it builds drun twice")
	}
	for _, stamped := range []string{"true", "false"} {
		t.Run("buildvcs="+stamped, func(t *testing.T) { twoBuilds(t, stamped) })
	}
}

func twoBuilds(t *testing.T, stamped string) {
	dir := t.TempDir()
	command := func(dir, name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	clone := filepath.Join(dir, "clone")
	command(".", "git", "clone", "-q", "--depth", "1", "file://"+command(".", "git", "rev-parse", "--show-toplevel"), clone)
	var versions [2]string
	for i, name := range []string{"first", "second"} {
		if i > 0 {
			if err := os.WriteFile(filepath.Join(clone, "cmd/drun/another.go"), []byte("package main\n\nfunc init() { println(\"another build\") }\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			command(clone, "git", "add", ".")
			command(clone, "git", "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-q", "-m", "another build")
		}
		command(clone, "go", "build", "-buildvcs="+stamped, "-o", filepath.Join(dir, name), "./cmd/drun")
		versions[i] = regexp.MustCompile(`(?m)^drun (\S+)`).FindStringSubmatch(command(dir, filepath.Join(dir, name), "version"))[1]
	}
	if versions[0] == versions[1] {
		t.Fatalf("both builds are %s", versions[0])
	}
	command(clone, "go", "build", "-o", filepath.Join(dir, "plugins", "drun-backend-example"), "./plugins/example")
	recipe := filepath.Join(dir, "recipe.star")
	if err := os.WriteFile(recipe, []byte("def main():\n    dist.barrier()\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CONFIG_HOME", dir)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	start := func(name, index string) func() string {
		cmd := exec.CommandContext(ctx, filepath.Join(dir, name), "run", recipe, "--nnodes", "2", "--node-rank", index, "--rdzv", "127.0.0.1:29547", "--backend", "example", "--plugin-dir", filepath.Join(dir, "plugins"), "--home", filepath.Join(dir, index))
		done := make(chan string)
		go func() {
			out, _ := cmd.CombinedOutput()
			done <- string(out)
		}()
		return func() string { return <-done }
	}
	head := start("first", "0")
	late := start("second", "1")
	want := regexp.MustCompile(`the version of drun differs: node 0 \(process \d+ on \S+\) has "` + regexp.QuoteMeta(versions[0]) + `", node 1 \(process \d+ on \S+\) has "` + regexp.QuoteMeta(versions[1]) + `"`)
	for who, out := range map[string]string{"node 0": head(), "node 1": late()} {
		if !want.MatchString(out) {
			t.Errorf("%s says:\n%s\nwant %s", who, out, want)
		}
	}
}
