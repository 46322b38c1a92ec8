package tensor

import (
	"cmp"
	"fmt"
	"slices"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// Backward computes the gradient of t with respect to the leaves it was computed from, and adds it to theirs. seed is
// the gradient of t itself; nil means 1 and needs a t of one element. The graph is freed unless retain.
func (t *Tensor) Backward(seed *Tensor, retain bool) (err error) {
	defer try.Caught(&err)
	own := seed == nil
	seed = try.To(t.seed("backward", seed))
	c := t.ctx
	c.BeginNoGrad()
	defer c.EndNoGrad()
	defer c.Autocast(c.Autocast(false))
	if t.node == nil {
		return c.deliver(edge{leaf: t}, seed)
	}
	if own {
		seed.st.temp = true // nothing else refers to it
	}
	c.pass++
	order := try.To(c.reachable(t.node))
	c.passes++
	// However the pass ends, drop the gradients in flight.
	defer func() {
		for _, n := range order {
			n.dropGrad()
			n.done = false
		}
		if c.passes--; c.passes == 0 { // a nested pass may free nodes that the outer one has yet to visit
			c.recycle(order)
		}
		clear(order)
		c.order = order[:0]
	}()
	try.Ok(c.deliver(edge{node: t.node}, seed))
	var outArr [4]*Tensor
	for _, n := range order {
		if c.marks != nil {
			try.Ok(c.passed(n.seq))
		}
		if n.done {
			n.done = false
			if l := n.in[0].leaf; l != nil {
				try.Ok(l.arrived())
			}
			if !retain {
				n.free()
			}
			continue
		}
		if n.grad == nil {
			continue
		}
		c.visit(n, outArr[:0])
		if !retain {
			n.free()
		}
	}
	try.Ok(c.passed(0))
	if t.transient {
		t.st.home = nil // the header is not reused: something refers to it
		t.st.discard()
	}
	if c.BackwardDone != nil && c.passes == 1 { // not within another pass
		return c.BackwardDone()
	}
	return nil
}

// seed returns the gradient that a pass from t begins with.
func (t *Tensor) seed(op string, given *Tensor) (*Tensor, error) {
	switch {
	case !t.requiresGrad:
		return nil, fmt.Errorf("%s: the tensor does not require a gradient: no tensor it was computed from has requires_grad, or it was computed under no_grad", op)
	case given == nil && t.n != 1:
		return nil, fmt.Errorf("%s: only a tensor of one element can start a backward pass, not one of shape %s; reduce it first, e.g. with .mean() or .sum()", op, ShapeString(t.shape))
	case given == nil:
		return Full(t.ctx, t.shape, Float(1), t.dtype)
	case !sameShape(given.shape, t.shape):
		return nil, fmt.Errorf("%s: a gradient of shape %s does not fit a tensor of shape %s", op, ShapeString(given.shape), ShapeString(t.shape))
	}
	return given, nil
}

// visit computes the gradients of n's inputs from its own, and passes them on. It fails as try.To does. out is for its use.
func (c *Context) visit(n *node, out []*Tensor) {
	try.Ok(n.check())
	for range n.in {
		out = append(out, nil)
	}
	n.placed = 0
	if err := n.gradients(out); err != nil {
		try.Ok(fmt.Errorf("backward of %w", err))
	}
	if c.watched() {
		for i, g := range out {
			if l := n.in[i].leaf; g == nil && l != nil && n.placed&(1<<i) != 0 {
				g = l.grad
			}
			c.Watched("backward of "+n.op, g, n.grad)
		}
	}
	c.deliverAll(n, out)
}

// gradients computes the gradients of n's inputs.
func (n *node) gradients(out []*Tensor) (err error) {
	defer try.Caught(&err)
	n.back(n, n.grad, out)
	return nil
}

// reachable lists the nodes below root in descending order, and counts how many gradients each leaf with a hook will get.
func (c *Context) reachable(root *node) ([]*node, error) {
	order := append(c.order[:0], root)
	c.order = nil // a backward function may start a pass of its own
	root.mark = c.pass
	for i := 0; i < len(order); i++ {
		if order[i].freed {
			return nil, order[i].check()
		}
		for _, e := range order[i].in {
			if n := e.node; n != nil && n.mark != c.pass {
				n.mark = c.pass
				order = append(order, n)
			}
		}
	}
	c.countParts(order)
	slices.SortFunc(order, func(a, b *node) int { return cmp.Compare(b.seq, a.seq) })
	return order, nil
}

// countParts counts how many gradients each leaf with a hook will get in a pass over nodes.
func (c *Context) countParts(nodes []*node) {
	for i := range 2 { // first they are all 0
		for _, n := range nodes {
			for _, e := range n.in {
				if l := e.leaf; l != nil && l.leaf != nil && l.leaf.ready != nil {
					l.leaf.pending = i * (l.leaf.pending + 1)
				}
			}
		}
	}
}

// deliverAll passes on the gradients of n's inputs, and frees the memory of those that were summed into others or are
// not needed.
func (c *Context) deliverAll(n *node, out []*Tensor) {
	for _, g := range out {
		if g != nil {
			// Memory that was just allocated belongs only to this pass.
			if !n.foreign && g.st.holds == 0 {
				g.st.temp = true
			}
			g.st.hold()
		}
	}
	n.dropGrad()
	for i, g := range out {
		if n.placed&(1<<i) != 0 {
			try.Ok(n.in[i].leaf.arrived())
		}
		if g == nil {
			continue
		}
		if n.needs(i) {
			try.Ok(c.deliver(n.in[i], g))
		}
		g.st.release()
	}
}

// deliver adds g, which the caller holds, to the gradient at the end of an edge.
func (c *Context) deliver(e edge, g *Tensor) (err error) {
	defer try.Caught(&err)
	var shape []int
	var dt dtype.Type
	if e.node != nil {
		shape, dt = e.node.shape, e.node.dtype
	} else {
		shape, dt = e.leaf.shape, e.leaf.dtype
	}
	dt = computable(dt)
	fit := try.To(Cast(sumTo(g, shape), dt))
	if fit.st != g.st { // newly made: nothing else refers to it
		fit.st.temp = true
		fit.st.hold()
		defer fit.st.release()
	}
	g = fit
	if e.leaf != nil {
		return e.leaf.accumulate(g)
	}
	n := e.node
	if n.grad == nil {
		n.grad = g
		g.st.hold()
		return nil
	}
	sum := n.grad
	switch {
	case n.grad.ours():
	case g.ours():
		sum = g
	default:
		sum = newTensor("add", g.ctx, shape, dt)
		sum.st.temp = true
	}
	kBinary(OpAdd, sum, n.grad, g)
	sum.st.hold()
	n.dropGrad()
	n.grad = sum
	return nil
}

// dropGrad frees a gradient in flight, unless something else refers to it.
func (n *node) dropGrad() {
	if n.grad != nil {
		n.grad.st.release()
		n.grad = nil
	}
}

// accumulate adds g to a leaf's gradient.
func (t *Tensor) accumulate(g *Tensor) (err error) {
	defer try.Caught(&err)
	switch {
	case t.grad != nil:
		addInto(t.grad, g)
	case t.leaf != nil && t.leaf.slot != nil:
		assign("grad", t.leaf.slot, g)
		t.grad = t.leaf.slot
	case g.st.temp && g.st.holds == 1 && g.contiguous && g.n*g.dtype.Size() == g.st.bytes:
		g.st.hold() // nothing else refers to it: keep it
		g.st.temp, g.view, g.unseen = false, false, true
		t.grad = g
	default:
		c := try.To(Clone(g))
		c.st.hold()
		c.unseen = true
		t.grad = c
	}
	return t.arrived()
}

// arrived counts one part of a leaf's gradient.
func (t *Tensor) arrived() error {
	if t.leaf != nil && t.leaf.ready != nil {
		if t.leaf.pending--; t.leaf.pending <= 0 {
			return t.leaf.ready(t)
		}
	}
	return nil
}
