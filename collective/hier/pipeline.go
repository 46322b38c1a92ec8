package hier

import (
	"slices"

	"drun/collective"
	"drun/collective/reduction"
	"drun/collective/sharedmem"
	"drun/collective/shm"
	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
)

// pipeline is a large all_reduce, reduce, reduce_scatter or broadcast whose data goes from node to node (chain).
//
// The data is cut into one slice per lane, and the slices into chunks. In step i the ranks publish chunk i of every
// slice in the node's memory, piece by piece; the lane's rank combines them with what comes from other nodes, sends
// that on, and publishes the result of chunk i-delay, which has arrived by then, for all ranks of the node. Data that
// lies in the arena on all ranks of the node is read and written in place.
//
// The ranks of each node are consecutive, so node k continues the sum of the nodes before it, rank by rank, as shm adds
// on one machine. A partial sum goes from node to node, and the result back: each node sends the data once or, between
// two others, twice. Half precisions travel upwards as float32, since they are rounded once, at the end.
//
// A broadcast is the way back alone, from the root's node.
type pipeline struct {
	*run
	send, recv collective.Buffer // recv only where results are kept
	dtype      dtype.Type
	elem       int
	count      int // elements of the whole
	lanes      int
	chunk      int // elements of a slice in a step
	piece      int // of a chunk in a round
	steps      int
	delay      int
	chain      *chain // of this rank's lane; nil: it has none
}

// A chunk is an eighth of a slice, within these bounds: small enough that the nodes work at the same time, large enough
// that a message costs little compared with its data.
const (
	leastChunk = 64 << 10
	mostChunk  = 1 << 20
)

func (r *run) pipeline() (err error) {
	defer try.Caught(&err)
	c := r.call
	p := &pipeline{run: r, send: c.Send, recv: c.Recv, lanes: len(r.lanes)}
	if c.Kind == collective.Broadcast && r.rank != c.Root {
		p.send = c.Recv
	}
	p.dtype, p.count = p.send.DType, p.send.Count()
	p.elem = p.dtype.Size()
	from, to := p.slice(0)
	p.chunk = min(max((to-from)*p.elem/8, leastChunk), mostChunk) / 64 * 64 / p.elem
	p.piece = min(p.chunk, shm.RoundBytes/p.lanes/64*64/p.elem)
	p.steps = (to - from + p.chunk - 1) / p.chunk
	p.delay = p.chainDelay()
	if p.lane >= 0 {
		p.chain = try.To(p.newChain())
	}
	step := p.step
	if p.lent != nil {
		step = p.stepInPlace
	}
	for i := range p.steps + p.delay {
		try.Ok(step(i))
	}
	if p.chain != nil {
		try.Ok(p.chain.end())
	}
	if p.lent != nil {
		p.rounds.Next()
		return p.rounds.Arrive()
	}
	return nil
}

// slice is the part of the data that a lane carries.
func (p *pipeline) slice(lane int) (from, to int) {
	return reduction.Share(p.count, p.elem, lane, p.lanes)
}

// part is what a chunk of a lane's slice holds.
func (p *pipeline) part(lane, chunk int) (from, to int) {
	from, to = p.slice(lane)
	return min(from+chunk*p.chunk, to), min(from+(chunk+1)*p.chunk, to)
}

// bytes is the size of a chunk; 0 before the first and after the last.
func (p *pipeline) bytes(lane, chunk int) int {
	if chunk < 0 {
		return 0
	}
	from, to := p.part(lane, chunk)
	return (to - from) * p.elem
}

