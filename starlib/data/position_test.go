package data_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"drun/starlib"
	"drun/starlib/starlibtest"

	"go.starlark.net/starlark"
)

// taken has all ranks of a world go on from what rank 0 of another one saved, for some batches of an epoch, -1 for the
// rest. It returns the samples of all ranks and what they saved.
func taken(t *testing.T, dir, loader string, world int, from [][]starlib.Entry, batches int) (samples []int, saved [][]starlib.Entry) {
	t.Helper()
	for rank := range world {
		r := starlibtest.New(t, dir, starlib.Rank{Rank: rank, WorldSize: world, Seed: 5}, nil)
		globals, err := r.Exec("l.star", loader)
		if err != nil {
			t.Fatal(err)
		}
		l := globals["l"].(interface {
			starlib.Resizable
			starlib.Compared
			starlark.Iterable
		})
		if from != nil {
			state := from[rank%len(from)]
			if len(from) != world {
				state, _ = l.Resize(from[0], starlib.Resized{World: world, Differ: func(name string) bool { return differ(from, name) }})
			}
			if d := l.Differences(state, len(from) != world); d != nil {
				t.Fatalf("%s: %d ranks after %d: %v", loader, world, len(from), d)
			}
			if err := l.SetState(state); err != nil {
				t.Fatal(err)
			}
		}
		it := l.Iterate()
		var v starlark.Value
		for k := 0; k != batches && it.Next(&v); k++ {
			if pair, ok := v.(starlark.Tuple); ok {
				v = pair[1]
			}
			for _, n := range elements(v) {
				if scalar, ok := n.(starlib.Scalar); ok {
					n = must(t, scalar.(starlark.Value))
				}
				i, err := starlark.AsInt32(n)
				if err != nil {
					t.Fatal(err)
				}
				samples = append(samples, i)
			}
		}
		saved = append(saved, l.State())
		it.Done()
	}
	return samples, saved
}

func differ(states [][]starlib.Entry, name string) bool {
	return slices.ContainsFunc(states, func(s []starlib.Entry) bool {
		return slices.ContainsFunc(s, func(e starlib.Entry) bool {
			return e.Name == name && !slices.ContainsFunc(states[0], func(first starlib.Entry) bool {
				return first.Name == name && first.Value.String() == e.Value.String()
			})
		})
	})
}

// Each sample of an epoch comes once, however often the number of ranks changes within it.
func TestEachSampleOnceInChangingWorlds(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.csv", rowsFile(0, 53))
	loaders := map[string]string{
		"in order":       "l = data.loader(data.dataset(tensor.arange(53)), batch = 3)",
		"shuffled":       "l = data.loader(data.dataset(tensor.arange(53)), batch = 3, shuffle = True)",
		"a list":         "l = data.loader(data.dataset(list(range(53))), batch = 3, shuffle = True)",
		"mapped":         "l = data.loader(data.map(data.dataset(tensor.arange(53)), lambda x: x), batch = 3)",
		"drawn":          "l = data.loader(data.dataset(tensor.arange(53)), batch = 3, sampler = data.weighted_sampler([1] * 53, replacement = False))",
		"a stream":       `l = data.loader(data.stream("a.csv", label = "n"), batch = 3)`,
		"not divided":    "l = data.loader(data.dataset(tensor.arange(53)), batch = 3, shard = False, shuffle = True)",
		"stream, shared": `l = data.loader(data.stream("a.csv", label = "n"), batch = 3, shard = False, shuffle = True)`,
	}
	for name, loader := range loaders {
		for _, worlds := range [][3]int{{2, 1, 2}, {1, 2, 3}, {2, 3, 1}, {3, 2, 2}, {1, 3, 3}, {2, 2, 1}} {
			for _, stops := range [][2]int{{1, 1}, {4, 2}, {1, 0}, {0, 3}, {5, 2}} {
				first, state := taken(t, dir, loader, worlds[0], nil, stops[0])
				second, state := taken(t, dir, loader, worlds[1], state, stops[1])
				third, _ := taken(t, dir, loader, worlds[2], state, -1)
				all := slices.Concat(first, second, third)
				if strings.Contains(loader, "shard") { // each rank has all
					all = slices.Concat(first[:len(first)/worlds[0]], second[:len(second)/worlds[1]], third[:len(third)/worlds[2]])
				}
				slices.Sort(all)
				lost := 53 - len(all)
				atMost := 0
				if name == "shuffled" || name == "a list" || name == "drawn" {
					atMost = worlds[2] - 1 // a last part smaller than the group
				}
				if len(slices.Compact(all)) != 53-lost || lost < 0 || lost > atMost {
					t.Errorf("%s, worlds %v, stopped after %v: %d of 53 samples, different ones %d", name, worlds, stops, 53-lost, len(slices.Compact(all)))
				}
			}
		}
	}
}

