package tensor

import (
	"cmp"
	"fmt"
	"slices"
)

// A node is one recorded operation. Nodes are numbered in the order they are
// made, which is an order in which every node follows its inputs: the
// backward pass goes through them by falling number, so that gradients are
// always added in the same order.
type node struct {
	op    string
	seq   uint64
	shape []int // of the result
	dtype DType
	ctx   *Context
	in    []edge
	saved []savedTensor
	// back computes the gradients of the inputs from that of the result:
	// out[i] for in[i], only where needs(i). An out of a broadcast shape is
	// summed to the input's shape by the engine, and cast to its dtype.
	back func(n *node, g *Tensor, out []*Tensor) error

	grad  *Tensor // sum of what arrived in this pass
	mark  uint64  // pass in which it was visited
	freed bool
	stale bool // an input was a view of something modified since

	inArr    [2]edge
	savedArr [2]savedTensor
	shapeArr [4]int
}

// An edge leads to where an input's gradient goes: the node that made it or,
// for a leaf, the leaf. Neither for an input that needs none.
type edge struct {
	node *node
	leaf *Tensor
}

type savedTensor struct {
	t       *Tensor
	version uint32
}

// RequiresGrad tells whether operations on t are recorded.
func (t *Tensor) RequiresGrad() bool { return t.requiresGrad }

// SetRequiresGrad makes t a leaf that collects gradients, or stops it.
func (t *Tensor) SetRequiresGrad(on bool) error {
	switch {
	case t.node != nil && !on:
		return fmt.Errorf("requires_grad: only a leaf can stop requiring a gradient; use detach()")
	case on && !t.dtype.IsFloat():
		return fmt.Errorf("requires_grad: only tensors of floating-point type can require gradients, not %s", t.dtype)
	case on && t.ctx == nil:
		return fmt.Errorf("requires_grad: the tensor has no context")
	}
	t.requiresGrad = on
	return nil
}

// IsLeaf is true of tensors not made by a recorded operation.
func (t *Tensor) IsLeaf() bool { return t.node == nil }

// Grad is the gradient a backward pass has left, or nil.
func (t *Tensor) Grad() *Tensor { return t.grad }

// SetGrad assigns the gradient; nil clears it. A parameter of an optimizer
// keeps its place in the flat buffer: the values are copied there.
func (t *Tensor) SetGrad(g *Tensor) error {
	if g == nil {
		t.grad = nil
		return nil
	}
	if !sameShape(g.shape, t.shape) {
		return fmt.Errorf("grad: shape %s does not fit a tensor of shape %s", shapeString(g.shape), shapeString(t.shape))
	}
	if g.dtype != t.dtype {
		return fmt.Errorf("grad: dtype %s does not fit a tensor of dtype %s", g.dtype, t.dtype)
	}
	if t.leaf != nil && t.leaf.slot != nil && t.leaf.slot != g {
		if err := assign("grad", t.leaf.slot, g); err != nil {
			return err
		}
		g = t.leaf.slot
	}
	t.grad = g
	return nil
}

// OnGradReady calls fn in each backward pass as soon as t's gradient is
// complete; nil removes the hook.
func (t *Tensor) OnGradReady(fn func(*Tensor) error) { t.leafState().ready = fn }

func (t *Tensor) leafState() *leafState {
	if t.leaf == nil {
		t.leaf = new(leafState)
	}
	return t.leaf
}

// records tells whether an operation on these inputs must be recorded.
func records(a, b *Tensor) bool {
	return (a.requiresGrad && a.ctx.Recording()) || (b != nil && b.requiresGrad && b.ctx.Recording())
}

// record makes out the result of an operation on inputs. Call it only if
// records is true of an input, and when out is complete.
func record(out *Tensor, op string, back func(*node, *Tensor, []*Tensor) error, inputs ...*Tensor) *node {
	n := &node{op: op, dtype: out.dtype, back: back}
	if len(inputs) <= len(n.inArr) {
		n.in = n.inArr[:len(inputs)]
	} else {
		n.in = make([]edge, len(inputs))
	}
	for i, t := range inputs {
		if t == nil || !t.requiresGrad {
			continue
		}
		if n.ctx == nil {
			n.ctx = t.ctx
		}
		if t.node != nil {
			n.in[i].node = t.node
			n.stale = n.stale || t.view && t.made != t.st.version
		} else {
			n.in[i].leaf = t
		}
	}
	n.shape = append(n.shapeArr[:0], out.shape...)
	n.saved = n.savedArr[:0]
	n.ctx.seq++
	n.seq = n.ctx.seq
	out.node, out.requiresGrad, out.ctx = n, true, n.ctx
	return n
}

