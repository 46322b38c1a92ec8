package distributed

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"drun/collective"
	"drun/internal/try"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"

	"go.starlark.net/starlark"
)

// A message is sent as two calls of collective, its length and its bytes, because a receiver must know the size. The
// two have different tags, so that receives of lengths and of bytes keep their order.

func pointToPoint(w *World) []*starlib.Def {
	send := func(async bool) builtin {
		return w.withRank("dst", func(g *Group, c *starlib.Call, ctx *collective.WaitLimit, dst int) (starlark.Value, error) {
			return sendValue(g, c, ctx, dst, async)
		})
	}
	return []*starlib.Def{
		{Sig: `send(x, dst: int, tag: int = 0, group: Group = None, timeout: number = None)`, Fn: send(false),
			Doc: "Sends a tensor or plain value to rank dst. It may return before dst receives it. A message that dst never receives\n" +
				"is an error once all ranks have returned from main, or when the group is destroyed. Messages are matched\n" +
				"by sender and tag; different tags may be received in any order."},
		{Sig: `isend(x, dst: int, tag: int = 0, group: Group = None, timeout: number = None) -> Work`, Fn: send(true),
			Doc: "Like send, but does not wait: x is copied, and wait() of the returned Work waits."},
		{Sig: `recv(src: int, tag: int = 0, group: Group = None, timeout: number = None)`,
			Doc: "The next message from rank src with this tag. It waits as long as the sender is alive, or for\n" +
				"timeout.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				v, _, err := try.To(receiveFrom(w, c)).wait()
				return v, err
			}},
		{Sig: `irecv(src: int, tag: int = 0, group: Group = None, timeout: number = None) -> Work`,
			Doc: "Like recv, but does not wait: wait() of the returned Work returns the message.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				r := try.To(receiveFrom(w, c))
				work := &Work{Opaque: "Work", what: "irecv", ctx: r.ctx, done: r.ready}
				work.then = finish(func() (starlark.Value, error) {
					v, _, err := r.wait()
					return v, err
				})
				return work, nil
			}},
		{Sig: `recv_any(tag: int = 0, group: Group = None, timeout: number = None) -> tuple`,
			Doc: "The next message with this tag from any rank, as (value, src).",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				r := try.To(receiveOn(w, c, try.To(w.group(c)), collective.AnySource))
				v, src, err := r.wait()
				return starlark.Tuple{v, starlark.MakeInt(r.g.ranks[src])}, err
			}},
		{Sig: `P2POp(op: callable, tensor: any, peer: int, group: Group = None, tag: int = 0) -> P2POp`,
			Doc: "A message that dist.batch_isend_irecv starts: op is dist.isend or dist.irecv. A tensor of an irecv gets what is\n" +
				"received; with None, wait() of its Work returns it.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				op := c.Callable("op")
				name := strings.TrimPrefix(op.Name(), "dist.")
				try.FailIf(name != "isend" && name != "irecv", "argument op: want dist.isend or dist.irecv, got %s", op.Name())
				return &message{Opaque: "P2POp", op: op, sends: name == "isend", x: c.Arg("tensor"), peer: c.Arg("peer"),
					named: []starlark.Tuple{{starlark.String("tag"), c.Arg("tag")}, {starlark.String("group"), c.Arg("group")}}}, nil
			}},
		{Sig: `batch_isend_irecv(p2p_op_list: iterable) -> list`,
			Doc: "Starts the messages of a list of dist.P2POp in order, and returns the list of their Works.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				var works []starlark.Value
				for v := range starlark.Elements(c.Arg("p2p_op_list").(starlark.Iterable)) {
					m, ok := v.(*message)
					try.FailIf(!ok, "want a list of dist.P2POp, got %s in it", v.Type())
					works = append(works, try.To(m.start(c.Thread)))
				}
				try.FailIf(len(works) == 0, "there are no messages")
				return starlark.NewList(works), nil
			}},
	}
}

// message is a send or a receive that has not started: PyTorch's P2POp.
type message struct {
	starlib.Opaque
	op    starlark.Callable
	sends bool
	x     starlark.Value // what is sent; the tensor that gets what is received, or None
	peer  starlark.Value
	named []starlark.Tuple
}

func (m *message) String() string { return "<P2POp of " + m.op.Name() + ">" }

func (m *message) start(thread *starlark.Thread) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	if m.sends {
		return starlark.Call(thread, m.op, starlark.Tuple{m.x, m.peer}, m.named)
	}
	into, fills := m.x.(*startensor.Value)
	try.FailIf(!fills && m.x != starlark.None, "argument tensor of an irecv: want a Tensor or None, got %s", m.x.Type())
	v := try.To(starlark.Call(thread, m.op, starlark.Tuple{m.peer}, m.named))
	if fills {
		try.Ok(writable(into.Tensor()))
		work := v.(*Work)
		receive := work.then
		work.then = finish(func() (_ starlark.Value, err error) {
			defer try.Caught(&err)
			came, ok := try.To(receive.result()).(*startensor.Value)
			try.FailIf(!ok, "what rank %s sent is no tensor", m.peer)
			t, in := came.Tensor(), into.Tensor()
			try.FailIf(t.DType() != in.DType() || !slices.Equal(t.Shape(), in.Shape()), "rank %s sent a tensor of %s and shape %s, and the one that gets it is of %s and shape %s",
				m.peer, t.DType(), listText(t.Shape()), in.DType(), listText(in.Shape()))
			data := try.To(tensor.Contiguous(t))
			return into, writeRaw(in, data.Bytes())
		})
	}
	return v, nil
}

const maxTag = collective.Body - 1

