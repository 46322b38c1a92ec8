package checkpoint_test

import (
	"strings"
	"testing"

	"drun/starlib"
	"drun/starlib/starlibtest"
)

// Names that the recipe holds of tensors, lists and dicts within a state see what is
// restored.
func TestRestoreWithinPlainValues(t *testing.T) {
	r := starlibtest.New(t, t.TempDir(), starlib.Rank{}, nil)
	if _, err := r.Exec("within.star", `
a, b, c, d = tensor.zeros(2), tensor.zeros(2), tensor.zeros(2), tensor.zeros(2)
view = a[0:1]
losses, table, twice = [], {"n": 0}, [0]
state = {"list": [a, (1, b)], "dict": {"c": c, "deep": [{"d": d}]}, "losses": losses, "table": table,
	"struct": struct(e = a.clone(), n = 1), "one": twice, "two": twice, "late": None, "buffer": []}
e = state["struct"].e
def fill(x):
	for t in [a, b, c, d, e]:
		t.fill_(x)
fill(1)
losses.extend([0.5, 0.25])
table["n"] = 7
table["more"] = [1]
state["late"] = tensor.ones(3)
state["buffer"].append(tensor.ones(1))
checkpoint.save(state, step = 1)
fill(9)
losses.append(3.0)
table["n"] = 8
table["gone"] = 1
state["late"] = None
state["buffer"] = []
outer = state["dict"]
checkpoint.restore(state)
for t in [a, b, c, d, e]:
	testing.eq(t.tolist(), [1.0, 1.0])
testing.eq(view.tolist(), [1.0])
testing.eq(losses, [0.5, 0.25])
testing.eq(table, {"n": 7, "more": [1]})
testing.eq(outer["c"].tolist(), [1.0, 1.0])
testing.eq((state["late"].tolist(), state["buffer"][0].tolist()), ([1.0] * 3, [1.0]))
a.fill_(5)
testing.eq(state["list"][0].tolist(), [5.0, 5.0])
state["losses"].append(1.0)
testing.eq(losses, [0.5, 0.25, 1.0])
`); err != nil {
		t.Error(err)
	}
}

// A list or dict under two names, for which the checkpoint has two values: each name gets its own.
func TestRestoreOfAnAlias(t *testing.T) {
	r := starlibtest.New(t, t.TempDir(), starlib.Rank{}, nil)
	if _, err := r.Exec("alias.star", `
checkpoint.save({"a": [1], "b": [2, 3], "c": {"n": 1}, "d": {"n": 2}, "e": [[4], [5]]}, step = 1)
list, table, inner = [0], {}, [9]
state = {"a": list, "b": list, "c": table, "d": table, "e": [inner, inner]}
checkpoint.restore(state)
testing.eq(state, {"a": [1], "b": [2, 3], "c": {"n": 1}, "d": {"n": 2}, "e": [[4], [5]]})
testing.eq((list, table, inner), ([1], {"n": 1}, [4]))
`); err != nil {
		t.Error(err)
	}
}

// What does not fit is named by its path, and nothing is changed.
func TestRefusalWithinPlainValues(t *testing.T) {
	for live, want := range map[string]string{
		`{"x": [tensor.zeros(3), tensor.zeros(2)]}`:                  "x[0]: the state has float32[3], the checkpoint float32[2]",
		`{"x": [tensor.zeros(2, dtype = "int64"), tensor.zeros(2)]}`: "x[0]: the state has int64[2], the checkpoint float32[2]",
		`{"x": [tensor.zeros(2)] * 2 + [tensor.zeros(1)]}`:           "x[2]: not in the checkpoint",
		`{"x": (tensor.zeros(2), tensor.zeros(2))}`:                  "x: the state has a tuple with tensors, the checkpoint a list with tensors",
		`{"x": [{"k": tensor.zeros(2)}, tensor.zeros(2)]}`:           "x[0]: the state has a dict with tensors, the checkpoint float32[2]",
		`{"x": tensor.zeros(2)}`:                                     "x: the state has float32[2], the checkpoint a list with tensors",
	} {
		r := starlibtest.New(t, t.TempDir(), starlib.Rank{}, nil)
		if _, err := r.Exec("save.star", `checkpoint.save({"x": [tensor.ones(2), tensor.ones(2)]}, step = 1)`); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Exec("state.star", "state = "+live+"\nbefore = str(state)"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Exec("restore.star", "checkpoint.restore(state)"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", live, err, want)
		}
		if _, err := r.Exec("same.star", "testing.eq(str(state), before)"); err != nil {
			t.Errorf("%s: the refusal changed it: %v", live, err)
		}
		if _, err := r.Exec("loose.star", "checkpoint.restore(state, strict = False)"); err != nil || !strings.Contains(strings.Join(r.Store.Said, ""), want) {
			t.Errorf("%s: strict = False: %v, said %q", live, err, r.Store.Said)
		}
	}
}

// A list in a frozen place cannot be changed: a new one is put into the dict.
func TestRestoreOfFrozenList(t *testing.T) {
	r := starlibtest.New(t, t.TempDir(), starlib.Rank{}, nil)
	if err := r.Main("frozen.star", `
frozen = [1, 2]
def main():
	checkpoint.save({"l": [3]}, step = 1)
	state = {"l": frozen}
	checkpoint.restore(state)
	testing.eq((state["l"], frozen), ([3], [1, 2]))
`); err != nil {
		t.Error(err)
	}
}

// Where one of the ranks' values would go to all, it is an error that names them.
func TestResizedStateMustBeEqual(t *testing.T) {
	r := starlibtest.New(t, t.TempDir(), starlib.Rank{WorldSize: 1}, nil)
	r.Store.SavedBy, r.Store.Differ = 2, []string{"w", "only/there", "m/weight"}
	if _, err := r.Exec("save.star", `
m = nn.linear(1, 1)
checkpoint.save({"w": 1, "same": 2, "m": m}, step = 1)
`); err != nil {
		t.Fatal(err)
	}
	_, err := r.Exec("restore.star", `checkpoint.restore({"w": 0, "same": 0, "m": m})`)
	for _, want := range []string{"w: the 2 ranks that saved it had different values, so only 2 ranks can restore it",
		"m/weight: the 2 ranks", "only/there: in the checkpoint, but not in the state"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "same") {
		t.Errorf("%v names what fits", err)
	}
}
