package tensor

import (
	"fmt"
	"slices"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// A node is one recorded operation. Nodes are numbered in the order of creation, so every node follows its inputs:
// the backward pass visits them in descending order, so that gradients are always added in the same order. Each
// operation makes only one allocation, so a node also has the fields that only few nodes use.
type node struct {
	op    string
	seq   uint64
	shape []int // of the result
	dtype dtype.Type
	ctx   *Context
	in    []edge
	saved []savedTensor
	// back computes the gradients of the inputs from the result's:
	// out[i] for in[i], only where needs(i). An out of a broadcast shape
	// is summed to the input's shape by the engine, and cast to its dtype. It may fail as try.To does.
	back backward

	grad    *Tensor // the sum of the gradients that have arrived in this pass
	mark    uint64  // pass in which it was visited
	refs    int32   // a lower bound of the tensors and edges that lead to it
	uses    int32   // edges that ever led to it
	freed   bool
	foreign bool                  // back comes from a caller: its results may be in use elsewhere
	stale   bool                  // an input was a view of something modified since
	done    bool                  // its gradients were put in place before the pass reached it
	whole   bool                  // what back does lasts to the end of the pass, which cannot be done in halves
	placed  uint8                 // a bit for each input whose gradient back has put in place
	strides []int                 // of a result that fills its memory in another order of dimensions
	number  Scalar                // the operand that was a plain number
	again   *again                // how its gradients are differentiated; nil unless the context creates graphs
	part    func(*Tensor) *Tensor // for a view of a part: takes the same part of another tensor of its input's shape; or nil

	inArr    [2]edge
	savedArr [2]savedTensor
	shapeArr [4]int
}

// An edge says where an input's gradient goes: to the node that made it or, for a leaf, to the leaf. Both are nil for
// an input that needs none.
type edge struct {
	node *node
	leaf *Tensor
}

type savedTensor struct {
	t       *Tensor
	version uint32
}

// RequiresGrad reports whether operations on t are recorded.
func (t *Tensor) RequiresGrad() bool { return t.requiresGrad }

// SetRequiresGrad makes t a leaf that collects gradients, or stops it from doing so.
func (t *Tensor) SetRequiresGrad(on bool) error {
	switch {
	case t.node != nil && !on:
		return fmt.Errorf("requires_grad: only a leaf can stop requiring a gradient; use detach()")
	case on && t.dtype != dtype.Float32 && t.dtype != dtype.Float64:
		return fmt.Errorf("requires_grad: only float32 and float64 tensors can require gradients, not %s; cast with .to(\"float32\")", t.dtype)
	case on && t.ctx == nil:
		return fmt.Errorf("requires_grad: the tensor has no context")
	}
	t.requiresGrad = on
	return nil
}

// IsLeaf reports whether t was not made by a recorded operation.
func (t *Tensor) IsLeaf() bool { return t.node == nil }

// Grad returns the gradient that backward passes have left, or nil.
func (t *Tensor) Grad() *Tensor {
	if t.grad != nil {
		t.grad.unseen = false
	}
	return t.grad
}

// SetGrad assigns the gradient; nil clears it. A parameter of an optimizer
// keeps its place in the flat buffer: the values are copied there.
func (t *Tensor) SetGrad(g *Tensor) (err error) {
	defer try.Caught(&err)
	if g == nil {
		if t.grad != nil && t.grad.unseen { // its memory is reused in the next step, without a garbage collection
			t.grad.st.temp = true
			t.grad.st.release()
		}
		t.grad = nil
		return nil
	}
	g.unseen = false
	if !sameShape(g.shape, t.shape) {
		return fmt.Errorf("grad: shape %s does not fit a tensor of shape %s", ShapeString(g.shape), ShapeString(t.shape))
	}
	if g.dtype != t.dtype {
		return fmt.Errorf("grad: dtype %s does not fit a tensor of dtype %s", g.dtype, t.dtype)
	}
	if t.leaf != nil && t.leaf.slot != nil && t.leaf.slot != g {
		assign("grad", t.leaf.slot, g)
		g = t.leaf.slot
	}
	t.grad = g
	return nil
}

// OnGradReady calls fn in each backward pass as soon as t's gradient is complete; nil removes the hook.
func (t *Tensor) OnGradReady(fn func(*Tensor) error) { t.leafState().ready = fn }

func (t *Tensor) leafState() *leafState {
	if t.leaf == nil {
		t.leaf = new(leafState)
	}
	return t.leaf
}

// records reports whether an operation on these inputs must be recorded.
func records(a, b *Tensor) bool {
	return (a.requiresGrad && a.ctx.Recording()) || (b != nil && b.requiresGrad && b.ctx.Recording())
}

func recordsAny(inputs ...*Tensor) bool {
	return slices.ContainsFunc(inputs, func(t *Tensor) bool { return t != nil && records(t, nil) })
}

// record records out as the result of an operation on inputs. Call it only if records is true for an input, and after
// out is complete.
func record(out *Tensor, op string, back backward, inputs ...*Tensor) *node {
	var c *Context
	for _, t := range inputs {
		if t != nil && t.requiresGrad {
			c = t.ctx
			break
		}
	}
	n := c.newNode()
	n.op, n.ctx, n.dtype, n.back, n.refs = op, c, out.dtype, back, 1
	if len(inputs) <= len(n.inArr) {
		n.in = n.inArr[:len(inputs)]
	} else {
		n.in = make([]edge, len(inputs))
	}
	for i, t := range inputs {
		if t == nil || !t.requiresGrad {
			continue
		}
		if t.node != nil {
			n.in[i].node = t.node
			t.node.refs++
			t.node.uses++
			n.stale = n.stale || t.view && t.made != t.st.version
		} else {
			n.in[i].leaf = t
		}
	}
	n.shape = append(n.shapeArr[:0], out.shape...)
	if !out.contiguous && dense(out) {
		n.strides = append([]int(nil), out.strides...)
	}
	n.saved = n.savedArr[:0]
	n.ctx.seq++
	n.seq = n.ctx.seq
	if c.CreateGraph {
		n.keepInputs(out, inputs)
	}
	out.node, out.requiresGrad, out.ctx = n, true, n.ctx
	if n.ctx.watched() {
		n.ctx.Watched(op, out, inputs...)
	}
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

// free releases what the node holds. The graph below it is freed by the pass that calls it.
func (n *node) free() {
	for _, s := range n.saved {
		if s.t != nil {
			s.t.st.release()
		}
	}
	for _, e := range n.in {
		if e.node != nil {
			e.node.refs--
		}
	}
	if n.again != nil {
		for _, s := range n.again.in {
			if s.t != nil {
				s.t.st.release()
			}
		}
		n.again = nil
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
				ShapeString(s.t.shape), n.op)
		}
	}
	return nil
}

