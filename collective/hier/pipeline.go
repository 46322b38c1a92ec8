package hier

import (
	"slices"

	"drun/collective"
	"drun/collective/reduction"
	"drun/collective/shm"
	"drun/element"
)

// pipeline is a large all_reduce, reduce, reduce_scatter or broadcast.
//
// The data is cut into a slice a lane, and the slices into chunks. In step i a rank
// publishes its chunk i of every slice in the node's memory; the lane's rank combines
// them with what comes from other nodes, sends that on, and publishes the result of chunk
// i-delay, which has come meanwhile, for all ranks of the node.
//
// Where the ranks of each node follow each other, node k continues the sum of the nodes
// before it, rank by rank, as shm adds on one machine. So a partial sum goes from node to
// node, and the result back: of bytes in all, each node sends bytes once or, between two
// others, twice. Half precisions go up as float32, since they are rounded once, at the end.
//
// Otherwise the order of the ranks changes nodes more often; and the average of integers
// is that of their exact sum, which their type need not hold. Then one of the nodes,
// another one for each chunk, gets the contributions of all ranks and sends the result to
// the others. Each node sends its ranks*bytes*(nodes-1)/nodes, and as much as its share of
// the results.
//
// A broadcast is the way back alone, from the root's node.
type pipeline struct {
	*run
	send, recv collective.Buffer // recv only where results are kept
	dtype      element.Type
	count      int // elements of the whole
	lanes      int
	chunk      int // elements of a slice in a step
	steps      int
	delay      int
	way        way // of this rank's lane; nil: it has none
}

// way is how the chunks of a slice go between the nodes.
type way interface {
	// combine handles a chunk of the slice, of which these are the contributions of the node's ranks.
	combine(chunk int, here [][]byte) error
	// result waits for the result of a chunk, passes it on, and copies it to out, as far as the node wants it.
	result(chunk int, out []byte) error
	// end waits until all is out.
	end() error
}

func (r *run) pipeline() (err error) {
	c := r.call
	p := &pipeline{run: r, send: c.Send, recv: c.Recv, lanes: len(r.lanes)}
	if c.Kind == collective.Broadcast && r.rank != c.Root {
		p.send = c.Recv
	}
	p.dtype, p.count = p.send.DType, p.send.Count()
	elem := p.dtype.Size()
	p.chunk = shm.RoundBytes / p.lanes / 64 * 64 / elem
	from, to := p.slice(0)
	p.steps = (to - from + p.chunk - 1) / p.chunk
	chain := c.Kind == collective.Broadcast || r.inOrder && !reduction.Exact(p.dtype, c.Reduce)
	if chain {
		p.delay = p.chainDelay()
	} else {
		p.delay = min(2, p.steps)
	}
	if p.lane >= 0 && chain {
		p.way, err = p.newChain()
	} else if p.lane >= 0 {
		p.way, err = p.newGathering()
	}
	if err != nil {
		return err
	}
	for step := range p.steps + p.delay {
		if err := p.step(step); err != nil {
			return err
		}
	}
	if p.way != nil {
		return p.way.end()
	}
	return nil
}

// slice is the part of the data that goes over a lane: whole cache lines.
func (p *pipeline) slice(lane int) (from, to int) {
	line := 64 / p.dtype.Size()
	per := (p.count + p.lanes - 1) / p.lanes
	per = (per + line - 1) / line * line
	return min(lane*per, p.count), min((lane+1)*per, p.count)
}

// part is what a chunk of a lane's slice holds.
func (p *pipeline) part(lane, chunk int) (from, to int) {
	from, to = p.slice(lane)
	return min(from+chunk*p.chunk, to), min(from+(chunk+1)*p.chunk, to)
}

func (p *pipeline) bytes(lane, chunk int) int {
	from, to := p.part(lane, chunk)
	return (to - from) * p.dtype.Size()
}

// step is one round in the node's memory, and what the lane does after it.
func (p *pipeline) step(step int) error {
	elem := p.dtype.Size()
	stage, result := p.rounds.Next()
	if step < p.steps && p.gives(p.rank) {
		for lane := range p.lanes {
			if from, to := p.part(lane, step); lane != p.lane {
				copy(stage[lane*p.chunk*elem:], p.send.Data[from*elem:to*elem])
			}
		}
	}
	done := step - p.delay
	if done >= 0 && p.way != nil && p.bytes(p.lane, done) > 0 {
		if err := p.way.result(done, result); err != nil {
			return err
		}
	}
	if err := p.rounds.Arrive(); err != nil {
		return err
	}
	if done >= 0 {
		p.collect(done)
	}
	if step >= p.steps || p.way == nil || p.bytes(p.lane, step) == 0 {
		return nil
	}
	var here [][]byte
	from, to := p.part(p.lane, step)
	for i, rank := range p.nodes[p.node] {
		switch {
		case !p.gives(rank):
		case rank == p.rank:
			here = append(here, p.send.Data[from*elem:to*elem])
		default:
			stage, _ := p.rounds.Of(i)
			here = append(here, stage[p.lane*p.chunk*elem:][:(to-from)*elem])
		}
	}
	return p.way.combine(step, here)
}

