package nn

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// transformers are attention, and the layers built from it.
func (k *maker) transformers() []*starlib.Def {
	const masks = " A mask is bool, True where a position may not be attended to, or is added to the scores; a key_padding_mask has shape (n, s), another (l, s) or (n·num_heads, l, s)."
	const blocks = `d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: number = 0.1, activation: string = "relu", layer_norm_eps: number = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True`
	return []*starlib.Def{
		{Sig: "attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, mask: Tensor = None, dropout: number = 0, scale: number = None) -> Tensor",
			Doc: "softmax(q·kᵀ/√d)·v, shapes (…, length, d); with causal, a position attends only to itself and earlier positions. mask broadcasts to (…, length of q, length of k): bool, True where a query may attend, or numbers that are added to the scores; a query that may attend to nothing gets zeros. dropout is the probability of dropping a weight, even outside training; scale replaces 1/√d (Vaswani et al. 2017).",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				q, key, v := startensor.Arg(c, "q"), startensor.Arg(c, "k"), startensor.Arg(c, "v")
				o := tensor.AttentionOptions{Mask: startensor.Optional(c, "mask"), Causal: c.Bool("causal"), Dropout: probability(c, "dropout"), Stream: k.streams.PerRank.Stream}
				if o.Mask == nil && o.Dropout == 0 && c.IsNone("scale") {
					return startensor.Result(tensor.Attention(q, key, v, o.Causal))
				}
				if !c.IsNone("scale") {
					o.Scale = positive(c, "scale")
				}
				out, _, err := tensor.AttentionWith(q, key, v, o)
				return startensor.Result(out, err)
			}},
		{Sig: "multi_head_attention(embed_dim: int, num_heads: int, dropout: number = 0, bias: bool = True, batch_first: bool = False) -> Module",
			Doc: "Attention in num_heads heads, each a part of embed_dim (Vaswani et al. 2017), with PyTorch's parameters in_proj_weight (3·embed_dim, embed_dim), in_proj_bias, out_proj.weight and out_proj.bias. Called as m(query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal) with (l, n, embed_dim) and (s, n, embed_dim), or (n, l, embed_dim) with batch_first; it returns (output, weights). The weights are (n, l, s), the mean of the heads, or (n, num_heads, l, s), or None without need_weights, which is faster." + masks,
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				return k.multiHead(size(c, "embed_dim"), size(c, "num_heads"), probability(c, "dropout"), c.Bool("bias"), c.Bool("batch_first")), nil
			}},
		{Sig: "transformer_encoder_layer(" + blocks + ") -> Module", Fn: func(c *starlib.Call) (starlark.Value, error) { return k.block(c, false) },
			Doc: `A block of a transformer: self-attention and two linear layers, each with dropout, a residual and layer_norm after it, or before it with norm_first. activation is "relu" or "gelu". Called as m(src, src_mask, src_key_padding_mask, is_causal) with (l, n, d_model), or (n, l, d_model) with batch_first. Parameters are named as PyTorch's: self_attn, linear1, linear2, norm1, norm2.` + masks},
		{Sig: "transformer_decoder_layer(" + blocks + ") -> Module", Fn: func(c *starlib.Call) (starlark.Value, error) { return k.block(c, true) },
			Doc: "A block of a transformer with attention to a memory between self-attention and the linear layers: called as m(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal, memory_is_causal); otherwise as transformer_encoder_layer. Parameters are named as PyTorch's: self_attn, multihead_attn, linear1, linear2, norm1, norm2, norm3." + masks},
		{Sig: "rotary_embedding(x: Tensor, base: number = 10000.0, offset: int = 0, interleaved: bool = False) -> Tensor",
			Doc: "Rotates pairs of elements of queries or keys x (…, length, d), d even, by angles that grow with the position: pair i of position p by p·base^(-2i/d) (Su et al. 2021). Pairs are (i, i + d/2), as in Hugging Face's LLaMA weights, or with interleaved (2i, 2i + 1), as in the paper. offset is the first position.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				base, offset := c.Float("base"), c.Int("offset")
				try.FailIf(!(base > 0) || math.IsInf(base, 0) || offset < 0 || offset > 1<<50, "base = %v, offset = %d: want a finite base above 0 and an offset of 0 or more", base, offset)
				return startensor.Result(tensor.Rotary(startensor.Arg(c, "x"), base, offset, c.Bool("interleaved")))
			}},
	}
}

// heads is a multi-head attention, for its module and for blocks.
type heads struct {
	k          *maker
	width, n   int
	p          float64
	batchFirst bool
	bias       bool
}

