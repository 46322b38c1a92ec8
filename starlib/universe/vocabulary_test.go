package universe_test

import (
	"flag"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"drun/starlib/universe"
)

var update = flag.Bool("update", false, "write docs/pytorch-names.md anew")

// section is a part of docs/pytorch-names.md.
type section struct{ name, title string }

var sections = []section{
	{"torch", "torch"}, {"Tensor", "torch.Tensor"}, {"linalg", "torch.linalg"}, {"nn", "torch.nn"},
	{"functional", "torch.nn.functional"}, {"optim", "torch.optim"}, {"lr_scheduler", "torch.optim.lr_scheduler"},
}

// Each public name of today's PyTorch has a counterpart, or a reason: docs/pytorch-names.md has them all.
func TestNamesOfPyTorch(t *testing.T) {
	known := map[string]bool{}
	for _, e := range universe.Reference() {
		known[e.Owner+"."+e.Name] = true
	}
	missing := reasons(t)
	used := map[string]bool{}
	names, version := listed(t)
	var page strings.Builder
	fmt.Fprintf(&page, "# PyTorch's names\n\nAll public names of PyTorch %s, and what drun has for each. [from-pytorch.md](from-pytorch.md) explains what differs.\n\n", version)
	page.WriteString("A method of PyTorch's tensors is a method here (`x.exp()`), and so is a function of `torch` that takes one tensor; a function of several or of none is in `tensor`. `make vocabulary` writes this page from PyTorch's own lists.\n")
	for _, s := range sections {
		groups, order := map[string][]string{}, []string{}
		add := func(what, name string) {
			if groups[what] == nil {
				order = append(order, what)
			}
			groups[what] = append(groups[what], "`"+name+"`")
		}
		for _, name := range names[s.name] {
			if what := counterpart(s.name, name, known); what != "" {
				add(what, name)
				continue
			}
			found := false
			for _, r := range missing {
				if found = slices.ContainsFunc(r.names, func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok }); found {
					add(r.text, name)
					used[r.text] = true
					break
				}
			}
			if !found {
				t.Errorf("%s.%s: drun has no such name, and testdata/pytorch_missing.txt no reason", s.title, name)
			}
		}
		fmt.Fprintf(&page, "\n## %s\n\n| PyTorch | drun |\n|---|---|\n", s.title)
		for _, what := range order {
			fmt.Fprintf(&page, "| %s | %s |\n", strings.Join(groups[what], ", "), what)
		}
	}
	for _, r := range missing {
		if !used[r.text] {
			t.Errorf("testdata/pytorch_missing.txt: %q is for no name", r.text)
		}
	}
	const file = "../../docs/pytorch-names.md"
	if *update {
		if err := os.WriteFile(file, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != page.String() {
		t.Errorf("%s is not what PyTorch's names and drun's give: go test ./starlib/universe -run TestNamesOfPyTorch -update writes it", file)
	}
}

// reached are drun's names that follow from PyTorch's.
func reached(t *testing.T) map[string]bool {
	found := map[string]bool{}
	names, _ := listed(t)
	for section, list := range names {
		for _, name := range list {
			switch section {
			case "torch":
				for _, owner := range []string{"tensor.", "Tensor.", "linalg.", "functional.", "nn."} {
					found[owner+name] = true
				}
			case "nn":
				found["nn."+snake(name)] = true
			default:
				found[section+"."+name] = true
			}
		}
	}
	return found
}

// counterpart says which of drun's names a name of PyTorch's has; "": none that follows from it.
func counterpart(section, name string, known map[string]bool) string {
	places := map[string][][2]string{
		"torch": {
			{"tensor.", "`tensor.NAME`"}, {"Tensor.", "`x.NAME`"}, {"linalg.", "`linalg.NAME`"}, {"functional.", "`nn.functional.NAME`"}, {"nn.", "`nn.NAME`"},
		},
		"Tensor": {{"Tensor.", "`x.NAME`"}}, "linalg": {{"linalg.", "`linalg.NAME`"}}, "functional": {{"functional.", "`nn.functional.NAME`"}},
		"nn": {{"nn.", "`nn.NAME`, in lower case with _ between words"}}, "optim": {{"optim.", "`optim.NAME`, in lower case"}},
		"lr_scheduler": {{"optim.", "`optim.NAME`, in lower case with _ between words, without LR"}},
	}
	spelt := name
	switch section {
	case "nn":
		spelt = snake(name)
	case "optim":
		spelt = strings.ToLower(name)
	case "lr_scheduler":
		spelt = strings.TrimSuffix(snake(name), "_lr")
	}
	for _, p := range places[section] {
		if known[p[0]+spelt] {
			return p[1]
		}
	}
	if plain, inPlace := strings.CutSuffix(name, "_"); inPlace && counterpart(section, plain, known) != "" {
		return "the form without `_`; `x.copy_(y)` writes a result into a tensor"
	}
	return ""
}

// snake spells a class as a function: Conv2d is conv2d, and CosineSimilarity cosine_similarity.
func snake(name string) string {
	name = strings.NewReplacer("PReLU", "Prelu", "RReLU", "Rrelu", "ReLU", "Relu", "SiLU", "Silu", "LogSigmoid", "Logsigmoid", "MultiLabel", "Multilabel").Replace(name)
	return strings.ToLower(regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`).ReplaceAllString(name, "${1}${3}_${2}${4}"))
}

type reason struct {
	text  string
	names []string
}

func reasons(t *testing.T) (list []reason) {
	t.Helper()
	content, err := os.ReadFile("testdata/pytorch_missing.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if i := strings.LastIndex(line, ": "); i > 0 && line[0] != '#' {
			list = append(list, reason{line[:i], strings.Fields(line[i+2:])})
		}
	}
	return list
}

func listed(t *testing.T) (names map[string][]string, version string) {
	t.Helper()
	content, err := os.ReadFile("testdata/pytorch_names.txt")
	if err != nil {
		t.Fatal(err)
	}
	names = map[string][]string{}
	for line := range strings.Lines(string(content)) {
		switch words := strings.Fields(line); {
		case words[0] == "#":
			version, _, _ = strings.Cut(words[2], "+")
		default:
			names[words[0]] = append(names[words[0]], words[1])
		}
	}
	return names, version
}