// step carries out one chunk, in rounds of the node's memory.
func (p *pipeline) step(step int) (err error) {
	defer try.Caught(&err)
	done := step - p.delay
	var finished []byte
	if p.chain != nil && p.bytes(p.lane, done) > 0 {
		finished = try.To(p.chain.result(done))
	}
	for at := 0; at < p.chunk; at += p.piece {
		stage, result := p.rounds.Next()
		if step < p.steps && p.gives(p.rank) {
			for lane := range p.lanes {
				if from, to := p.within(lane, step, at); lane != p.lane {
					copy(stage[lane*p.piece*p.elem:], p.send.Data[from*p.elem:to*p.elem])
				}
			}
		}
		if first := at * p.elem; first < len(finished) {
			copy(result, finished[first:min(first+p.piece*p.elem, len(finished))])
		}
		try.Ok(p.rounds.Arrive())
		if done >= 0 {
			p.collect(done, at)
		}
		if step < p.steps && p.chain != nil {
			try.Ok(p.combine(step, at))
		}
	}
	if finished != nil {
		return p.chain.release(done, finished)
	}
	return nil
}

// within is the piece of a chunk that begins at element at.
func (p *pipeline) within(lane, chunk, at int) (from, to int) {
	from, to = p.part(lane, chunk)
	return min(from+at, to), min(from+at+p.piece, to)
}

// combine passes to the lane what the ranks of the node have published.
func (p *pipeline) combine(chunk, at int) error {
	from, to := p.within(p.lane, chunk, at)
	if from == to {
		return nil
	}
	n := (to - from) * p.elem
	var here [][]byte
	for i, rank := range p.nodes[p.node] {
		switch {
		case !p.gives(rank):
		case rank == p.rank:
			here = append(here, p.send.Data[from*p.elem:to*p.elem])
		default:
			stage, _ := p.rounds.Of(i)
			here = append(here, stage[p.lane*p.piece*p.elem:][:n])
		}
	}
	return p.chain.combine(chunk, at*p.elem, at*p.elem+n, here)
}

// stepInPlace is a step in which the lane's rank can access the data of all ranks of the node: the others have
// nothing to do until a round after the last step.
func (p *pipeline) stepInPlace(step int) (err error) {
	defer try.Caught(&err)
	if p.chain == nil {
		return nil
	}
	views := func(chunk int) [][]byte {
		from, to := p.part(p.lane, chunk)
		all := each.Of(p.lent, func(data []byte) []byte { return data[from*p.elem : to*p.elem] })
		return all
	}
	if done := step - p.delay; p.bytes(p.lane, done) > 0 {
		data := try.To(p.chain.result(done))
		for _, all := range views(done) {
			p.keep(all, data)
		}
		try.Ok(p.chain.release(done, data))
	}
	if n := p.bytes(p.lane, step); step < p.steps && n > 0 {
		return p.chain.combine(step, 0, n, views(step))
	}
	return nil
}

// gives reports whether the result depends on a rank's data.
func (p *pipeline) gives(rank int) bool {
	return p.call.Kind != collective.Broadcast || rank == p.call.Root
}

// kept is the part of the result that a rank keeps, in elements.
func (p *pipeline) kept(rank int) (from, to int) {
	switch c := p.call; {
	case c.Kind == collective.ReduceScatter:
		return p.offset(rank) / p.elem, p.offset(rank+1) / p.elem
	case c.Kind == collective.Reduce && rank != c.Root, c.Kind == collective.Broadcast && rank == c.Root:
		return 0, 0
	}
	return 0, p.count
}

func (p *pipeline) wants(node, lane, chunk int) bool {
	from, to := p.part(lane, chunk)
	return slices.ContainsFunc(p.nodes[node], func(rank int) bool {
		first, end := p.kept(rank)
		return max(first, from) < min(end, to)
	})
}

// collect copies what this rank keeps from a piece of a chunk's results.
func (p *pipeline) collect(chunk, at int) {
	keepFrom, keepTo := p.kept(p.rank)
	for lane := range p.lanes {
		from, to := p.within(lane, chunk, at)
		first, end := max(from, keepFrom), min(to, keepTo)
		if first >= end {
			continue
		}
		_, result := p.rounds.Of(slices.Index(p.nodes[p.node], p.run.lanes[lane][p.node]))
		p.keep(p.recv.Data[(first-keepFrom)*p.elem:(end-keepFrom)*p.elem], result[(first-from)*p.elem:])
	}
}

// streamed is the size in bytes from which a result is too large for the caches and bypasses them.
const streamed = 8 << 20