// What would give samples twice is told, and strict = False goes on after the same part of the epoch.
func TestLoadersNoticeAnotherEpoch(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.csv", rowsFile(0, 53))
	write(t, dir, "b.csv", append(rowsFile(0, 52), "1,2,3\n"...))
	const (
		plain  = "l = data.loader(data.dataset(tensor.arange(53)), batch = 3)"
		stream = `l = data.loader(data.stream("a.csv", label = "n"), batch = 3, shuffle = True)`
	)
	number := func(name string, n int) starlib.Entry { return starlib.Entry{Name: name, Value: starlark.MakeInt(n)} }
	_, saved := taken(t, dir, plain, 1, nil, 4)
	_, records := taken(t, dir, stream, 1, nil, 4)
	old := []starlib.Entry{number("epoch", 0), number("batch", 4), number("batches", 18)}
	for _, test := range []struct {
		saved   []starlib.Entry
		loader  string
		world   int
		want    string // "": it goes on
		batches int    // that are left to rank 0
	}{
		{saved[0], strings.Replace(plain, "53", "60", 1), 1, "an epoch of 53 samples, and the dataset has 60", 16},
		{saved[0], strings.Replace(plain, "53", "40", 1), 1, "an epoch of 53 samples, and the dataset has 40", 11},
		{saved[0], strings.Replace(plain, "= 3", "= 5", 1), 1, "with batch = 3, and the loader has batch = 5", 9},
		{saved[0], strings.Replace(plain, "= 3", "= 3, shuffle = True", 1), 1, "another shuffle, sampler, drop_last or pad", 14},
		{saved[0], strings.Replace(plain, "= 3", "= 3, drop_last = True", 1), 1, "another shuffle, sampler, drop_last or pad", 14},
		{old, plain, 1, "", 14},
		{old, plain, 2, "an older drun saved it", 7},
		{old, strings.Replace(plain, "53", "60", 1), 1, "an older drun saved it", 16},
		{records[0], stream, 1, "", 14},
		{records[0], strings.Replace(stream, "a.csv", "b.csv", 1), 1, "over other files, or they have changed", 14},
		{records[0], strings.Replace(stream, "= 3", "= 5", 1), 1, "with batch = 3, and the loader has batch = 5", 9},
		{records[0], stream, 3, "a shuffled epoch of a stream by a group of 1 ranks, and the loader's has 3", 5},
	} {
		r := starlibtest.New(t, dir, starlib.Rank{WorldSize: test.world, Seed: 5}, nil)
		globals, err := r.Exec("l.star", test.loader)
		if err != nil {
			t.Fatal(err)
		}
		l := globals["l"].(starlib.Resizable)
		state := test.saved
		if test.world > 1 {
			state, _ = l.Resize(slices.Clone(state), starlib.Resized{World: test.world, Differ: func(string) bool { return false }})
		}
		got := fmt.Sprint(l.(starlib.Compared).Differences(state, test.world > 1))
		if !strings.Contains(got, test.want) || (test.want == "") != (got == "[]") {
			t.Errorf("%s, world %d: got %s, want %q", test.loader, test.world, got, test.want)
		}
		if err := l.SetState(state); err != nil {
			t.Fatal(err)
		}
		if n := len(elements(globals["l"])); n != test.batches {
			t.Errorf("%s, world %d: %d batches are left, want %d", test.loader, test.world, n, test.batches)
		}
	}
	// Between epochs everything may change.
	for _, loader := range []string{strings.Replace(plain, "53", "60", 1), strings.Replace(plain, "= 3", "= 5", 1)} {
		between, _ := taken(t, dir, loader, 2, [][]starlib.Entry{{number("epoch", 1), number("batch", 0), {Name: "batches", Value: saved[0][2].Value}}}, -1)
		if slices.Sort(between); len(slices.Compact(between)) != len(between) || len(between) < 53 {
			t.Errorf("%s: %v", loader, between)
		}
	}
}

