package data

import (
	"fmt"
	"math"
	"slices"

	"go.starlark.net/starlark"

	"drun/starlib"
	"drun/starlib/lang"
	"drun/starlib/random"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// Group is what a loader needs to know of a group of ranks: the values that
// dist.new_group returns.
type Group interface {
	starlark.Value
	Rank() int // of this process; negative for one that is not a member
	Size() int
}

// Loader gives this rank's batches of a dataset, epoch after epoch.
//
// epoch and batch are its position: the epoch that the next batch belongs to, and
// how many of that epoch's batches were handed out. They are its state.
type Loader struct {
	ds        *Dataset
	share     share
	size      int // samples in a full batch
	shuffle   bool
	sampler   *sampler // nil: each sample once
	transform starlark.Callable
	collate   starlark.Callable // makes a batch from a list of samples; may be nil
	thread    *starlark.Thread  // calls transform, and is cancelled when that fails
	ctx       *tensor.Context
	prefetch  int // batches whose pictures are decoded ahead
	seed      uint64
	rank      int // in the group
	asked     *starlib.Rank

	epoch, batch int
	active       *batchIterator // the loop that moves the position

	stream    *Stream // in place of ds
	ranks     int     // in the group
	dropLast  bool
	at        streamPosition // where an epoch of a stream continues
	streaming *passIterator  // the loop over a stream that moves the position
}

var (
	_ starlib.Resizable = (*Loader)(nil)
	_ starlark.HasAttrs = (*Loader)(nil)
	_ starlark.Sequence = (*Loader)(nil)
)

func (l *Loader) String() string {
	if l.stream != nil {
		return fmt.Sprintf("<loader of batches of %d of a stream>", l.size)
	}
	return fmt.Sprintf("<loader of %d batches of %d>", l.Len(), l.size)
}
func (l *Loader) Type() string          { return "Loader" }
func (l *Loader) Freeze()               {}
func (l *Loader) Truth() starlark.Bool  { return true }
func (l *Loader) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable: Loader") }

// Len is the number of batches in an epoch on this rank; -1 for a stream, where it is unknown.
func (l *Loader) Len() int {
	if l.stream != nil {
		return -1
	}
	return l.share.batches()
}

// Iterate goes through the batches of one epoch: the current one from its
// position on. A nested loop over the same loader yields all batches of the
// epoch and leaves the position alone.
func (l *Loader) Iterate() starlark.Iterator {
	if l.stream != nil {
		it := &passIterator{l: l, epoch: l.epoch}
		if l.streaming == nil {
			l.streaming, it.from, it.count = it, l.at, l.batch
		}
		return it
	}
	it := &batchIterator{l: l, epoch: l.epoch}
	if l.active == nil {
		l.active, it.next = it, l.batch
	}
	return it
}

type batchIterator struct {
	l     *Loader
	epoch int
	next  int
	order *tensor.Tensor
	ahead *readAhead
	begun int // batches whose samples are being read ahead
}

// give gives a loop over the loader its next batch; nil at the end.
func (l *Loader) give(p *starlark.Value, next func() (starlark.Value, error)) bool {
	var v starlark.Value
	var err error
	if l.asked.OnBatch != nil {
		err = l.asked.OnBatch()
	}
	if err == nil {
		v, err = next()
	}
	if err != nil {
		lang.Cancel(l.thread, err)
		return false
	}
	*p = v
	return v != nil
}

func (it *batchIterator) Next(p *starlark.Value) bool {
	return it.l.give(p, func() (starlark.Value, error) {
		if it.next >= it.l.Len() {
			return nil, nil
		}
		v, err := it.load(it.next)
		if it.next++; it.l.active == it && err == nil {
			it.l.batch = it.next
		}
		return v, err
	})
}

// Done ends the epoch, even if the loop was left early.
func (it *batchIterator) Done() {
	if it.ahead != nil {
		it.ahead.stop()
	}
	if l := it.l; l.active == it {
		l.active = nil
		l.epoch, l.batch = it.epoch+1, 0
	}
}

func (it *batchIterator) load(i int) (starlark.Value, error) {
	l := it.l
	if l.shuffle && it.order == nil {
		var err error
		if it.order, err = random.New(l.ctx, l.seed, random.LoaderOrder, uint64(it.epoch)).Permutation(l.ds.Len()); err != nil {
			return nil, err
		}
	}
	if l.sampler != nil && it.order == nil {
		var err error
		if it.order, err = l.sampler.order(l.ctx, random.New(l.ctx, l.seed, random.Sampler, uint64(it.epoch))); err != nil {
			return nil, err
		}
	}
	it.readAhead(i)
	lo, hi := l.share.bounds(i)
	batch, err := it.batch(lo, hi)
	if err != nil {
		return nil, err
	}
	return l.transformed(batch, it.epoch, i)
}

// transformed passes a batch through the recipe's function.
func (l *Loader) transformed(batch starlark.Value, epoch, i int) (starlark.Value, error) {
	if l.transform == nil {
		return batch, nil
	}
	var x, y starlark.Value = batch, starlark.None
	if pair, ok := batch.(starlark.Tuple); ok && len(pair) == 2 {
		x, y = pair[0], pair[1]
	}
	g := random.New(l.ctx, l.seed, random.LoaderTransform, uint64(l.rank), uint64(epoch), uint64(i))
	return starlark.Call(l.thread, l.transform, starlark.Tuple{x, y, g}, nil)
}

// batch makes a batch of samples lo up to hi in the epoch's order: rows are gathered, other samples are collated.
func (it *batchIterator) batch(lo, hi int) (starlark.Value, error) {
	l := it.l
	if t := tensorsOf(l.ds.items); t != nil && l.collate == nil {
		part, err := t.take(it.order, lo, hi)
		if err != nil {
			return nil, err
		}
		if part.y == nil {
			return (*startensor.Value)(part.x), nil
		}
		return starlark.Tuple{(*startensor.Value)(part.x), (*startensor.Value)(part.y)}, nil
	}
	samples := make([]starlark.Value, 0, hi-lo)
	for at := lo; at < hi; at++ {
		v, err := l.ds.sample(&access{epoch: it.epoch, ahead: it.ahead}, it.number(at))
		if err != nil {
			return nil, err
		}
		samples = append(samples, v)
	}
	if l.collate != nil {
		return starlark.Call(l.thread, l.collate, starlark.Tuple{starlark.NewList(samples)}, nil)
	}
	return collate(l.ctx, samples)
}

// number is the number of the sample at a position in the epoch's order.
func (it *batchIterator) number(at int) int {
	if it.order == nil {
		return at
	}
	return int(view[int64](it.order.Bytes())[at])
}

// readAhead starts reading the samples of batch i and of those after it, if that needs no function of the recipe.
func (it *batchIterator) readAhead(i int) {
	l := it.l
	if l.prefetch == 0 || tensorsOf(l.ds.items) != nil {
		return
	}
	if it.ahead == nil {
		it.ahead, it.begun = newReadAhead(it.epoch, l.asked.Parallel()), i
	}
	for ; it.begun < min(i+1+l.prefetch, l.Len()); it.begun++ {
		lo, hi := l.share.bounds(it.begun)
		for at := lo; at < hi; at++ {
			it.ahead.begin(l.ds.items, it.number(at))
		}
	}
}

// epochs is the iterable that loader.epochs(n) returns: the numbers of the epochs
// that are left of n.
type epochs struct {
	l *Loader
	n int
}

var _ starlark.Iterable = epochs{}

func (e epochs) String() string             { return fmt.Sprintf("<epochs up to %d>", e.n) }
func (e epochs) Type() string               { return "Epochs" }
func (e epochs) Freeze()                    {}
func (e epochs) Truth() starlark.Bool       { return e.l.epoch < e.n }
func (e epochs) Hash() (uint32, error)      { return 0, fmt.Errorf("unhashable: Epochs") }
func (e epochs) Iterate() starlark.Iterator { return &epochIterator{epochs: e, last: -1} }

type epochIterator struct {
	epochs
	last int
}

func (it *epochIterator) Next(p *starlark.Value) bool {
	l := it.l
	if it.last >= 0 && l.epoch != it.last+1 {
		// The loader was not used in the last epoch, or more than once.
		l.epoch, l.batch, l.at = it.last+1, 0, streamPosition{}
	}
	if l.epoch >= it.n {
		return false
	}
	it.last = l.epoch
	*p = starlark.MakeInt(l.epoch)
	return true
}

func (it *epochIterator) Done() {}

// State is the position, and the length of the epoch that it refers to.
func (l *Loader) State() []starlib.Entry {
	if l.stream != nil {
		return l.streamState()
	}
	return []starlib.Entry{
		{Name: "epoch", Value: starlark.MakeInt(l.epoch)},
		{Name: "batch", Value: starlark.MakeInt(l.batch)},
		{Name: "batches", Value: starlark.MakeInt(l.Len())},
	}
}

// setNumber sets a field from an entry of a loader's state.
func setNumber(e starlib.Entry, fields map[string]*int) error {
	field := fields[e.Name]
	if field == nil {
		return fmt.Errorf("a loader has no state %q", e.Name)
	}
	n, ok := e.Value.(starlark.Int)
	wide, fits := n.Int64()
	if !ok || !fits || wide < 0 || wide > math.MaxInt32 && e.Name != "given" {
		return fmt.Errorf("a loader's %s must be a number of 0 or more, not %s", e.Name, e.Value)
	}
	*field = int(wide)
	return nil
}

// SetState sets the position. If an epoch now has a different number of batches, as in another world size, the loader
// continues after the same fraction of the epoch.
func (l *Loader) SetState(entries []starlib.Entry) error {
	if l.stream != nil {
		return l.setStreamState(entries)
	}
	epoch, batch, of := l.epoch, l.batch, l.Len()
	for _, e := range entries {
		if err := setNumber(e, map[string]*int{"epoch": &epoch, "batch": &batch, "batches": &of}); err != nil {
			return err
		}
	}
	if n := l.Len(); of != n && of > 0 {
		batch = batch * n / of
	}
	l.epoch, l.batch, l.active = epoch, min(batch, l.Len()), nil
	return nil
}

// Resize takes rank 0's position, although the ranks' shares of an epoch, and
// so their positions, may differ by a batch: SetState needs only the fraction
// of the epoch, which must be the same on all ranks.
func (l *Loader) Resize(saved []starlib.Entry, to starlib.Resized) ([]starlib.Entry, bool) {
	return slices.DeleteFunc(saved, func(e starlib.Entry) bool {
		return e.Name == "epoch" && to.Differ(e.Name) || e.Name == "position"
	}), false
}

var loaderMethods = &starlib.Methods{
	Type: "Loader",
	Doc:  "This rank's batches of a dataset. A loop over it is one epoch and yields (x, y), or just x without labels; len(loader) is the number of batches in an epoch. Its position is part of a checkpoint.",
	Defs: []*starlib.Def{{
		Sig: "epochs(n: int) -> iterable",
		Doc: "The numbers of the epochs, out of n, that remain: 0 to n - 1 in a fresh run; after checkpoint.restore they begin with the epoch in which the checkpoint was saved, and the first loop over the loader continues after its last batch.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			n := c.Int("n")
			return epochs{c.Recv.(*Loader), n}, nil
		},
	}},
}

// Attr returns the methods.
func (l *Loader) Attr(name string) (starlark.Value, error) { return loaderMethods.Attr(l, name) }

// AttrNames lists the methods.
func (l *Loader) AttrNames() []string { return loaderMethods.AttrNames() }
