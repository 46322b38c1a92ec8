package distributed

import (
	"fmt"
	"maps"
	"slices"

	"drun/collective"
	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
	"drun/tensor/linalg"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// hook averages the gradients of a bucket over the ranks in its own way: a communication hook of PyTorch's DDP.
type hook interface {
	// average returns the vector that takes the place of flat, the bucket's gradients. shapes are those of the gradients.
	average(d *ddp, b *bucket, flat *tensor.Tensor, shapes [][]int) (*tensor.Tensor, error)
}

// ownHook is a hook that the recipe has written.
type ownHook struct{ fn starlark.Callable }

func (h ownHook) average(d *ddp, b *bucket, flat *tensor.Tensor, shapes [][]int) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	list := each.Of(shapes, func(shape []int) starlark.Value { return startensor.IntTuple(shape) })
	index := slices.Index(d.buckets, b)
	given := starlarkstruct.FromStringDict(starlarkstruct.Default, starlark.StringDict{"buffer": (*startensor.Value)(flat), "shapes": starlark.NewList(list),
		"index": starlark.MakeInt(index), "is_last": starlark.Bool(index == len(d.buckets)-1), "group": d.g})
	v := try.To(starlark.Call(d.thread, h.fn, starlark.Tuple{given}, nil))
	if w, ok := v.(*Work); ok {
		v = try.To(w.result())
	}
	out, ok := v.(*startensor.Value)
	try.FailIf(!ok, "the hook returned a %s: want the averaged Tensor, or its Work", v.Type())
	t := out.Tensor()
	try.FailIf(t.DType() != flat.DType() || !slices.Equal(t.Shape(), flat.Shape()), "the hook returned a tensor of %s and shape %s: want %s and %s, those of bucket.buffer",
		t.DType(), listText(t.Shape()), flat.DType(), listText(flat.Shape()))
	return t.Detach(), nil
}

// hooks is dist.hooks.
type hooks struct{ starlib.Opaque }

func (h *hooks) String() string                           { return "<hooks>" }
func (h *hooks) Attr(name string) (starlark.Value, error) { return hookMethods.Attr(h, name) }
func (h *hooks) AttrNames() []string                      { return hookMethods.AttrNames() }

// compression is a hook that drun brings; a ddp's buckets have what was lost in earlier passes in residuals.
type compression struct {
	starlib.Opaque
	text      string
	reduce    func(h *compression, g *Group, ctx *collective.WaitLimit, at collective.Origin, b *bucket, flat *tensor.Tensor, shapes [][]int) (*tensor.Tensor, error)
	residuals map[*bucket]*tensor.Tensor
	factors   map[*bucket][]*tensor.Tensor // of PowerSGD, from the pass before

	order []*bucket                 // in the order of their first averages
	later map[string]*tensor.Tensor // restored state of buckets that have had none
}

var _ starlib.Growing = (*compression)(nil)

// Grows marks it as such: a bucket has state from its first average on.
func (h *compression) Grows() {}

// parts calls do with the names and tensors of the state of bucket i.
func (h *compression) parts(i int, do func(name string, t *tensor.Tensor)) {
	b := h.order[i]
	if t := h.residuals[b]; t != nil {
		do(fmt.Sprintf("residual.%d", i), t)
	}
	for j, t := range h.factors[b] {
		if t != nil {
			do(fmt.Sprintf("factor.%d.%d", i, j), t)
		}
	}
}

// State lists what earlier passes left out, of each bucket, and PowerSGD's factors.
func (h *compression) State() (entries []starlib.Entry) {
	for i := range h.order {
		h.parts(i, func(name string, t *tensor.Tensor) {
			entries = append(entries, starlib.Entry{Name: name, Value: (*startensor.Value)(t)})
		})
	}
	for _, name := range slices.Sorted(maps.Keys(h.later)) {
		entries = append(entries, starlib.Entry{Name: name, Value: (*startensor.Value)(h.later[name])})
	}
	return entries
}

