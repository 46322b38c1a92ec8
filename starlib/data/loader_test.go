package data_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"drun/starlib"
	"drun/starlib/lang"
	"drun/starlib/starlibtest"

	"go.starlark.net/starlark"
)

func TestRecipes(t *testing.T) { starlibtest.Chunks(t, "testdata/*.star") }

// epoch runs one loop over a loader of 23 samples on a rank and gives the samples.
func epoch(t *testing.T, rank starlib.Rank, loader string) (batches [][]int) {
	t.Helper()
	r := starlibtest.New(t, ".", rank, nil)
	globals, err := r.Exec("l.star", "x = tensor.arange(23)\nout = []\nfor b in data.loader(data.dataset(x), "+loader+"):\n    out.append(b.tolist())\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range elements(globals["out"]) {
		var batch []int
		for _, v := range elements(b) {
			i, err := starlark.AsInt32(v)
			if err != nil {
				t.Fatal(err)
			}
			batch = append(batch, i)
		}
		batches = append(batches, batch)
	}
	return batches
}

func elements(v starlark.Value) (list []starlark.Value) {
	for x := range starlark.Elements(v.(starlark.Iterable)) {
		list = append(list, x)
	}
	return list
}

// The backtrace of an error in transform leads from the loop into it, and a loop
// that ran through first is not blamed.
func TestTransformErrorsAreTraced(t *testing.T) {
	r := starlibtest.New(t, ".", starlib.Rank{}, nil)
	_, err := r.Exec("l.star", `def change(x, y, g):
    if x[0] > 1: fail("no luck")
    return x
def main():
    for x in run.progress(data.loader(data.dataset(tensor.arange(4)), batch = 1, transform = change)):
        pass
    print("not reached")
main()
`)
	e, ok := err.(*lang.Error)
	if !ok {
		t.Fatalf("got %v", err)
	}
	got := e.Error()
	for _, f := range e.Frames {
		got += fmt.Sprintf(" | %s:%d", f.Func, f.Pos.Line)
	}
	if want := "l.star:2:22: fail: no luck | <toplevel>:8 | main:5 | change:2"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if r.Printed != nil {
		t.Errorf("printed %q", r.Printed)
	}
}

func TestRanksShareAnEpoch(t *testing.T) {
	for _, world := range []int{1, 2, 3, 4} {
		var plain, shuffled, whole []int
		for rank := range world {
			r := starlib.Rank{Rank: rank, WorldSize: world, Seed: 5}
			plain = append(plain, slices.Concat(epoch(t, r, "batch = 4")...)...)
			mine := epoch(t, r, "batch = 4, shuffle = True")
			if len(mine) != len(epoch(t, starlib.Rank{WorldSize: world, Seed: 5}, "batch = 4, shuffle = True")) {
				t.Errorf("world %d: rank %d has another number of batches than rank 0", world, rank)
			}
			shuffled = append(shuffled, slices.Concat(mine...)...)
			whole = slices.Concat(epoch(t, r, "batch = 4, shuffle = True, shard = False")...)
			slices.Sort(whole)
		}
		all := make([]int, 23)
		for i := range all {
			all[i] = i
		}
		slices.Sort(plain)
		slices.Sort(shuffled)
		if !slices.Equal(plain, all) || !slices.Equal(whole, all) {
			t.Errorf("world %d: without shuffle %v, without sharding %v", world, plain, whole)
		}
		if distinct := slices.Compact(slices.Clone(shuffled)); len(distinct) != len(shuffled) || len(all)-len(shuffled) >= world {
			t.Errorf("world %d: with shuffle %v", world, shuffled)
		}
	}
}

// The order is a function of seed and epoch: not of the rank, the world or what
// else drew random numbers.
func TestOrderDependsOnTheSeed(t *testing.T) {
	flat := func(r starlib.Rank, args string) string {
		return fmt.Sprint(slices.Concat(epoch(t, r, args)...))
	}
	base := flat(starlib.Rank{Seed: 1}, "batch = 6, shuffle = True")
	if again := flat(starlib.Rank{Seed: 1}, "batch = 23, shuffle = True"); again != base {
		t.Errorf("another batch size changes the order: %s, %s", base, again)
	}
	if other := flat(starlib.Rank{Seed: 2}, "batch = 6, shuffle = True"); other == base {
		t.Error("another seed gives the same order")
	}
	var first []int // the first global batch of two ranks is the first batch of twice the size
	for rank := range 2 {
		first = append(first, epoch(t, starlib.Rank{Rank: rank, WorldSize: 2, Seed: 1}, "batch = 3, shuffle = True")[0]...)
	}
	if want := epoch(t, starlib.Rank{Seed: 1}, "batch = 6, shuffle = True")[0]; !slices.Equal(first, want) {
		t.Errorf("two ranks begin with %v, one with %v", first, want)
	}
}

