package distributed

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"drun/collective"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/tensor"

	startensor "drun/starlib/tensor"

	"go.starlark.net/starlark"
)

var errPart = errors.New("these are each rank's own parts of parameters that dist.fsdp divides: its backward already averages their gradients")

func broadcastTensors(g *Group, c *starlib.Call, ctx *collective.WaitLimit, src int) (starlark.Value, error) {
	all := try.To(startensor.List(c.Arg("tensors")))
	return nil, spreadAgreed(g, ctx, all, func(b collective.Buffer) collective.Call {
		return collective.NewBroadcast(b, src)
	}, isInexact, origin(c))
}

func syncBuffer(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	all := try.To(startensor.List(c.Arg("buffers")))
	call := average
	if !c.Bool("average") {
		call = ofFirst
	}
	return nil, spreadAgreed(g, ctx, all, call, isInexact, origin(c))
}

// spreadAgreed is spread, checking that the ranks' tensors agree in number, dtypes and shapes.
func spreadAgreed(g *Group, ctx *collective.WaitLimit, all []*tensor.Tensor, newCall newCall, wanted func(dtype.Type) bool, at collective.Origin) error {
	if err := cmp.Or(exchangeable(all), sameParts(g, all)); err != nil {
		return err
	}
	g.key = appendShapes(g.key[:0], all)
	texts, err := spread(g, ctx, g.key, func() string { return describeShapes(all) }, all, newCall, wanted, at)
	if err != nil || texts == nil {
		return err
	}
	return g.disagree("the ranks' tensors differ in number, dtype or shape", texts)
}

// newCall makes a call that changes a buffer in place.
type newCall = func(collective.Buffer) collective.Call

func average(b collective.Buffer) collective.Call { return collective.NewAllReduce(b, dtype.Avg) }

func ofFirst(b collective.Buffer) collective.Call { return collective.NewBroadcast(b, 0) }

func anyType(dtype.Type) bool { return true }

func syncGrad(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	params := try.To(startensor.List(c.Arg("params")))
	g = try.To(copiesOf(g, c, params))
	for i, p := range params {
		if p.Share() != nil {
			return nil, errPart
		}
		if grad := p.Grad(); grad != nil {
			try.Ok(writable(grad))
			if !isInexact(grad.DType()) {
				return nil, fmt.Errorf("the gradient of parameter %d is %v, which cannot be averaged: convert it to a float dtype", i, grad.DType())
			}
		}
	}
	grads, text := gradsOf(g, params)
	texts, err := spread(g, ctx, g.key, text, grads, average, isInexact, origin(c))
	if err == nil && texts != nil {
		err = gradMismatch(g, params, strconv.Itoa, texts)
	}
	return nil, err
}

// agreeOnGrads checks that the same gradients exist on all ranks; if not, the error names the parameters.
func agreeOnGrads(g *Group, ctx *collective.WaitLimit, params []*tensor.Tensor, name func(i int) string, at collective.Origin) error {
	_, text := gradsOf(g, params)
	texts, err := g.compare(ctx, g.key, text, at)
	if err == nil && texts != nil {
		err = gradMismatch(g, params, name, texts)
	}
	return err
}

// gradsOf returns the gradients that exist, and sets the group's key to say which they are; text says the same in words.
func gradsOf(g *Group, params []*tensor.Tensor) (grads []*tensor.Tensor, text func() string) {
	grads = make([]*tensor.Tensor, 0, len(params))
	key := appendMarks(g.key[:0], params, func(p *tensor.Tensor) bool { return p.Grad() != nil })
	for _, p := range params {
		if grad := p.Grad(); grad != nil {
			grads = append(grads, grad)
		}
	}
	g.key = appendShapes(key, grads)
	return grads, func() string { return string(key) + describeShapes(grads) }
}

// appendMarks adds to a key a 1 for each parameter for which has is true, a 0 for each other, and a space.
func appendMarks(key []byte, params []*tensor.Tensor, has func(*tensor.Tensor) bool) []byte {
	for _, p := range params {
		mark := byte('0')
		if has(p) {
			mark = '1'
		}
		key = append(key, mark)
	}
	return append(key, ' ')
}

// gradMismatch names the parameters that have a gradient on some ranks only.
func gradMismatch(g *Group, params []*tensor.Tensor, name func(i int) string, texts []string) (err error) {
	defer try.Caught(&err)
	rest := try.To(oddGrads(g, params, name, texts))
	return g.disagree("the ranks' gradients differ in dtype or shape", rest)
}

// oddGrads returns an error that names the parameters that have a gradient on some ranks only; if there are none, it returns the texts without
// the marks of appendMarks at their beginning.
func oddGrads(g *Group, params []*tensor.Tensor, name func(i int) string, texts []string) (rest []string, err error) {
	counts, has, equal := make([]string, len(texts)), make([]string, len(texts)), true
	rest = make([]string, len(texts))
	for r, text := range texts {
		has[r], rest[r], _ = strings.Cut(text, " ")
		counts[r] = fmt.Sprintf("%d parameters", len(has[r]))
		equal = equal && len(has[r]) == len(params)
	}
	if !equal {
		return nil, g.disagree("the ranks pass different numbers of parameters", counts)
	}
	var odd []string
	for i, p := range params {
		var with, without []int
		for r := range has {
			if has[r][i] == '1' {
				with = append(with, g.ranks[r])
			} else {
				without = append(without, g.ranks[r])
			}
		}
		if len(with) > 0 && len(without) > 0 {
			odd = append(odd, fmt.Sprintf("parameter %s of shape %s has a gradient on %s, but none on %s",
				name(i), tensor.ShapeString(p.WholeShape()), collective.RankList(with), collective.RankList(without)))
		}
	}
	if len(odd) > 0 {
		return nil, &DisagreementError{strings.Join(odd, "\n")}
	}
	return rest, nil
}

