package random

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/starlib"
	"drun/tensor"
)

// Streams holds a rank's streams, whose positions are part of the run's checkpoints.
type Streams struct {
	Shared  *Generator // at the same position on all ranks, since all draw the same
	PerRank *Generator

	ctx     *tensor.Context
	seed    uint64
	rank    int
	derived derivation            // of the streams that are not shared
	groups  map[string]*Generator // by the ranks of the group
	ranks   map[string][]int      // of the groups
	later   map[string]uint64     // restored positions of groups not made yet
}

var _ starlib.Resizable = (*Streams)(nil)

// NewStreams starts the streams of a rank.
func NewStreams(ctx *tensor.Context, seed uint64, rank int) *Streams {
	s := &Streams{Shared: New(ctx, seed, Shared), ctx: ctx, seed: seed, rank: rank,
		groups: make(map[string]*Generator), ranks: make(map[string][]int), later: make(map[string]uint64)}
	s.PerRank = s.newPerRank()
	return s
}

func (s *Streams) newPerRank() *Generator {
	return New(s.ctx, s.seed, PerRank, s.derived.parts(uint64(s.rank))...)
}

// Group returns the stream that the ranks of a group share.
func (s *Streams) Group(ranks []int) *Generator {
	name := fmt.Sprint(groupPrefix, ranks)
	if s.groups[name] == nil {
		s.groups[name], s.ranks[name] = s.newGroup(ranks), slices.Clone(ranks)
		s.groups[name].Stream.Position = s.later[name]
		delete(s.later, name)
	}
	return s.groups[name]
}

const groupPrefix = "group "

func (s *Streams) newGroup(ranks []int) *Generator {
	parts := each.Of(ranks, func(r int) uint64 { return uint64(r) })
	return New(s.ctx, s.seed, PerGroup, s.derived.parts(parts...)...)
}

// derive restarts the streams that are not shared, in place, so that their holders get the new ones.
func (s *Streams) derive(d derivation) {
	if d == s.derived {
		return
	}
	s.derived = d
	*s.PerRank.Stream = *s.newPerRank().Stream
	for name, g := range s.groups {
		*g.Stream = *s.newGroup(s.ranks[name]).Stream
	}
}

// State returns the position of each stream, "shared", "rank" and the groups',
// and "derived", which is () or the (world size, step) of the latest Resize.
func (s *Streams) State() []starlib.Entry {
	derived := starlark.Tuple{}
	if s.derived != (derivation{}) {
		derived = starlark.Tuple{starlark.MakeInt(s.derived.world), starlark.MakeInt64(s.derived.step)}
	}
	entries := []starlib.Entry{
		{Name: "shared", Value: starlark.MakeUint64(s.Shared.Stream.Position)},
		{Name: "derived", Value: derived},
		{Name: "rank", Value: starlark.MakeUint64(s.PerRank.Stream.Position)},
	}
	positions := maps.Clone(s.later)
	for name, g := range s.groups {
		positions[name] = g.Stream.Position
	}
	for _, name := range slices.Sorted(maps.Keys(positions)) {
		entries = append(entries, starlib.Entry{Name: name, Value: starlark.MakeUint64(positions[name])})
	}
	return entries
}

// SetState continues the streams where they were. A group that this run has not made yet continues from its position
// once it is made.
func (s *Streams) SetState(entries []starlib.Entry) (err error) {
	defer try.Caught(&err)
	positions := make(map[string]uint64, len(entries))
	derived := s.derived
	for _, e := range entries {
		if e.Name == "derived" {
			derived = try.To(derivationOf(e.Value))
			continue
		}
		n, ok := e.Value.(starlark.Int)
		if ok {
			positions[e.Name], ok = n.Uint64()
		}
		try.FailIf(!ok, "the position of a stream must be an integer from 0 to 2^64 - 1, not %s", e.Value)
		try.FailIf(e.Name != "shared" && e.Name != "rank" && !strings.HasPrefix(e.Name, groupPrefix), "there is no stream %q", e.Name)
	}
	s.derive(derived)
	for name, position := range positions {
		switch g := s.groups[name]; {
		case name == "shared":
			s.Shared.Stream.Position = position
		case name == "rank":
			s.PerRank.Stream.Position = position
		case g != nil:
			g.Stream.Position = position
		default:
			s.later[name] = position
		}
	}
	return nil
}

func derivationOf(v starlark.Value) (d derivation, err error) {
	t, ok := v.(starlark.Tuple)
	if ok && len(t) == 0 {
		return d, nil
	}
	if ok && len(t) == 2 && starlark.AsInt(t[0], &d.world) == nil && starlark.AsInt(t[1], &d.step) == nil && d.world > 0 {
		return d, nil
	}
	return derivation{}, fmt.Errorf("the streams are derived by () or (world size, step), not %s", v)
}

// Resize keeps the shared stream; those of a rank or a group start afresh, disjoint from all that any rank drew before.
func (s *Streams) Resize(saved []starlib.Entry, to starlib.Resized) ([]starlib.Entry, bool) {
	entries := []starlib.Entry{
		{Name: "derived", Value: starlark.Tuple{starlark.MakeInt(to.World), starlark.MakeInt64(to.Step)}},
		{Name: "rank", Value: starlark.MakeUint64(0)},
	}
	for name := range s.groups {
		entries = append(entries, starlib.Entry{Name: name, Value: starlark.MakeUint64(0)})
	}
	for _, e := range saved {
		if e.Name == "shared" && !to.Differ(e.Name) {
			entries = append(entries, e)
		}
	}
	return entries, true
}
