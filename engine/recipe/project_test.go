package recipe_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"drun/engine/recipe"
)

func TestResolve(t *testing.T) {
	for _, c := range []struct{ project, from, module, want string }{
		{"", "r.star", "//lib/u.star", "lib/u.star"},
		{"exp/a", "r.star", "//lib/u.star", "../../lib/u.star"},
		{"exp/a", "r.star", "//exp/a/u.star", "u.star"},
		{"exp/a", "r.star", "//exp/b/u.star", "../b/u.star"},
		{"exp/a", "r.star", "//lib/./x/../u.star", "../../lib/u.star"},
		{"exp/a", "../../lib/u.star", "v.star", "../../lib/v.star"},
		{"exp/a", "../../lib/u.star", "../exp/a/v.star", "v.star"},
		{"exp/a", "../../lib/u.star", "//lib/w/v.star", "../../lib/w/v.star"},
		{"exp/a", "sub/s.star", "../u.star", "u.star"},
		{"exp/a", "r.star", "../b/u.star", "error: it is outside the recipe's folder"},
		{"exp/a", "r.star", "//../u.star", "error: it is outside the project"},
		{"exp/a", "r.star", "//lib/../../u.star", "error: it is outside the project"},
		{"exp/a", "../../lib/u.star", "../../u.star", "error: it is outside the project"},
		{"", "lib/u.star", "../../u.star", "error: it is outside the recipe's folder"},
		{"exp/a", "r.star", "//", "error: name a module of the project from its root"},
		{"exp/a", "r.star", "///etc/passwd", "error: name a module of the project from its root"},
		{"exp/a", "r.star", "/etc/passwd", "error: name a module relative"},
		{"exp/a", "r.star", `//lib\u.star`, "error: a path has slashes, not backslashes"},
	} {
		got, err := recipe.Project(c.project).Resolve(c.from, c.module)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want && !(err != nil && strings.HasPrefix(got, c.want)) {
			t.Errorf("%q: %s loads %s: got %s, want %s", c.project, c.from, c.module, got, c.want)
		}
	}
}

func TestReadFromTheProject(t *testing.T) {
	dir := folder(t, map[string]string{
		"p/drun.toml":          "",
		"p/lib/u.star":         "load('v.star', 'v')\nload('//exp/a/own.star', 'own')\nu = 1\n",
		"p/lib/v.star":         "v = 1\n",
		"p/exp/a/r.star":       "load('own.star', 'own')\nload('//lib/u.star', 'u')\ndef main(): pass\n",
		"p/exp/a/own.star":     "own = 1\n",
		"p/exp/a/cycle.star":   "load('//exp/a/cycle.star', 'x')\n",
		"p/exp/a/missing.star": "load('//lib/none.star', 'x')\n",
		"p/exp/a/link.star":    "load('//lib/out.star', 'x')\n",
		"p/exp/a/folder.star":  "load('//through/secret.star', 'x')\n",
		"p/exp/a/bad.star":     "load('//lib/bad.star', 'x')\n",
		"p/lib/bad.star":       "x = \n",
		"p/lib/out.star":       "-> ../../secret.star",
		"p/through":            "-> ..",
		"secret.star":          "x = 1\n",
		"q/r.star":             "load('//lib/u.star', 'u')\n",
	})
	b, err := recipe.Read(filepath.Join(dir, "p/exp/a/r.star"))
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, s := range b.Sources {
		paths = append(paths, s.Path)
	}
	if got := strings.Join(paths, " "); got != "r.star own.star ../../lib/u.star ../../lib/v.star" || b.Project != "exp/a" {
		t.Errorf("sources %s, project %s", got, b.Project)
	}
	for name, want := range map[string]string{
		"p/exp/a/cycle.star":   "files load each other in a cycle: cycle.star -> cycle.star",
		"p/exp/a/missing.star": "missing.star:1:6: cannot load \"//lib/none.star\": no such file in the project, whose root is " + filepath.Join(dir, "p"),
		"p/exp/a/link.star":    "it leads out of the project",
		"p/exp/a/folder.star":  "it leads out of the project",
		"p/exp/a/bad.star":     "p/lib/bad.star:1:5: ",
		"q/r.star":             `r.star:1:6: cannot load "//lib/u.star": the recipe is not in a project: an empty file drun.toml`,
	} {
		if _, err := recipe.Read(filepath.Join(dir, name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s", name, err, want)
		}
	}
	// A run creates .drun wherever it is started; a drun.toml nearer to the recipe takes precedence as the root.
	if err := os.Mkdir(filepath.Join(dir, "p/exp/.drun"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := recipe.Read(filepath.Join(dir, "p/exp/a/r.star")); err != nil {
		t.Error(err)
	}
	if err := os.Rename(filepath.Join(dir, "p/drun.toml"), filepath.Join(dir, "p/exp/drun.toml")); err != nil {
		t.Fatal(err)
	}
	if _, err := recipe.Read(filepath.Join(dir, "p/exp/a/r.star")); err == nil || !strings.Contains(err.Error(), "whose root is "+filepath.Join(dir, "p/exp")) {
		t.Errorf("got error %v", err)
	}
}
