package hier

import (
	"drun/collective"
	"drun/collective/reduction"
)

// gathering collects the contributions to a chunk on one node, and sends the result to the nodes that want it.
type gathering struct {
	*pipeline
	contributions []*inbox // by node; nil at this one's place
	results       []*inbox
	out           outbox
	free          [][]byte
	ready         [][]byte // results of this node's chunks

	data  []byte   // of the chunk that is being combined
	taken [][]byte // contributions to it, by node
}

func (p *pipeline) newGathering() (_ *gathering, err error) {
	g := &gathering{pipeline: p, out: outbox{run: p.run}}
	n := len(p.nodes)
	g.contributions, g.results, g.taken = make([]*inbox, n), make([]*inbox, n), make([][]byte, n)
	most := p.chunk * p.dtype.Size()
	for node, here := range p.nodes {
		if node == p.node {
			continue
		}
		from := p.run.lanes[p.lane][node]
		g.contributions[node], err = p.expecting(from, upwards, p.steps, ahead, most*len(here), func(chunk int) int {
			if g.owner(chunk) != p.node {
				return 0
			}
			return p.bytes(p.lane, chunk) * len(here)
		})
		if err != nil {
			return nil, err
		}
		g.results[node], err = p.expecting(from, downwards, p.steps, ahead, most, func(chunk int) int {
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

// owner is the node that computes a chunk: the nodes that want it take turns.
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

// buffer returns memory that is not in use.
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

// back reclaims memory, unless it is a result that has not been released or is being sent.
func (g *gathering) back(data []byte) error {
	if !holds(g.ready, data) && !g.out.holds(data) {
		g.free = append(g.free, data[:cap(data)])
	}
	return nil
}

func (g *gathering) combine(chunk, from, to int, here [][]byte) (err error) {
	n, owner := g.bytes(g.lane, chunk), g.owner(chunk)
	if owner < 0 {
		return nil
	}
	if from == 0 {
		if g.data, err = g.buffer(); err != nil {
			return err
		}
		for node := range g.nodes {
			if owner == g.node && node != g.node {
				if g.taken[node], err = g.contributions[node].take(); err != nil {
					return err
				}
			}
		}
	}
	if owner != g.node {
		for i, one := range here {
			copy(g.data[i*n+from:i*n+to], one)
		}
		if to < n {
			return nil
		}
		return g.out.send(g.run.lanes[g.lane][owner], upwards, g.data[:len(here)*n])
	}
	sources := make([][]byte, len(g.ranks))
	for node, ranks := range g.nodes {
		for i, rank := range ranks {
			if node == g.node {
				sources[rank] = here[i]
			} else {
				sources[rank] = g.taken[node][i*n+from : i*n+to]
			}
		}
	}
	reduction.Combine(collective.Buffer{DType: g.dtype, Data: g.data[from:to]}, sources, g.call.Reduce)
	if to < n {
		return nil
	}
	for node, data := range g.taken {
		if node != g.node {
			if err := g.contributions[node].give(data); err != nil {
				return err
			}
		}
	}
	g.ready = append(g.ready, g.data[:n])
	for node := range g.nodes {
		if node != g.node && g.wants(node, g.lane, chunk) {
			if err := g.out.send(g.run.lanes[g.lane][node], downwards, g.data[:n]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *gathering) result(chunk int) ([]byte, error) {
	switch owner := g.owner(chunk); {
	case !g.wants(g.node, g.lane, chunk):
		return nil, nil
	case owner != g.node:
		return g.results[owner].take()
	}
	return g.ready[0], nil
}

func (g *gathering) release(chunk int, data []byte) error {
	if owner := g.owner(chunk); owner != g.node {
		return g.results[owner].give(data)
	}
	g.ready = g.ready[1:]
	return g.back(data)
}

func (g *gathering) end() error { return g.out.settle(0, nil) }
