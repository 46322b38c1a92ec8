package data

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib/data/picture"
	"drun/starlib/data/table"
	"drun/starlib/random"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// streamPosition is a loader's position in an epoch of a stream, and everything that the rest of the epoch depends on
// besides the files: which record comes next, which ones wait in the shuffle buffer, in order, and how many numbers
// were drawn. Checkpoints hold it.
type streamPosition struct {
	next    mark   // of the record to read next
	given   int64  // samples that this rank has had
	waiting []mark // in the shuffle buffer
	skip    int64  // records to skip from the start of the epoch, after a restart with another number of ranks
}

// pass is one epoch over a stream, on this rank.
type pass struct {
	l       *Loader
	epoch   int
	reading *reading
	pending []record // read and not yet taken
	after   mark     // of the record after the last chunk read
	pos     streamPosition
	buffer  []record // of the shuffle
	held    int      // bytes of the samples in the buffer and in the batch being made
	seen    int64    // records of all ranks
	total   int64    // of all ranks in the epoch; -1 while unknown
	draws   []float64
	block   int64 // of draws
}

func (l *Loader) newPass(epoch int, at streamPosition) (_ *pass, err error) {
	defer try.Caught(&err)
	s := l.stream
	order := upTo(len(s.names))
	if l.shuffle {
		mixed := try.To(random.New(l.ctx, l.seed, random.LoaderOrder, uint64(epoch)).Permutation(len(order)))
		order = plainInts(mixed)
	}
	p := &pass{l: l, epoch: epoch, pos: at, total: -1, block: -1, seen: at.next.number, after: at.next}
	p.pos.waiting = nil
	if len(at.waiting) > 0 {
		var err error
		p.buffer, err = s.fetch(order, at.waiting)
		try.FailIf(err != nil, "the samples that waited to be shuffled: %w", err)
		for i := range p.buffer {
			p.held += p.buffer[i].bytes()
		}
	}
	p.reading = s.read(order, at.next, l.rank, l.ranks, l.asked.Parallel())
	return p, nil
}

// fetch rereads the records that a checkpoint names, and those between them: compressed files and files of
// columns allow no other way, and in other files they are close together.
func (s *Stream) fetch(order []int, marks []mark) (_ []record, err error) {
	defer try.Caught(&err)
	sorted := upTo(len(marks))
	slices.SortFunc(sorted, func(a, b int) int { return marks[a].compare(marks[b]) })
	out := make([]record, len(marks))
	r := s.read(order, marks[sorted[0]], 0, 1, 1)
	defer r.stop()
	for len(sorted) > 0 {
		c, ok := r.take()
		try.FailIf(!ok, "the files end before them: they have changed since the checkpoint")
		if c.err != nil {
			return nil, c.err
		}
		for k := range c.records {
			if len(sorted) > 0 && c.records[k].mark == marks[sorted[0]] {
				out[sorted[0]] = c.records[k]
				sorted = sorted[1:]
			}
		}
		try.FailIf(len(sorted) > 0 && marks[sorted[0]].compare(c.next) < 0, "they are not where they were: the files have changed since the checkpoint")
	}
	return out, nil
}

// compare says which of two records comes first.
func (m mark) compare(other mark) int {
	return cmp.Or(cmp.Compare(m.file, other.file), cmp.Compare(m.number, other.number))
}

// The functions from here to batch make batch return the error if a file cannot be read.

// pull reads the next record of this rank into pending; false at the end.
func (p *pass) pull() bool {
	for len(p.pending) == 0 && p.total < 0 {
		p.advance()
	}
	return len(p.pending) > 0
}

// advance takes the next chunk.
func (p *pass) advance() {
	c, ok := p.reading.take()
	if !ok {
		p.total = p.seen
		return
	}
	try.Ok(c.err)
	p.pending = append(p.pending, c.records...)
	p.seen, p.after = c.next.number, c.next
	if c.report != nil {
		c.report()
	}
}

// take returns the next record in the order of the files.
func (p *pass) take() (record, bool) {
	for p.pull() {
		r := p.pending[0]
		p.pending = p.pending[1:]
		if r.number >= p.pos.skip {
			p.hold(&r)
			return r, true
		}
	}
	return record{}, false
}

