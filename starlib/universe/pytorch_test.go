package universe_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"drun/starlib/lang"
	"drun/starlib/universe"
)

// The names that docs/from-pytorch.md uses for values of types.
var called = map[string]string{
	"x": "Tensor", "y": "Tensor", "var": "Tensor", "p": "Tensor", "a": "Tensor", "m": "Module", "opt": "Optimizer", "rate": "Plateau", "average": "Average", "ds": "Dataset", "loader": "Loader",
	"table": "Table", "g": "Generator", "work": "Work", "group": "Group", "mesh": "Mesh", "hook": "JoinHook", "ddp": "DDP", "pipeline": "Pipeline", "reference": "Reference",
}

// Every name of drun in docs/from-pytorch.md exists, and the page has every name in the modules that PyTorch has too,
// or that stand for its classes.
func TestFromPyTorch(t *testing.T) {
	content, err := os.ReadFile("../../docs/from-pytorch.md")
	if err != nil {
		t.Fatal(err)
	}
	reference := universe.Reference()
	known := map[string]bool{}
	for _, e := range reference {
		known[e.Owner+"."+e.Name] = true
	}
	text := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(string(content), "")
	text = regexp.MustCompile(`(?m)^\|[^|]*\|`).ReplaceAllString(text, "|") // the names there
	found := map[string]bool{}
	for _, span := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(text, -1) {
		owner := ""
		for _, name := range regexp.MustCompile(`(?:^|[\s(,=*])([a-z]\w*)?\.([A-Za-z_]\w*)`).FindAllStringSubmatch(span[1], -1) {
			if name[1] != "" {
				owner = name[1]
			}
			if owner == "" {
				continue // the end of a file's name
			}
			full := owner
			if called[owner] != "" {
				full = called[owner]
			}
			full += "." + name[2]
			if !known[full] {
				t.Errorf("docs/from-pytorch.md has `%s`, but there is no %s", span[1], full)
			}
			found[full] = true
		}
	}
	for name := range reached(t) { // docs/pytorch-names.md has them
		found[name] = true
	}
	// The readers and types of data have a page of their own, docs/data.md.
	owners := []string{"tensor", "Tensor", "linalg", "fft", "nn", "init", "functional", "Module", "optim", "Optimizer", "Plateau", "Average", "dist", "Group", "Work", "DDP", "store", "hooks", "Mesh", "Loader", "random", "Generator"}
	for _, e := range reference {
		name := e.Owner + "." + e.Name
		if slices.Contains(owners, e.Owner) && !found[name] && name != "tensor.tensor" {
			t.Errorf("docs/from-pytorch.md lacks %s: add it to its row, or to \"Only here\" if PyTorch has no such thing", name)
		}
	}
}

// Whoever writes a name of PyTorch's that docs/from-pytorch.md explains is told what drun has instead.
func TestNamesOfPyTorchAreExplained(t *testing.T) {
	content, err := os.ReadFile("../../docs/from-pytorch.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, e := range universe.Reference() {
		known[e.Name] = true
	}
	explained := 0
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]*) \| .* \| .*\|$`).FindAllStringSubmatch(string(content), -1) {
		for _, name := range regexp.MustCompile("`(?:[\\w.]+\\.)?([A-Za-z]\\w*)(?:\\([^`]*)?`").FindAllStringSubmatch(row[1], -1) {
			switch hint := lang.Foreign(name[1]); {
			case known[name[1]]:
			case hint == "":
				t.Errorf("nothing is said of %s", name[0])
			case strings.ContainsAny(hint, "`|"):
				t.Errorf("%s: %q", name[0], hint)
			default:
				explained++
			}
		}
	}
	if explained < 60 {
		t.Errorf("only %d names are explained", explained)
	}
}
