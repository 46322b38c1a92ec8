package distributed

import (
	"fmt"

	"drun/collective"
	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/tensor"
)

// Tags of messages between builtins, above those of recipes' messages, which take 30 bits, plus one for their second parts.
const ownTags = 2 * collective.Body

const (
	tagActivation = ownTags + iota // of a pipeline, forward
	tagGradient                    // of a pipeline, backward
	tagCall                        // of dist.rpc
	tagAnswer                      // of dist.rpc
	tagRing                        // of dist.ring_attention
	tagsEnd
)

// tagOf returns the tag of messages to or from a chunk of a pipeline.
func tagOf(tag, chunk int) int { return tag + chunk*(tagsEnd-ownTags) }

// A parcel is a tensor that a builtin sends to the same builtin on another rank, with what the receiver must know about it.
// Its elements go from the sender's memory to the receiver's without another copy.
type parcel struct {
	t     *tensor.Tensor // nil: there is none
	grad  bool           // the sender waits for t's gradient
	micro int            // which part of a batch it belongs to,
	of    int            // of how many
	rows  int            // of the whole batch
}

// head is a parcel without its elements: micro, of, rows, whether there is a tensor and whether
// its gradient is awaited, dtype, number of dimensions, sizes.
type head [6 + tensor.MaxDims]int64

const (
	noTensor = iota
	constant
	awaitsGradient
)

func headOf(p parcel) head {
	h := head{int64(p.micro), int64(p.of), int64(p.rows), noTensor}
	if p.t == nil {
		return h
	}
	h[3], h[4], h[5] = constant, int64(p.t.DType()), int64(p.t.Dim())
	if p.grad {
		h[3] = awaitsGradient
	}
	for i, n := range p.t.Shape() {
		h[6+i] = int64(n)
	}
	return h
}

// empty makes the tensor that src describes, whose elements follow.
func (h *head) empty(g *Group, src int) (*tensor.Tensor, error) {
	dims := h[5]
	if dims < 0 || dims > tensor.MaxDims || !dtype.Type(h[4]).Valid() {
		return nil, fmt.Errorf("rank %d sent an invalid tensor: %v", g.ranks[src], *h)
	}
	shape := each.Of(h[6:6+dims], func(n int64) int { return int(n) })
	return tensor.Empty(g.world.tensors, shape, dtype.Type(h[4]))
}

// A shipment is a parcel that is being sent: its memory is in use until the works are done.
type shipment struct {
	head *head
	t    *tensor.Tensor
	works
}

func (s *shipment) wait(ctx *collective.WaitLimit) error {
	if err := s.works.wait(ctx); err != nil || s.t == nil {
		return err
	}
	tensor.Unpin(s.t)
	return nil
}

// sendParcel starts sending a parcel to a rank of the group. Its tensor must not change until the shipment is done.
func sendParcel(g *Group, ctx *collective.WaitLimit, p parcel, dst, tag int, at collective.Origin) (_ *shipment, err error) {
	defer try.Caught(&err)
	h := headOf(p)
	s := &shipment{head: &h}
	buffers := []collective.Buffer{collective.Of(s.head[:])}
	if p.t != nil {
		t := try.To(tensor.Contiguous(p.t))
		tensor.Pin(t)
		s.t = t
		buffers = append(buffers, bufferOf(t))
	}
	for i, b := range buffers {
		call := collective.NewSend(b, dst, tag+i*collective.Body)
		s.works = append(s.works, try.To(g.begin(ctx, call, at.In(collective.Step))))
	}
	return s, nil
}

// receiveParcel receives the next parcel with this tag from a rank of the group.
func receiveParcel(g *Group, ctx *collective.WaitLimit, src, tag int, at collective.Origin) (p parcel, err error) {
	defer try.Caught(&err)
	var h head
	at = at.In(collective.Step)
	try.Ok(g.do(ctx, collective.NewRecv(collective.Of(h[:]), src, tag), at))
	p = parcel{micro: int(h[0]), of: int(h[1]), rows: int(h[2]), grad: h[3] == awaitsGradient}
	if h[3] == noTensor {
		return p, nil
	}
	p.t = try.To(h.empty(g, src))
	return p, g.do(ctx, collective.NewRecv(bufferOf(p.t), src, tag+collective.Body), at)
}
