package checkpoint_test

import (
	"strings"
	"testing"

	"drun/starlib"
	"drun/starlib/starlibtest"
)

const saved = `
m = nn.linear(2, 3)
t = tensor.tensor([1.0, 2.0])
checkpoint.save({"m": m, "t": t, "n": 5, "gone": tensor.ones(1)}, step = 4)
t.fill_(9)
tensor.no_grad(m.weight.fill_, 7)
`

func recipe(t *testing.T) *starlibtest.Recipe {
	t.Helper()
	r := starlibtest.New(t, t.TempDir(), starlib.Rank{}, nil)
	if _, err := r.Exec("save.star", saved); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRefusalListsAllAndChangesNothing(t *testing.T) {
	r := recipe(t)
	if _, err := r.Exec("build.star", `state = {"m": m, "t": tensor.zeros(3), "new": tensor.ones(1), "n": 0}`); err != nil {
		t.Fatal(err)
	}
	_, err := r.Exec("restore.star", `checkpoint.restore(state)`)
	if err == nil {
		t.Fatal("a checkpoint that does not fit was restored")
	}
	for _, want := range []string{"step 4: the checkpoint does not fit", "t: the state has float32[3], the checkpoint float32[2]",
		"new: not in the checkpoint", "gone: in the checkpoint, but not in the state", "strict = False"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "m/weight") {
		t.Errorf("%q names what fits", err)
	}
	if _, err := r.Exec("same.star", `
testing.eq(m.weight.tolist(), [[7.0, 7.0]] * 3)
testing.eq((state["n"], state["t"].tolist()), (0, [0.0] * 3))
`); err != nil {
		t.Errorf("the refusal changed the state: %v", err)
	}
}

// A save looks at each tensor, not at its rows: a row is a tensor of its own, which takes memory.
func TestSaveLooksAtNoRows(t *testing.T) {
	r := recipe(t)
	if _, err := r.Exec("build.star", `state = {"x": tensor.zeros(65536, 2), "m": nn.linear(2, 65536)}`); err != nil {
		t.Fatal(err)
	}
	looks := testing.AllocsPerRun(1, func() {
		if _, err := r.Exec("save.star", `checkpoint.save(state, step = 5)`); err != nil {
			t.Fatal(err)
		}
	})
	if looks > 10000 {
		t.Errorf("a save of tensors with 65536 rows gets memory %.0f times", looks)
	}
}

func TestNotStrictRestoresWhatMatches(t *testing.T) {
	r := recipe(t)
	if _, err := r.Exec("restore.star", `
state = {"m": m, "t": tensor.zeros(3), "new": tensor.ones(1), "n": 0}
testing.eq(checkpoint.restore(state, strict = False), 4)
testing.eq((m.weight == 7).any().item(), False)
testing.eq((state["n"], state["t"].tolist(), state["new"].tolist()), (5, [0.0] * 3, [1.0]))
`); err != nil {
		t.Error(err)
	}
}

func TestRestore(t *testing.T) {
	r := recipe(t)
	if _, err := r.Exec("restore.star", `
state = {"m": m, "t": t, "gone": tensor.zeros(1), "n": None}
testing.eq(checkpoint.restore(state, step = 4), 4)
testing.eq((t.tolist(), state["n"], state["gone"].tolist()), ([1.0, 2.0], 5, [1.0]))
`); err != nil {
		t.Error(err)
	}
	for source, want := range map[string]string{
		`checkpoint.restore({}, step = "first")`:  `argument step: want a number, "last" or "best", got "first"`,
		`checkpoint.save({"": 1}, step = 1)`:      "a state's keys must be non-empty strings",
		`checkpoint.save({"f": len}, step = 1)`:   "checkpoint.save: f: ",
		`checkpoint.save({"a": 1}, step = "one")`: "argument step: want int, got string",
	} {
		if _, err := r.Exec("wrong.star", source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", source, err, want)
		}
	}
}

func TestNothingToRestore(t *testing.T) {
	r := starlibtest.New(t, t.TempDir(), starlib.Rank{}, nil)
	if _, err := r.Exec("none.star", `testing.eq(checkpoint.restore({"a": 1}), None)`); err != nil {
		t.Error(err)
	}
}
