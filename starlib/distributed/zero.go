package distributed

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"

	"drun/collective"
	"drun/internal/each"
	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/optim"
	"drun/tensor"

	"github.com/zeebo/xxh3"
	"go.starlark.net/starlark"
)

// zero is an optimizer whose state is divided among the ranks of a group (Rajbhandari et al. 2020, stage 1 of
// ZeRO): each rank keeps the moments of a part of the parameters, updates that part, and gets the other parts.
type zero struct {
	world *World
	g     *Group
	ctx   *collective.WaitLimit
	opt   *optim.Optimizer

	joined *joinedZero // nil outside dist.join
}

var _ optim.Partner = (*zero)(nil)

func newZero(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	z := &zero{world: g.world, g: g, ctx: ctx, opt: c.Arg("optimizer").(*optim.Optimizer)}
	if err := z.opt.Shareable(); err != nil || g.comm == nil {
		return z.opt, err
	}
	params, names := z.params()
	for i, p := range params {
		try.FailIf(p.Share() != nil, "parameter %s is already divided among the ranks (dist.fsdp), and so is the optimizer's state for it", names[i])
	}
	try.Ok(g.agree(ctx, appendShapes(nil, params), origin(c), "the ranks' parameters differ in number, dtype or shape",
		func() string { return describeShapes(params) }))
	sum := xxh3.New()
	for _, p := range params {
		try.Ok(digest(sum, p))
	}
	for _, e := range z.opt.Made() {
		if t, ok := tensorOf(e.Value); ok {
			try.Ok(digest(sum, t))
		}
	}
	try.Ok(g.agree(ctx, sum.Sum(nil), origin(c), "the ranks' parameters or the optimizer's state have different values: dist.broadcast_tensors or dist.ddp makes parameters equal",
		func() string { return fmt.Sprintf("digest %x", sum.Sum(nil)) }))
	return z.opt, z.opt.Divide(g.own, g.Size(), listText(g.ranks), z)
}

func digest(h *xxh3.Hasher, t *tensor.Tensor) error {
	data, err := tensor.Contiguous(t.Detach())
	if err == nil {
		_, err = h.Write(data.Content())
	}
	return err
}

// params returns the optimizer's parameters, with their numbers as names.
func (z *zero) params() (params []*tensor.Tensor, names []string) {
	for _, g := range z.opt.Tensors().Groups() {
		params = append(params, g.Params...)
	}
	for i := range params {
		names = append(names, strconv.Itoa(i))
	}
	return params, names
}

// Before checks that all ranks make the same step: each updates its part from its own gradients, so the gradients must
// be the same on all.
func (z *zero) Before(thread *starlark.Thread) (err error) {
	defer try.Caught(&err)
	if z.joined != nil {
		try.Ok(z.joined.before(originOf("Optimizer.step", starlib.Position(thread))))
	}
	params, names := z.params()
	marks := appendMarks(nil, params, (*tensor.Tensor).Moves)
	sum := xxh3.New()
	for _, p := range params {
		if p.Moves() {
			try.Ok(digest(sum, p.Grad()))
		}
	}
	groups := z.opt.Tensors().Groups()
	key := binary.BigEndian.AppendUint64(slices.Clone(marks), sum.Sum64())
	for _, g := range groups {
		key = binary.BigEndian.AppendUint64(key, math.Float64bits(g.LR))
	}
	text := func() string { return fmt.Sprintf("%sgradients %016x, lr %v", marks, sum.Sum64(), groups[0].LR) }
	texts, err := z.g.compare(z.ctx, key, text, originOf("Optimizer.step", starlib.Position(thread)))
	if err != nil || texts == nil {
		return err
	}
	texts = try.To(oddGrads(z.g, params, func(i int) string { return names[i] }, texts))
	return z.g.disagree("the ranks step with different gradients or learning rates (dist.sync_grad or dist.ddp averages gradients)", texts)
}

// After gives every rank the parts that the others have updated.
func (z *zero) After(thread *starlark.Thread) (err error) {
	defer try.Caught(&err)
	at := originOf("Optimizer.step", starlib.Position(thread))
	for _, b := range z.opt.Tensors().Buffers() {
		try.Ok(exchangeParts(z.g, z.ctx, b.Data, b.From, b.To, b.Each, at))
	}
	return nil
}

// exchangeParts exchanges the ranks' parts of a flat tensor; all but the last are equally long.
func exchangeParts(g *Group, ctx *collective.WaitLimit, t *tensor.Tensor, from, to, each int, at collective.Origin) error {
	size := t.DType().Size()
	own := g.world.memory.stage((to - from) * size)
	copy(own, t.Bytes()[from*size:to*size])
	call := collective.NewAllGather(collective.Buffer{DType: t.DType(), Data: own}, bufferOf(t))
	call.Counts = uneven(partSizes(g, t.Len(), each))
	err := g.do(ctx, call, at.In(collective.Step))
	t.Touched()
	return err
}

func partSizes(g *Group, n, part int) []int {
	return each.UpTo(g.Size(), func(r int) int { return min((r+1)*part, n) - min(r*part, n) })
}
