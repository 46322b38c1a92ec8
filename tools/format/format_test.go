package format

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"drun/starlib/lang"
)

func TestSource(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"", ""},
		{"# alone\n", "# alone\n"},
		{"\ufeffx=1\r\ny = 'a'", "x = 1\ny = \"a\"\n"},
		{"load('a.star',  'b',c='d')\nx=1", "load(\"a.star\", \"b\", c = \"d\")\n\nx = 1\n"},
		{"def f( a,b = 1,*args,c=2,**kw ) :\n  return lambda x,y:x+y\n", "def f(a, b = 1, *args, c = 2, **kw):\n    return lambda x, y: x + y\n"},
		{"def f(*,a): pass\n", "def f(*, a):\n    pass\n"},
		{"while a<b: # why\n  a+=1;b-=1\n", "while a < b:  # why\n    a += 1\n    b -= 1\n"},
		{"for _ in a:\n  while(b):pass\n", "for _ in a:\n    while (b):\n        pass\n"},
		{"if x: pass\nelif y: pass\nelse:\n  while z: pass\n", "if x:\n    pass\nelif y:\n    pass\nelse:\n    while z:\n        pass\n"},
		{"x = [y for y in z if y]\nfor é in x:\n  while é: break\n", "x = [y for y in z if y]\nfor é in x:\n    while é:\n        break\n"},
		{`x = [b'a"', "é", 'é', 'é"', 'a\n', "\x41\177", r'\d', '''é''']`, `x = [b'a"', "é", "é", 'é"', 'a\n', "\x41\177", r"\d", """é"""]` + "\n"},
		{"_literal_0_ = b'x'", "_literal_0_ = b'x'\n"},
		{"x = a//b|c&d^e<<2>>~1 %5\n", "x = a // b | c & d ^ e << 2 >> ~1 % 5\n"},
		{"x = 1, 2 if a else b[0], lambda: c[1:] # why\n", "x = 1, (2 if a else b[0]), (lambda: c[1:])  # why\n"},
		{"return_ = 1 if a else 'é', 'é' if b'a' else -c\n", "return_ = 1 if a else \"é\", (\"é\" if b'a' else -c)\n"},
		{"f(a=1,*b,**c)\n", "f(a = 1, *b, **c)\n"},
		{"x = f(a, # one\n  b)\n", "x = f(\n    a,  # one\n    b,\n)\n"},
	} {
		got, err := Source("x.star", []byte(c.src))
		if err != nil || string(got) != c.want {
			t.Errorf("%q: got %q, %v; want %q", c.src, got, err, c.want)
		}
	}
	located := (*lang.Error)(nil)
	if _, err := Source("x.star", []byte("x = \n")); !errors.As(err, &located) || located.Pos.Line != 1 {
		t.Errorf("got error %v", err)
	}
}

// Every recipe of the repository is laid out, and stays as it is the second time.
func TestAllRecipes(t *testing.T) {
	n := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".star" {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil || strings.Contains(string(src), "\n---\n") { // chunks, with mistakes
			return err
		}
		out, err := Source(path, src)
		if err != nil {
			t.Error(err)
			return nil
		}
		if dir, _, _ := strings.Cut(strings.TrimPrefix(filepath.ToSlash(path), "../../"), "/"); dir == "examples" && string(out) != string(src) {
			t.Errorf("%s: drun fmt would lay it out otherwise", path)
		}
		again, err := Source(path, out)
		if err != nil || string(again) != string(out) {
			t.Errorf("%s: the second time differs (%v)", path, err)
		}
		n++
		return nil
	})
	if err != nil || n < 20 {
		t.Errorf("%d files, %v", n, err)
	}
}

// No bytes make it panic, and what it lays out stays as it is the second time.
func FuzzSource(f *testing.F) {
	for _, src := range []string{"x = 1\n", "while a: # b\n  'é'\n", "load('a', 'b')\nx = b'c'\n", "def f(a, *, b = '''\n'''): return {a: [b]}\n", "x = (a +\n  b)\r\n"} {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		out, err := Source("x.star", src)
		if err != nil {
			return
		}
		if again, err := Source("x.star", out); err != nil {
			t.Errorf("the second time: %v\n%q\n%q", err, src, again)
		}
	})
}
