package recipe_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"drun/engine/recipe"
)

// folder creates a folder with these files; the content "-> x" makes a symbolic link, "fifo" a pipe.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if target, link := strings.CutPrefix(content, "-> "); link {
			err = errors.Join(err, os.Symlink(target, path))
		} else if content == "fifo" {
			err = errors.Join(err, syscall.Mkfifo(path, 0o644))
		} else {
			err = errors.Join(err, os.WriteFile(path, []byte(content), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadTakesEachFileOnce(t *testing.T) {
	dir := folder(t, map[string]string{
		"r/main.star":     "'''What it does.'''\nload('lib/a.star', 'a')\nload('b.star', 'b')\ndef main(): pass\n",
		"r/lib/a.star":    "load('../b.star', 'b')\nload('c.star', c2 = 'c')\na = 1\n",
		"r/lib/c.star":    "c = 2\n",
		"r/b.star":        "b = 3\n",
		"r/unloaded.star": "this is no recipe",
	})
	b, err := recipe.Read(filepath.Join(dir, "r/main.star"))
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, s := range b.Sources {
		paths = append(paths, s.Path)
	}
	if got := strings.Join(paths, " "); got != "main.star lib/a.star b.star lib/c.star" || b.Doc != "What it does." || b.Main != "main.star" {
		t.Errorf("sources %s, doc %q, main %s", got, b.Doc, b.Main)
	}
	if got := b.Source("b.star").SHA256; got != "031a02668726ee3ab337be8ed3420094682882f1c10c79eb40074ab352c69cbe" {
		t.Errorf("SHA-256 %s", got)
	}
	if err := b.Check(); err != nil {
		t.Error(err)
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	dir := folder(t, map[string]string{
		"secret.star":     "x = 1\n",
		"r/outer.star":    "load('../secret.star', 'x')\n",
		"r/through.star":  "load('link.star', 'x')\n",
		"r/link.star":     "-> ../secret.star",
		"r/loop.star":     "-> loop.star",
		"r/pipe.star":     "fifo",
		"r/loads.star":    "x = 1\n\nload('pipe.star', 'y')\n",
		"r/folder/x.star": "x = 1\n",
		"r/dir.star":      "load('folder', 'x')\n",
		"r/abs.star":      "load('/etc/passwd', 'x')\n",
		"r/self.star":     "load('self.star', 'x')\n",
		"r/one.star":      "load('two.star', 'x')\n",
		"r/two.star":      "load('three.star', 'x')\n",
		"r/three.star":    "load('two.star', 'x')\n",
		"r/huge.star":     "# " + strings.Repeat("x", 20<<20),
		"r/broken.star":   "load('bad.star', 'x')\n",
		"r/bad.star":      "x = \n",
		"r/name.star":     "load('uses.star', 'x')\n",
		"r/uses.star":     "x = nowhere\n",
	})
	t.Chdir(filepath.Join(dir, "r"))
	for name, want := range map[string]string{
		"missing.star": "cannot read the recipe missing.star: no such file",
		"folder":       "folder is a folder",
		"outer.star":   `outer.star:1:6: cannot load "../secret.star": it is outside the recipe's folder`,
		"through.star": `through.star:1:6: cannot load "link.star": it leads out of the recipe's folder`,
		"loop.star":    "cannot read the recipe loop.star: too many symbolic links",
		"pipe.star":    "cannot read the recipe pipe.star: it is not a regular file",
		"loads.star":   `loads.star:3:6: cannot load "pipe.star": it is not a regular file`,
		"dir.star":     `dir.star:1:6: cannot load "folder": it is a folder`,
		"abs.star":     `abs.star:1:6: cannot load "/etc/passwd": name a module relative to the file`,
		"self.star":    "files load each other in a cycle: self.star -> self.star",
		"one.star":     "files load each other in a cycle: two.star -> three.star -> two.star",
		"huge.star":    "huge.star",
		"broken.star":  "bad.star:1:5: ",
		"name.star":    "uses.star:1:5: undefined: nowhere",
	} {
		b, err := recipe.Read(name)
		if err == nil {
			err = b.Check()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s", name, err, want)
		}
	}
}

func TestCheckKnowsExtraModules(t *testing.T) {
	dir := folder(t, map[string]string{"x.star": "def main():\n    testing.sleep(1)\n"})
	b, err := recipe.Read(filepath.Join(dir, "x.star"))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Check(); err == nil || !strings.Contains(err.Error(), "x.star:2:5: undefined: testing") {
		t.Errorf("got error %v", err)
	}
	if err := b.Check("testing"); err != nil {
		t.Error(err)
	}
}