func (k *maker) multiHead(width, n int, p float64, withBias, batchFirst bool) *Model {
	try.FailIf(width%n != 0, "%d heads do not divide embed_dim = %d", n, width)
	a := &heads{k: k, width: width, n: n, p: p, batchFirst: batchFirst, bias: withBias}
	weight := k.full("in_proj_weight", []int{3 * width, width}, 0)
	bound := math.Sqrt(6 / float64(4*width))
	try.Ok(k.streams.Shared.Stream.Uniform(weight, -bound, bound))
	fields := []field{trained("in_proj_weight", weight)}
	if withBias {
		fields = append(fields, trained("in_proj_bias", k.full("in_proj_bias", []int{3 * width}, 0)))
	}
	out := k.newLinear(width, width, withBias)
	if withBias {
		try.Ok(tensor.FillInPlace(out.own(1), tensor.Float(0)))
	}
	m := k.makeCall("multi_head_attention", fmt.Sprintf("%d, %d", width, n), append(fields, register("out_proj", out)),
		"(query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor = None, need_weights: bool = True, attn_mask: Tensor = None, average_attn_weights: bool = True, is_causal: bool = False) -> tuple",
		func(m *Model, c *starlib.Call) (starlark.Value, error) {
			y, weights := try.To2(a.attend(c.Thread, m, startensor.Arg(c, "query"), startensor.Arg(c, "key"), startensor.Arg(c, "value"),
				startensor.Optional(c, "key_padding_mask"), startensor.Optional(c, "attn_mask"), c.Bool("is_causal"), c.Bool("need_weights")))
			var seen starlark.Value = starlark.None
			if weights != nil {
				if c.Bool("average_attn_weights") {
					weights = try.To(tensor.Mean(weights, []int{-3}, false))
				}
				seen = (*startensor.Value)(weights)
			}
			return starlark.Tuple{(*startensor.Value)(y), seen}, nil
		})
	m.heads = a
	return m
}

func (m *Model) through(thread *starlark.Thread, name string, x *tensor.Tensor) *tensor.Tensor {
	l := m.part(name)
	if l.of != nil && l.hooks == nil && l.around == nil {
		return try.To(l.of(l, x))
	}
	out := try.To(starlark.Call(thread, l, starlark.Tuple{(*startensor.Value)(x)}, nil))
	t, ok := out.(*startensor.Value)
	try.FailIf(!ok, "%s: want a Tensor, got %s", name, out.Type())
	return t.Tensor()
}

func (m *Model) part(name string) *Model {
	i := slices.IndexFunc(m.fields, func(f field) bool { return f.name == name })
	return m.fields[i].seen.(*Model)
}

// attendTo returns the output of the attention in the named field.
func (m *Model) attendTo(thread *starlark.Thread, name string, q, memory, padding, mask *tensor.Tensor, causal bool) *tensor.Tensor {
	l := m.part(name)
	if l.heads != nil && l.hooks == nil && l.around == nil {
		y, _, err := l.heads.attend(thread, l, q, memory, memory, padding, mask, causal, false)
		return try.To(y, err)
	}
	given := func(t *tensor.Tensor) starlark.Value {
		if t == nil {
			return starlark.None
		}
		return (*startensor.Value)(t)
	}
	out := try.To(starlark.Call(thread, l, starlark.Tuple{given(q), given(memory), given(memory)}, []starlark.Tuple{
		{starlark.String("key_padding_mask"), given(padding)}, {starlark.String("need_weights"), starlark.False},
		{starlark.String("attn_mask"), given(mask)}, {starlark.String("is_causal"), starlark.Bool(causal)}}))
	if pair, ok := out.(starlark.Tuple); ok && len(pair) == 2 {
		out = pair[0]
	}
	t, ok := out.(*startensor.Value)
	try.FailIf(!ok, "%s: want a Tensor and its weights, got %s", name, out.Type())
	return t.Tensor()
}