// Detach returns a view of t that takes no part in t's gradients. It may be changed in place, even to values
// with gradients: t gets only the values.
func (t *Tensor) Detach() *Tensor {
	v := alias(t)
	v.n, v.contiguous, v.view = t.n, t.contiguous, false
	return v
}

// Function makes out, computed from inputs by the caller, take part in gradients: backward gets the gradient of out
// and returns one for each input, nil for none. It does nothing unless gradients are recorded.
func Function(op string, out *Tensor, inputs []*Tensor, backward func(g *Tensor) ([]*Tensor, error)) {
	if !recordsAny(inputs...) {
		return
	}
	record(out, op, func(n *node, g *Tensor, grads []*Tensor) {
		g.st.temp = false // backward may keep the gradient
		copy(grads, try.To(backward(g)))
	}, inputs...).foreign = true
}

// Record makes out, computed from inputs by the caller, take part in gradients. back gets the gradient of out and what was
// saved, and returns a gradient for each input, nil for none; it may fail as try.To does. The backward pass fails if a saved
// tensor has been modified since. Where gradients are to have gradients, back is called while operations are recorded: then what
// it returns must depend on g and on the saved tensors, which are inputs or out, by recorded operations; or it fails.
// Record does nothing unless gradients are recorded.
func Record(op string, out *Tensor, inputs, saved []*Tensor, back func(g *Tensor, saved []*Tensor) []*Tensor) {
	if !recordsAny(inputs...) {
		return
	}
	all := func(n *node, g *Tensor, grads []*Tensor) {
		values := make([]*Tensor, len(n.saved))
		for i := range values {
			values[i] = n.val(i)
		}
		try.Ok(func() (err error) {
			defer try.CaughtAs(op, &err)
			copy(grads, back(g, values))
			return nil
		}())
	}
	record(out, op, all, inputs...).save(saved...).twice(all)
}
