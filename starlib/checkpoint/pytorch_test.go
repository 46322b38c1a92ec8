package checkpoint_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"drun/starlib"
	"drun/starlib/starlibtest"
)

// Weights that PyTorch trained give PyTorch's outputs here, and those trained here give
// drun's outputs there; files that either writes have the same bits for the other.
func TestWeightsOfPyTorch(t *testing.T) {
	python, err := filepath.Abs("../../bin/pytorch/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(python); err != nil {
		t.Skip("PyTorch with safetensors is not installed: make bin/pytorch")
	}
	pytorch := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), python, append([]string{"testdata/pytorch.py"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("pytorch.py %v: %v\n%.3000s", args, err, out)
		}
	}
	dir := t.TempDir()
	pytorch("make", dir)
	source, err := os.ReadFile("testdata/pytorch.star")
	if err != nil {
		t.Fatal(err)
	}
	r := starlibtest.New(t, dir, starlib.Rank{}, nil)
	if err := r.Main("pytorch.star", string(source)); err != nil {
		t.Fatal(err)
	}
	pytorch("check", dir, r.Rank.Outputs.Dir())
}
