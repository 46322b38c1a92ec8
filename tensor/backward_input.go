package tensor

import (
	"slices"

	"drun/internal/try"
)

// BackwardInput is the first half of a backward pass that is done in two: it computes the gradient of in, a leaf, and
// returns the second half, which computes those of all other leaves and frees the graph. Both halves together give the
// bits of Backward, and where the graph cannot be gone through in halves (dist.fsdp) the first is all of it. A stage of a pipeline sends the first half's gradient on before it does the second (Qi et al. 2023,
// Zero Bubble Pipeline Parallelism). seed is as in Backward.
func (t *Tensor) BackwardInput(in, seed *Tensor) (rest func() error, err error) {
	defer try.Caught(&err)
	seed = try.To(t.seed("backward", seed))
	h := &halves{c: t.ctx, on: map[*node]bool{}, grads: map[*node]*Tensor{}}
	h.begin()
	defer h.end()
	if t.node == nil {
		return nothing, h.c.deliver(edge{leaf: t}, seed)
	}
	h.c.pass++
	order := try.To(h.c.reachable(t.node))
	h.order = slices.Clone(order)
	h.c.order = order[:0]
	if slices.ContainsFunc(h.order, func(n *node) bool { return n.whole }) {
		return nothing, t.Backward(seed, false)
	}
	for _, n := range slices.Backward(h.order) { // inputs come first
		h.on[n] = slices.ContainsFunc(n.in, func(e edge) bool { return h.leads(e, in) })
	}
	complete := false
	defer func() {
		if !complete {
			h.drop()
		}
	}()
	try.Ok(h.c.deliver(edge{node: t.node}, seed))
	h.walk(func(n *node) bool { return h.on[n] }, func(e edge) bool { return h.leads(e, in) }, func(n *node) {
		if slices.ContainsFunc(n.in, func(e edge) bool { return e != edge{} && !h.leads(e, in) }) {
			n.grad.st.hold()
			h.grads[n] = n.grad
		}
	})
	if !h.on[t.node] {
		h.grads[t.node], t.node.grad = t.node.grad, nil
	}
	complete = true
	return func() error { return h.second(in) }, nil
}

func nothing() error { return nil }

// halves is a backward pass in two halves.
type halves struct {
	c     *Context
	order []*node
	on    map[*node]bool    // nodes that lead to the input
	grads map[*node]*Tensor // gradients that the second half begins with
}

// leads reports whether an edge leads to the input.
func (h *halves) leads(e edge, in *Tensor) bool { return e.leaf == in || e.node != nil && h.on[e.node] }

func (h *halves) begin() {
	h.c.BeginNoGrad()
	h.c.passes++
}

func (h *halves) end() {
	h.c.passes--
	h.c.EndNoGrad()
}

// walk visits nodes with a gradient, each as if it had only the edges chosen, after telling before.
func (h *halves) walk(nodes func(*node) bool, edges func(edge) bool, before func(*node)) {
	defer h.c.Autocast(h.c.Autocast(false))
	for _, n := range h.order {
		if !nodes(n) || n.grad == nil {
			continue
		}
		before(n)
		all := slices.Clone(n.in)
		for i, e := range n.in {
			if !edges(e) {
				n.in[i] = edge{}
			}
		}
		func() {
			defer copy(n.in, all)
			h.c.visit(n, nil)
		}()
	}
}

func (h *halves) second(in *Tensor) (err error) {
	defer try.Caught(&err)
	h.begin()
	defer h.end()
	defer h.drop()
	h.c.countParts(h.order)
	for n, g := range h.grads {
		n.grad = g
	}
	clear(h.grads)
	h.walk(func(n *node) bool {
		if n.done {
			n.done = false
			if l := n.in[0].leaf; l != nil {
				try.Ok(l.arrived())
			}
			return false
		}
		return true
	}, func(e edge) bool { return !h.leads(e, in) }, func(*node) {})
	for _, n := range h.order {
		n.free()
	}
	if h.c.BackwardDone != nil {
		return h.c.BackwardDone()
	}
	return nil
}

// drop frees the gradients in flight.
func (h *halves) drop() {
	for _, n := range h.order {
		n.dropGrad()
		n.done = false
	}
	for _, g := range h.grads {
		g.st.release()
	}
	clear(h.grads)
}
