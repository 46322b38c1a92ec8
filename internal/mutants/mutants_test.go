package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMutantsApply checks that every mutant still applies to the code.
func TestMutantsApply(t *testing.T) {
	mutants, err := readMutants(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(mutants) == 0 {
		t.Fatal("there are no mutants")
	}
	for _, m := range mutants {
		if out, err := apply(t.Context(), "../..", "--check", m.patch); err != nil {
			t.Errorf("%s does not apply; make it again with git diff -U1:\n%s", m.name, out)
		}
	}
}

func TestParseMutant(t *testing.T) {
	for text, want := range map[string]string{
		"Breaks.\nTest: ./x -run '^TestX$'\n\ndiff --git a/x b/x\n": "",
		"Test: ./x\ndiff --git a/x b/x\n":                           "does not say what it breaks",
		"Breaks.\ndiff --git a/x b/x\n":                             "no line `Test:",
		"Breaks.\nTest: ./x\nTest: ./y\ndiff --git a/x b/x\n":       "two lines",
		"Breaks.\nTest: ./x\n--- a/x\n":                             "no `diff --git`",
	} {
		m, err := parseMutant(text)
		switch {
		case want == "" && (err != nil || m.about != "Breaks." || m.test != "./x -run '^TestX$'"):
			t.Errorf("%q: %+v, %v", text, m, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
}

// TestVerdicts tries mutants on a small module: one that is noticed, one that is not, one that does not build, one
// that does not apply, and tests that do not run.
func TestVerdicts(t *testing.T) {
	tree := t.TempDir()
	write(t, tree, "go.mod", "module small\n\ngo 1.26.0\n")
	write(t, tree, "small.go", "package small\n\nfunc Two() int {\n\treturn 2\n}\n\nfunc Three() int {\n\treturn 3\n}\n")
	write(t, tree, "small_test.go", "package small\n\nimport \"testing\"\n\nfunc TestTwo(t *testing.T) {\n\tif Two() != 2 {\n\t\tt.Error(Two())\n\t}\n}\n")
	patch := func(old, new string) string {
		return "diff --git a/small.go b/small.go\n--- a/small.go\n+++ b/small.go\n@@ -3,3 +3,3 @@\n func Two() int {\n-\treturn " + old + "\n+\treturn " + new + "\n }\n"
	}
	three := strings.NewReplacer("@@ -3,3 +3,3 @@", "@@ -7,3 +7,3 @@", "Two", "Three").Replace(patch("3", "4"))
	for _, c := range []struct{ name, test, diff, want string }{
		{"noticed", ". -run '^TestTwo$'", patch("2", "5"), noticed},
		{"missed", ".", three, missed},
		{"unbuilt", ".", patch("2", "two"), unbuilt},
		{"unpatched", ".", patch("7", "8"), unpatched},
		{"no-test", ". -run TestNone", patch("2", "5"), unbuilt},
	} {
		file := write(t, t.TempDir(), c.name+".patch", c.diff)
		verdict, detail, err := try(context.Background(), tree, mutant{name: c.name, test: c.test, patch: file}, time.Minute)
		if err != nil || verdict != c.want {
			t.Errorf("%s: %s (%s), %v; want %s", c.name, verdict, detail, err, c.want)
		}
		text, _ := os.ReadFile(filepath.Join(tree, "small.go"))
		if !strings.Contains(string(text), "return 2\n") || !strings.Contains(string(text), "return 3\n") {
			t.Fatalf("%s: the mutant was not taken back:\n%s", c.name, text)
		}
	}
}

func write(t *testing.T, folder, name, text string) string {
	t.Helper()
	file := filepath.Join(folder, name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