// SetState puts saved state in the place of all there is; buckets take it when they are averaged next.
func (h *compression) SetState(entries []starlib.Entry) (err error) {
	defer try.Caught(&err)
	later := map[string]*tensor.Tensor{}
	for _, e := range entries {
		v, ok := e.Value.(*startensor.Value)
		try.FailIf(!ok, "dist.hooks.%s: %s must be a Tensor, not %s", h.text, e.Name, e.Value.Type())
		later[e.Name] = try.To(tensor.Clone(v.Tensor().Detach()))
	}
	h.later, h.order = later, nil
	clear(h.residuals)
	clear(h.factors)
	return nil
}

// begin gives a bucket that is averaged for the first time the state that was restored for it.
func (h *compression) begin(b *bucket, gradients int) {
	if slices.Contains(h.order, b) {
		return
	}
	i := len(h.order)
	h.order = append(h.order, b)
	take := func(name string) *tensor.Tensor {
		t := h.later[name]
		delete(h.later, name)
		return t
	}
	if t := take(fmt.Sprintf("residual.%d", i)); t != nil {
		h.residuals[b] = t
	}
	factors, found := make([]*tensor.Tensor, gradients), false
	for j := range factors {
		factors[j] = take(fmt.Sprintf("factor.%d.%d", i, j))
		found = found || factors[j] != nil
	}
	if found {
		h.factors[b] = factors
	}
}

func (h *compression) String() string { return h.text }

func (h *compression) average(d *ddp, b *bucket, flat *tensor.Tensor, shapes [][]int) (*tensor.Tensor, error) {
	h.begin(b, len(shapes))
	return h.reduce(h, d.g, d.ctx, d.origin(), b, flat, shapes)
}

var hookMethods = &starlib.Methods{
	Type: "hooks",
	Doc: "Ways of averaging gradients that send less, for dist.ddp(…, hook = …). Their results differ from those of an exact\n" +
		"average, and are the same on all ranks and in each repeat.",
	Defs: []*starlib.Def{
		{Sig: `bf16() -> CommHook`, Doc: "Sends and adds gradients in bfloat16, half the bytes.", Fn: func(*starlib.Call) (starlark.Value, error) {
			return halfHook("bf16", dtype.BFloat16), nil
		}},
		{Sig: `fp16() -> CommHook`, Doc: "Sends and adds gradients in float16, half the bytes. Values above 65504 become infinite.", Fn: func(*starlib.Call) (starlark.Value, error) {
			return halfHook("fp16", dtype.Float16), nil
		}},
		{Sig: `topk(share: number) -> CommHook`, Doc: "Each rank sends this share of its largest gradients; what it leaves out is added to those of the next pass.", Fn: func(c *starlib.Call) (starlark.Value, error) {
			share := c.Float("share")
			try.FailIf(!(share > 0 && share <= 1), "argument share: want a number above 0 and at most 1, got %v", c.Arg("share"))
			return newCompression(fmt.Sprintf("topk(%v)", share), topK(share)), nil
		}},
		{Sig: `powersgd(rank: int = 1) -> CommHook`, Doc: "Sends each gradient of two and more dimensions as the product of two matrices with that many columns (Vogels et al. 2019,\n" +
			"PowerSGD); what that leaves out is added to the next pass. Others are sent as they are.", Fn: func(c *starlib.Call) (starlark.Value, error) {
			rank := c.Int("rank")
			try.FailIf(rank < 1, "argument rank: want at least 1, got %d", rank)
			return newCompression(fmt.Sprintf("powersgd(%d)", rank), powerSGD(rank)), nil
		}},
	},
}

func newCompression(text string, reduce func(*compression, *Group, *collective.WaitLimit, collective.Origin, *bucket, *tensor.Tensor, [][]int) (*tensor.Tensor, error)) *compression {
	return &compression{Opaque: "CommHook", text: text, reduce: reduce, residuals: map[*bucket]*tensor.Tensor{}, factors: map[*bucket][]*tensor.Tensor{}}
}

func halfHook(text string, narrow dtype.Type) *compression {
	return newCompression(text+"()", func(_ *compression, g *Group, ctx *collective.WaitLimit, at collective.Origin, _ *bucket, flat *tensor.Tensor, _ [][]int) (_ *tensor.Tensor, err error) {
		defer try.Caught(&err)
		return tensor.Cast(try.To(reduced(g, ctx, try.To(tensor.Cast(flat, narrow)), dtype.Avg, at)), flat.DType())
	})
}

