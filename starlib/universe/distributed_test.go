package universe_test

import (
	"os"
	"strings"
	"testing"

	"drun/starlib/lang"
	"drun/starlib/universe"
)

// Whoever types a public name of torch.distributed, or of the helpers that dist follows, after dist. finds it or is told what it is
// here. make names lists those of today's PyTorch anew.
func TestNamesOfDistributedLibraries(t *testing.T) {
	has := map[string]bool{}
	for _, e := range universe.Reference() {
		if e.Owner == "dist" {
			has[e.Name] = true
		}
	}
	count := 0
	for _, file := range []string{"testdata/distributed.txt", "testdata/helpers.txt"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for name := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
			if strings.HasPrefix(name, "#") {
				continue
			}
			count++
			if !has[name] && lang.Foreign(name) == "" {
				t.Errorf("%s: nothing is said of dist.%s", file, name)
			}
		}
	}
	if count < 100 {
		t.Errorf("only %d names", count)
	}
}
