package random

import (
	"fmt"
	"sort"

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
}

var _ starlib.Stateful = (*Streams)(nil)

// NewStreams starts the streams of a rank.
func NewStreams(ctx *tensor.Context, seed uint64, rank int) *Streams {
	return &Streams{
		Shared:  New(ctx, seed, Shared),
		PerRank: New(ctx, seed, PerRank, uint64(rank)),
		ctx:     ctx, seed: seed, groups: make(map[string]*Generator),
	}
}

// Group is the stream that the ranks of a group share.
func (s *Streams) Group(ranks []int) *Generator {
	name := fmt.Sprint("group ", ranks)
	if s.groups[name] == nil {
		s.groups[name] = s.newGroup(ranks)
	}
	return s.groups[name]
}

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
	names := make([]string, 0, len(s.groups))
	for name := range s.groups {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		entries = append(entries, starlib.Entry{Name: name, Value: starlark.MakeUint64(s.groups[name].Stream.Position)})
	}
	return entries
}

// SetState takes the streams up where they were. Groups that this run has not
// made are left out.
func (s *Streams) SetState(entries []starlib.Entry) error {
	for _, e := range entries {
		g := s.groups[e.Name]
		switch e.Name {
		case "shared":
			g = s.Shared
		case "rank":
			g = s.PerRank
		}
		if g == nil {
			continue
		}
		if err := g.SetState([]starlib.Entry{{Name: "position", Value: e.Value}}); err != nil {
			return err
		}
	}
	return nil
}
