package hier

import (
	"slices"

	"drun/collective"
	"drun/collective/reduction"
)

// gathering gets the contributions to a chunk on one node, and sends the result to those
// that want it.
type gathering struct {
	*pipeline
	contributions []*inbox // by node; nil at this one's place
	results       []*inbox
	out           outbox
	free          [][]byte
	ready         [][]byte // results of this node's chunks
}

func (p *pipeline) newGathering() (_ *gathering, err error) {
	g := &gathering{pipeline: p, out: outbox{run: p.run}}
	n := len(p.nodes)
	g.contributions, g.results = make([]*inbox, n), make([]*inbox, n)
	most := p.chunk * p.dtype.Size()
	for node, here := range p.nodes {
		if node == p.node {
			continue
		}
		from := p.run.lanes[p.lane][node]
		g.contributions[node], err = p.expecting(from, upwards, p.steps, most*len(here), func(chunk int) int {
			if g.owner(chunk) != p.node {
				return 0
			}
			return p.bytes(p.lane, chunk) * len(here)
		})
		if err != nil {
			return nil, err
		}
		g.results[node], err = p.expecting(from, downwards, p.steps, most, func(chunk int) int {
			if g.owner(chunk) != node || !p.wants(p.node, p.lane, chunk) {
				return 0
			}
			return p.bytes(p.lane, chunk)
		})
		if err != nil {
			return nil, err
		}
	}
	for range min(ahead, p.steps+1) {
		g.free = append(g.free, p.memory(most*len(p.nodes[p.node])))
	}
	return g, nil
}

// owner is the node that computes a chunk: of those that want it each in turn.
func (g *gathering) owner(chunk int) int {
	var wanting []int
	for node := range g.nodes {
		if g.wants(node, g.lane, chunk) {
			wanting = append(wanting, node)
		}
	}
	if wanting == nil {
		return -1
	}
	return wanting[chunk%len(wanting)]
}

// buffer gives memory that is not in use.
func (g *gathering) buffer() ([]byte, error) {
	for len(g.free) == 0 {
		if err := g.out.settle(len(g.out.underway)-1, g.back); err != nil {
			return nil, err
		}
	}
	last := len(g.free) - 1
	data := g.free[last]
	g.free = g.free[:last]
	return data, nil
}

// back takes memory back, unless it is a result that has not been read, or is still on its
// way to another node.
func (g *gathering) back(data []byte) error {
	same := func(other []byte) bool { return &other[0] == &data[0] }
	if slices.ContainsFunc(g.ready, same) || slices.ContainsFunc(g.out.underway, func(f flight) bool { return same(f.data) }) {
		return nil
	}
	g.free = append(g.free, data[:cap(data)])
	return nil
}

func (g *gathering) combine(chunk int, here [][]byte) error {
	n, owner := g.bytes(g.lane, chunk), g.owner(chunk)
	if owner < 0 {
		return nil
	}
	data, err := g.buffer()
	if err != nil {
		return err
	}
	if owner != g.node {
		at := 0
		for _, one := range here {
			at += copy(data[at:cap(data)], one)
		}
		return g.out.send(g.run.lanes[g.lane][owner], upwards, data[:at])
	}
	sources := make([][]byte, len(g.ranks))
	taken := make([][]byte, len(g.nodes))
	for node, ranks := range g.nodes {
		if node != g.node {
			if taken[node], err = g.contributions[node].take(); err != nil {
				return err
			}
		}
		for i, rank := range ranks {
			if node == g.node {
				sources[rank] = here[i]
			} else {
				sources[rank] = taken[node][i*n : (i+1)*n]
			}
		}
	}
	out := collective.Buffer{DType: g.dtype, Data: data[:n]}
	reduction.Combine(out, sources, g.call.Reduce)
	for node, data := range taken {
		if data != nil {
			if err := g.contributions[node].give(data); err != nil {
				return err
			}
		}
	}
	g.ready = append(g.ready, out.Data)
	for node := range g.nodes {
		if node != g.node && g.wants(node, g.lane, chunk) {
			if err := g.out.send(g.run.lanes[g.lane][node], downwards, out.Data); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *gathering) result(chunk int, out []byte) error {
	if !g.wants(g.node, g.lane, chunk) {
		return nil
	}
	owner := g.owner(chunk)
	if owner != g.node {
		data, err := g.results[owner].take()
		if err != nil {
			return err
		}
		copy(out, data)
		return g.results[owner].give(data)
	}
	data := g.ready[0]
	g.ready = g.ready[1:]
	copy(out, data)
	return g.back(data)
}

func (g *gathering) end() error { return g.out.settle(0, nil) }
