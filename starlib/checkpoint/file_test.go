package checkpoint_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"drun/starlib"
	"drun/starlib/starlibtest"
)

// What save_file writes, load_file gives back under PyTorch's names.
func TestFileHoldsTheState(t *testing.T) {
	r := starlibtest.New(t, t.TempDir(), starlib.Rank{}, nil)
	if _, err := r.Exec("file.star", `
table = nn.embedding(4, 3)
tied = nn.module(lambda self, x: x, table = table, head = nn.module(lambda self, x: x, weight = table.weight))
net = nn.module(lambda self, x: x, blocks = [nn.sequential(nn.linear(2, 3), nn.batch_norm(3)) for _ in range(2)])
state = {"net": net, "ema": {"deep": {"x": tensor.arange(6).reshape(2, 3).transpose(0, 1)}}, "tied": tied, "step": tensor(7)}
names = ["net.blocks.%d.%s" % (i, n) for i in range(2) for n in ["0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var"]]
names += ["ema.deep.x", "tied.table.weight", "tied.head.weight", "step"]
for file in ["x.safetensors", "deep/er/x.npz"]:
	path = checkpoint.save_file(state, file)
	testing.check(path.endswith("/outputs/1/" + file))
	got = checkpoint.load_file(file)
	testing.eq(sorted(got.keys()), sorted(names))
	testing.eq((got["ema.deep.x"].tolist(), got["step"].item(), got["step"].shape), ([[0, 3], [1, 4], [2, 5]], 7, ()))
	testing.eq(got["tied.head.weight"].tolist(), table.weight.tolist())
	testing.eq({n: t.tolist() for n, t in checkpoint.load_file(path).items()}, {n: t.tolist() for n, t in got.items()})
	mine = {n.removeprefix("net."): t for n, t in got.items() if n.startswith("net.")}
	other = nn.module(lambda self, x: x, blocks = [nn.sequential(nn.linear(2, 3), nn.batch_norm(3)) for _ in range(2)])
	other.load_state(mine)
	testing.eq(str(other.state()), str(net.state()))

# A module by itself, whose names have no prefix; a second time in its place.
checkpoint.save_file(tied, "x.safetensors")
testing.eq(checkpoint.load_file("x.safetensors").keys(), ["table.weight", "head.weight"])
testing.eq(checkpoint.save_file({}, "empty.npz").endswith("/empty.npz"), True)
testing.eq(checkpoint.load_file("empty.npz"), {})
`); err != nil {
		t.Error(err)
	}
}

func TestUnwritableState(t *testing.T) {
	r := starlibtest.New(t, t.TempDir(), starlib.Rank{}, nil)
	if _, err := r.Exec("model.star", `
m = nn.linear(1, 1)
loop = {}
loop["again"] = loop
b = {"a": tensor.ones(1, dtype = "bfloat16"), "d": {"e": tensor.ones(1, dtype = "bfloat16")}}
`); err != nil {
		t.Fatal(err)
	}
	for call, want := range map[string][]string{
		`save_file({"m": m, "epoch": 3, "d": {"name": "x", "l": [m.weight]}, "opt": optim.sgd(m.parameters(), lr = 0.1)}, "x.npz")`: {
			"the state cannot be written to x.npz:\n  epoch: want a tensor, a module or a dict of these, got int\n  d.name: want", "d.l: want", "opt: want a tensor, a module or a dict of these, got Optimizer"},
		`save_file({"m": m, "m.weight": m.bias}, "x.npz")`: {"m.weight: two tensors have this name"},
		`save_file(b, "x.npz")`:                            {"a: a .npz file cannot hold bfloat16", "d.e: a .npz file cannot hold bfloat16"},
		`save_file(loop, "x.npz")`:                         {"again: the dict contains itself"},
		`save_file({1: m}, "x.npz")`:                       {"keys must be non-empty strings, not 1"},
		`save_file([m], "x.npz")`:                          {"argument state: want dict or Module or DDP or FSDP, got list"},
		`save_file(m, "x.pt")`:                             {"x.pt: a file of weights ends in .safetensors or .npz"},
		`save_file(m, "../x.npz")`:                         {"../x.npz is outside the run's outputs folder"},
		`save_file(m, "/tmp/x.npz")`:                       {"/tmp/x.npz is outside the run's outputs folder"},
		`load_file("x.pt")`:                                {"x.pt: a file of weights ends in"},
		`load_file("gone.npz")`:                            {"gone.npz: no such file (looked in ", "nor is it among the run's outputs in "},
		`load_file("../gone.npz")`:                         {"../gone.npz is outside the recipe's folder"},
	} {
		_, err := r.Exec("wrong.star", "checkpoint."+call)
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s:\n got %v\nwant %s", call, err, w)
			}
		}
	}
	if left, err := os.ReadDir(filepath.Dir(r.Rank.Outputs.Dir())); err == nil {
		t.Errorf("a refused state left %v", left)
	}
}

// Rank 0 writes; another rank finds the same faults, and writes nothing.
func TestOneRankWrites(t *testing.T) {
	r := starlibtest.New(t, t.TempDir(), starlib.Rank{Rank: 1, WorldSize: 2}, nil)
	if _, err := r.Exec("save.star", `path = checkpoint.save_file({"x": tensor.ones(1)}, "x.npz")`); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(r.Rank.Outputs.Dir()); err == nil {
		t.Error("rank 1 made the folder")
	}
	if _, err := r.Exec("wrong.star", `checkpoint.save_file({"x": 1}, "x.npz")`); err == nil {
		t.Error("rank 1 did not find the fault")
	}
	if _, err := r.Exec("early.star", `checkpoint.load_file(checkpoint.save_file({"x": tensor.ones(1)}, "x.npz"))`); err == nil || !strings.Contains(err.Error(), "x.npz does not exist yet: in checkpoint.save_file rank 0 writes the file") {
		t.Errorf("rank 1 reads what rank 0 has not written: %v", err)
	}
}

// A name that stands for two files is an error; a whole path is not.
func TestFilesOfOneName(t *testing.T) {
	dir := t.TempDir()
	other := starlibtest.New(t, dir, starlib.Rank{}, nil)
	if _, err := other.Exec("other.star", `path = checkpoint.save_file({"x": tensor.zeros(1)}, "x.npz")`); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(other.Rank.Outputs.Dir(), "x.npz"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x.npz"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	r := starlibtest.New(t, dir, starlib.Rank{}, nil)
	if _, err := r.Exec("own.star", `
testing.eq(checkpoint.load_file("x.npz")["x"].tolist(), [0.0])
path = checkpoint.save_file({"x": tensor.ones(1)}, "x.npz")
testing.eq(checkpoint.load_file(path)["x"].tolist(), [1.0])
testing.eq(checkpoint.load_file("`+dir+`/x.npz")["x"].tolist(), [0.0])
`); err != nil {
		t.Error(err)
	}
	_, err = r.Exec("both.star", `checkpoint.load_file("x.npz")`)
	if err == nil || !strings.Contains(err.Error(), "there are two files x.npz: the run's own, "+r.Rank.Outputs.Dir()+"/x.npz, and one in the recipe's folder") {
		t.Error(err)
	}
}
