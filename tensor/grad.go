package tensor

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// GradOptions are the settings of Grad.
type GradOptions struct {
	Create bool // record how the gradients are computed, so that they have gradients themselves
	Retain bool // keep the graph for another pass; Create implies it
}

// Grad returns the gradients of outputs, added up, with respect to inputs, and adds to no tensor's gradient. seeds are the
// gradients of the outputs themselves; nil means 1 and needs an output of one element. The gradient of an input from which no
// output was computed is nil. Without Create the bits are those of Backward.
func Grad(outputs, inputs, seeds []*Tensor, o GradOptions) (grads []*Tensor, err error) {
	defer try.Caught(&err)
	try.FailIf(len(outputs) == 0, "grad: the list of outputs is empty")
	if outputs[0].shapeOnly() {
		for _, x := range inputs {
			grads = append(grads, newTensor("grad", x.ctx, x.shape, x.dtype))
		}
		return grads, nil
	}
	p := &gradPass{c: outputs[0].ctx, create: o.Create, nodes: map[*node]*Tensor{}, leaves: map[*Tensor]*Tensor{}, leads: map[*node]bool{}}
	seeds = append(slices.Clone(seeds), make([]*Tensor, len(outputs)-len(seeds))...)
	for i, y := range outputs {
		seeds[i] = try.To(y.seed("grad", seeds[i]))
	}
	from := uint64(math.MaxUint64)
	for i, x := range inputs {
		try.FailIf(!x.requiresGrad, "grad: inputs[%d] does not require a gradient: set requires_grad before the outputs are computed", i)
		if x.node == nil {
			p.leaves[x], from = nil, 0
		} else {
			p.leads[x.node] = true
			from = min(from, x.node.seq)
		}
	}
	p.find(outputs, from)
	defer p.c.Autocast(p.c.Autocast(false))
	if o.Create {
		defer p.c.record()()
	} else {
		p.c.BeginNoGrad()
		defer p.c.EndNoGrad()
	}
	p.c.passes++ // nothing is recycled meanwhile
	p.c.grads++
	defer func() { p.c.passes, p.c.grads = p.c.passes-1, p.c.grads-1 }()
	for i, y := range outputs {
		p.deliver(edge{y.node, leafOf(y)}, seeds[i])
	}
	for _, n := range p.order {
		try.Ok(p.c.passed(n.seq))
		if p.nodes[n] != nil {
			p.visit(n)
		}
		if !o.Create && !o.Retain {
			n.free()
		}
	}
	try.Ok(p.c.passed(0))
	for _, x := range inputs {
		if x.node == nil {
			grads = append(grads, p.leaves[x])
		} else {
			grads = append(grads, p.nodes[x.node])
		}
	}
	return grads, nil
}

// leafOf returns t if it is a leaf, else nil.
func leafOf(t *Tensor) *Tensor {
	if t.node == nil {
		return t
	}
	return nil
}

// record has gradients recorded, whatever sections without them have begun, until undo is called.
func (c *Context) record() (undo func()) {
	depth := c.noGrad
	c.noGrad = 0
	return func() { c.noGrad = depth }
}

// A gradPass is one call of Grad.
type gradPass struct {
	c      *Context
	create bool
	order  []*node             // that lead to an input, the latest first
	leads  map[*node]bool      // those, and the inputs' own
	nodes  map[*node]*Tensor   // gradients of nodes so far
	leaves map[*Tensor]*Tensor // gradients of the inputs that are leaves
}

// find fills order and leads. Nodes recorded before from cannot lead to an input.
func (p *gradPass) find(outputs []*Tensor, from uint64) {
	p.c.pass++
	reach := func(n *node) {
		if n != nil && n.mark != p.c.pass && n.seq >= from {
			n.mark = p.c.pass
			p.order = append(p.order, n)
		}
	}
	for _, y := range outputs {
		reach(y.node)
	}
	for i := 0; i < len(p.order); i++ {
		if n := p.order[i]; n.freed && !(p.leads[n] && n.seq == from) {
			try.Ok(n.check())
		}
		for _, e := range p.order[i].in {
			reach(e.node)
		}
	}
	slices.SortFunc(p.order, func(a, b *node) int { return cmp.Compare(b.seq, a.seq) })
	for _, n := range slices.Backward(p.order) { // what a node was computed from comes first
		p.leads[n] = p.leads[n] || slices.ContainsFunc(n.in, p.leading)
	}
	p.order = slices.DeleteFunc(p.order, func(n *node) bool { return !slices.ContainsFunc(n.in, p.leading) })
}

