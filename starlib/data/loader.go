package data

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/lang"
	"drun/starlib/random"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// Group is what a loader needs to know of a group of ranks: the values that dist.new_group returns.
type Group interface {
	starlark.Value
	Rank() int // of this process; negative for one that is not a member
	Size() int
	Ranks() []int // of the world
}

// Loader gives this rank's batches of a dataset or a stream, epoch after epoch.
//
// epoch and batch are its position: the epoch that the next batch belongs to, and
// how many of that epoch's batches have been handed out. They are its state.
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
	ranks     int // of the group
	last      lastPart
	asked     *starlib.Rank

	epoch, batch int
	before       []division // of the current epoch's batches, by earlier numbers of ranks
	active       *loop      // the loop that moves the position

	ds       *Dataset
	samples  int      // in an epoch
	sampler  *sampler // nil: each sample once
	prefetch int      // batches whose pictures are decoded ahead

	stream *Stream        // in place of ds
	at     streamPosition // where an epoch of a stream continues
}

var (
	_ starlib.Resizable = (*Loader)(nil)
	_ starlib.Compared  = (*Loader)(nil)
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
	whole := l.share(l.samples)
	return whole.batches()
}

// share returns this rank's part of that many samples.
func (l *Loader) share(samples int) share {
	return newShare(samples, l.size, l.rank, l.ranks, l.mixed(), l.last)
}

// Iterate yields the batches of one epoch: the rest of the current one, from the position on. A nested loop over the
// same loader yields all batches of the epoch and leaves the position alone.
func (l *Loader) Iterate() starlark.Iterator {
	it := &loop{l: l, epoch: l.epoch}
	if l.active == nil {
		l.active, it.next, it.from, it.before = it, l.batch, l.at, l.before
	}
	return it
}

// loop is a loop over a loader, of one epoch.
type loop struct {
	l      *Loader
	epoch  int
	next   int            // batch
	from   streamPosition // of that batch, in a stream
	before []division     // see Loader
	source batchSource    // nil before the first batch
}

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
	defer try.Caught(&err)
	l := it.l
	if l.asked.OnBatch != nil {
		try.Ok(l.asked.OnBatch())
	}
	switch {
	case it.source != nil:
	case l.stream != nil:
		it.source = try.To(l.newPass(it.epoch, it.from))
	default:
		it.source = try.To(l.newOrder(it.epoch, it.before))
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
		l.begin(it.epoch + 1)
	}
}

// begin moves the position to the beginning of an epoch.
func (l *Loader) begin(epoch int) {
	l.epoch, l.batch, l.before, l.at = epoch, 0, nil, streamPosition{}
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
	share share          // this rank's part of that order
	first int            // batch of the share
	ahead *readAhead     // nil: nothing is read ahead
	begun int            // batches whose samples are being read ahead
}

func (l *Loader) newOrder(epoch int, before []division) (_ *order, err error) {
	defer try.Caught(&err)
	o := &order{l: l, epoch: epoch, share: l.share(l.samples), first: batchesOf(before)}
	switch {
	case l.shuffle:
		o.order, err = random.New(l.ctx, l.seed, random.LoaderOrder, uint64(epoch)).Permutation(l.ds.Len())
	case l.sampler != nil:
		o.order, err = l.sampler.order(l.ctx, random.New(l.ctx, l.seed, random.Sampler, uint64(epoch)))
	}
	try.Ok(err)
	if len(before) > 0 || l.last == padLast {
		left := each.UpTo(l.samples, func(i int) int64 { return int64(o.number(i)) })
		for _, d := range before {
			left = d.rest(left, l.mixed(), l.last)
		}
		for n, all := len(left), l.last.padded(len(left), l.ranks); n > 0 && len(left) < all; {
			left = append(left, left[len(left)-n])
		}
		o.order, o.share = try.To(tensor.FromBytes(l.ctx, bytesOf(left), []int{len(left)}, dtype.Int64)), l.share(len(left)) // padded already
	}
	if l.prefetch > 0 && tensorsOf(l.ds.items) == nil {
		o.ahead = newReadAhead(epoch, l.asked.Parallel())
	}
	return o, nil
}

// bounds returns batch i of the epoch as positions in the order; false after the last.
func (o *order) bounds(i int) (lo, hi int, ok bool) {
	if i -= o.first; i >= o.share.batches() {
		return 0, 0, false
	}
	lo, hi = o.share.bounds(i)
	return lo, hi, true
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
	lo, hi, ok := o.bounds(i)
	if !ok {
		return nil, nil
	}
	o.readAhead(i)
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

func (l *Loader) collated(samples []starlark.Value) (starlark.Value, error) {
	if l.collate != nil {
		return starlark.Call(l.thread, l.collate, starlark.Tuple{starlark.NewList(samples)}, nil)
	}
	return collate(l.ctx, samples)
}

// number returns the number of the sample at a position in the epoch's order.
func (o *order) number(at int) int {
	if o.order == nil {
		return at
	}
	return int(view[int64](o.order.Content())[at])
}

// readAhead starts reading the samples of batch i and of those after it, if that needs no function of the recipe.
func (o *order) readAhead(i int) {
	if o.ahead == nil {
		return
	}
	for o.begun = max(o.begun, i); o.begun <= i+o.l.prefetch; o.begun++ {
		lo, hi, ok := o.bounds(o.begun)
		if !ok {
			return
		}
		for at := lo; at < hi; at++ {
			o.ahead.begin(o.l.ds.items, o.number(at))
		}
	}
}

// epochs is the iterable that loader.epochs(n) returns: the numbers of those of the n epochs that are left.
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
		l.begin(it.last + 1)
	}
	if l.epoch >= it.n {
		return false
	}
	it.last = l.epoch
	*p = starlark.MakeInt(l.epoch)
	return true
}

func (it *epochIterator) Done() {}

var loaderMethods = &starlib.Methods{
	Type: "Loader",
	Doc:  "This rank's batches of a dataset. A loop over it is one epoch and yields (x, y), or just x without labels; len(loader) is the number of batches in an epoch. Its position is part of a checkpoint.",
	Defs: []*starlib.Def{{
		Sig: "epochs(n: int) -> iterable",
		Doc: "The numbers of the epochs that are left out of n: 0 to n - 1 in a fresh run; after checkpoint.restore they begin with the epoch in which the checkpoint was saved, and the first loop over the loader continues after its last batch.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			n := c.Int("n")
			return epochs{"Epochs", c.Recv.(*Loader), n}, nil
		},
	}},
}

func (l *Loader) Attr(name string) (starlark.Value, error) { return loaderMethods.Attr(l, name) }
func (l *Loader) AttrNames() []string                      { return loaderMethods.AttrNames() }