// keep copies a piece of the result to where the caller wants it.
func (p *pipeline) keep(dst, src []byte) {
	if p.count*p.elem < streamed {
		copy(dst, src)
		return
	}
	sharedmem.Stream(dst, src[:len(dst)])
}

// chain passes partial sums from node to node, and results back.
type chain struct {
	*pipeline
	at     int   // this node's place on the path
	path   []int // the lane's ranks, in the order in which they pass on partial sums
	nodeAt []int // their nodes
	first  bool
	top    bool // the last: it has the results

	wide     dtype.Type // of partial sums
	partials *inbox     // from the node before; nil: there is none
	results  *inbox     // from the node after
	up, down outbox
	free     [][]byte // for up and, at the top, for results
	ready    [][]byte // results at the top
	scratch  []byte   // half precisions made wide

	partial, data []byte // of the chunk that is being combined
}

// pathPosition is this node's position on the path of the partial sums. The path of a broadcast ends at the root's node.
func (p *pipeline) pathPosition() (at int, nodes []int) {
	n := len(p.nodes)
	shift := 0
	if p.call.Kind == collective.Broadcast {
		shift = 1 + slices.IndexFunc(p.nodes, func(here []int) bool { return slices.Contains(here, p.call.Root) })
	}
	for i := range n {
		nodes = append(nodes, (i+shift)%n)
	}
	return (p.node - shift + 2*n) % n, nodes
}

// chainDelay is how many steps pass before a result arrives: one for each node on its way, and a few more.
func (p *pipeline) chainDelay() int {
	at, nodes := p.pathPosition()
	if at == len(nodes)-1 {
		return 1
	}
	return min(2*(len(nodes)-1-at)+2, p.steps, mostDelay)
}

// mostDelay bounds the memory of long chains, which then wait for results.
const mostDelay = 20

// window is how many chunks are in flight between a node and the next: it sends no chunk before it has the result of
// the chunk one delay earlier. A receive is posted before each arrives.
func (c *chain) window(at int) int { return min(2*(len(c.path)-1-at)+3, mostDelay+1) }

func (p *pipeline) newChain() (_ *chain, err error) {
	defer try.Caught(&err)
	c := &chain{pipeline: p, wide: p.dtype}
	c.up, c.down = outbox{run: p.run}, outbox{run: p.run}
	c.at, c.nodeAt = p.pathPosition()
	for _, node := range c.nodeAt {
		c.path = append(c.path, p.run.lanes[p.lane][node])
	}
	c.first, c.top = c.at == 0, c.at == len(c.path)-1
	reduces := p.call.Kind.Reduces()
	if reduction.Half(p.dtype) && reduces {
		c.wide = dtype.Float32
		c.scratch = make([]byte, len(p.nodes[p.node])*p.chunk*4) // at most: in place, pieces are chunks
	}
	most := p.chunk * c.wide.Size()
	if reduces && !c.first {
		c.partials = try.To(p.expecting(c.path[c.at-1], upwards, p.steps, c.window(c.at-1), most, c.partialBytes))
	}
	if !c.top {
		c.results = try.To(p.expecting(c.path[c.at+1], downwards, p.steps, c.window(c.at), p.chunk*p.dtype.Size(), func(chunk int) int {
			if c.floor(chunk) > c.at {
				return 0
			}
			return p.bytes(p.lane, chunk)
		}))
	}
	if reduces || c.top {
		for range min(ahead, p.steps+1) {
			c.free = append(c.free, p.memory(most))
		}
	}
	return c, nil
}

func (c *chain) partialBytes(chunk int) int {
	return c.bytes(c.lane, chunk) / c.dtype.Size() * c.wide.Size()
}

// floor is the first position on the path at which the result of a chunk is wanted.
func (c *chain) floor(chunk int) int {
	return slices.IndexFunc(c.nodeAt, func(node int) bool { return c.wants(node, c.lane, chunk) })
}

// buffer returns memory that is not in use.
func (c *chain) buffer() ([]byte, error) {
	sent := &c.up
	if c.top {
		sent = &c.down
	}
	for len(c.free) == 0 {
		if err := sent.settle(len(sent.underway)-1, c.back); err != nil {
			return nil, err
		}
	}
	last := len(c.free) - 1
	data := c.free[last]
	c.free = c.free[:last]
	return data, nil
}