// save keeps a tensor for the backward pass.
func (n *node) save(ts ...*Tensor) *node {
	for _, t := range ts {
		if t != nil {
			t.st.hold()
			n.saved = append(n.saved, savedTensor{t, t.st.version})
		} else {
			n.saved = append(n.saved, savedTensor{})
		}
	}
	return n
}

func (n *node) val(i int) *Tensor { return n.saved[i].t }

func (n *node) needs(i int) bool { return n.in[i].node != nil || n.in[i].leaf != nil }

// free lets go of what the node keeps. The graph below it is freed by the
// pass that calls it.
func (n *node) free() {
	for _, s := range n.saved {
		if s.t != nil {
			s.t.st.release()
		}
	}
	n.saved, n.savedArr = nil, [2]savedTensor{}
	n.in, n.inArr = nil, [2]edge{}
	n.back, n.freed = nil, true
}

func (n *node) check() error {
	if n.freed {
		return fmt.Errorf("backward: the graph was freed by an earlier backward pass; use backward(retain_graph = True) there to go through it again")
	}
	if n.stale {
		return fmt.Errorf("backward: %s used a view that was taken before the tensor was modified in place; take the view again after the change", n.op)
	}
	for _, s := range n.saved {
		if s.t != nil && s.t.st.version != s.version {
			return fmt.Errorf("backward: a tensor of shape %s was modified in place after %s saved it for the backward pass; clone() it first, or use the form that is not in place",
				shapeString(s.t.shape), n.op)
		}
	}
	return nil
}

// Backward computes the gradient of t with respect to the leaves it was
// computed from, and adds it to theirs. seed is the gradient of t itself; nil
// means 1 and needs a t of one element. The graph is freed unless retain.
func (t *Tensor) Backward(seed *Tensor, retain bool) error {
	if !t.requiresGrad {
		return fmt.Errorf("backward: the tensor does not require a gradient: no tensor it was computed from has requires_grad, or it was computed under no_grad")
	}
	if seed == nil {
		if t.n != 1 {
			return fmt.Errorf("backward: only a tensor of one element can start a backward pass, not one of shape %s; reduce it first, e.g. with .mean() or .sum()", shapeString(t.shape))
		}
		var err error
		if seed, err = Full(t.ctx, t.shape, Float(1), t.dtype); err != nil {
			return err
		}
	} else if !sameShape(seed.shape, t.shape) {
		return fmt.Errorf("backward: a gradient of shape %s does not fit a tensor of shape %s", shapeString(seed.shape), shapeString(t.shape))
	}
	c := t.ctx
	c.BeginNoGrad()
	defer c.EndNoGrad()
	if t.node == nil {
		return c.deliver(edge{leaf: t}, seed)
	}
	c.pass++
	order, err := c.reachable(t.node)
	if err != nil {
		return err
	}
	// Whatever ends the pass, no gradient in flight stays behind.
	defer func() {
		for _, n := range order {
			n.dropGrad()
		}
	}()
	if err := c.deliver(edge{node: t.node}, seed); err != nil {
		return err
	}
	var outArr [4]*Tensor
	for _, n := range order {
		if n.grad == nil {
			continue
		}
		if err := n.check(); err != nil {
			return err
		}
		out := outArr[:0]
		for range n.in {
			out = append(out, nil)
		}
		if err := n.back(n, n.grad, out); err != nil {
			return fmt.Errorf("backward of %w", err)
		}
		for i, g := range out {
			if g == nil || !n.needs(i) {
				continue
			}
			if err := c.deliver(n.in[i], g); err != nil {
				return err
			}
		}
		n.dropGrad()
		if !retain {
			n.free()
		}
	}
	return nil
}

