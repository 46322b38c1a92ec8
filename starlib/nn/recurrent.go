package nn

import (
	"fmt"
	"math"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

func (k *maker) recurrents() []*starlib.Def {
	const settings = "input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: number = 0, bidirectional: bool = False"
	const shapes = " Called as m(x, state, lengths) with x of shape (t, n, input_size), or (n, t, input_size) with batch_first, or (t, input_size) without a batch; it returns the outputs of the last layer, (t, n, hidden_size) or twice as wide if bidirectional, and the last state. " +
		"A state has shape (num_layers, n, hidden_size), with twice as many layers if bidirectional; it is zeros by default. lengths, a list or tensor of n numbers from 1 to t, are the sequences' lengths: beyond its length a sequence's outputs are 0 and its state does not change, and the backward direction begins at its end, as with PyTorch's packed sequences. " +
		"dropout is applied between layers, in training. Parameters are named weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_ih_l0_reverse, … and drawn from ±1/√hidden_size."
	return []*starlib.Def{
		{Sig: "lstm(" + settings + ") -> Module", Fn: func(c *starlib.Call) (starlark.Value, error) { return k.recurrent(c, "lstm", tensor.LSTM) },
			Doc: "Long short-term memory (Hochreiter, Schmidhuber 1997), with PyTorch's gates in the order i, f, g, o. Its state is a pair (h, c)." + shapes},
		{Sig: "gru(" + settings + ") -> Module", Fn: func(c *starlib.Call) (starlark.Value, error) { return k.recurrent(c, "gru", tensor.GRU) },
			Doc: "Gated recurrent units (Cho et al. 2014), with PyTorch's gates in the order r, z, n: r scales the hidden sum of n, its bias included." + shapes},
		{Sig: "rnn(" + settings + `, nonlinearity: string = "tanh") -> Module`,
			Doc: "Elman's recurrent layer (1990): h = tanh(W·x + b + U·h + d), or relu." + shapes,
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				switch c.String("nonlinearity") {
				case "tanh":
					return k.recurrent(c, "rnn", tensor.RNNTanh)
				case "relu":
					return k.recurrent(c, "rnn", tensor.RNNRelu)
				}
				return nil, fmt.Errorf(`nonlinearity = %s: want "tanh" or "relu"`, c.Arg("nonlinearity"))
			}},
	}
}

func (k *maker) recurrent(c *starlib.Call, kind string, cell tensor.Cell) (starlark.Value, error) {
	in, width, layers, p := size(c, "input_size"), size(c, "hidden_size"), size(c, "num_layers"), probability(c, "dropout")
	batchFirst, directions, gates := c.Bool("batch_first"), 1, map[tensor.Cell]int{tensor.LSTM: 4, tensor.GRU: 3}[cell]
	gates = max(gates, 1)
	if c.Bool("bidirectional") {
		directions = 2
	}
	try.FailIf(width > 1<<40 || layers > 1<<16, "hidden_size = %d, num_layers = %d need more memory than this machine has", width, layers)
	bound := 1 / math.Sqrt(float64(width))
	var fields []field
	draw := func(name string, shape ...int) {
		t := k.full(name, shape, 0)
		try.Ok(k.streams.Shared.Stream.Uniform(t, -bound, bound))
		fields = append(fields, trained(name, t))
	}
	for l := range layers {
		from := in
		if l > 0 {
			from = width * directions
		}
		for d := range directions {
			end := fmt.Sprintf("_l%d", l) + []string{"", "_reverse"}[d]
			draw("weight_ih"+end, gates*width, from)
			draw("weight_hh"+end, gates*width, width)
			if c.Bool("bias") {
				draw("bias_ih"+end, gates*width)
				draw("bias_hh"+end, gates*width)
			}
		}
	}
	r := &recurrentLayer{k: k, cell: cell, width: width, layers: layers, directions: directions, p: p, batchFirst: batchFirst, bias: c.Bool("bias")}
	detail := fmt.Sprintf("%d, %d", in, width)
	if layers > 1 {
		detail += fmt.Sprintf(", num_layers = %d", layers)
	}
	if directions > 1 {
		detail += ", bidirectional = True"
	}
	return k.makeCall(kind, detail, fields, "(x: Tensor, state: Tensor | tuple = None, lengths: Tensor | list | tuple = None) -> tuple", func(m *Model, c *starlib.Call) (starlark.Value, error) {
		return r.call(m, c)
	}), nil
}

type recurrentLayer struct {
	k                         *maker
	cell                      tensor.Cell
	width, layers, directions int
	p                         float64
	batchFirst, bias          bool
}

// weights returns the weights of a layer's direction, counted over all layers.
func (r *recurrentLayer) weights(m *Model, i int) tensor.RNNWeights {
	if !r.bias {
		return tensor.RNNWeights{WIH: m.own(2 * i), WHH: m.own(2*i + 1)}
	}
	return tensor.RNNWeights{WIH: m.own(4 * i), WHH: m.own(4*i + 1), BIH: m.own(4*i + 2), BHH: m.own(4*i + 3)}
}

