package distributed

import (
	"math"
	"slices"

	"drun/collective"
	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"

	"go.starlark.net/starlark"
)

// ring is attention over a sequence that is divided among the ranks of a group (Liu et al. 2023, Ring Attention): each rank keeps
// its queries, while keys and values go from rank to rank, so that no rank has the scores of the whole sequence. Parts of a
// softmax are put together as by FlashAttention (Dao et al. 2022).
type ring struct {
	g      *Group
	ctx    *collective.WaitLimit
	at     collective.Origin
	causal bool
	scale  tensor.Scalar
}

func sequenceParallelism(w *World) []*starlib.Def {
	return []*starlib.Def{{
		Sig: `ring_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: number = None, group: Group = None, timeout: number = None) -> Tensor`,
		Doc: "nn.attention over a sequence that is divided among the ranks of the group, in rank order: q, k and v, of shape\n" +
			"(…, L, D), are this rank's L positions, and so is the result, which equals that of the whole sequence on one rank\n" +
			"but for rounding. Keys and values go around the ranks, so a rank needs memory for scores of (…, L, L) only. All\n" +
			"ranks have the same shapes. The backward pass is a collective, too. With causal the first ranks have less to\n" +
			"compute than the last.",
		Fn: w.inGroup(ringAttention),
	}}
}

func ringAttention(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	var in [3]*tensor.Tensor
	for i, name := range []string{"q", "k", "v"} {
		in[i] = c.Arg(name).(*startensor.Value).Tensor()
	}
	q, k, v := in[0], in[1], in[2]
	for _, t := range in {
		try.Ok(tensor.NeedFloat("ring_attention", t))
		fits := t.Dim() >= 2 && t.Dim() == q.Dim() && t.DType() == q.DType() && slices.Equal(t.Shape()[:t.Dim()-2], q.Shape()[:t.Dim()-2])
		try.FailIf(!fits, "q, k and v of %s and shapes %s, %s and %s do not fit: want (…, L, D), with the same dtype and leading dimensions", q.DType(), listText(q.Shape()), listText(k.Shape()), listText(v.Shape()))
	}
	last := q.Dim() - 1
	fits := k.Shape()[last] == q.Shape()[last] && k.Shape()[last-1] == v.Shape()[last-1] && k.Shape()[last-1] > 0 && (!c.Bool("causal") || q.Shape()[last-1] == k.Shape()[last-1])
	try.FailIf(!fits, "q, k and v of shapes %s, %s and %s do not fit: want (…, L, D), (…, S, D) and (…, S, E), and L = S with causal", listText(q.Shape()), listText(k.Shape()), listText(v.Shape()))
	scale := 1 / math.Sqrt(float64(q.Shape()[last]))
	if !c.IsNone("scale") {
		scale = c.Float("scale")
	}
	if g.Size() == 1 {
		out, _, err := tensor.AttentionWith(q, k, v, tensor.AttentionOptions{Causal: c.Bool("causal"), Scale: scale})
		return startensor.Result(out, err)
	}
	r := &ring{g: g, ctx: ctx, at: origin(c), causal: c.Bool("causal"), scale: tensor.Float(scale)}
	try.Ok(g.agree(ctx, appendShapes(nil, in[:]), r.at, "the ranks' tensors differ in dtype or shape", func() string { return describeShapes(in[:]) }))
	out, lse := r.forward(q.Detach(), k.Detach(), v.Detach())
	tensor.Record("ring_attention", out, in[:], []*tensor.Tensor{q, k, v, out.Detach(), lse}, r.backward)
	return (*startensor.Value)(out), nil
}

// forward returns the result, and the logarithms of the sums by which the weights are divided. It panics as try does.
func (r *ring) forward(q, k, v *tensor.Tensor) (out, lse *tensor.Tensor) {
	var top, sum *tensor.Tensor // of the scores so far, and of the weights relative to it
	r.around([]*tensor.Tensor{k, v}, func(part []*tensor.Tensor, from int) {
		s := r.scores(q, part[0], from)
		if s == nil {
			return
		}
		most, _ := try.To2(tensor.MaxDim(s, -1, true))
		if top != nil {
			most = try.To(tensor.Binary(tensor.OpMaximum, top, most))
		}
		w := exp(s, most)
		total := try.To(tensor.Sum(w, []int{-1}, true))
		values := try.To(tensor.MatMul(w, part[1]))
		if top != nil {
			before := exp(top, most)
			total = try.To(tensor.Add(try.To(tensor.Mul(sum, before)), total))
			values = try.To(tensor.Add(try.To(tensor.Mul(out, before)), values))
		}
		top, sum, out = most, total, values
	})
	return try.To(tensor.Binary(tensor.OpDiv, out, sum)), try.To(tensor.Add(top, try.To(tensor.Unary(tensor.OpLog, sum))))
}

