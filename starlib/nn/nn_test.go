package nn_test

import (
	"fmt"
	"strings"
	"testing"

	"drun/starlib"
	"drun/starlib/starlibtest"

	"go.starlark.net/starlark"
)

func TestRecipes(t *testing.T) { starlibtest.Chunks(t, "testdata/*.star") }

func TestModelsBelongIntoMain(t *testing.T) {
	r := starlibtest.New(t, ".", starlib.Rank{}, nil)
	err := r.Main("r.star", "model = nn.linear(2, 3)\ndef main():\n    pass\n")
	if want := "r.star:1:18: nn.linear cannot be called at top level"; err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "call it in main()") {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// value evaluates an expression on a rank.
func value(t *testing.T, rank starlib.Rank, source string) string {
	t.Helper()
	globals, err := starlibtest.New(t, ".", rank, nil).Exec("r.star", source)
	if err != nil {
		t.Fatal(err)
	}
	return globals["v"].String()
}

// Models start equal on all ranks and dropout differs; both depend on the seed.
func TestStreams(t *testing.T) {
	const weights, mask = "v = nn.linear(4, 4).weight.tolist()", "v = nn.dropout(0.5)(tensor.ones(64)).tolist()"
	rank := func(rank int, seed uint64) starlib.Rank { return starlib.Rank{Rank: rank, WorldSize: 2, Seed: seed} }
	if value(t, rank(0, 1), weights) != value(t, rank(1, 1), weights) || value(t, rank(0, 1), weights) == value(t, rank(0, 2), weights) {
		t.Error("weights must depend on the seed and not on the rank")
	}
	if value(t, rank(0, 1), mask) == value(t, rank(1, 1), mask) || value(t, rank(0, 1), mask) != value(t, rank(0, 1), mask) { //nolint:staticcheck // each draws anew
		t.Error("dropout must depend on the rank, and repeat")
	}
}

// group is a group of ranks as dropout sees it.
type group struct {
	starlark.NoneType
	rank  int
	ranks []int
}

func (g group) Type() string { return "Group" }
func (g group) Rank() int    { return g.rank }
func (g group) Ranks() []int { return g.ranks }

// The ranks of a group draw the same masks in the same order, however often each draws from its own stream in between;
// other groups draw different ones.
func TestGroupDropout(t *testing.T) {
	mask := func(rank int, between string, ranks ...int) string {
		t.Helper()
		r := starlibtest.New(t, ".", starlib.Rank{Rank: rank, WorldSize: 4, Seed: 3}, nil)
		r.Predeclare("group", &starlib.Def{Sig: "group()", Fn: func(*starlib.Call) (starlark.Value, error) {
			return group{rank: 0, ranks: ranks}, nil
		}})
		globals, err := r.Exec("r.star", "d, own = nn.dropout(0.5, group = group()), nn.dropout(0.5)\na = d(tensor.ones(64))\n"+between+"\nb = d(tensor.ones(64))\nv = (a.tolist(), b.tolist(), (a != b).any().item())")
		if err != nil {
			t.Fatal(err)
		}
		if v := globals["v"].(starlark.Tuple); v[2] != starlark.True {
			t.Error("two masks of one layer are the same")
		}
		return globals["v"].String()
	}
	if mask(0, "", 0, 1) != mask(1, "own(tensor.ones(7))", 0, 1) {
		t.Error("the ranks of a group drew different masks")
	}
	if mask(0, "", 0, 1) == mask(0, "", 0, 2) {
		t.Error("two groups drew the same mask")
	}
	r := starlibtest.New(t, ".", starlib.Rank{}, nil)
	r.Predeclare("group", &starlib.Def{Sig: "group()", Fn: func(*starlib.Call) (starlark.Value, error) { return group{rank: -1}, nil }})
	if _, err := r.Exec("r.star", "nn.dropout(0.5, group = group())"); err == nil || !strings.Contains(err.Error(), "this rank is not a member of the group") {
		t.Errorf("got error %v", err)
	}
}

func TestStateMovesBetweenModels(t *testing.T) {
	r := starlibtest.New(t, ".", starlib.Rank{}, nil)
	globals, err := r.Exec("r.star", "a, b = nn.sequential(nn.linear(2, 3), nn.batch_norm(3)), nn.sequential(nn.linear(2, 3), nn.batch_norm(3))\nx = tensor([[1.0, 2.0], [3.0, 5.0]])\na(x)")
	if err != nil {
		t.Fatal(err)
	}
	a, b := globals["a"].(starlib.Stateful), globals["b"].(starlib.Stateful)
	if err := b.SetState(a.State()); err != nil {
		t.Fatal(err)
	}
	globals, err = r.Exec("r.star", "same = a.eval()(x).tolist() == b.eval()(x).tolist()")
	if err != nil || globals["same"] != starlark.True {
		t.Errorf("the models differ: %v", err)
	}

	// Everything that does not fit is listed, and nothing is changed.
	globals, err = r.Exec("r.star", "c = nn.sequential(nn.linear(2, 4), nn.batch_norm(3))\nbefore = str(c.state())")
	if err != nil {
		t.Fatal(err)
	}
	state := append(a.State(), starlib.Entry{Name: "2.weight", Value: starlark.None})
	err = globals["c"].(starlib.Stateful).SetState(state)
	want := "nn.sequential does not fit the state: 0.weight: want float32 of shape (4, 2), got float32 of shape (3, 2); 0.bias: want float32 of shape (4,), got float32 of shape (3,); there is no 2.weight"
	if fmt.Sprint(err) != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	if globals, err = r.Exec("r.star", "same = str(c.state()) == before"); err != nil || globals["same"] != starlark.True {
		t.Errorf("the model was changed: %v", err)
	}
}