func tag(c *starlib.Call) (int, error) {
	n := c.Int("tag")
	if n < 0 || n > maxTag {
		return 0, fmt.Errorf("tag %d is out of range: want 0 to %d", n, maxTag)
	}
	return n, nil
}

func sendValue(g *Group, c *starlib.Call, ctx *collective.WaitLimit, dst int, async bool) (starlark.Value, error) {
	try.FailIf(dst == g.own, "rank %d sends to itself: keep the value in a variable", g.world.rank.Rank)
	t := try.To(tag(c))
	data := try.To(g.encode(c.Arg("x")))
	return sendBytes(g, data, dst, t, ctx, origin(c), "isend", async)
}

// sendBytes sends a message; asynchronously, it returns a Work.
func sendBytes(g *Group, data []byte, dst, t int, ctx *collective.WaitLimit, at collective.Origin, what string, async bool) (starlark.Value, error) {
	size := binary.NativeEndian.AppendUint64(nil, uint64(len(data)))
	var sending works
	for i, part := range [2][]byte{size, data} {
		call := collective.NewSend(collective.Of(part), dst, t+i*collective.Body)
		call.Origin, call.Async, call.Limit = at.In(collective.Plain), async, ctx.Limit
		work, err := g.comm.Start(&call)
		if err == nil && !async {
			err = work.Wait(ctx)
		}
		if err != nil {
			return nil, err
		}
		sending = append(sending, work)
	}
	if !async {
		return nil, nil
	}
	work := &Work{Opaque: "Work", what: what, group: g, ctx: ctx, at: at.Pos, wait: sending.wait, done: sending.done}
	work.then = finish(func() (starlark.Value, error) { return starlark.None, nil })
	g.world.keep(work)
	return work, nil
}

// route identifies a queue of messages: they are matched by group, source and tag.
type route struct {
	group    *Group
	src, tag int
}

// receive is a receive that has started. Receives of one route take their messages
// in the order in which they were started, whatever order they are waited for in.
type receive struct {
	g     *Group
	ctx   *collective.WaitLimit
	at    collective.Origin
	src   int // in the group; AnySource until the message has come
	route route
	size  [8]byte
	head  collective.Work // the length
	body  collective.Work // the bytes
	data  []byte
	over  bool
	err   error
}

// receiveFrom starts receiving from the rank that the argument src names.
func receiveFrom(w *World, c *starlib.Call) (*receive, error) {
	g := try.To(w.group(c))
	src := try.To(g.member(c, "src"))
	try.FailIf(src == g.own, "rank %d receives from itself: keep the value in a variable", w.rank.Rank)
	return receiveOn(w, c, g, src)
}

// receiveOn starts receiving from a rank of the group.
func receiveOn(w *World, c *starlib.Call, g *Group, src int) (*receive, error) {
	ctx := w.forever
	if !c.IsNone("timeout") {
		ctx = try.To(w.until(c))
	}
	t := try.To(tag(c))
	try.FailIf(g.comm == nil, "there is no other rank to receive from")
	return startReceive(g, src, t, ctx, origin(c))
}

func startReceive(g *Group, src, t int, ctx *collective.WaitLimit, at collective.Origin) (_ *receive, err error) {
	w := g.world
	r := &receive{g: g, ctx: ctx, at: at.In(collective.Plain), src: src, route: route{g, src, t}}
	if r.head, err = r.start(r.size[:], t); err != nil {
		return nil, err
	}
	w.receives[r.route] = append(w.receives[r.route], r)
	return r, nil
}

func (r *receive) start(into []byte, tag int) (collective.Work, error) {
	call := collective.NewRecv(collective.Of(into), r.src, tag)
	call.Origin, call.Async = r.at, true
	return r.g.comm.Start(&call)
}

// ready advances this receive and those before it as far as possible without waiting, and reports whether its message
// has arrived.
func (r *receive) ready() bool {
	r.advance(false)
	return r.over || r.err != nil || r.body != nil && r.body.Done()
}

// advance starts receiving the bytes of this receive's message, after those of the receives before it. Without
// wait, it stops at a length that has not arrived.
func (r *receive) advance(wait bool) {
	for _, other := range r.g.world.receives[r.route] {
		if other.body == nil && other.err == nil {
			if !wait && !other.head.Done() {
				return
			}
			other.receiveBody()
		}
		if other == r {
			return
		}
	}
}

// receiveBody starts receiving the bytes once the length has arrived.
func (r *receive) receiveBody() {
	if r.err = r.head.Wait(r.ctx); r.err != nil {
		return
	}
	if receipt, ok := r.head.(collective.Receipt); ok && r.src == collective.AnySource {
		r.src = receipt.Source()
	}
	size := binary.NativeEndian.Uint64(r.size[:])
	if r.err = r.g.receivable(int(size)); r.err != nil {
		return
	}
	r.data = make([]byte, size)
	r.body, r.err = r.start(r.data, r.route.tag+collective.Body)
}

// wait returns the message and the sender's rank in the group.
func (r *receive) wait() (starlark.Value, int, error) {
	w := r.g.world
	r.advance(true)
	if r.err == nil {
		r.err = r.body.Wait(r.ctx)
	}
	r.over = true
	// Drop the receives at the front that have been waited for.
	queue := w.receives[r.route]
	for len(queue) > 0 && queue[0].over {
		queue = queue[1:]
	}
	if len(queue) == 0 {
		delete(w.receives, r.route)
	} else {
		w.receives[r.route] = queue
	}
	if r.err != nil {
		return nil, 0, r.err
	}
	v, err := r.g.decode(r.data)
	return v, r.src, err
}
