package random

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.starlark.net/starlark"

	"drun/starlib"
	"drun/tensor"
)

// Streams are a rank's streams whose position a run carries on: they are part of
// its checkpoints.
type Streams struct {
	Shared  *Generator // at the same position on all ranks, as they draw alike
	PerRank *Generator

	ctx    *tensor.Context
	seed   uint64
	groups map[string]*Generator // by the ranks of the group
	later  map[string]uint64     // restored positions of groups not made yet
}

var _ starlib.Stateful = (*Streams)(nil)

// NewStreams starts the streams of a rank.
func NewStreams(ctx *tensor.Context, seed uint64, rank int) *Streams {
	return &Streams{
		Shared:  New(ctx, seed, Shared),
		PerRank: New(ctx, seed, PerRank, uint64(rank)),
		ctx:     ctx, seed: seed, groups: make(map[string]*Generator), later: make(map[string]uint64),
	}
}

// Group is the stream that the ranks of a group share.
func (s *Streams) Group(ranks []int) *Generator {
	name := fmt.Sprint(groupPrefix, ranks)
	if s.groups[name] == nil {
		s.groups[name] = s.newGroup(ranks)
		s.groups[name].Stream.Position = s.later[name]
		delete(s.later, name)
	}
	return s.groups[name]
}

const groupPrefix = "group "

func (s *Streams) newGroup(ranks []int) *Generator {
	parts := make([]uint64, len(ranks))
	for i, r := range ranks {
		parts[i] = uint64(r)
	}
	return New(s.ctx, s.seed, PerGroup, parts...)
}

func (s *Streams) String() string        { return "<random streams>" }
func (s *Streams) Type() string          { return "Streams" }
func (s *Streams) Freeze()               {}
func (s *Streams) Truth() starlark.Bool  { return true }
func (s *Streams) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable: Streams") }

// State is the position of each stream: "shared", "rank", and the groups.
func (s *Streams) State() []starlib.Entry {
	entries := []starlib.Entry{
		{Name: "shared", Value: starlark.MakeUint64(s.Shared.Stream.Position)},
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

// SetState takes the streams up where they were. A group that this run has not
// made yet goes on from its position when it is.
func (s *Streams) SetState(entries []starlib.Entry) error {
	positions := make(map[string]uint64, len(entries))
	for _, e := range entries {
		n, ok := e.Value.(starlark.Int)
		if ok {
			positions[e.Name], ok = n.Uint64()
		}
		if !ok {
			return fmt.Errorf("the position of a stream must be an integer from 0 to 2^64 - 1, not %s", e.Value)
		}
		if e.Name != "shared" && e.Name != "rank" && !strings.HasPrefix(e.Name, groupPrefix) {
			return fmt.Errorf("there is no stream %q", e.Name)
		}
	}
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
