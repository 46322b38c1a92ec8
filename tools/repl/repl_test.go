package repl

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.starlark.net/starlark"
)

// session executes what is typed, and returns what was printed.
func session(t *testing.T, lines string) (out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	s, err := New(Options{Out: &o, Err: &e})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rest := strings.Split(lines, "\n")
	for {
		src, err := Read(func() (string, error) {
			if len(rest) == 0 {
				return "", io.EOF
			}
			line := rest[0]
			rest = rest[1:]
			return line, nil
		})
		if err != nil {
			break
		}
		s.Execute(src, nil)
	}
	return o.String(), e.String()
}

func TestPrompt(t *testing.T) {
	for _, c := range []struct{ lines, out, err string }{
		{"1 + 2\n_ * 2", "3\n6\n", ""},
		{"x = tensor([1.0, 2.0])\nx == x\nx.sub_(1.0)\nx", "tensor([True, True])\ntensor([0., 1.])\ntensor([0., 1.])\n", ""},
		{"x = 1\nx += 1\nx", "2\n", ""},
		{"def f(n):\n    return n if n < 2 else f(n - 1) + f(n - 2)\n\nf(10)", "55\n", ""},
		{"for i in range(2):\n    print(i)\n\n'a'", "0\n1\n\"a\"\n", ""},
		{"(1 +\n2)", "3\n", ""},
		{"nan = float('nan')\nnan == nan\n'%.2f' % 2", "False\n\"2.00\"\n", ""},
		{"None\nx = 3 # none\n\n# alone", "", ""},
		{"tensr\n1", "1\n", "input 1:1:1: undefined: tensr (did you mean tensor?)\n"},
		{"class A: pass\n1", "1\n", "there is no class"},
		{"def f():\n    return 1 // 0\n\nf()\n2", "2\n", "in f"},
		{"f(", "", "got end of file"},
		{"checkpoint.save({}, step = 1)", "", "a prompt keeps no checkpoints"},
		{"run.log(loss = 1)\ndist.all_reduce(2)", "2\n", ""},
		{"load('lib.star', 'two')\ntwo()", "2\n", ""},
		{"load('lib.star', 'two'); load('more.star', 'one')\ntwo() + one", "3\n", ""},
		{"load('none.star', 'two')", "", "no such file"},
		{"load('../../repl.go', 'two')", "", "outside the recipe's folder"},
		{"def f(n): return f(n + 1)\n\nf(0)\n3", "3\n", "  input 1:1:19: in f\n    def f(n): return f(n + 1)\n"},
		{"a = []\na.append(a)\na", "[[...]]\n", ""},
	} {
		t.Chdir(t.TempDir())
		if err := os.WriteFile("lib.star", []byte("load('more.star', 'one')\ndef two():\n    return one + 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("more.star", []byte("one = 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, errs := session(t, c.lines)
		if out != c.out || !strings.Contains(errs, c.err) || c.err == "" && errs != "" {
			t.Errorf("%q: printed %q and %q, want %q and %q", c.lines, out, errs, c.out, c.err)
		}
	}
}

// What to write instead is said once.
func TestHintsOnce(t *testing.T) {
	for _, line := range []string{`"{:>5}".format(3)`, "tensor.poisson(3)", "import torch", "f'x'", "map(1)", "[1 for x in 'ab']", "def f():\n    return torch.zeros(1)\n\nf()", "{}.x = 1", "tensor.zeros(2).sun()"} {
		_, errs := session(t, line)
		message, _, _ := strings.Cut(errs, "\n")
		for part := range strings.SplitSeq(message, ": ") {
			if len(part) > 8 && strings.Count(message, part) > 1 {
				t.Errorf("%s: %q is said twice: %s", line, part, message)
			}
		}
		if !strings.Contains(message, ": ") {
			t.Errorf("%s: %q", line, errs)
		}
	}
}

// Ctrl-C ends what is computed, and the prompt goes on.
func TestInterrupt(t *testing.T) {
	var out, errs bytes.Buffer
	s, err := New(Options{Out: &out, Err: &errs})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	signals := make(chan os.Signal, 1)
	time.AfterFunc(50*time.Millisecond, func() { signals <- os.Interrupt })
	if s.Execute("while True:\n    pass\n", signals) || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("printed %q", errs.String())
	}
	if !s.Execute("1 + 1\n", signals) || out.String() != "2\n" {
		t.Errorf("printed %q and %q", out.String(), errs.String())
	}
}

func TestComplete(t *testing.T) {
	s, err := New(Options{Out: io.Discard, Err: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Globals["xs"] = starlark.NewList(nil)
	for _, c := range []struct {
		text, head, want string
	}{
		{"tensor.ze", "", "tensor.zeros"}, {"f(tens", "f(", "tensor"}, {"xs.app", "", "xs.append"}, {"é + pri", "é + ", "print"},
		{"dist.store.multi_g", "", "dist.store.multi_get"}, {"nothing.x", "", ""}, {"tensor.zeros.", "", ""},
	} {
		head, words, tail := s.Complete(c.text, len([]rune(c.text)))
		if head != c.head || tail != "" || c.want != "" && !slices.Contains(words, c.want) || c.want == "" && len(words) > 0 {
			t.Errorf("%q: %q %v %q", c.text, head, words, tail)
		}
	}
}

func FuzzPrompt(f *testing.F) {
	f.Add("1 +\n2\n")
	f.Add("def f():\n  x\n\nf()")
	f.Fuzz(func(t *testing.T, lines string) {
		rest := strings.Split(lines, "\n")
		for range 100 {
			if _, err := Read(func() (string, error) {
				if len(rest) == 0 {
					return "", io.EOF
				}
				line := rest[0]
				rest = rest[1:]
				return line, nil
			}); err != nil {
				return
			}
		}
	})
}