// leading reports whether an edge leads to an input.
func (p *gradPass) leading(e edge) bool {
	if e.node != nil {
		return p.leads[e.node]
	}
	_, is := p.leaves[e.leaf]
	return is
}

// visit passes n's gradient on to what it was computed from, as far as that leads to an input.
func (p *gradPass) visit(n *node) {
	try.FailIf(n.whole && p.create, "grad: the parameters of dist.fsdp come and go, so create_graph is not possible: compute this gradient with the module itself or dist.ddp")
	all, out := slices.Clone(n.in), make([]*Tensor, len(n.in))
	defer copy(n.in, all)
	for i, e := range n.in {
		if !p.leading(e) {
			n.in[i] = edge{}
		}
	}
	if p.create {
		p.created(n, out)
	} else {
		p.plain(n, out)
	}
	for i, g := range out {
		if g != nil && p.leading(all[i]) {
			p.deliver(all[i], g)
		}
	}
}

// plain computes gradients as Backward does, but into leaves that stand in for what n was computed from.
func (p *gradPass) plain(n *node, out []*Tensor) {
	leaves := make([]*Tensor, len(n.in))
	for i, e := range n.in {
		if n.needs(i) {
			leaves[i] = &Tensor{shape: e.shape(), dtype: e.dtype(), ctx: p.c, requiresGrad: true}
			n.in[i] = edge{leaf: leaves[i]}
		}
	}
	n.grad = p.nodes[n]
	n.grad.st.hold()
	defer n.dropGrad()
	p.c.visit(n, nil)
	for i, l := range leaves {
		if l != nil && l.grad != nil {
			out[i] = l.grad
			out[i].unseen = false
			out[i].st.release()
		}
	}
}

// created computes gradients by operations that are recorded.
func (p *gradPass) created(n *node, out []*Tensor) {
	try.Ok(n.check())
	switch {
	case n.again == nil:
		try.Fail("grad: create_graph needs what %s keeps only once a file, or a line at the prompt, that says create_graph has been read: compute it again", n.op)
	case n.again.back == nil:
		try.Fail("grad: the gradient of %s has no gradient itself, so create_graph is not possible here", n.op)
	}
	err := func() (err error) {
		defer try.Caught(&err)
		n.again.back(n, p.nodes[n], out)
		return nil
	}()
	if err != nil {
		try.Ok(fmt.Errorf("backward of %w", err))
	}
}

// deliver adds g to the gradient at the end of an edge.
func (p *gradPass) deliver(e edge, g *Tensor) {
	if !p.leading(e) {
		return
	}
	g = try.To(Cast(sumTo(g, e.shape()), computable(e.dtype())))
	sum := p.leaves[e.leaf]
	if e.node != nil {
		sum = p.nodes[e.node]
	}
	if sum != nil {
		g = try.To(Add(sum, g))
	}
	if e.node != nil {
		p.nodes[e.node] = g
	} else {
		p.leaves[e.leaf] = g
	}
}

func (e edge) dtype() dtype.Type {
	if e.node != nil {
		return e.node.dtype
	}
	return e.leaf.dtype
}

// BackwardCreating is Backward that records how the gradients are computed, so that they have gradients themselves. It keeps the
// graph. The gradients of an optimizer's parameters live in its own memory, which has no graph, so they are refused.
func (t *Tensor) BackwardCreating(seed *Tensor) (err error) {
	defer try.Caught(&err)
	try.To(t.seed("backward", seed))
	leaves := t.leaves()
	for _, l := range leaves {
		try.FailIf(l.leaf != nil && (l.leaf.slot != nil || l.leaf.ready != nil),
			"backward: create_graph is not possible for a parameter of an optimizer, or of dist.ddp: take the gradients with tensor.grad(…, create_graph = True)")
	}
	grads := try.To(Grad([]*Tensor{t}, leaves, []*Tensor{seed}, GradOptions{Create: true}))
	defer t.ctx.record()()
	for i, l := range leaves {
		if l.grad != nil {
			grads[i] = try.To(Add(l.grad, grads[i]))
		}
		l.grad = grads[i]
	}
	return nil
}

// leaves lists the leaves that t was computed from.
func (t *Tensor) leaves() (found []*Tensor) {
	seen, known := map[*node]bool{t.node: true}, map[*Tensor]bool{}
	if t.node == nil {
		return []*Tensor{t}
	}
	for queue := []*node{t.node}; len(queue) > 0; queue = queue[1:] {
		for _, e := range queue[0].in {
			if e.node != nil && !seen[e.node] {
				seen[e.node] = true
				queue = append(queue, e.node)
			}
			if e.leaf != nil && !known[e.leaf] {
				known[e.leaf] = true
				found = append(found, e.leaf)
			}
		}
	}
	return found
}
