// Package random is the recipes' module random, and the streams of random numbers that the other modules draw from. A
// stream is a counter-based generator (Philox) keyed by the run's seed and the stream's number, so that streams never
// overlap and their only state is a position.
package random

import (
	"fmt"
	"math"
	"slices"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/std"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// Purpose is what a stream is used for; it keeps the streams of a run apart.
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

// Key returns the number of a stream, from its purpose and what distinguishes it from others of that purpose.
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

func (g *Generator) String() string                           { return fmt.Sprintf("<generator of seed %d>", g.Stream.Seed) }
func (g *Generator) Attr(name string) (starlark.Value, error) { return methods.Attr(g, name) }
func (g *Generator) AttrNames() []string                      { return methods.AttrNames() }

// State returns the stream and the position in it.
func (g *Generator) State() []starlib.Entry {
	return []starlib.Entry{
		{Name: "seed", Value: starlark.MakeUint64(g.Stream.Seed)},
		{Name: "stream", Value: starlark.MakeUint64(g.Stream.Stream)},
		{Name: "position", Value: starlark.MakeUint64(g.Stream.Position)},
	}
}

// SetState continues a stream where it was.
func (g *Generator) SetState(entries []starlib.Entry) (err error) {
	defer try.Caught(&err)
	next := *g.Stream
	for _, e := range entries {
		field := map[string]*uint64{"seed": &next.Seed, "stream": &next.Stream, "position": &next.Position}[e.Name]
		try.FailIf(field == nil, "a generator has no state %q", e.Name)
		n, ok := e.Value.(starlark.Int)
		if ok {
			*field, ok = n.Uint64()
		}
		try.FailIf(!ok, "a generator's %s must be an integer from 0 to 2^64 - 1, not %s", e.Name, e.Value)
	}
	*g.Stream = next
	return nil
}

// Resize starts a new stream if the ranks' streams differed: from this rank's own seed, and disjoint from what any rank drew before.
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

// derivation distinguishes the streams of a run that was resumed in another world size from those before: the new
// size, and the step of the checkpoint. It is zero for a run that never was.
type derivation struct {
	world int
	step  int64
}

// parts puts the derivation before the other parts of a stream's key; its first part cannot be a rank's number.
func (d derivation) parts(further ...uint64) []uint64 {
	if d == (derivation{}) {
		return further
	}
	return append([]uint64{math.MaxUint64, uint64(d.world), uint64(d.step)}, further...)
}

// Module makes the module for a rank.
func Module(ctx *tensor.Context) *starlib.Module {
	return &starlib.Module{
		Name:  "random",
		Doc:   "Random number generators with their own seeds, and distributions. tensor.rand and the like draw from the run's stream instead, which is the same on all ranks.",
		Types: []*starlib.Methods{methods},
		More:  func() []*starlib.Def { return std.Defs("random") },
		Defs: []*starlib.Def{{
			Sig: "generator(seed: int) -> Generator",
			Doc: "A generator whose numbers depend only on the seed, an integer from -2^63 to 2^64 - 1. A checkpoint's state may include it, to save its position.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				seed := try.To(seedOf(c.Arg("seed").(starlark.Int)))
				return New(ctx, seed, User), nil
			},
		}},
	}
}

func seedOf(n starlark.Int) (uint64, error) {
	if u, ok := n.Uint64(); ok {
		return u, nil
	}
	if i, ok := n.Int64(); ok {
		return uint64(i), nil
	}
	return 0, fmt.Errorf("seed %s does not fit into 64 bits", n)
}

var methods = &starlib.Methods{
	Type: "Generator",
	Doc:  "A stream of random numbers.",
	Defs: []*starlib.Def{
		method("rand(*shape, dtype: string = None) -> Tensor", "Uniformly distributed numbers in [0, 1): rand(2, 3) or rand((2, 3)).",
			func(c *starlib.Call, g *Generator) (starlark.Value, error) {
				return startensor.Shaped(g.ctx, c, g.Stream.Rand)
			}),
		method("randn(*shape, dtype: string = None) -> Tensor", "Normally distributed numbers of mean 0 and standard deviation 1.",
			func(c *starlib.Call, g *Generator) (starlark.Value, error) {
				return startensor.Shaped(g.ctx, c, g.Stream.Randn)
			}),
		method("randint(low: int, high: int, shape: tuple | list | int = (), dtype: string = None) -> Tensor | int", "Uniformly distributed integers in [low, high), int64 by default; a plain integer without a shape.",
			func(c *starlib.Call, g *Generator) (starlark.Value, error) {
				v, err := startensor.RandomInts(g.ctx, c, g.Stream)
				if shape, ok := c.Arg("shape").(starlark.Tuple); err != nil || !ok || len(shape) > 0 || !c.IsNone("dtype") {
					return v, err
				}
				s, err := v.(*startensor.Value).Tensor().Item()
				return starlark.MakeInt64(s.Int()), err
			}),
		method("choice(items: list | tuple | range | Tensor | string) -> any", "One of the items.",
			func(c *starlib.Call, g *Generator) (starlark.Value, error) {
				items := c.Arg("items").(starlark.Indexable)
				try.FailIf(items.Len() <= 0, "there are no items to choose from")
				t := try.To(g.Stream.RandInt(g.ctx, 0, int64(items.Len()), nil, dtype.Int64))
				i := try.To(t.Item())
				return items.Index(int(i.Int())), nil
			}),
		method("shuffle(items: list | Tensor) -> list | Tensor", "Shuffles a list, or a tensor's rows, in place, and returns it.",
			func(c *starlib.Call, g *Generator) (starlark.Value, error) { return g.shuffle(c.Arg("items")) }),
		method("permutation(n: int) -> Tensor", "The integers 0 … n - 1 in random order, int64.",
			func(c *starlib.Call, g *Generator) (starlark.Value, error) {
				return startensor.Result(g.Permutation(c.Int("n")))
			}),
	},
}

func method(sig, doc string, fn func(*starlib.Call, *Generator) (starlark.Value, error)) *starlib.Def {
	return &starlib.Def{Sig: sig, Doc: doc, Fn: func(c *starlib.Call) (starlark.Value, error) {
		return fn(c, c.Recv.(*Generator))
	}}
}

// Permutation returns 0 … n-1 in random order, shape (n,), int64.
func (g *Generator) Permutation(n int) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	order := try.To(g.Stream.Permutation(n))
	return tensor.FromInts(g.ctx, order, []int{n}, dtype.Int64)
}

func (g *Generator) shuffle(items starlark.Value) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	if v, ok := items.(*startensor.Value); ok {
		try.FailIf(v.Len() < 0, "a Tensor without dimensions has no rows")
		order := try.To(g.Permutation(v.Len()))
		mixed := try.To(tensor.IndexSelect(v.Tensor(), 0, order))
		return v, tensor.CopyInto(v.Tensor(), mixed)
	}
	list := items.(*starlark.List)
	order := try.To(g.Stream.Permutation(list.Len()))
	old := each.UpTo(list.Len(), list.Index)
	for i, from := range order {
		try.Ok(list.SetIndex(i, old[from]))
	}
	return list, nil
}
