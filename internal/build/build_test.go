package build

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestOf builds programs of a few lines: the same source gets the same name and a different one a different name,
// without version control, even if the linker was told to leave out its build ID.
func TestOf(t *testing.T) {
	for _, flags := range []string{"", "-buildid="} {
		made := func(name, text string) string {
			dir := t.TempDir()
			for file, content := range map[string]string{"go.mod": "module some\n", "main.go": "package main\n\nfunc main() { println(\"" + text + "\") }\n"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags="+flags, "-o", name, ".")
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("go build: %v\n%s", err, out)
			}
			build, err := Of(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if !regexp.MustCompile(`^devel\.[0-9a-f]{12}$`).MatchString(build) {
				t.Errorf("a build is called %q", build)
			}
			return build
		}
		one, again, other := made("one", "a"), made("again", "a"), made("other", "b")
		if one != again {
			t.Errorf("%q: one source is %s and %s", flags, one, again)
		}
		if one == other {
			t.Errorf("%q: two sources are %s", flags, one)
		}
	}
}

// TestOwn tests a program built by go test, which does not record version control.
func TestOwn(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if of, err := Of(exe); err != nil || of != Own() {
		t.Errorf("this program is %s, the file %s (%v)", Own(), of, err)
	}
}
