package checkpoint

import (
	"slices"
	"strings"
	"testing"

	"drun/kernel/dtype"
	startensor "drun/starlib/tensor"
	"drun/tensor"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// Histories have digests of these tensors: the values are those of the first version.
func TestTensorsOfAState(t *testing.T) {
	x, err := tensor.Zeros(tensor.NewContext(), []int{1}, dtype.Float32)
	if err != nil {
		t.Fatal(err)
	}
	v := (*startensor.Value)(x)
	dict := starlark.NewDict(1)
	_ = dict.SetKey(starlark.String("k"), v)
	list := func(n int) starlark.Value { return starlark.NewList(slices.Repeat([]starlark.Value{v}, n)) }
	for _, c := range []struct {
		first starlark.Value
		want  int
	}{{dict, 2}, {starlark.Tuple{v, dict}, 3}, {starlarkstruct.FromStringDict(starlarkstruct.Default, starlark.StringDict{"a": v}), 1},
		{starlark.String(strings.Repeat("x", 90)), 1}, {starlark.String(strings.Repeat("x", 91)), 0}, {list(1500), 999}} {
		state := starlark.NewDict(2)
		_ = state.SetKey(starlark.String("first"), c.first)
		_ = state.SetKey(starlark.String("last"), v)
		if got := len((State{dict: state}).Tensors()); got != c.want {
			t.Errorf("%v: %d tensors, not %d", c.first.Type(), got, c.want)
		}
	}
}

// What a state has nothing for is a line for each value, not for each of its entries.
func TestSummaryOfEntries(t *testing.T) {
	got := summary([]string{"w: the state has a, the checkpoint b", "opt/lr: " + extra, "opt/exp_avg.0: " + extra, "n: " + extra, "batches/epoch: " + extra})
	want := []string{"w: the state has a, the checkpoint b", "opt: 2 entries are " + extra, "n: " + extra, "batches: an entry is " + extra}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