// gives reports whether the result depends on a rank's data.
func (p *pipeline) gives(rank int) bool {
	return p.call.Kind != collective.Broadcast || rank == p.call.Root
}

// wants reports whether a node needs the result of a chunk.
func (p *pipeline) wants(node, lane, chunk int) bool {
	from, to := p.part(lane, chunk)
	if from == to {
		return false
	}
	switch p.call.Kind {
	case collective.Reduce:
		return slices.Contains(p.nodes[node], p.call.Root)
	case collective.ReduceScatter:
		return slices.ContainsFunc(p.nodes[node], func(rank int) bool {
			first, end := p.own(rank)
			return max(first, from) < min(end, to)
		})
	}
	return true
}

// own is the part of a rank in the result of a reduce_scatter, in elements.
func (p *pipeline) own(rank int) (from, to int) {
	elem := p.dtype.Size()
	from = p.offset(rank) / elem
	if p.call.Counts != nil {
		return from, from + p.call.Counts[rank]
	}
	return from, from + p.recv.Count()
}

// collect takes from the results of a chunk what this rank keeps.
func (p *pipeline) collect(chunk int) {
	keepFrom, keepTo := 0, p.count
	switch c := p.call; c.Kind {
	case collective.Reduce:
		if p.rank != c.Root {
			return
		}
	case collective.Broadcast:
		if p.rank == c.Root {
			return
		}
	case collective.ReduceScatter:
		keepFrom, keepTo = p.own(p.rank)
	}
	elem := p.dtype.Size()
	for lane := range p.lanes {
		from, to := p.part(lane, chunk)
		first, end := max(from, keepFrom), min(to, keepTo)
		if first >= end {
			continue
		}
		_, result := p.rounds.Of(slices.Index(p.nodes[p.node], p.run.lanes[lane][p.node]))
		copy(p.recv.Data[(first-keepFrom)*elem:(end-keepFrom)*elem], result[(first-from)*elem:])
	}
}

// chain passes partial sums from node to node, and results back.
type chain struct {
	*pipeline
	at     int   // this node's place on the way
	path   []int // the lane's ranks on the way
	nodeAt []int // the nodes
	first  bool
	top    bool // the last: it has the results

	wide     element.Type // of partial sums
	partials *inbox       // from the node before; nil: there is none
	results  *inbox       // from the node after
	up, down outbox
	free     [][]byte // for up and, at the top, for results
	ready    [][]byte // results at the top
	scratch  []byte   // half precisions made wide
}