func (r *recurrentLayer) call(m *Model, c *starlib.Call) (starlark.Value, error) {
	x := startensor.Arg(c, "x")
	alone := x.Dim() == 2
	swap := func(t *tensor.Tensor) *tensor.Tensor {
		if r.batchFirst && !alone {
			return try.To(tensor.Transpose(t, 0, 1))
		}
		return t
	}
	if alone {
		x = try.To(tensor.Unsqueeze(x, 1))
	} else if x.Dim() != 3 {
		return nil, fmt.Errorf("needs an input of 3 dimensions, or 2 without a batch, not shape %s", startensor.Shape(x))
	}
	x = swap(x)
	steps, n, rows := x.Shape()[0], x.Shape()[1], r.layers*r.directions
	var lengths []int64
	if !c.IsNone("lengths") {
		lengths = try.To(lengthsOf(c.Arg("lengths"), n, steps))
	}
	var h0, c0 *tensor.Tensor
	switch v := c.Arg("state").(type) {
	case starlark.NoneType:
	case *startensor.Value:
		h0 = v.Tensor()
	case starlark.Tuple:
		if len(v) == 2 {
			h, ok1 := v[0].(*startensor.Value)
			cell, ok2 := v[1].(*startensor.Value)
			if ok1 && ok2 {
				h0, c0 = h.Tensor(), cell.Tensor()
			}
		}
	}
	if !c.IsNone("state") && (h0 == nil || (c0 != nil) != (r.cell == tensor.LSTM)) {
		return nil, fmt.Errorf("argument state: want a Tensor, or for an lstm a pair of Tensors (h, c), got %s", c.Arg("state").Type())
	}
	state := func(name string, t *tensor.Tensor) *tensor.Tensor {
		if t == nil {
			return try.To(tensor.Zeros(x.Context(), []int{rows, n, r.width}, x.DType()))
		}
		if alone && t.Dim() == 2 {
			t = try.To(tensor.Unsqueeze(t, 1))
		}
		if s := t.Shape(); len(s) != 3 || s[0] != rows || s[1] != n || s[2] != r.width {
			try.Fail("a state %s of shape %s does not fit: expected (%d, %d, %d)", name, startensor.Shape(t), rows, n, r.width)
		}
		return t
	}
	h0 = state("h", h0)
	if r.cell == tensor.LSTM {
		c0 = state("c", c0)
	}
	var hs, cs []*tensor.Tensor
	for l := range r.layers {
		if l > 0 && m.training && r.p > 0 {
			x = try.To(tensor.Dropout(x, r.p, r.k.streams.PerRank.Stream))
		}
		var outs []*tensor.Tensor
		for d := range r.directions {
			i := l*r.directions + d
			h, from := try.To(tensor.Select(h0, 0, i)), (*tensor.Tensor)(nil)
			if c0 != nil {
				from = try.To(tensor.Select(c0, 0, i))
			}
			out, hn, cn := try.To3(tensor.Recurrent(r.cell, x, h, from, r.weights(m, i), lengths, d == 1))
			outs, hs, cs = append(outs, out), append(hs, hn), append(cs, cn)
		}
		if x = outs[0]; len(outs) > 1 {
			x = try.To(tensor.Cat(outs, 2))
		}
	}
	join := func(list []*tensor.Tensor) starlark.Value {
		t := try.To(tensor.Stack(list, 0))
		if alone {
			t = try.To(tensor.Squeeze(t, 1))
		}
		return (*startensor.Value)(t)
	}
	last := join(hs)
	if r.cell == tensor.LSTM {
		last = starlark.Tuple{last, join(cs)}
	}
	if alone {
		x = try.To(tensor.Squeeze(x, 1))
	}
	return starlark.Tuple{(*startensor.Value)(swap(x)), last}, nil
}

// lengthsOf reads the lengths of n sequences of at most steps.
func lengthsOf(v starlark.Value, n, steps int) (_ []int64, err error) {
	defer try.Caught(&err)
	var lengths []int64
	if t, ok := v.(*startensor.Value); ok {
		if !t.Tensor().DType().IsInt() || t.Tensor().Dim() != 1 {
			return nil, fmt.Errorf("argument lengths: want integers of one dimension, got %s of shape %s", t.Tensor().DType(), startensor.Shape(t.Tensor()))
		}
		scalars := try.To(t.Tensor().Scalars())
		for _, s := range scalars {
			lengths = append(lengths, s.Int())
		}
	} else {
		list, err := startensor.Ints(v.(starlark.Iterable))
		try.FailIf(err != nil, "argument lengths: %w", err)
		for _, l := range list {
			lengths = append(lengths, int64(l))
		}
	}
	try.FailIf(len(lengths) != n, "argument lengths: want %d numbers, one for each sequence, got %d", n, len(lengths))
	for i, l := range lengths {
		if l < 1 || l > int64(steps) {
			return nil, fmt.Errorf("argument lengths: sequence %d has length %d: want 1 to %d", i, l, steps)
		}
	}
	return lengths, nil
}