// back reclaims memory, unless it is a result that has not been released or is being sent.
func (c *chain) back(data []byte) error {
	if !holds(c.ready, data) && !c.down.holds(data) {
		c.free = append(c.free, data[:cap(data)])
	}
	return nil
}

// combine handles bytes [from, to) of a chunk; here are the contributions of the node's ranks. The pieces of a chunk come
// in order.
func (c *chain) combine(chunk, from, to int, here [][]byte) (err error) {
	defer try.Caught(&err)
	if !c.call.Kind.Reduces() && !c.top {
		return nil
	}
	if from == 0 {
		if c.partials != nil {
			c.partial = try.To(c.partials.take())
		}
		c.data = try.To(c.buffer())
	}
	if !c.call.Kind.Reduces() {
		copy(c.data[from:to], here[0])
	} else {
		if c.wide != c.dtype {
			here = c.widen(here)
		}
		first, end := c.widened(from), c.widened(to)
		if c.partial != nil {
			here = append([][]byte{c.partial[first:end]}, here...)
		}
		if c.top {
			c.round(c.data[from:to], here)
		} else {
			reduction.Combine(collective.Buffer{DType: c.wide, Data: c.data[first:end]}, here, reduction.Step(c.call.Reduce))
		}
	}
	if to < c.bytes(c.lane, chunk) {
		return nil
	}
	switch data := c.data; {
	case !c.top:
		err = c.up.send(c.path[c.at+1], upwards, data[:c.widened(to)])
	default:
		c.ready = append(c.ready, data[:to])
		if c.floor(chunk) < c.at {
			err = c.down.send(c.path[c.at-1], downwards, data[:to])
		}
	}
	if err == nil && c.partial != nil {
		err = c.partials.give(c.partial)
	}
	return err
}

// widened converts a number of bytes of a chunk to that of a partial sum.
func (c *chain) widened(n int) int { return n / c.elem * c.wide.Size() }

// widen converts the contributions to float32.
func (c *chain) widen(here [][]byte) [][]byte {
	all := make([][]byte, len(here))
	for i, data := range here {
		n := 2 * len(data)
		all[i] = c.scratch[i*c.chunk*4:][:n]
		reduction.Convert(collective.Buffer{DType: dtype.Float32, Data: all[i]}, collective.Buffer{DType: c.dtype, Data: data})
	}
	return all
}

// round makes a result from the last partial sum and the top's contributions.
func (c *chain) round(out []byte, here [][]byte) {
	sum := collective.Buffer{DType: c.wide, Data: out}
	if c.wide != c.dtype {
		sum.Data = here[0]
	}
	reduction.Combine(sum, here, reduction.Step(c.call.Reduce))
	if c.call.Reduce == dtype.Avg {
		reduction.Divide(sum, len(c.ranks))
	}
	if c.wide != c.dtype {
		reduction.Convert(collective.Buffer{DType: c.dtype, Data: out}, sum)
	}
}

// result waits for the result of a chunk and passes it on; nil if the node does not want it. Results must be released in
// order.
func (c *chain) result(chunk int) ([]byte, error) {
	floor := c.floor(chunk)
	switch {
	case c.top:
		return c.ready[0], nil
	case floor > c.at:
		return nil, nil
	}
	data, err := c.results.take()
	if err == nil && floor < c.at {
		err = c.down.send(c.path[c.at-1], downwards, data)
	}
	return data, err
}

func (c *chain) release(chunk int, data []byte) error {
	switch {
	case c.top:
		c.ready = c.ready[1:]
		return c.back(data)
	case c.floor(chunk) < c.at:
		return c.down.settle(ahead/2, c.results.give)
	}
	return c.results.give(data)
}

// end waits until everything is sent.
func (c *chain) end() error {
	if err := c.up.settle(0, nil); err != nil {
		return err
	}
	return c.down.settle(0, nil)
}