// place is this node's on the way of the partial sums. That of a broadcast ends at the root's node.
func (p *pipeline) place() (at int, nodes []int) {
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

// chainDelay is when a result comes: as many steps later as there are nodes to pass, and some.
func (p *pipeline) chainDelay() int {
	at, nodes := p.place()
	if at == len(nodes)-1 {
		return 1
	}
	return min(2*(len(nodes)-1-at)+2, p.steps)
}

func (p *pipeline) newChain() (_ *chain, err error) {
	c := &chain{pipeline: p, wide: p.dtype}
	c.up, c.down = outbox{run: p.run}, outbox{run: p.run}
	c.at, c.nodeAt = p.place()
	for _, node := range c.nodeAt {
		c.path = append(c.path, p.run.lanes[p.lane][node])
	}
	c.first, c.top = c.at == 0, c.at == len(c.path)-1
	reduces := p.call.Kind.Reduces()
	if half(p.dtype) && reduces {
		c.wide = element.Float32
		c.scratch = make([]byte, len(p.nodes[p.node])*p.chunk*4)
	}
	most := p.chunk * c.wide.Size()
	if reduces && !c.first {
		if c.partials, err = p.expecting(c.path[c.at-1], upwards, p.steps, most, c.partialBytes); err != nil {
			return nil, err
		}
	}
	if !c.top {
		c.results, err = p.expecting(c.path[c.at+1], downwards, p.steps, p.chunk*p.dtype.Size(), func(chunk int) int {
			if c.floor(chunk) > c.at {
				return 0
			}
			return p.bytes(p.lane, chunk)
		})
		if err != nil {
			return nil, err
		}
	}
	if reduces || c.top {
		for range min(ahead, p.steps+1) {
			c.free = append(c.free, p.memory(most))
		}
	}
	return c, nil
}

// half reports whether d is reduced in float32 and rounded once at the end.
func half(d element.Type) bool { return d == element.Float16 || d == element.BFloat16 }

func (c *chain) partialBytes(chunk int) int {
	return c.bytes(c.lane, chunk) / c.dtype.Size() * c.wide.Size()
}

// floor is the first place on the way at which the result of a chunk is wanted.
func (c *chain) floor(chunk int) int {
	return slices.IndexFunc(c.nodeAt, func(node int) bool { return c.wants(node, c.lane, chunk) })
}

// buffer gives memory that is not in use.
func (c *chain) buffer() ([]byte, error) {
	back := func(data []byte) error {
		c.free = append(c.free, data[:cap(data)])
		return nil
	}
	if len(c.free) == 0 {
		sent := &c.up
		if c.top { // whose results have been read when it computes the next
			sent = &c.down
		}
		if err := sent.settle(len(sent.underway)-1, back); err != nil {
			return nil, err
		}
	}
	last := len(c.free) - 1
	data := c.free[last]
	c.free = c.free[:last]
	return data, nil
}

func (c *chain) combine(chunk int, here [][]byte) error {
	n := c.bytes(c.lane, chunk)
	if !c.call.Kind.Reduces() {
		if !c.top {
			return nil
		}
		return c.finished(chunk, n, func(out []byte) { copy(out, here[0]) })
	}
	if c.wide != c.dtype {
		here = c.widen(here)
	}
	var partial []byte
	if c.partials != nil {
		var err error
		if partial, err = c.partials.take(); err != nil {
			return err
		}
		here = append([][]byte{partial}, here...)
	}
	var err error
	if c.top {
		err = c.finished(chunk, n, func(out []byte) { c.round(out, here) })
	} else {
		var data []byte
		if data, err = c.buffer(); err != nil {
			return err
		}
		out := collective.Buffer{DType: c.wide, Data: data[:c.partialBytes(chunk)]}
		reduction.Combine(out, here, c.between())
		err = c.up.send(c.path[c.at+1], upwards, out.Data)
	}
	if err == nil && partial != nil {
		err = c.partials.give(partial)
	}
	return err
}

// between is the operation between two contributions.
func (c *chain) between() element.ReduceOp {
	if c.call.Reduce == element.Avg {
		return element.Sum
	}
	return c.call.Reduce
}

// widen makes float32 of the contributions.
func (c *chain) widen(here [][]byte) [][]byte {
	all := make([][]byte, len(here))
	for i, data := range here {
		n := 2 * len(data)
		all[i] = c.scratch[i*c.chunk*4:][:n]
		reduction.Convert(collective.Buffer{DType: element.Float32, Data: all[i]}, collective.Buffer{DType: c.dtype, Data: data})
	}
	return all
}

// round makes a result of the last partial sum and the top's contributions.
func (c *chain) round(out []byte, here [][]byte) {
	sum := collective.Buffer{DType: c.wide, Data: out}
	if c.wide != c.dtype {
		sum.Data = here[0]
	}
	reduction.Combine(sum, here, c.between())
	if c.call.Reduce == element.Avg {
		reduction.Divide(sum, len(c.ranks))
	}
	if c.wide != c.dtype {
		reduction.Convert(collective.Buffer{DType: c.dtype, Data: out}, sum)
	}
}

// finished makes the result of a chunk at the top, and sends it on its way back.
func (c *chain) finished(chunk, n int, compute func(out []byte)) error {
	data, err := c.buffer()
	if err != nil {
		return err
	}
	data = data[:n]
	compute(data)
	c.ready = append(c.ready, data)
	if c.floor(chunk) == c.at { // nobody else wants it
		return nil
	}
	return c.down.send(c.path[c.at-1], downwards, data)
}

func (c *chain) result(chunk int, out []byte) error {
	floor := c.floor(chunk)
	switch {
	case c.top:
		data := c.ready[0]
		c.ready = c.ready[1:]
		copy(out, data)
		if floor == c.at {
			c.free = append(c.free, data[:cap(data)])
		}
		return nil
	case floor > c.at:
		return nil
	}
	data, err := c.results.take()
	if err != nil {
		return err
	}
	copy(out, data)
	if floor == c.at {
		return c.results.give(data)
	}
	if err := c.down.send(c.path[c.at-1], downwards, data); err != nil {
		return err
	}
	return c.down.settle(ahead/2, c.results.give)
}

func (c *chain) end() error {
	if err := c.up.settle(0, nil); err != nil {
		return err
	}
	return c.down.settle(0, nil)
}