// attend computes the output, and the weights (n, heads, l, s) if they are needed.
func (a *heads) attend(thread *starlark.Thread, m *Model, q, key, v, padding, mask *tensor.Tensor, causal, need bool) (y, weights *tensor.Tensor, err error) {
	defer func() {
		if err != nil {
			err = try.As("multi_head_attention", err)
		}
	}()
	in := []*tensor.Tensor{q, key, v}
	alone := q.Dim() == 2
	for i, t := range in {
		if alone && t.Dim() == 2 {
			t = try.To(tensor.Unsqueeze(t, 1))
		} else if t.Dim() == 3 && a.batchFirst {
			t = try.To(tensor.Transpose(t, 0, 1))
		}
		if t.Dim() != 3 || t.Shape()[2] != a.width {
			return nil, nil, fmt.Errorf("an input of shape %s does not fit embed_dim = %d: expected 3 dimensions, or 2 without a batch", startensor.Shape(in[i]), a.width)
		}
		in[i] = t
	}
	n := in[0].Shape()[1]
	depth := a.width / a.n
	for i, t := range in {
		w := try.To(tensor.Narrow(m.own(0), 0, i*a.width, a.width))
		var b *tensor.Tensor
		if a.bias {
			b = try.To(tensor.Narrow(m.own(1), 0, i*a.width, a.width))
		}
		if t, err = tensor.Linear(t, w, b); err != nil {
			return nil, nil, err
		}
		if t.Shape()[1] != n {
			return nil, nil, fmt.Errorf("the batch sizes %d and %d differ", n, t.Shape()[1])
		}
		t = try.To(tensor.Reshape(t, []int{t.Shape()[0], n, a.n, depth}))
		in[i] = try.To(tensor.Permute(t, []int{1, 2, 0, 3})) // (n, heads, length, depth)
	}
	l, s := in[0].Shape()[2], in[1].Shape()[2]
	o := tensor.AttentionOptions{Causal: causal, Stream: a.k.streams.PerRank.Stream}
	if m.training {
		o.Dropout = a.p
	}
	if o.Mask, err = a.mask(padding, mask, n, l, s, in[0]); err != nil {
		return nil, nil, err
	}
	if o.Mask == nil && o.Dropout == 0 && !need {
		y, err = tensor.Attention(in[0], in[1], in[2], causal)
	} else {
		y, weights, err = tensor.AttentionWith(in[0], in[1], in[2], o)
	}
	if err != nil {
		return nil, nil, err
	}
	y = try.To(tensor.Reshape(try.To(tensor.Permute(y, []int{2, 0, 1, 3})), []int{l, n, a.width}))
	y = m.through(thread, "out_proj", y)
	switch {
	case alone:
		y = try.To(tensor.Squeeze(y, 1))
		if weights != nil {
			weights = try.To(tensor.Squeeze(weights, 0))
		}
	case a.batchFirst:
		y = try.To(tensor.Transpose(y, 0, 1))
	}
	if !need {
		weights = nil
	}
	return y, weights, nil
}

// mask combines the masks into numbers that are added to the scores; nil if there are none.
func (a *heads) mask(padding, mask *tensor.Tensor, n, l, s int, like *tensor.Tensor) (*tensor.Tensor, error) {
	number := func(name string, t *tensor.Tensor, shapes ...[]int) (_ *tensor.Tensor, err error) {
		defer try.Caught(&err)
		for _, shape := range shapes[:len(shapes)-1] {
			if startensor.Shape(t) != tensor.ShapeString(shape) {
				continue
			}
			if shape[0] == n*a.n && len(shape) == 3 {
				shape = []int{n, a.n, l, s}
			} else if name == "key_padding_mask" {
				shape = []int{n, 1, 1, s}
			}
			t, err := tensor.Reshape(t, shape)
			if err != nil || t.DType() == like.DType() {
				return t, err
			}
			try.FailIf(t.DType() != dtype.Bool, "%s must be bool or %s, not %s", name, like.DType(), t.DType())
			zeros := try.To(tensor.Zeros(like.Context(), shape, like.DType()))
			return tensor.MaskedFill(zeros, t, tensor.Float(math.Inf(-1)))
		}
		return nil, fmt.Errorf("%s of shape %s does not fit: expected %s", name, startensor.Shape(t), tensor.ShapeString(shapes[0]))
	}
	var all *tensor.Tensor
	var err error
	if mask != nil {
		if all, err = number("attn_mask", mask, []int{l, s}, []int{n * a.n, l, s}, nil); err != nil {
			return nil, err
		}
	}
	if padding != nil {
		one := []int{n, s}
		if n == 1 && padding.Dim() == 1 {
			one = []int{s}
		}
		p, err := number("key_padding_mask", padding, one, nil)
		if err != nil || all == nil {
			return p, err
		}
		return tensor.Add(all, p)
	}
	return all, nil
}

