// Package random is the recipes' module random, and the streams of random numbers
// that the other modules draw from. A stream is a counter-based generator
// (Philox) keyed by the run's seed and the stream's number, so that streams never
// overlap and their only state is a position.
package random

import (
	"fmt"
	"math"
	"slices"

	"go.starlark.net/starlark"

	"drun/starlib"
	"drun/tensor"
)

// Purpose keeps the streams of a run apart.
type Purpose uint64

// The streams of a run.
const (
	User            Purpose = iota // random.generator(seed): keyed by its own seed
	Shared                         // the same on all ranks: initialisation, random tensors
	PerRank                        // of one rank: dropout
	PerGroup                       // the same on the ranks of a group: dropout with a group
	LoaderOrder                    // the order of an epoch
	LoaderTransform                // a batch's augmentation
	Split                          // of a dataset
	SampleTransform                // a sample's augmentation
	Sampler                        // an epoch's samples, by their weights
)

// Key numbers a stream by its purpose and what distinguishes streams of one purpose.
func Key(p Purpose, parts ...uint64) uint64 {
	key := mix(uint64(p))
	for _, part := range parts {
		key = mix(key ^ part)
	}
	return key
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood 2014), a bijection.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// New starts a stream.
func New(ctx *tensor.Context, seed uint64, p Purpose, parts ...uint64) *Generator {
	return &Generator{Opaque: "Generator", Stream: tensor.NewGenerator(seed, Key(p, parts...)), ctx: ctx}
}

// Generator is a stream as a recipe's value.
type Generator struct {
	starlib.Opaque
	Stream *tensor.Generator
	ctx    *tensor.Context
}

var (
	_ starlib.Resizable = (*Generator)(nil)
	_ starlark.HasAttrs = (*Generator)(nil)
)

func (g *Generator) String() string { return fmt.Sprintf("<generator of seed %d>", g.Stream.Seed) }

// Attr returns the methods.
func (g *Generator) Attr(name string) (starlark.Value, error) { return methods.Attr(g, name) }

// AttrNames lists the methods.
func (g *Generator) AttrNames() []string { return methods.AttrNames() }

// State is the stream and the position in it.
func (g *Generator) State() []starlib.Entry {
	return []starlib.Entry{
		{Name: "seed", Value: starlark.MakeUint64(g.Stream.Seed)},
		{Name: "stream", Value: starlark.MakeUint64(g.Stream.Stream)},
		{Name: "position", Value: starlark.MakeUint64(g.Stream.Position)},
	}
}

// SetState continues a stream where it was.
func (g *Generator) SetState(entries []starlib.Entry) error {
	next := *g.Stream
	for _, e := range entries {
		field := map[string]*uint64{"seed": &next.Seed, "stream": &next.Stream, "position": &next.Position}[e.Name]
		if field == nil {
			return fmt.Errorf("a generator has no state %q", e.Name)
		}
		n, ok := e.Value.(starlark.Int)
		if ok {
			*field, ok = n.Uint64()
		}
		if !ok {
			return fmt.Errorf("a generator's %s must be an integer from 0 to 2^64 - 1, not %s", e.Name, e.Value)
		}
	}
	*g.Stream = next
	return nil
}

// Resize begins a new stream if the ranks' differed: from this rank's own seed, and disjoint from what any rank drew before.
func (g *Generator) Resize(saved []starlib.Entry, to starlib.Resized) ([]starlib.Entry, bool) {
	if !slices.ContainsFunc(saved, func(e starlib.Entry) bool { return to.Differ(e.Name) }) {
		return saved, false
	}
	return []starlib.Entry{
		{Name: "seed", Value: starlark.MakeUint64(g.Stream.Seed)},
		{Name: "stream", Value: starlark.MakeUint64(Key(User, derivation{to.World, to.Step}.parts()...))},
		{Name: "position", Value: starlark.MakeUint64(0)},
	}, true
}

// derivation distinguishes the streams of a run resumed in another world size
// from those before: the new size, and the step of the checkpoint. It is zero
// for a run that never was.
type derivation struct {
	world int
	step  int64
}

// parts precede what else keys a stream; the first is not a rank's number.
func (d derivation) parts(further ...uint64) []uint64 {
	if d == (derivation{}) {
		return further
	}
	return append([]uint64{math.MaxUint64, uint64(d.world), uint64(d.step)}, further...)
}
