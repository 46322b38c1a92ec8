package build

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestOf builds programs of a few lines: the same source has the same name, another one another, without a word from version
// control, and also where the linker was told to leave its identification out.
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

// TestOwn is of a program that go test has built, which version control is not asked about.
func TestOwn(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if of, err := Of(exe); err != nil || of != Own() {
		t.Errorf("this program is %s, the file %s (%v)", Own(), of, err)
	}
}