// hold counts a sample towards the recipe's memory limit while it is in the buffer or the batch: a large buffer of
// large samples would fill memory before the recipe sees any.
func (p *pass) hold(r *record) {
	p.held += r.bytes()
	limit := p.l.stream.files.Largest
	if limit <= 0 || p.held <= limit {
		return
	}
	place, among := p.place(r), len(p.buffer)
	try.FailIf(among == 0, "%s: with this sample the batch takes more than the %d bytes that one value may take: want smaller samples or batches", place, limit)
	fit := max(1, int(float64(among)*0.9*float64(limit)/float64(p.held)))
	try.Fail("%s: the %d samples up to here, among which the shuffle picks, take more than the %d bytes that one value may take: data.stream(…, buffer = %d) picks among fewer", place, among+1, limit, fit)
}

// place says where a record was read.
func (p *pass) place(r *record) string {
	s := p.l.stream
	name := s.names[p.reading.order[r.file]]
	if at := table.Place(r.offset); table.IsColumns(s.format) {
		return fmt.Sprintf("%s: batch %d, row %d (record %d)", name, at.Batch(), at.Row(), r.number)
	}
	return fmt.Sprintf("%s: byte %d (record %d)", name, r.offset, r.number)
}

// bytes is about how much memory a record takes.
func (r *record) bytes() int {
	n := 128 + 4*len(r.x)
	fields, ok := r.value.(table.Object)
	if !ok {
		fields = table.Object{{Value: r.value}}
	}
	for _, f := range fields {
		n += 32 + len(f.Name) + valueBytes(f.Value)
	}
	return n
}

func valueBytes(v any) int {
	switch v := v.(type) {
	case *picture.Picture:
		return table.SizeOf(v.Bytes) + 4*len(v.Floats)
	case *array:
		return table.SizeOf(v.data)
	}
	return table.SizeOf(v)
}

// uniform returns number i of the epoch's draws, which depend on the seed, the epoch and the rank.
func (p *pass) uniform(i int64) float64 {
	const size = 1024
	if p.block != i/size {
		p.block = i / size
		g := random.New(p.l.ctx, p.l.seed, random.LoaderOrder, uint64(p.epoch), 1, uint64(p.l.rank), uint64(p.l.ranks)).Stream
		g.Position = uint64(p.block * size)
		p.draws = slices.Clone(view[float64](try.To(g.Rand(p.l.ctx, []int{size}, dtype.Float64)).Content()))
	}
	return p.draws[i%size]
}

// next returns the next sample in the epoch's order.
func (p *pass) next() (record, bool) {
	if !p.l.shuffle {
		return p.take()
	}
	for len(p.buffer) < p.l.stream.buffer {
		r, ok := p.take()
		if !ok {
			break
		}
		p.buffer = append(p.buffer, r)
	}
	if len(p.buffer) == 0 {
		return record{}, false
	}
	k := min(int(p.uniform(p.pos.given)*float64(len(p.buffer))), len(p.buffer)-1)
	out := p.buffer[k]
	last := len(p.buffer) - 1
	p.buffer[k] = p.buffer[last]
	p.buffer = p.buffer[:last]
	return out, true
}

func (p *pass) stop() { p.reading.stop() }

func (p *pass) batch(int) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	list := p.records()
	if len(list) == 0 {
		return nil, nil
	}
	return p.values(list)
}

// records returns the samples of the next batch; none at the end.
func (p *pass) records() []record {
	l := p.l
	var list []record
	begin := p.pos.given
	for len(list) < l.size {
		r, ok := p.next()
		if !ok {
			break
		}
		list = append(list, r)
		p.pos.given++
	}
	defer func(list []record) {
		for i := range list {
			p.held -= list[i].bytes()
		}
	}(list)
	// With shuffle or drop_last, ranks stop together: a sample counts once it is certain that every rank has as many.
	together := l.shuffle || l.last == dropLast
	for together && p.total < 0 && p.seen-p.pos.skip < p.pos.given*int64(l.ranks) {
		p.advance()
	}
	if p.total >= 0 && together {
		each := (p.total - p.pos.skip) / int64(l.ranks)
		allowed := each
		if each%int64(l.size) != 0 && p.pos.skip == 0 && l.last != dropLast {
			allowed = p.pos.given // one more would be in a batch that is not full anyway
		}
		if p.pos.given > allowed {
			list = list[:max(0, int64(len(list))-(p.pos.given-allowed))]
			p.pos.given = begin + int64(len(list))
		}
	}
	if l.last == dropLast && len(list) < l.size {
		return nil
	}
	return list
}

