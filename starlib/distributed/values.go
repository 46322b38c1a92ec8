package distributed

import (
	"encoding/binary"
	"errors"
	"fmt"

	"drun/collective"
	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/codec"

	startensor "drun/starlib/tensor"
	"drun/tensor"

	"go.starlark.net/starlark"
)

// broadcastValue gives src's plain value to all ranks.
func broadcastValue(g *Group, ctx *collective.WaitLimit, v starlark.Value, src int, at collective.Origin) (starlark.Value, error) {
	if g.comm == nil {
		return v, nil
	}
	var data []byte
	if g.own == src {
		data = try.To(g.encode(v))
	}
	data, err := g.broadcastBytes(ctx, data, src, at.In(collective.Plain))
	if err != nil || g.own == src {
		return v, err
	}
	return g.decode(data)
}

// encode returns the bytes of a value; an error if they, with the value decoded from them, would exceed this rank's memory.
func (g *Group) encode(v starlark.Value) ([]byte, error) {
	return codec.Append(nil, v, g.world.largest)
}

// receivable returns an error if this rank cannot receive that many bytes of plain values.
func (g *Group) receivable(bytes int) error {
	if bytes > g.world.largest {
		return &codec.TooLargeError{Most: g.world.largest}
	}
	return nil
}

func (g *Group) decode(data []byte) (starlark.Value, error) {
	return (&codec.Decoder{Tensors: g.world.tensors, Reference: g.world.rpc.refer}).Decode(data)
}

// An envelope holds a count of bytes and, if they are no more than envelopeRoom, the bytes: most plain values take one exchange. Shared
// memory has this much room beside a rank's arrival.
type envelope []byte

const (
	envelopeHead = 8
	envelopeRoom = 88
	envelopeSize = envelopeHead + envelopeRoom
)

func (p envelope) put(data []byte) {
	binary.LittleEndian.PutUint64(p, uint64(len(data)))
	if len(data) <= envelopeRoom {
		copy(p[envelopeHead:], data)
	}
}

func (p envelope) count() int { return int(binary.LittleEndian.Uint64(p)) }

// bytes are those of a count of at most envelopeRoom.
func (p envelope) bytes() []byte { return p[envelopeHead:][:p.count():p.count()] }

func (g *Group) broadcastBytes(ctx *collective.WaitLimit, data []byte, src int, at collective.Origin) (_ []byte, err error) {
	defer try.Caught(&err)
	first := make(envelope, envelopeSize)
	if g.own == src {
		first.put(data)
	}
	try.Ok(g.do(ctx, collective.NewBroadcast(collective.Of([]byte(first)), src), at))
	if n := first.count(); n <= envelopeRoom {
		return first.bytes(), nil
	} else if g.own != src {
		try.Ok(g.receivable(n))
		data = make([]byte, n)
	}
	return data, g.do(ctx, collective.NewBroadcast(collective.Of(data), src), at)
}

// gatherValues gives rank dst every rank's plain value, in rank order.
func gatherValues(g *Group, c *starlib.Call, ctx *collective.WaitLimit, v starlark.Value, dst int) (_ []starlark.Value, err error) {
	defer try.Caught(&err)
	data := try.To(g.encode(v))
	all := try.To(g.gatherBytes(ctx, data, dst, origin(c).In(collective.Plain)))
	values := each.Of(all, func(data []byte) starlark.Value { return try.To(g.decode(data)) })
	return values, nil
}

// scatterValues gives each rank its value of src's list. Tensors must agree in
// shape and dtype, as in torch.distributed.
func scatterValues(g *Group, c *starlib.Call, ctx *collective.WaitLimit, list []starlark.Value, src int) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	var all []byte
	counts := make([]int64, g.Size())
	var like *operand
	for r, v := range list {
		if _, ok := v.(*startensor.Value); ok {
			o := try.To(operandOf(v))
			if like != nil && (fmt.Sprint(like.shape) != fmt.Sprint(o.shape) || like.buf.DType != o.buf.DType) {
				return nil, fmt.Errorf("value %d is %v of shape %s, value 0 is %v of shape %s: scatter needs tensors of one dtype and shape",
					r, o.buf.DType, tensor.ShapeString(o.shape), like.buf.DType, tensor.ShapeString(like.shape))
			}
			like = o
		}
		before := len(all)
		var err error
		all, err = codec.Append(all, v, g.world.largest-before)
		if errors.As(err, new(*codec.TooLargeError)) { // it is too large only together with those before it
			return nil, &codec.TooLargeError{Most: g.world.largest}
		}
		try.FailIf(err != nil, "value %d: %w", r, err)
		counts[r] = int64(len(all) - before)
	}
	at := origin(c).In(collective.Step) // only src knows what the list holds
	try.Ok(g.do(ctx, collective.NewBroadcast(collective.Of(counts), src), at))
	sizes := each.Of(counts, func(n int64) int { return int(n) })
	try.Ok(g.receivable(sizes[g.own]))
	own := make([]byte, sizes[g.own])
	call := collective.NewScatter(collective.Of(all), collective.Of(own), src)
	call.Counts = uneven(sizes)
	try.Ok(g.do(ctx, call, at))
	return g.decode(own)
}

// gatherBytes gives rank dst every rank's bytes, in rank order.
func (g *Group) gatherBytes(ctx *collective.WaitLimit, data []byte, dst int, at collective.Origin) (_ [][]byte, err error) {
	defer try.Caught(&err)
	own, firsts := make(envelope, envelopeSize), make([]byte, envelopeSize*g.Size())
	own.put(data)
	call := collective.NewAllGather(collective.Of([]byte(own)), collective.Of(firsts))
	call.Shape = []int{-1} // as the board shows the bytes that follow
	try.Ok(g.do(ctx, call, at))
	all, counts, small := make([][]byte, g.Size()), make([]int, g.Size()), true
	for r := range all {
		p := envelope(firsts[r*envelopeSize:][:envelopeSize:envelopeSize])
		counts[r] = p.count()
		if small = small && counts[r] <= envelopeRoom; small {
			all[r] = p.bytes()
		}
	}
	if small {
		if !g.arrives(dst) {
			return nil, nil
		}
		return all, nil
	}
	var joined []byte
	if g.arrives(dst) {
		try.Ok(g.receivable(collective.Total(counts)))
		joined = make([]byte, collective.Total(counts))
	}
	call = newGather(collective.Of(data), collective.Of(joined), dst)
	call.Counts = uneven(counts)
	if err := g.do(ctx, call, at); err != nil || !g.arrives(dst) {
		return nil, err
	}
	for r, n := range counts {
		all[r], joined = joined[:n:n], joined[n:]
	}
	return all, nil
}

// gatherSizes returns every rank's n; the ranks' shape, except for dimension 0, and dt must be the same.
func (g *Group) gatherSizes(ctx *collective.WaitLimit, n int64, shape []int, dt dtype.Type, at collective.Origin) ([]int64, error) {
	all := make([]int64, g.Size())
	call := collective.NewAllGather(collective.Of([]int64{n}), collective.Of(all))
	call.Shape, call.As = shape, dt
	return all, g.do(ctx, call, at)
}
