package data

import (
	"fmt"
	"math"
	"slices"

	"go.starlark.net/starlark"

	"drun/internal/try"
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

// Loader gives this rank's batches of a dataset or a stream, epoch after epoch.
//
// epoch and batch are its position: the epoch that the next batch belongs to, and
// how many of that epoch's batches were handed out. They are its state.
type Loader struct {
	starlib.Opaque
	size      int // samples in a full batch
	shuffle   bool
	transform starlark.Callable
	collate   starlark.Callable // makes a batch from a list of samples; may be nil
	thread    *starlark.Thread  // calls transform, and is cancelled when that fails
	ctx       *tensor.Context
	seed      uint64
	rank      int // in the group
	asked     *starlib.Rank

	epoch, batch int
	active       *loop // the one that moves the position

	ds       *Dataset
	share    share
	sampler  *sampler // nil: each sample once
	prefetch int      // batches whose pictures are decoded ahead

	stream   *Stream // in place of ds
	ranks    int     // in the group
	dropLast bool
	at       streamPosition // where an epoch of a stream continues
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
	it := &loop{l: l, epoch: l.epoch}
	if l.active == nil {
		l.active, it.next, it.from = it, l.batch, l.at
	}
	return it
}

// loop is a loop over a loader, of one epoch.
type loop struct {
	l      *Loader
	epoch  int
	next   int            // batch
	from   streamPosition // of that batch, in a stream
	source batchSource    // nil before the first batch
}

// batchSource makes the batches of one epoch.
type batchSource interface {
	batch(i int) (starlark.Value, error) // nil after the last; i increases by one
	stop()
}

func (it *loop) Next(p *starlark.Value) bool {
	v, err := it.batch()
	if err != nil {
		lang.Cancel(it.l.thread, err)
		return false
	}
	*p = v
	return v != nil
}

func (it *loop) batch() (v starlark.Value, err error) {
	l := it.l
	if l.asked.OnBatch != nil {
		if err := l.asked.OnBatch(); err != nil {
			return nil, err
		}
	}
	if it.source == nil {
		if l.stream != nil {
			it.source, err = l.newPass(it.epoch, it.from)
		} else {
			it.source, err = l.newOrder(it.epoch)
		}
		if err != nil {
			it.source = nil
			return nil, err
		}
	}
	i := it.next
	if v, err = it.source.batch(i); v == nil || err != nil {
		return nil, err
	}
	if it.next++; l.active == it {
		l.batch = it.next
	}
	return l.transformed(v, it.epoch, i)
}

// Done ends the epoch, even if the loop was left early.
func (it *loop) Done() {
	if it.source != nil {
		it.source.stop()
	}
	if l := it.l; l.active == it {
		l.active = nil
		l.epoch, l.batch, l.at = it.epoch+1, 0, streamPosition{}
	}
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

// order is one epoch of a dataset.
type order struct {
	l     *Loader
	epoch int
	order *tensor.Tensor // of the samples; nil: the dataset's own
	ahead *readAhead     // nil: nothing is read ahead
	begun int            // batches whose samples are being read ahead
}

func (l *Loader) newOrder(epoch int) (*order, error) {
	o := &order{l: l, epoch: epoch}
	var err error
	switch {
	case l.shuffle:
		o.order, err = random.New(l.ctx, l.seed, random.LoaderOrder, uint64(epoch)).Permutation(l.ds.Len())
	case l.sampler != nil:
		o.order, err = l.sampler.order(l.ctx, random.New(l.ctx, l.seed, random.Sampler, uint64(epoch)))
	}
	if l.prefetch > 0 && tensorsOf(l.ds.items) == nil {
		o.ahead = newReadAhead(epoch, l.asked.Parallel())
	}
	return o, err
}

func (o *order) stop() {
	if o.ahead != nil {
		o.ahead.stop()
	}
}

// batch makes a batch of samples: rows are gathered, other samples are collated.
func (o *order) batch(i int) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	l := o.l
	if i >= l.Len() {
		return nil, nil
	}
	o.readAhead(i)
	lo, hi := l.share.bounds(i)
	if t := tensorsOf(l.ds.items); t != nil && l.collate == nil {
		part := try.To(t.take(o.order, lo, hi))
		if part.y == nil {
			return (*startensor.Value)(part.x), nil
		}
		return starlark.Tuple{(*startensor.Value)(part.x), (*startensor.Value)(part.y)}, nil
	}
	samples := make([]starlark.Value, 0, hi-lo)
	for at := lo; at < hi; at++ {
		v := try.To(l.ds.sample(&access{epoch: o.epoch, ahead: o.ahead}, o.number(at)))
		samples = append(samples, v)
	}
	return l.collated(samples)
}

// collated makes a batch of samples.
func (l *Loader) collated(samples []starlark.Value) (starlark.Value, error) {
	if l.collate != nil {
		return starlark.Call(l.thread, l.collate, starlark.Tuple{starlark.NewList(samples)}, nil)
	}
	return collate(l.ctx, samples)
}

// number is the number of the sample at a position in the epoch's order.
func (o *order) number(at int) int {
	if o.order == nil {
		return at
	}
	return int(view[int64](o.order.Bytes())[at])
}

// readAhead starts reading the samples of batch i and of those after it, if that needs no function of the recipe.
func (o *order) readAhead(i int) {
	if o.ahead == nil {
		return
	}
	for o.begun = max(o.begun, i); o.begun < min(i+1+o.l.prefetch, o.l.Len()); o.begun++ {
		lo, hi := o.l.share.bounds(o.begun)
		for at := lo; at < hi; at++ {
			o.ahead.begin(o.l.ds.items, o.number(at))
		}
	}
}

// epochs is the iterable that loader.epochs(n) returns: the numbers of the epochs
// that are left of n.
type epochs struct {
	starlib.Opaque
	l *Loader
	n int
}

var _ starlark.Iterable = epochs{}

func (e epochs) String() string             { return fmt.Sprintf("<epochs up to %d>", e.n) }
func (e epochs) Truth() starlark.Bool       { return e.l.epoch < e.n }
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

// State is the position. Of a dataset, it has the length of the epoch that it refers to; of a stream, how many samples
// all ranks were given, and what else the rest of the epoch depends on.
func (l *Loader) State() []starlib.Entry {
	entries := []starlib.Entry{
		{Name: "epoch", Value: starlark.MakeInt(l.epoch)},
		{Name: "batch", Value: starlark.MakeInt(l.batch)},
	}
	if l.stream == nil {
		return append(entries, starlib.Entry{Name: "batches", Value: starlark.MakeInt(l.Len())})
	}
	at := l.at
	if l.active != nil && l.active.source != nil {
		at = l.active.source.(*pass).position()
	}
	return append(entries, starlib.Entry{Name: "given", Value: starlark.MakeInt64(at.given*int64(l.ranks) + at.skip)},
		starlib.Entry{Name: "position", Value: at.pack()})
}

// SetState sets the position. If an epoch now has a different number of batches, as in another world size, the loader
// continues after the same fraction of the epoch; in a stream, after as many records as all ranks got.
func (l *Loader) SetState(entries []starlib.Entry) error {
	epoch, batch, batches, given := l.epoch, l.batch, l.Len(), 0
	fields := map[string]*int{"epoch": &epoch, "batch": &batch, "batches": &batches}
	if l.stream != nil {
		fields = map[string]*int{"epoch": &epoch, "batch": &batch, "given": &given}
	}
	var at *streamPosition
	for _, e := range entries {
		if b, ok := e.Value.(starlark.Bytes); ok && e.Name == "position" && l.stream != nil {
			pos, err := unpackPosition(b)
			if err != nil {
				return err
			}
			at = &pos
			continue
		}
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
	}
	switch n := l.Len(); {
	case l.stream == nil:
		if batches != n && batches > 0 {
			batch = batch * n / batches
		}
		batch, at = min(batch, n), &streamPosition{}
	case at == nil: // from another number of ranks
		batch, at = given/(l.size*l.ranks), &streamPosition{skip: int64(given)}
	}
	l.epoch, l.batch, l.at, l.active = epoch, batch, *at, nil
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
			return epochs{"Epochs", c.Recv.(*Loader), n}, nil
		},
	}},
}

// Attr returns the methods.
func (l *Loader) Attr(name string) (starlark.Value, error) { return loaderMethods.Attr(l, name) }

// AttrNames lists the methods.
func (l *Loader) AttrNames() []string { return loaderMethods.AttrNames() }