// A loader that is restored goes on as if it had never stopped: after every batch
// of three epochs.
func TestRestoredLoaderGoesOn(t *testing.T) {
	const head = `
x = tensor.arange(23)
l = data.loader(data.dataset(x), batch = 4, shuffle = True, transform = lambda x, y, g: (x, g.randint(0, 1000)))
seen = []
`
	const loop = `
def go(stop):
    for epoch in l.epochs(3):
        for x, y in l:
            seen.append((epoch, x.tolist(), y))
            if len(seen) == stop:
                return
        seen.append((epoch, "end"))
        if len(seen) == stop:
            return
`
	whole := starlibtest.New(t, ".", starlib.Rank{Seed: 3}, nil)
	globals, err := whole.Exec("l.star", head+loop+"go(-1)")
	if err != nil {
		t.Fatal(err)
	}
	want := elements(globals["seen"])
	if len(want) != 3*7 {
		t.Fatalf("%d events", len(want))
	}
	for stop := 1; stop < len(want); stop++ {
		// The state is that before the loop is left, as checkpoint.save would see it.
		before := starlibtest.New(t, ".", starlib.Rank{Seed: 3}, nil)
		var state []starlib.Entry
		source := strings.ReplaceAll(head+loop, "return", "snapshot(l)\n                return")
		source = strings.ReplaceAll(source, "== stop:\n            snapshot(l)\n                return", "== stop:\n            snapshot(l)\n            return")
		before.Predeclare("snapshot", &starlib.Def{Sig: "snapshot(l)", Fn: func(c *starlib.Call) (starlark.Value, error) {
			state = c.Arg("l").(starlib.Stateful).State()
			return nil, nil
		}})
		if _, err := before.Exec("l.star", source+fmt.Sprintf("go(%d)", stop)); err != nil {
			t.Fatal(err)
		}
		after := starlibtest.New(t, ".", starlib.Rank{Seed: 3}, nil)
		globals, err := after.Exec("l.star", head+loop)
		if err != nil {
			t.Fatal(err)
		}
		if err := globals["l"].(starlib.Stateful).SetState(state); err != nil {
			t.Fatal(err)
		}
		if _, err := after.Exec("l.star", "go(-1)"); err != nil {
			t.Fatal(err)
		}
		if got := elements(globals["seen"]); fmt.Sprint(got) != fmt.Sprint(want[stop:]) {
			t.Errorf("after %d events: got %v, want %v", stop, got, want[stop:])
		}
	}
}

func TestStateOfAnotherWorldSize(t *testing.T) {
	r := starlibtest.New(t, ".", starlib.Rank{WorldSize: 2}, nil)
	globals, err := r.Exec("l.star", "l = data.loader(data.dataset(tensor.arange(24)), batch = 2, shuffle = True)")
	if err != nil {
		t.Fatal(err)
	}
	l := globals["l"].(starlib.Stateful)
	entry := func(name string, n int) starlib.Entry { return starlib.Entry{Name: name, Value: starlark.MakeInt(n)} }
	if err := l.SetState([]starlib.Entry{entry("epoch", 2), entry("batch", 6), entry("batches", 12)}); err != nil {
		t.Fatal(err)
	}
	if got := l.State()[1].Value.String(); got != "3" {
		t.Errorf("half of 12 batches became %s of 6", got)
	}
	for _, bad := range []starlib.Entry{entry("epoch", -1), entry("speed", 1), {Name: "batch", Value: starlark.None}} {
		if err := l.SetState([]starlib.Entry{bad}); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
}

// A sampler's draw is the same whatever the ranks, which divide it as they divide a shuffled epoch.
func TestRanksShareADraw(t *testing.T) {
	const loader = "batch = 6, sampler = data.weighted_sampler([1] * 23)"
	one := epoch(t, starlib.Rank{Seed: 3}, loader)
	two := [][][]int{}
	for rank := range 2 {
		two = append(two, epoch(t, starlib.Rank{Rank: rank, WorldSize: 2, Seed: 3}, strings.Replace(loader, "6", "3", 1)))
	}
	if len(two[0]) != len(one) || len(two[1]) != len(one) {
		t.Fatalf("%d batches on one rank, %d and %d on two", len(one), len(two[0]), len(two[1]))
	}
	for i := range 3 { // the full ones
		if got := slices.Concat(two[0][i], two[1][i]); !slices.Equal(got, one[i]) {
			t.Errorf("batch %d: %v on one rank, %v on two", i, one[i], got)
		}
	}
	if other := epoch(t, starlib.Rank{Seed: 4}, loader); fmt.Sprint(other) == fmt.Sprint(one) {
		t.Error("another seed draws the same")
	}
}
