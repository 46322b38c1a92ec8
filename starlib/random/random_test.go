package random_test

import (
	"fmt"
	"testing"

	"drun/starlib"
	"drun/starlib/random"
	"drun/starlib/starlibtest"
	"drun/tensor"

	"go.starlark.net/starlark"
)

func TestRecipes(t *testing.T) { starlibtest.Chunks(t, "testdata/*.star") }

func draw(t *testing.T, g *random.Generator) string {
	t.Helper()
	p, err := g.Stream.Permutation(12)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(p)
}

// Each part of a stream's key makes it differ from other streams.
func TestStreamsAreKeyed(t *testing.T) {
	ctx := tensor.NewContext()
	seen := map[string]string{}
	for name, g := range map[string]*random.Generator{
		"base": random.New(ctx, 1, random.LoaderOrder, 0), "seed": random.New(ctx, 2, random.LoaderOrder, 0),
		"purpose": random.New(ctx, 1, random.Split, 0), "part": random.New(ctx, 1, random.LoaderOrder, 1),
		"order": random.New(ctx, 1, random.LoaderOrder, 1, 2), "swapped": random.New(ctx, 1, random.LoaderOrder, 2, 1),
	} {
		p := draw(t, g)
		if other, ok := seen[p]; ok {
			t.Errorf("%s and %s draw the same", name, other)
		}
		seen[p] = name
	}
	if draw(t, random.New(ctx, 1, random.Split)) != draw(t, random.New(ctx, 1, random.Split)) { //nolint:staticcheck // each draws anew
		t.Error("a stream does not repeat")
	}
}

// A run's streams continue where they were after a restore.
func TestStreamsGoOn(t *testing.T) {
	ctx := tensor.NewContext()
	first := random.NewStreams(ctx, 9, 1)
	all := func(s *random.Streams) []*random.Generator {
		return []*random.Generator{s.Shared, s.PerRank, s.Group([]int{0, 1})}
	}
	for i, g := range all(first) {
		for range i + 1 {
			draw(t, g)
		}
	}
	// Both for a group made before the restore and for one made after it.
	early, second := random.NewStreams(ctx, 9, 1), random.NewStreams(ctx, 9, 1)
	early.Group([]int{0, 1})
	for _, s := range []*random.Streams{early, second} {
		if err := s.SetState(first.State()); err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(s.State()), fmt.Sprint(first.State()); got != want {
			t.Errorf("restored %s, saved %s", got, want)
		}
	}
	if a, b := draw(t, early.Group([]int{0, 1})), draw(t, second.Group([]int{0, 1})); a != b {
		t.Errorf("the group's stream went on as %s and %s", a, b)
	}
	second.Group([]int{0, 1}).Stream.Position = first.Group([]int{0, 1}).Stream.Position
	for i, g := range all(second) {
		if got, want := draw(t, g), draw(t, all(first)[i]); got != want {
			t.Errorf("stream %d: got %s, want %s", i, got, want)
		}
	}
	if draw(t, first.Group([]int{0, 1})) == draw(t, first.Group([]int{0, 2})) {
		t.Error("two groups share a stream")
	}
	before := fmt.Sprint(second.State())
	for name, bad := range map[string]starlark.Value{"rank": starlark.String("x"), "shared": starlark.MakeInt(-1), "other": starlark.MakeInt(1)} {
		if err := second.SetState([]starlib.Entry{{Name: "rank", Value: starlark.MakeInt(77)}, {Name: name, Value: bad}}); err == nil {
			t.Errorf("%s at %s was accepted", name, bad)
		}
	}
	if after := fmt.Sprint(second.State()); after != before {
		t.Errorf("a state that was refused changed %s to %s", before, after)
	}
}

// Streams saved by another number of ranks: the shared one continues, and the others repeat nothing that any rank drew.
func TestResizedStreams(t *testing.T) {
	ctx := tensor.NewContext()
	resize := func(s *random.Streams, from starlib.Stateful, world int, step int64) {
		t.Helper()
		entries, derived := s.Resize(from.State(), starlib.Resized{World: world, Step: step, Differ: func(name string) bool { return name == "rank" }})
		if err := s.SetState(entries); err != nil || !derived {
			t.Fatal(err, derived)
		}
	}
	seen := map[string]string{}
	note := func(name string, g *random.Generator) {
		t.Helper()
		p := draw(t, g)
		if other := seen[p]; other != "" {
			t.Errorf("%s draws what %s drew", name, other)
		}
		seen[p] = name
	}
	old := random.NewStreams(ctx, 9, 0)
	note("shared", old.Shared)
	for rank := range 3 {
		note(fmt.Sprint("old rank ", rank), random.NewStreams(ctx, 9, rank).PerRank)
	}
	note("old group", old.Group([]int{0, 1}))
	for rank := range 3 {
		s := random.NewStreams(ctx, 9, rank)
		held := s.PerRank // as a dropout layer does
		resize(s, old, 3, 5)
		note(fmt.Sprint("new rank ", rank), held)
		if rank == 0 {
			note("new group", s.Group([]int{0, 1}))
			if s.Shared.Stream.Position != old.Shared.Stream.Position {
				t.Error("the shared stream does not go on")
			}
			again := random.NewStreams(ctx, 9, 0)
			resize(again, s, 2, 5)
			note("resized again", again.PerRank)
			same := random.NewStreams(ctx, 9, 0)
			if err := same.SetState(s.State()); err != nil {
				t.Fatal(err)
			}
			if got, want := draw(t, same.PerRank), draw(t, s.PerRank); got != want {
				t.Error("resumed in the same world size it draws something else")
			}
		}
	}
}

// A generator whose ranks had come to differ draws something new each time that the world changes, also to a size that it had before.
func TestResizedGenerator(t *testing.T) {
	ctx := tensor.NewContext()
	g := random.New(ctx, 4, random.User)
	seen := map[string]bool{draw(t, g): true}
	for step, world := range []int{2, 3, 2, 3, 2} {
		entries, derived := g.Resize(g.State(), starlib.Resized{World: world, Step: int64(10 * step), Differ: func(name string) bool { return name == "position" }})
		if err := g.SetState(entries); err != nil || !derived {
			t.Fatal(err, derived)
		}
		if p := draw(t, g); seen[p] {
			t.Errorf("in %d ranks, from step %d on, it draws again what was drawn before", world, 10*step)
		} else {
			seen[p] = true
		}
	}
	if entries, derived := g.Resize(g.State(), starlib.Resized{World: 5, Step: 99, Differ: func(string) bool { return false }}); derived || fmt.Sprint(entries) != fmt.Sprint(g.State()) {
		t.Error("one that was the same on all ranks does not go on")
	}
}
