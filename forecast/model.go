package forecast

import (
	"math"
	"math/bits"

	"drun/collective"
)

// A Link is what connects a node with the others, the same for all: full duplex, and no two nodes
// share one.
type Link struct {
	Bandwidth float64 `json:"bytes_per_second"`
	Latency   float64 `json:"latency"` // seconds, one way
}

// payload is the share of what goes over an Ethernet that TCP's users see, in frames of 1514 bytes.
const payload = 1448.0 / 1514

// Costs are seconds that do not depend on the link.
type Costs struct {
	Message float64 `json:"message"`  // of a message between nodes, besides the link
	Call    float64 `json:"call"`     // of a small call among Ranks ranks in shared memory
	PerByte float64 `json:"per_byte"` // of a large all_reduce among them
	Ranks   int     `json:"ranks"`
}

// Model tells how long drun's collectives take: its own in shared memory, collective/hier between
// nodes of several ranks, and Gloo's between nodes of one.
type Model struct {
	Link
	Costs
	PerNode int // ranks on a node
}

// The same as in collective/hier.
const (
	eager      = 64 << 10
	leastChunk = 64 << 10
	mostChunk  = 1 << 20
	mostDelay  = 20
	mostLinks  = 4
)

// call is how long a collective takes. bytes are what a rank gives or, for broadcast, gets; of
// reduce_scatter and all_to_all all that it gives.
func (m *Model) call(kind collective.Kind, bytes float64, ranks int) float64 {
	if ranks < 2 {
		return 0
	}
	here := min(ranks, m.PerNode)
	nodes := (ranks + m.PerNode - 1) / m.PerNode
	switch {
	case nodes == 1:
		return m.near(moved(kind, bytes, ranks), here)
	case m.PerNode == 1:
		return m.flat(kind, bytes, ranks)
	}
	return m.hierarchy(kind, bytes, ranks, here, nodes)
}

// moved is how much a call moves through the memory of a node.
func moved(kind collective.Kind, bytes float64, ranks int) float64 {
	switch kind {
	case collective.Barrier:
		return 0
	case collective.AllGather, collective.Gather, collective.Scatter:
		return bytes * float64(ranks)
	}
	return bytes
}

// near is a call among the ranks of a node: the memory's bandwidth is shared by all of them.
func (m *Model) near(bytes float64, ranks int) float64 {
	if ranks < 2 {
		return 0
	}
	first := float64(max(m.Ranks, 2))
	return m.Call*math.Log2(float64(ranks))/math.Log2(first) + bytes*m.PerByte*float64(ranks)/first
}

// hop is a small message between nodes.
func (m *Model) hop() float64 { return m.Latency + m.Message }

// rounds is the logarithm of n, rounded up.
func rounds(n int) float64 { return float64(bits.Len(uint(n - 1))) }

// flat is a call of Gloo, one rank a node, with the comparison of fingerprints before it, which is an
// all_gather round a ring.
func (m *Model) flat(kind collective.Kind, bytes float64, n int) float64 {
	others := float64(n - 1)
	part := bytes / float64(n) / m.Bandwidth // of a ring's step
	whole := bytes / m.Bandwidth
	compare := others * m.hop()
	switch kind {
	case collective.AllReduce:
		return compare + 2*others*(m.hop()+part)
	case collective.ReduceScatter, collective.AllToAll:
		return compare + others*(m.hop()+part)
	case collective.Reduce:
		return compare + others*(2*m.hop()+2*part)
	case collective.AllGather:
		return compare + others*(m.hop()+whole)
	case collective.Gather, collective.Scatter:
		return compare + m.hop() + others*whole
	case collective.Broadcast:
		return compare + rounds(n)*(m.hop()+whole)
	}
	return compare + rounds(n)*m.hop()
}

// hierarchy is a call of collective/hier.
func (m *Model) hierarchy(kind collective.Kind, bytes float64, ranks, here, nodes int) float64 {
	agreement := 2*m.near(0, here) + rounds(nodes)*m.hop()
	total := bytes * float64(ranks) // what rides on the agreement, if it is little
	switch kind {
	case collective.Broadcast:
		total = bytes
	case collective.Barrier:
		total = 0
	case collective.AllToAll:
		total = 16 * float64(ranks*ranks)
	}
	far := float64(ranks - here)
	switch {
	case total <= eager && kind != collective.AllToAll:
		return agreement + total/m.Bandwidth
	case kind == collective.AllGather:
		return agreement + m.hop() + far*bytes/m.Bandwidth + m.near(bytes*float64(ranks), here)
	case kind == collective.Gather, kind == collective.Scatter:
		return agreement + m.hop() + far*bytes/m.Bandwidth
	case kind == collective.AllToAll:
		return agreement + m.hop() + bytes*float64(here)*far/float64(ranks)/m.Bandwidth + m.near(bytes, here)
	}
	return agreement + m.chain(kind, bytes, here, nodes)
}

// chain is a large reduction or broadcast of collective/hier, step by step: partial sums go from node
// to node in chunks, and the results back. Each lane carries a slice, over the one link of its node.
func (m *Model) chain(kind collective.Kind, bytes float64, here, nodes int) float64 {
	lanes := min(here, mostLinks)
	slice := bytes / float64(lanes)
	chunk := min(max(slice/8, leastChunk), mostChunk)
	steps := int(math.Ceil(slice / chunk))
	chunk = min(chunk, slice)
	top := nodes - 1
	delay := make([]int, nodes)
	for at := range delay {
		delay[at] = min(2*(top-at)+2, steps, mostDelay)
	}
	delay[top] = 1
	l := make([]lane, lanes)
	for i := range l {
		l[i] = newLane(nodes, steps)
	}
	out := make([]float64, nodes) // when each node's link is free
	transmit := func(at int, ready float64) float64 {
		out[at] = max(out[at], ready) + chunk/m.Bandwidth
		return out[at] + m.hop()
	}
	work := m.near(chunk*float64(lanes), here)
	for step := range steps + mostDelay {
		for at := top - 1; at >= 0; at-- {
			done := step - delay[at]
			if done < 0 || done >= steps {
				continue
			}
			for _, l := range l {
				l.now[at] = max(l.now[at], l.down[at][done])
				if at > 0 {
					l.down[at-1][done] = transmit(at, l.now[at])
				}
			}
		}
		if step >= steps {
			continue
		}
		for at := range nodes {
			for _, l := range l {
				if kind != collective.Broadcast {
					if at > 0 {
						l.now[at] = max(l.now[at], l.up[at-1][step])
					}
					l.now[at] += work
					if at < top {
						l.up[at][step] = transmit(at, l.now[at])
					}
				}
				if at == top {
					l.down[top-1][step] = transmit(top, l.now[top])
				}
			}
		}
	}
	end := 0.0
	for _, l := range l {
		for _, t := range l.now {
			end = max(end, t)
		}
	}
	return end
}

// lane is a slice's way between the nodes.
type lane struct {
	now  []float64   // of each node's rank
	up   [][]float64 // when the partial sum of a chunk has come to the node after
	down [][]float64 // when its result has come from there
}

func newLane(nodes, steps int) lane {
	l := lane{now: make([]float64, nodes)}
	for range nodes {
		l.up, l.down = append(l.up, make([]float64, steps)), append(l.down, make([]float64, steps))
	}
	return l
}