// corrected adds to a bucket's gradients what the passes before left out.
func (h *compression) corrected(b *bucket, flat *tensor.Tensor) (*tensor.Tensor, error) {
	if lost := h.residuals[b]; lost != nil {
		return tensor.Add(flat, lost)
	}
	return flat, nil
}

func topK(share float64) func(*compression, *Group, *collective.WaitLimit, collective.Origin, *bucket, *tensor.Tensor, [][]int) (*tensor.Tensor, error) {
	return func(h *compression, g *Group, ctx *collective.WaitLimit, at collective.Origin, b *bucket, flat *tensor.Tensor, _ [][]int) (_ *tensor.Tensor, err error) {
		defer try.Caught(&err)
		whole := try.To(h.corrected(b, flat))
		k := max(1, int(share*float64(whole.Len())))
		_, places := try.To2(tensor.TopK(try.To(tensor.Unary(tensor.OpAbs, whole)), k, 0, true))
		values := try.To(tensor.Gather(whole, 0, places))
		h.residuals[b] = try.To(tensor.Scatter(whole, 0, places, try.To(tensor.Zeros(whole.Context(), []int{k}, whole.DType()))))
		all := func(t *tensor.Tensor) *tensor.Tensor {
			t = try.To(tensor.Contiguous(t))
			out := try.To(tensor.Empty(t.Context(), []int{g.Size() * k}, t.DType()))
			try.Ok(g.do(ctx, collective.NewAllGather(bufferOf(t), bufferOf(out)), at))
			return out
		}
		sum := try.To(tensor.ScatterAdd(try.To(tensor.Zeros(whole.Context(), whole.Shape(), whole.DType())), 0, all(places), all(values)))
		return tensor.BinaryScalar(tensor.OpDiv, sum, tensor.Float(float64(g.Size())), false)
	}
}

func powerSGD(rank int) func(*compression, *Group, *collective.WaitLimit, collective.Origin, *bucket, *tensor.Tensor, [][]int) (*tensor.Tensor, error) {
	return func(h *compression, g *Group, ctx *collective.WaitLimit, at collective.Origin, b *bucket, flat *tensor.Tensor, shapes [][]int) (_ *tensor.Tensor, err error) {
		defer try.Caught(&err)
		whole := try.To(h.corrected(b, flat))
		parts := make([]*tensor.Tensor, len(shapes)) // the results
		matrices := make([]*tensor.Tensor, len(shapes))
		from := 0
		for i, shape := range shapes {
			n := elements(shape)
			part := try.To(tensor.Narrow(whole, 0, from, n))
			from += n
			if len(shape) < 2 || min(shape[0], n/max(shape[0], 1)) <= rank {
				parts[i] = try.To(reduced(g, ctx, try.To(tensor.Contiguous(part)), dtype.Avg, at))
				continue
			}
			matrices[i] = try.To(tensor.Reshape(part, []int{shape[0], n / shape[0]}))
		}
		q := h.factors[b]
		if q == nil {
			q = make([]*tensor.Tensor, len(shapes))
		}
		for i, m := range matrices {
			if m == nil {
				continue
			}
			if q[i] == nil { // the same on all ranks
				q[i] = try.To(tensor.NewGenerator(1, uint64(i)).Randn(m.Context(), []int{m.Shape()[1], rank}, m.DType()))
			}
			p := try.To(reduced(g, ctx, try.To(tensor.MatMul(m, q[i])), dtype.Avg, at))
			p, _ = try.To2(linalg.QR(p, false))
			q[i] = try.To(reduced(g, ctx, try.To(tensor.MatMul(try.To(tensor.Transpose(m, 0, 1)), p)), dtype.Avg, at))
			near := try.To(tensor.MatMul(p, try.To(tensor.Transpose(q[i], 0, 1))))
			parts[i] = try.To(tensor.Reshape(near, []int{near.Len()}))
		}
		h.factors[b] = q
		out := try.To(tensor.Cat(parts, 0))
		lost := try.To(tensor.Sub(whole, out))
		from = 0
		for i, shape := range shapes { // what was sent whole has lost nothing
			n := elements(shape)
			if matrices[i] == nil {
				clear(try.To(tensor.Narrow(lost, 0, from, n)).Bytes())
			}
			from += n
		}
		h.residuals[b] = lost
		return out, nil
	}
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
