package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"drun/starlib/universe"
)

// The stub is what mypy, at its strictest, takes for Python.
func TestStubIsPython(t *testing.T) {
	mypy, err := filepath.Abs("../../bin/mypy/bin/mypy")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(mypy); err != nil {
		t.Skip("mypy is not installed: make bin/mypy")
	}
	var b bytes.Buffer
	if err := printStub(&b, universe.Reference()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n    def ") + strings.Count(b.String(), "\ndef "); n < 200 {
		t.Errorf("only %d definitions", n)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "drun.pyi"), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(mypy, "--strict", "--no-incremental", "--cache-dir", dir, "drun.pyi")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%.3000s", err, out)
	}
}

func TestStubSignature(t *testing.T) {
	s := stub{members: map[string][]string{"Owner": {"bool"}}, classes: map[string]bool{"Tensor": true}}
	for sig, want := range map[string]string{
		"f()":                                "f() -> Any",
		"f(x, *, y = None) -> (Tensor, int)": "f(x: Any, *, y: Any = None) -> tuple[Tensor, int]",
		"f(a: list | tuple = (1, 2)) -> Tensor | (Tensor, Tensor)": "f(a: list[Any] | tuple[Any, ...] = (1, 2)) -> Tensor | tuple[Tensor, Tensor]",
		"f(*a, b: bool = None, **k) -> values":                     "f(*a: Any, b: builtins.bool | None = None, **k: Any) -> Tensor",
		"f(g: callable, i: iterable = [])":                         "f(g: Callable[..., Any], i: Iterable[Any] = []) -> Any",
		`f(s: string = ",") -> dict`:                               `f(s: str = ",") -> dict[Any, Any]`,
	} {
		if got := s.signature(sig, "Owner"); got != want {
			t.Errorf("%s: %s, want %s", sig, got, want)
		}
	}
}

// skipDocstring reads a docstring and gives what follows it.
func skipDocstring(t *testing.T, text string) string {
	t.Helper()
	body := strings.TrimLeft(text, " ")[3:]
	for i := 0; i < len(body); i++ {
		switch {
		case body[i] == '\\':
			i++
		case strings.HasPrefix(body[i:], `"""`):
			line, rest, _ := strings.Cut(body[i+3:], "\n")
			if line != "" {
				t.Errorf("a docstring is followed by %q", line)
			}
			return rest
		}
	}
	t.Error("a docstring does not end")
	return ""
}

func TestDocstring(t *testing.T) {
	for text, want := range map[string]string{
		`plain`:                    `plain`,
		`the dtype "float32"`:      `the dtype "float32\"`,
		`a \n and a \`:             `a \\n and a \\`,
		`three """ in a row, """"`: `three \"\"\" in a row, \"\"\"\"`,
	} {
		got := strings.TrimSuffix(docstring(text, ""), "\n")
		if got != `"""`+want+`"""` {
			t.Errorf("%s is written %s", strconv.Quote(text), got)
		}
		if rest := skipDocstring(t, got+"\nx"); rest != "x" {
			t.Errorf("%s: %q is left", got, rest)
		}
	}
}
