package tensor

import (
	"errors"
	"fmt"
	"slices"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// A Share says that a one-dimensional tensor holds some of the elements of a larger one, in row-major order; other
// ranks hold the rest.
type Share struct {
	Shape []int  // of the whole
	From  int    // the first element that this rank holds
	Set   string // names the ranks that hold the whole together
}

// Share returns what t is a share of; nil if it is none.
func (t *Tensor) Share() *Share {
	if t.leaf == nil {
		return nil
	}
	return t.leaf.share
}

func (t *Tensor) SetShare(s *Share) { t.leafState().share = s }

// A Placement says that a tensor belongs to a model that ranks divide.
type Placement struct {
	Part  bool // other ranks have the rest of the tensor
	Stage bool // other ranks have other tensors in its place
	By    any  // who divides the model, for the package distributed
}

// Placement returns t's place in a divided model; nil if it has none.
func (t *Tensor) Placement() *Placement {
	if t.leaf == nil {
		return nil
	}
	return t.leaf.placed
}

func (t *Tensor) SetPlacement(p *Placement) { t.leafState().placed = p }

// Whole reports whether this rank has all of t.
func (t *Tensor) Whole() bool {
	return t.Share() == nil && (t.Placement() == nil || !t.Placement().Part)
}

// WholeShape returns t's shape or, for a share, that of the whole.
func (t *Tensor) WholeShape() []int {
	if s := t.Share(); s != nil {
		return s.Shape
	}
	return t.shape
}

// CopyWhole copies src into t or, if t is a share, what t holds of src.
func CopyWhole(t, src *Tensor) (err error) {
	defer try.Caught(&err)
	s := t.Share()
	if s == nil {
		return CopyInto(t, src)
	}
	if !sameShape(src.shape, s.Shape) {
		return fmt.Errorf("copy: shape %s does not fit a share of shape %s", ShapeString(src.shape), ShapeString(s.Shape))
	}
	src = contiguous(src.Detach())
	part := viewOf(src, 1)
	part.shape[0], part.strides[0] = t.n, 1
	part.off += s.From
	return CopyInto(t.Detach(), part.seal())
}

// Cut returns the part of n elements that rank own of parts holds. The parts are equally many whole cache lines, but the
// last ones may be shorter or empty.
func Cut(n, own, parts int) (from, to, each int) {
	each = (n + parts - 1) / parts
	each = aligned16(each)
	return min(own*each, n), min((own+1)*each, n), each
}

// within intersects n elements that begin at at with the range from to to: it returns the first common element,
// counted from at, their number, and their offset in the range, 0 if there are none.
func within(at, n, from, to int) (first, count, off int) {
	lo, hi := min(max(at, from), at+n), max(min(at+n, to), at)
	if lo >= hi {
		return lo - at, 0, 0
	}
	return lo - at, hi - lo, lo - from
}

// Moves reports whether a step of an optimizer updates t: it has a gradient, and still requires one.
func (t *Tensor) Moves() bool { return t.grad != nil && t.requiresGrad }

// A Sheet holds parameters of one type, and their gradients, side by side in memory that exists only while they are needed.
// The rest of the time this rank has its part of them (Shards), and other ranks have the other parts: the sheet's owner
// gathers the parameters before they are used (Fill), and scatters their gradients afterwards (Grads, Spread).
type Sheet struct {
	layout
	Shards []*Tensor // this rank's part of each, one-dimensional
	from   int       // this rank's part: from, to
	to     int
	each   int // the length of all ranks' parts but the last
	values *Tensor
	grads  *Tensor
	seen   []state // of the shards, when the values were gathered
}

// state is compared to detect changes of a tensor's values.
type state struct {
	st      *Storage
	version uint32
}

// GoneError says that a recipe used a parameter while its values are spread over the ranks.
type GoneError struct{}

func (*GoneError) Error() string {
	return "the parameter's values are spread over the ranks (dist.fsdp): they are together only while its module computes; state() of the wrapped module gathers them, and its parameters() are this rank's parts"
}

// Misuse distinguishes it from a bug in drun.
func (*GoneError) Misuse() {}

var errGone = new(GoneError)

// missing is called when a tensor has no memory.
func (s *Storage) missing() {
	if s.dev != nil {
		s.toHost()
		return
	}
	if s.gone {
		panic(errGone)
	}
	if s.shapes {
		panic(NoElementsError{})
	}
	if s.temp {
		panic("the memory of a tensor was freed before its last use")
	}
}

// Gone returns an error while t has no memory, see Sheet.
func (t *Tensor) Gone() error {
	if t.st.ptr == nil && t.st.gone {
		return errGone
	}
	return nil
}

// NewSheet makes a sheet of parameters, of which this rank gets part own of parts, in memory of a pool; nil: the usual one.
// set names the ranks that share it.
func NewSheet(params []*Tensor, own, parts int, set string, shards *Pool) (_ *Sheet, err error) {
	defer try.Caught(&err)
	s := &Sheet{layout: layoutOf(params)}
	n, p0 := s.at[len(params)], params[0]
	s.from, s.to, s.each = Cut(n, own, parts)
	zeros := func(n int, from *Pool) *Tensor {
		st := new(Storage)
		try.Ok(st.allocFrom(from, "fsdp", n*p0.dtype.Size()))
		t := try.To(OnStorage(p0.ctx, st, 0, []int{n}, p0.dtype))
		clear(t.Bytes())
		return t
	}
	if shards == nil {
		shards = pool
	}
	local := zeros(s.to-s.from, shards)
	s.values = zeros(n, pool)
	s.grads = try.To(OnStorage(p0.ctx, &Storage{bytes: n * p0.dtype.Size()}, 0, []int{n}, p0.dtype))
	s.values.st.gone, s.grads.st.gone = true, true
	s.moveInto(s.values, s.grads)
	for i, p := range params {
		shard := s.layout.Part(local, i, s.from, s.to, set)
		shard.requiresGrad = p.requiresGrad
		p.grad = nil
		s.Shards = append(s.Shards, shard)
	}
	return s, nil
}

// Take sets the shards from the sheet, whose values must be equal on all ranks.
func (s *Sheet) Take() {
	for i, shard := range s.Shards {
		if shard.n > 0 {
			kCopy(shard, s.part(i))
		}
		shard.st.version++
	}
}

// part returns this rank's part of parameter i, in the sheet.
func (s *Sheet) part(i int) *Tensor {
	return try.To(OnStorage(s.values.ctx, s.values.st, s.at[i]+s.Shards[i].Share().From, s.Shards[i].shape, s.values.dtype))
}

// Part copies this rank's part of the sheet into to, to be sent to the other ranks.
func (s *Sheet) Part(to []byte) {
	clear(to)
	for i, shard := range s.Shards {
		if at := s.at[i] + shard.Share().From - s.from; shard.n > 0 {
			copy(to[at*shard.dtype.Size():], shard.Bytes())
		}
	}
}

// Bounds returns this rank's part of the sheet, in elements. each is the length of all ranks' parts but the last.
func (s *Sheet) Bounds() (from, to, each int) { return s.from, s.to, s.each }

// Len returns the number of elements, including gaps between the parameters.
func (s *Sheet) Len() int { return s.at[len(s.Params)] }

func (s *Sheet) DType() dtype.Type { return s.values.dtype }

// Current reports whether the values are there and the shards have not changed since they were gathered.
func (s *Sheet) Current() bool { return s.values.st.ptr != nil && s.unchanged() }

func (s *Sheet) unchanged() bool {
	return slices.EqualFunc(s.seen, s.Shards, func(was state, shard *Tensor) bool {
		return was == state{shard.st, shard.st.version}
	})
}

// Fill gives the sheet memory for the values, which the caller then writes.
func (s *Sheet) Fill() (_ *Tensor, err error) {
	defer try.Caught(&err)
	if s.values.st.ptr == nil {
		try.Ok(s.values.st.alloc("fsdp", s.values.st.bytes))
	}
	if !s.unchanged() { // like a change in place: tensors that an earlier pass saved are invalid
		s.values.st.version++
		s.seen = s.seen[:0]
		for _, shard := range s.Shards {
			s.seen = append(s.seen, state{shard.st, shard.st.version})
		}
	}
	for i, p := range s.Params {
		p.requiresGrad = s.Shards[i].requiresGrad
	}
	return s.values, nil
}

// Set writes values of another dtype, as many as Len, into the memory that Fill has given.
func (s *Sheet) Set(values *Tensor) { kCast(s.values, values) }

func (s *Sheet) Drop() { s.values.st.drop() }

// Grads returns the gradients, zeros where there are none yet.
func (s *Sheet) Grads() (_ *Tensor, err error) {
	defer try.Caught(&err)
	if s.grads.st.ptr == nil {
		try.Ok(s.grads.st.alloc("fsdp", s.grads.st.bytes))
		clear(s.grads.Bytes())
	}
	return s.grads, nil
}

// Spread sets the gradients of the shards from part, this rank's part of the sheet's gradients,
// and frees the memory of the gradients.
func (s *Sheet) Spread(part []byte) (err error) {
	defer try.Caught(&err)
	for i, p := range s.Params {
		if p.grad == nil {
			continue
		}
		shard, at := s.Shards[i], s.at[i]+s.Shards[i].Share().From-s.from
		size := shard.dtype.Size()
		if shard.n == 0 {
			at = 0
		}
		g := try.To(FromBytes(shard.ctx, part[at*size:(at+shard.n)*size], shard.shape, shard.dtype))
		if shard.grad == nil {
			try.Ok(shard.SetGrad(g))
		} else {
			addInto(shard.grad, g)
			Discard(g)
		}
		p.grad = nil
	}
	s.grads.st.drop()
	return nil
}

// drop frees memory that will be allocated again later.
func (s *Storage) drop() {
	s.free()
	s.ptr = nil
}

// BeforeBackward returns t, so recorded that fn is called when a backward pass is about to continue from it to what
// it was computed from.
func BeforeBackward(t *Tensor, fn func() error) (_ *Tensor, err error) {
	defer try.Caught(&err)
	if t.st.gone { // a part of a parameter, whose memory will be freed
		t = try.To(Clone(t))
	}
	if !records(t, nil) {
		return t, nil
	}
	out := t.Detach()
	record(out, "fsdp", func(_ *node, g *Tensor, grads []*Tensor) {
		grads[0] = g
		try.Ok(fn())
	}, t).whole = true
	return out, nil
}

// AddsGrads reports whether the backward pass in progress adds to tensors' gradients, as Grad does not.
func (c *Context) AddsGrads() bool { return c.grads == 0 }

// Mark returns the current position in the order of operations, for AfterBackward.
func (c *Context) Mark() uint64 { return c.seq }

// AfterBackward, called within a backward pass, registers fn to be called when that pass has gone through all operations since a mark.
func (c *Context) AfterBackward(mark uint64, fn func() error) {
	at, _ := slices.BinarySearchFunc(c.marks, mark, func(m marked, mark uint64) int {
		if m.seq > mark {
			return 1
		}
		return -1 // after its equals
	})
	c.marks = slices.Insert(c.marks, at, marked{mark, fn})
}

type marked struct {
	seq uint64
	fn  func() error
}

// passed calls the functions that are due when a backward pass reaches operation seq.
func (c *Context) passed(seq uint64) error {
	var err error
	for n := len(c.marks); n > 0 && c.marks[n-1].seq >= seq; n = len(c.marks) {
		m := c.marks[n-1]
		c.marks = c.marks[:n-1]
		err = errors.Join(err, m.fn())
	}
	return err
}