// exchangeable returns an error if tensors cannot be set to what other ranks have.
func exchangeable(all []*tensor.Tensor) error {
	for _, t := range all {
		if err := writable(t); err != nil {
			return err
		}
		if t.Share() != nil {
			return errPart
		}
	}
	return nil
}

// appendShapes adds to a key what must be equal for the tensors of all ranks.
func appendShapes(key []byte, all []*tensor.Tensor) []byte {
	for _, t := range all {
		key = append(key, byte(t.DType()), byte(t.Dim()))
		for _, n := range t.Shape() {
			key = binary.AppendUvarint(key, uint64(n))
		}
	}
	return key
}

// describeShapes says in words what appendShapes adds.
func describeShapes(all []*tensor.Tensor) string {
	const shown = 6
	parts := []string{fmt.Sprintf("%d tensors", len(all))}
	for i, t := range all {
		if i == shown {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, t.DType().String()+strings.ReplaceAll(fmt.Sprint(t.Shape()), " ", ","))
	}
	return strings.Join(parts, " ")
}

func tensorOf(v starlark.Value) (*tensor.Tensor, bool) {
	t, ok := v.(*startensor.Value)
	return (*tensor.Tensor)(t), ok
}

func isInexact(d dtype.Type) bool {
	switch d {
	case dtype.Float32, dtype.Float64, dtype.Float16, dtype.BFloat16, dtype.Complex64:
		return true
	}
	return false
}

// spread makes the same in-place call on all tensors whose dtype is wanted, in as few collectives as it can: adjacent
// tensors of an optimizer's buffer are sent as one, others are copied into one. If their layout differs between
// ranks, all ranks copy. Keys are compared, and texts returned, as by compareWith.
func spread(g *Group, ctx *collective.WaitLimit, key []byte, text func() string, all []*tensor.Tensor, newCall newCall, wanted func(dtype.Type) bool, at collective.Origin) (texts []string, err error) {
	if g.comm == nil {
		return nil, nil
	}
	var batches []batch
	var layout []byte
	var present uint64 // a bit for each type
	for _, t := range all {
		present |= 1 << t.DType()
	}
	for _, d := range dtype.Types() {
		b := batch{dtype: d}
		if !wanted(d) || present&(1<<d) == 0 {
			continue
		}
		b.all = make([]*tensor.Tensor, 0, len(all))
		for _, t := range all {
			if t.DType() == d && t.Len() > 0 {
				b.all = append(b.all, t)
			}
		}
		if len(b.all) > 0 {
			layout = b.lie(layout)
			batches = append(batches, b)
		}
	}
	return g.compareWith(ctx, key, text, fnv(layout), at, func(alike bool) error {
		for _, b := range batches {
			if err := spreadOne(g, ctx, b, alike, newCall, at.In(collective.Step)); err != nil {
				return err
			}
		}
		return nil
	})
}

// direct is how many collectives in place are still preferred to one on a copy.
const direct = 4

// batch is a set of tensors of one dtype, whose elements are sent in a few calls.
type batch struct {
	dtype  dtype.Type
	all    []*tensor.Tensor
	joined []*tensor.Tensor // their memory as few tensors, for calls in place; nil: they are copied into one
}

// lie finds how the tensors are laid out in memory, and adds the lengths of the calls that they need to layout.
func (b *batch) lie(layout []byte) []byte {
	if !slices.ContainsFunc(b.all, func(t *tensor.Tensor) bool { return !t.IsContiguous() }) {
		if joined := tensor.Coalesce(b.all, direct); joined != nil {
			b.joined = joined
			for _, t := range joined {
				layout = binary.AppendUvarint(layout, uint64(t.Len()))
			}
			return layout
		}
	}
	total := 0
	for _, t := range b.all {
		total += t.Len()
	}
	return binary.AppendUvarint(layout, uint64(total))
}

func spreadOne(g *Group, ctx *collective.WaitLimit, b batch, alike bool, newCall newCall, at collective.Origin) error {
	if b.joined == nil || !alike {
		return staged(g, ctx, b.dtype, b.all, newCall, at, writeRaw)
	}
	for _, t := range b.joined {
		if err := g.do(ctx, newCall(bufferOf(t)), at); err != nil {
			return err
		}
		t.Touched()
	}
	return nil
}

// staged makes a call, for elements of type d, on a copy of the tensors in one buffer; write puts each part back. The
// order is the caller's, the same on all ranks.
func staged(g *Group, ctx *collective.WaitLimit, d dtype.Type, all []*tensor.Tensor, newCall newCall, at collective.Origin, write func(*tensor.Tensor, []byte) error) (err error) {
	defer try.Caught(&err)
	size := 0
	for _, t := range all {
		size += t.Len() * t.DType().Size()
	}
	buf, rest := g.world.memory.stage(size), 0
	for _, t := range all {
		data := try.To(tensor.Contiguous(t))
		rest += copy(buf[rest:], data.Bytes())
	}
	try.Ok(g.do(ctx, newCall(collective.Buffer{DType: d, Data: buf}), at))
	for _, t := range all {
		n := t.Len() * t.DType().Size()
		try.Ok(write(t, buf[:n]))
		buf = buf[n:]
	}
	return nil
}