func (r *ring) backward(dy *tensor.Tensor, saved []*tensor.Tensor) []*tensor.Tensor {
	try.FailIf(dy.Context().Recording(), "its gradient has no gradient itself, so create_graph is not possible here")
	q, k, v, out, lse := saved[0].Detach(), saved[1].Detach(), saved[2].Detach(), saved[3], saved[4]
	turned := func(t *tensor.Tensor) *tensor.Tensor { return try.To(tensor.Transpose(t, -1, -2)) }
	delta := try.To(tensor.Sum(try.To(tensor.Mul(dy, out)), []int{-1}, true))
	dq := try.To(zerosLike(q))
	// The gradients of keys and values go around with them, once more than they, back to where they are from.
	part := r.around([]*tensor.Tensor{k, v, try.To(zerosLike(k)), try.To(zerosLike(v))}, func(part []*tensor.Tensor, from int) {
		s := r.scores(q, part[0], from)
		if s == nil {
			return
		}
		w := exp(s, lse)
		dw := try.To(tensor.Sub(try.To(tensor.MatMul(dy, turned(part[1]))), delta))
		ds := try.To(tensor.BinaryScalar(tensor.OpMul, try.To(tensor.Mul(w, dw)), r.scale, false))
		dq = try.To(tensor.Add(dq, try.To(tensor.MatMul(ds, part[0]))))
		part[2] = try.To(tensor.Add(part[2], try.To(tensor.MatMul(turned(ds), q))))
		part[3] = try.To(tensor.Add(part[3], try.To(tensor.MatMul(turned(w), dy))))
	})
	home := r.pass(part[2:])
	return []*tensor.Tensor{dq, home[0], home[1]}
}

// scores returns those of this rank's queries for the keys of rank from; nil if causal leaves none.
func (r *ring) scores(q, k *tensor.Tensor, from int) *tensor.Tensor {
	if r.causal && from > r.g.own {
		return nil
	}
	s := try.To(tensor.MatMul(q, try.To(tensor.Transpose(k, -1, -2))))
	s = try.To(tensor.BinaryScalar(tensor.OpMul, s, r.scale, false))
	if r.causal && from == r.g.own {
		all := try.To(tensor.Full(s.Context(), s.Shape()[s.Dim()-2:], tensor.Truth(true), dtype.Bool))
		s = try.To(tensor.MaskedFill(s, try.To(tensor.Triu(all, 1)), tensor.Float(math.Inf(-1))))
	}
	return s
}

// exp is e to the power of x - y.
func exp(x, y *tensor.Tensor) *tensor.Tensor {
	return try.To(tensor.Unary(tensor.OpExp, try.To(tensor.Sub(x, y))))
}

// around calls use with each rank's part, which use may change, this rank's own first, and returns the last.
func (r *ring) around(part []*tensor.Tensor, use func(part []*tensor.Tensor, from int)) []*tensor.Tensor {
	n := r.g.Size()
	for i := range n {
		if i > 0 {
			part = r.pass(part)
		}
		use(part, (r.g.own-i+n)%n)
	}
	return part
}

// pass sends a part to the next rank, and returns that of the rank before.
func (r *ring) pass(part []*tensor.Tensor) []*tensor.Tensor {
	n := r.g.Size()
	sent := each.Of(part, func(t *tensor.Tensor) *shipment {
		return try.To(sendParcel(r.g, r.ctx, parcel{t: t}, (r.g.own+1)%n, tagRing, r.at))
	})
	got := each.Of(part, func(*tensor.Tensor) *tensor.Tensor {
		return try.To(receiveParcel(r.g, r.ctx, (r.g.own-1+n)%n, tagRing, r.at)).t
	})
	for _, s := range sent {
		try.Ok(s.wait(r.ctx))
	}
	return got
}