// block makes a layer of a transformer's encoder or decoder.
func (k *maker) block(c *starlib.Call, decoder bool) (starlark.Value, error) {
	width, n, wide, p, eps := size(c, "d_model"), size(c, "nhead"), size(c, "dim_feedforward"), probability(c, "dropout"), c.Float("layer_norm_eps")
	bias, first := c.Bool("bias"), c.Bool("norm_first")
	var act func(*tensor.Tensor) (*tensor.Tensor, error)
	switch c.String("activation") {
	case "relu":
		act = func(t *tensor.Tensor) (*tensor.Tensor, error) { return tensor.Unary(tensor.OpRelu, t) }
	case "gelu":
		act = func(t *tensor.Tensor) (*tensor.Tensor, error) { return tensor.Unary(tensor.OpGelu, t) }
	default:
		return nil, fmt.Errorf(`activation = %s: want "relu" or "gelu"`, c.Arg("activation"))
	}
	fields := []field{register("self_attn", k.multiHead(width, n, p, bias, c.Bool("batch_first")))}
	norms := []string{"norm1", "norm2"}
	if decoder {
		fields = append(fields, register("multihead_attn", k.multiHead(width, n, p, bias, c.Bool("batch_first"))))
		norms = append(norms, "norm3")
	}
	fields = append(fields, register("linear1", k.newLinear(width, wide, bias)), register("linear2", k.newLinear(wide, width, bias)))
	for _, name := range norms {
		fields = append(fields, register(name, k.newLayerNorm(fmt.Sprint(width), []int{width}, eps, bias)))
	}
	drop := func(m *Model, t *tensor.Tensor) *tensor.Tensor {
		if m.training && p > 0 {
			return try.To(tensor.Dropout(t, p, k.streams.PerRank.Stream))
		}
		return t
	}
	// part computes one of the block's parts, with its residual and norm.
	part := func(c *starlib.Call, m *Model, norm string, x *tensor.Tensor, fn func(*tensor.Tensor) *tensor.Tensor) *tensor.Tensor {
		if first {
			return try.To(tensor.Add(x, fn(m.through(c.Thread, norm, x))))
		}
		return m.through(c.Thread, norm, try.To(tensor.Add(x, fn(x))))
	}
	feed := func(c *starlib.Call, m *Model, norm string, x *tensor.Tensor) *tensor.Tensor {
		return part(c, m, norm, x, func(t *tensor.Tensor) *tensor.Tensor {
			h := drop(m, try.To(act(m.through(c.Thread, "linear1", t))))
			return drop(m, m.through(c.Thread, "linear2", h))
		})
	}
	attend := func(c *starlib.Call, m *Model, name, norm string, x, memory, padding, mask *tensor.Tensor, causal bool) *tensor.Tensor {
		return part(c, m, norm, x, func(t *tensor.Tensor) *tensor.Tensor {
			return drop(m, m.attendTo(c.Thread, name, t, cmp.Or(memory, t), padding, mask, causal))
		})
	}
	detail := fmt.Sprintf("%d, %d", width, n)
	if !decoder {
		return k.makeCall("transformer_encoder_layer", detail, fields, "(src: Tensor, src_mask: Tensor = None, src_key_padding_mask: Tensor = None, is_causal: bool = False) -> Tensor",
			func(m *Model, c *starlib.Call) (starlark.Value, error) {
				x := attend(c, m, "self_attn", "norm1", startensor.Arg(c, "src"), nil, startensor.Optional(c, "src_key_padding_mask"), startensor.Optional(c, "src_mask"), c.Bool("is_causal"))
				return (*startensor.Value)(feed(c, m, "norm2", x)), nil
			}), nil
	}
	return k.makeCall("transformer_decoder_layer", detail, fields,
		"(tgt: Tensor, memory: Tensor, tgt_mask: Tensor = None, memory_mask: Tensor = None, tgt_key_padding_mask: Tensor = None, memory_key_padding_mask: Tensor = None, tgt_is_causal: bool = False, memory_is_causal: bool = False) -> Tensor",
		func(m *Model, c *starlib.Call) (starlark.Value, error) {
			x := attend(c, m, "self_attn", "norm1", startensor.Arg(c, "tgt"), nil, startensor.Optional(c, "tgt_key_padding_mask"), startensor.Optional(c, "tgt_mask"), c.Bool("tgt_is_causal"))
			x = attend(c, m, "multihead_attn", "norm2", x, startensor.Arg(c, "memory"), startensor.Optional(c, "memory_key_padding_mask"), startensor.Optional(c, "memory_mask"), c.Bool("memory_is_causal"))
			return (*startensor.Value)(feed(c, m, "norm3", x)), nil
		}), nil
}