// A group may stay as large as it was while the world changes: each of its ranks goes on with its own records, not with
// those of rank 0.
func TestGroupInAnotherWorld(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.csv", rowsFile(0, 53))
	const loader = `l = data.loader(data.stream("a.csv", label = "n"), batch = 3)`
	first, saved := taken(t, dir, loader, 2, nil, 4)
	for rank := range 2 {
		r := starlibtest.New(t, dir, starlib.Rank{Rank: rank, WorldSize: 2, Seed: 5}, nil)
		globals, err := r.Exec("l.star", loader)
		if err != nil {
			t.Fatal(err)
		}
		l := globals["l"].(starlib.Resizable)
		state, _ := l.Resize(saved[0], starlib.Resized{World: 4, Differ: func(name string) bool { return name == "position" }})
		if err := l.SetState(state); err != nil {
			t.Fatal(err)
		}
		for _, batch := range elements(globals["l"]) {
			for _, n := range elements(batch.(starlark.Tuple)[1]) {
				i, _ := starlark.AsInt32(must(t, n))
				first = append(first, i)
			}
		}
	}
	if slices.Sort(first); len(slices.Compact(first)) != 53 || len(first) != 53 {
		t.Errorf("%d of 53 samples: %v", len(first), first)
	}
	// With shuffle that cannot be, since what waits in the buffers of the others is not known.
	shuffled := strings.Replace(loader, "= 3", "= 3, shuffle = True", 1)
	_, saved = taken(t, dir, shuffled, 2, nil, 4)
	globals, err := starlibtest.New(t, dir, starlib.Rank{Rank: 1, WorldSize: 2, Seed: 5}, nil).Exec("l.star", shuffled)
	if err != nil {
		t.Fatal(err)
	}
	l := globals["l"].(starlib.Resizable)
	state, _ := l.Resize(saved[0], starlib.Resized{World: 4, Differ: func(name string) bool { return name == "position" }})
	if got := fmt.Sprint(l.(starlib.Compared).Differences(state, true)); !strings.Contains(got, "by another number of ranks") {
		t.Errorf("a shuffled stream goes on: %s", got)
	}
}

// With pad all ranks have equally many samples, and each sample comes, also where the number of ranks changes.
func TestPadGivesAllRanksEquallyMany(t *testing.T) {
	for _, order := range []string{"", ", shuffle = True"} {
		for n := range 12 {
			loader := fmt.Sprintf("l = data.loader(data.dataset(tensor.arange(%d)), batch = 2, pad = True%s)", n, order)
			for world := 1; world <= 5; world++ {
				all, state := taken(t, t.TempDir(), loader, world, nil, -1)
				if want := (n + world - 1) / world * world; len(all) != want || distinct(all) != n {
					t.Errorf("%s: %d ranks took %v", loader, world, all)
				}
				if n < 10 {
					continue
				}
				first, state := taken(t, t.TempDir(), loader, world, nil, 1)
				rest, _ := taken(t, t.TempDir(), loader, 3, state, -1)
				if distinct(slices.Concat(first, rest)) != n || len(rest)%3 != 0 {
					t.Errorf("%s: %d ranks took %v, then 3 ranks %v", loader, world, first, rest)
				}
			}
		}
	}
	dir := t.TempDir()
	write(t, dir, "a.csv", rowsFile(0, 5))
	for source, want := range map[string]string{
		"data.loader(data.dataset(tensor.arange(5)), batch = 2, pad = True, drop_last = True)": "drop_last drops what pad = True would fill up",
		`data.loader(data.stream("a.csv"), batch = 2, pad = True)`:                             "pad needs a dataset",
	} {
		if _, err := starlibtest.New(t, dir, starlib.Rank{}, nil).Exec("l.star", source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", source, err)
		}
	}
}

func distinct(samples []int) int { return len(slices.Compact(slices.Sorted(slices.Values(samples)))) }