// reachable lists the nodes below root by falling number, and counts how
// many gradients each leaf with a hook will get.
func (c *Context) reachable(root *node) ([]*node, error) {
	order := []*node{root}
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
			if l := e.leaf; l != nil && l.leaf != nil && l.leaf.ready != nil {
				l.leaf.pending = 0
			}
		}
	}
	for _, n := range order {
		for _, e := range n.in {
			if l := e.leaf; l != nil && l.leaf != nil && l.leaf.ready != nil {
				l.leaf.pending++
			}
		}
	}
	slices.SortFunc(order, func(a, b *node) int { return cmp.Compare(b.seq, a.seq) })
	return order, nil
}

// deliver adds g to where an edge leads.
func (c *Context) deliver(e edge, g *Tensor) error {
	shape, dtype := []int(nil), DType(0)
	if e.node != nil {
		shape, dtype = e.node.shape, e.node.dtype
	} else {
		shape, dtype = e.leaf.shape, e.leaf.dtype
	}
	if !sameShape(g.shape, shape) {
		s, err := sumTo(g, shape)
		if err != nil {
			return err
		}
		g = s
	}
	if g.dtype != dtype {
		s, err := Cast(g, dtype)
		if err != nil {
			return err
		}
		g = s
	}
	if e.leaf != nil {
		return e.leaf.accumulate(g)
	}
	n := e.node
	if n.grad == nil {
		n.grad = g
		g.st.hold()
		g.st.temp = true
		return nil
	}
	sum, err := Add(n.grad, g)
	if err != nil {
		return err
	}
	n.dropGrad()
	n.grad = sum
	sum.st.hold()
	sum.st.temp = true
	return nil
}

// dropGrad gives a gradient in flight back, unless somebody else holds it.
func (n *node) dropGrad() {
	if n.grad != nil {
		n.grad.st.release()
		n.grad = nil
	}
}

// accumulate adds g to a leaf's gradient.
func (t *Tensor) accumulate(g *Tensor) error {
	switch {
	case t.grad != nil:
		if err := addInto(t.grad, g); err != nil {
			return err
		}
	case t.leaf != nil && t.leaf.slot != nil:
		if err := assign("grad", t.leaf.slot, g); err != nil {
			return err
		}
		t.grad = t.leaf.slot
	default:
		c, err := Clone(g) // g may be a view of something in flight
		if err != nil {
			return err
		}
		t.grad = c
	}
	if t.leaf != nil && t.leaf.ready != nil {
		if t.leaf.pending--; t.leaf.pending <= 0 {
			return t.leaf.ready(t)
		}
	}
	return nil
}

// Detach gives a view of t that takes no part in gradients.
func (t *Tensor) Detach() *Tensor {
	v := viewOf(t, len(t.shape))
	copy(v.shape, t.shape)
	copy(v.strides, t.strides)
	return v.seal()
}

// Function makes out, computed from inputs by the caller, take part in
// gradients: backward gets the gradient of out and gives one for each input,
// nil where there is none. Without recording it does nothing.
func Function(op string, out *Tensor, inputs []*Tensor, backward func(g *Tensor) ([]*Tensor, error)) {
	recording := false
	for _, t := range inputs {
		recording = recording || records(t, nil)
	}
	if !recording {
		return
	}
	record(out, op, func(n *node, g *Tensor, grads []*Tensor) error {
		gs, err := backward(g)
		copy(grads, gs)
		return err
	}, inputs...)
}

// mayModify checks an in-place operation on t, whose operand src may be nil.
func (t *Tensor) mayModify(op string) error {
	switch {
	case t.frozen:
		return fmt.Errorf("%s: the tensor is frozen, as all values made at top level are; make it in main()", op)
	case t.requiresGrad && t.node == nil && t.ctx.Recording():
		return fmt.Errorf("%s: a leaf that requires grad cannot be modified in place while gradients are recorded; do it under tensor.no_grad, or to t.detach()", op)
	}
	for i, s := range t.strides {
		if s == 0 && t.shape[i] > 1 {
			return fmt.Errorf("%s: the tensor is expanded, several elements share one place; clone() it first", op)
		}
	}
	return nil
}