// position returns what the rest of the epoch depends on.
func (p *pass) position() streamPosition {
	pos := p.pos
	if pos.next = p.after; len(p.pending) > 0 {
		pos.next = p.pending[0].mark
	}
	pos.waiting = make([]mark, len(p.buffer))
	for i, r := range p.buffer {
		pos.waiting[i] = r.mark
	}
	return pos
}

// pack writes a position as bytes: marks as differences, which are small.
func (pos *streamPosition) pack() starlark.Bytes {
	out := binary.AppendVarint(nil, pos.given)
	out = binary.AppendVarint(out, pos.skip)
	before := mark{}
	for _, m := range append([]mark{pos.next}, pos.waiting...) {
		for _, d := range []int64{m.file - before.file, m.offset - before.offset, m.number - before.number} {
			out = binary.AppendVarint(out, d)
		}
		before = m
	}
	return starlark.Bytes(out)
}

func unpackPosition(b starlark.Bytes) (pos streamPosition, err error) {
	corrupt := errors.New("a stream's position is corrupt")
	in := []byte(b)
	var numbers []int64
	for len(in) > 0 {
		v, n := binary.Varint(in)
		if n <= 0 {
			return pos, corrupt
		}
		numbers, in = append(numbers, v), in[n:]
	}
	if len(numbers) < 5 || (len(numbers)-2)%3 != 0 {
		return pos, corrupt
	}
	pos.given, pos.skip = numbers[0], numbers[1]
	var marks []mark
	at := mark{}
	for d := range slices.Chunk(numbers[2:], 3) {
		at = mark{at.file + d[0], at.offset + d[1], at.number + d[2]}
		if at.file < 0 || at.offset < 0 || at.number < 0 {
			return pos, corrupt
		}
		marks = append(marks, at)
	}
	pos.next, pos.waiting = marks[0], marks[1:]
	return pos, nil
}

func (p *pass) values(list []record) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	l, s := p.l, p.l.stream
	if !s.numeric() || l.collate != nil {
		samples := each.UpTo(len(list), func(i int) starlark.Value { return try.To(s.sample(l.ctx, &list[i])) })
		batch, err := l.collated(samples)
		var odd *unlike
		if errors.As(err, &odd) {
			err = fmt.Errorf("%s: %w; sample 0 is %s", p.place(&list[odd.sample]), err, p.place(&list[0]))
		}
		return batch, err
	}
	width := len(list[0].x)
	x := try.To(tensor.Empty(l.ctx, []int{len(list), width}, dtype.Float32))
	cells := view[float32](x.Bytes())
	for i := range list {
		if len(list[i].x) != width {
			return nil, fmt.Errorf("%s: %d columns besides the label, and other files have %d", p.place(&list[i]), len(list[i].x), width)
		}
		copy(cells[i*width:], list[i].x)
	}
	if s.label == starlark.None {
		return (*startensor.Value)(x), nil
	}
	y := try.To(s.labels(l.ctx, list))
	return starlark.Tuple{(*startensor.Value)(x), (*startensor.Value)(y)}, nil
}

func (s *Stream) labels(ctx *tensor.Context, list []record) (*tensor.Tensor, error) {
	classes, numbers := make([]int64, len(list)), make([]float64, len(list))
	for i := range list {
		classes[i], numbers[i] = list[i].class, list[i].y
	}
	if s.whole {
		return tensor.FromInts(ctx, classes, []int{len(list)}, dtype.Int64)
	}
	return tensor.FromFloats(ctx, numbers, []int{len(list)}, dtype.Float32)
}

// sample returns a record as a recipe sees it.
func (s *Stream) sample(ctx *tensor.Context, r *record) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	switch {
	case s.numeric():
		x, err := startensor.Result(tensor.FromBytes(ctx, bytesOf(r.x), []int{len(r.x)}, dtype.Float32))
		switch {
		case err != nil || s.label == starlark.None:
			return x, err
		case s.whole:
			return starlark.Tuple{x, starlark.MakeInt64(r.class)}, nil
		}
		return starlark.Tuple{x, starlark.Float(r.y)}, nil
	case s.format == "tar":
		fields := r.value.(table.Object)
		d := starlark.NewDict(len(fields))
		for _, f := range fields {
			v := plainValue(f.Value)
			switch value := f.Value.(type) {
			case *picture.Picture:
				v = try.To(pictureTensor(ctx, value))
			case *array:
				v = try.To(startensor.Result(value.tensor(ctx)))
			}
			try.Ok(d.SetKey(starlark.String(f.Name), v))
		}
		return d, nil
	}
	return plainValue(r.value), nil
}
