package distributed

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"drun/collective"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/nn"
	startensor "drun/starlib/tensor"
	"drun/tensor"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// pipeline is a model whose stages are on different ranks, in order, and work on different parts
// of a batch at the same time. A rank keeps only its own stages: they are its Model.
type pipeline struct {
	*nn.Model
	world  *World
	g      *Group
	micros int
	schedule
	chunks []*nn.Model // this rank's stages, those that follow each other as one
	last   *step       // the latest completed step
}

var pipelineMethods = &starlib.Methods{
	Type: "Pipeline",
	Doc: "A model whose stages are on the ranks of a group, in order. parameters(), state() and the other methods of a\n" +
		"Module concern this rank's stages. Calling it with a batch gives the last stage's output on all ranks of\n" +
		"the group, without gradients.",
	Defs: []*starlib.Def{
		{
			Sig: `step(x: Tensor = None, y: Tensor = None, loss: callable = None, timeout: number = None) -> float`,
			Doc: "Runs a batch forward and backward through all stages, in micro-batches: consecutive rows, as many of\n" +
				"them as micro_batches, or as there are rows; if that does not divide the rows, the first ones have\n" +
				"one row more. The ranks of the first stage need x, those of the last need y, with as many rows, and\n" +
				"loss(output, y), which returns the mean over a micro-batch's rows as a tensor of one element; others\n" +
				"may pass them, too. Every loss is weighted by its share of the rows. The gradients are added to .grad of\n" +
				"each rank's parameters, in the order of the micro-batches. Returns the loss of the batch, on all\n" +
				"ranks. All ranks of the group call it; timeout bounds each wait for another stage.",
			Fn: func(c *starlib.Call) (starlark.Value, error) { return c.Recv.(*pipeline).step(c) },
		},
		{Sig: `timing() -> struct`,
			Doc: "Times of the latest step, in seconds; they differ from run to run. wall: how long it took; compute: how\n" +
				"long each rank's stages computed, a list by rank of the group; bubble: the share of the\n" +
				"ranks' time in which they did not compute; formula: its value if all turns took equally long: for p\n" +
				"ranks and m micro-batches (p-1)/(m+p-1) with gpipe and 1f1b, (p-1)/(v*m+p-1) with interleaved and v\n" +
				"stages on each rank, (p-1)/(3*m+p-1) with zero_bubble; held: the most micro-batches whose activations\n" +
				"this rank held at once, counted for each of its stages with interleaved.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				p := c.Recv.(*pipeline)
				try.FailIf(p.last == nil, "no step has completed yet")
				return p.last.timing(), nil
			}},
	},
}

func pipelining(w *World) []*starlib.Def {
	return []*starlib.Def{{
		Sig: `pipeline(stages: iterable, micro_batches: int, schedule: string = "1f1b", group: Group = None, timeout: number = None) -> Pipeline`,
		Doc: "A model whose stages are spread over the group's ranks in order, equally many consecutive ones on each,\n" +
			"and work on different micro-batches of a batch at the same time. stages: modules or functions that take\n" +
			"and return one tensor; a rank uses only its own, the others may be None. The results are, to the bit,\n" +
			"those of one rank with the same micro_batches, unless stages draw random numbers (dropout): each\n" +
			"rank draws its own. schedule: \"gpipe\" runs all micro-batches forward, then all backward; \"1f1b\"\n" +
			"starts backward as early as it can, and so holds fewer activations; \"interleaved\" gives rank r of p the\n" +
			"stages r, r + p …, and so is idle for a shorter time, but sends more; \"zero_bubble\" is 1f1b that puts\n" +
			"the gradients of parameters off to the time in which it would be idle.",
		Fn: w.inGroup(newPipeline),
	}}
}

func newPipeline(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	p := &pipeline{world: g.world, g: g, micros: c.Int("micro_batches")}
	var stages starlark.Tuple
	for stage := range starlark.Elements(c.Arg("stages").(starlark.Iterable)) {
		stages = append(stages, stage)
	}
	name := c.String("schedule")
	var known bool
	p.schedule, known = schedules[name]
	try.FailIf(!known, "argument schedule: want one of %s, got %q", strings.Join(slices.Sorted(maps.Keys(schedules)), ", "), name)
	try.FailIf(p.micros < 1, "argument micro_batches: want at least 1, got %d", p.micros)
	try.FailIf(len(stages) == 0 || len(stages)%g.Size() != 0, "%d stages cannot be spread evenly over %d ranks: the number of stages must be a multiple of the number of ranks", len(stages), g.Size())
	key := fmt.Appendf(nil, "%d stages, %d micro-batches, schedule %q", len(stages), p.micros, name)
	try.Ok(g.agree(ctx, key, origin(c), "the ranks make different pipelines", nil))
	each := len(stages) / g.Size()
	var own starlark.Tuple
	var numbers []int
	for i := range each {
		number := g.own*each + i
		if p.interleaved {
			number = i*g.Size() + g.own
		}
		_, ok := stages[number].(starlark.Callable)
		try.FailIf(!ok, "stage %d, which is this rank's: want a module or function, got %s", number, stages[number].Type())
		own, numbers = append(own, stages[number]), append(numbers, number)
	}
	try.Ok(apart(stages, numbers))
	p.Model = try.To(nn.Sequential(g.world.tensors, own, numbers))
	p.chunks = []*nn.Model{p.Model}
	if p.interleaved && g.Size() > 1 {
		p.chunks = p.chunks[:0]
		for i := range own {
			p.chunks = append(p.chunks, try.To(nn.Sequential(g.world.tensors, own[i:i+1], numbers[i:i+1])))
		}
	}
	if g.Size() > 1 {
		_, params := p.Parameters()
		place(params, division{stages: g}, false, true)
	}
	return p, nil
}

// apart returns an error if a stage of this rank shares a parameter with one of another rank: each would train a copy.
func apart(stages starlark.Tuple, own []int) error {
	here := map[*tensor.Tensor]int{}
	each := func(number int, do func(name string, p *tensor.Tensor) error) error {
		m, ok := stages[number].(*nn.Model)
		if !ok {
			return nil
		}
		names, params := m.Parameters()
		for i, p := range params {
			if err := do(names[i], p); err != nil {
				return err
			}
		}
		return nil
	}
	for _, number := range own {
		_ = each(number, func(_ string, p *tensor.Tensor) error { here[p] = number; return nil })
	}
	for number := range stages {
		if slices.Contains(own, number) {
			continue
		}
		if err := each(number, func(name string, p *tensor.Tensor) error {
			if mine, shared := here[p]; shared {
				return fmt.Errorf("stages %d and %d share the parameter %s, but are on different ranks, each of which would train a copy: put them on one rank, or give each its own", min(mine, number), max(mine, number), name)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func (p *pipeline) Type() string { return "Pipeline" }

func (p *pipeline) String() string {
	return fmt.Sprintf("pipeline(stage %d of %d: %s)", p.g.own, p.g.Size(), p.Model)
}

func (p *pipeline) Attr(name string) (starlark.Value, error) {
	if v, err := pipelineMethods.Attr(p, name); v != nil || err != nil {
		return v, err
	}
	return p.Model.Attr(name)
}

func (p *pipeline) AttrNames() []string {
	return append(p.Model.AttrNames(), pipelineMethods.AttrNames()...)
}

// step is one batch's pass through a pipeline, on one rank.
type step struct {
	*pipeline
	ctx    *collective.WaitLimit
	at     collective.Origin
	thread *starlark.Thread
	train  bool
	x, y   *tensor.Tensor
	loss   starlark.Callable

	first  parcel          // the first one from the stage before; it says of and rows
	of     int             // micro-batches
	rows   int             // of the batch
	held   [][]*activation // by chunk and micro-batch; nil before forward and after backward
	most   int             // held at once
	sent   []*shipment
	outs   []*tensor.Tensor // the last stage's outputs, where there is no loss
	grad   *tensor.Tensor   // of the whole output, where there is no loss
	ins    []*tensor.Tensor // gradients of the batch's parts, where somebody waits for them
	total  float64          // loss, of the last stage
	idle   time.Duration    // spent waiting for other stages
	wall   time.Duration
	ranks  []float64 // seconds that each computed
	filled int       // activations held now
}

// activation is what backward needs of a micro-batch.
type activation struct {
	in   *tensor.Tensor // gets the gradient of what came from the stage before; nil: nobody waits for it
	out  *tensor.Tensor // the output or, in the last stage, the weighted loss
	rest func() error   // the second half of the backward pass
}

func (p *pipeline) step(c *starlib.Call) (starlark.Value, error) {
	s := &step{pipeline: p, at: origin(c), thread: c.Thread, train: true, ctx: try.To(p.world.until(c)),
		x: startensor.Optional(c, "x"), y: startensor.Optional(c, "y")}
	s.loss, _ = c.Arg("loss").(starlark.Callable)
	try.FailIf(!p.world.tensors.Recording(), "it computes gradients, which tensor.no_grad forbids: call the pipeline itself to evaluate")
	try.FailIf(s.hasLast() && s.loss == nil, "argument loss: this rank has the last stage, and needs a function of the output and y")
	try.FailIf(s.hasLast() && s.y == nil, "argument y: this rank has the last stage, and needs the targets")
	try.Ok(s.run())
	p.last = s
	return starlark.Float(s.total), nil
}

// CallInternal computes the last stage's output without gradients, and gives it to all ranks.
func (p *pipeline) CallInternal(thread *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	s := &step{pipeline: p, at: originOf("Pipeline", starlib.Position(thread)), thread: thread, ctx: p.world.within}
	if len(args) != 1 || len(kwargs) > 0 {
		return nil, fmt.Errorf("a pipeline takes one argument, a batch, but got %d", len(args)+len(kwargs))
	}
	v, ok := args[0].(*startensor.Value)
	if !ok && args[0] != starlark.None {
		return nil, fmt.Errorf("a pipeline takes a Tensor, got %s", args[0].Type())
	}
	if ok {
		s.x = v.Tensor()
	}
	p.world.tensors.BeginNoGrad()
	defer p.world.tensors.EndNoGrad()
	if err := s.run(); err != nil {
		return nil, fmt.Errorf("Pipeline: %w", err) //nolint:staticcheck // its name
	}
	return s.output()
}

// hasFirst and hasLast report whether this rank has the first and the last stage; they are in its first and last chunk.
func (s *step) hasFirst() bool { return s.g.own == 0 }
func (s *step) hasLast() bool  { return s.g.own == s.g.Size()-1 }

func (s *step) isFirst(t turn) bool { return s.hasFirst() && t.chunk == 0 }
func (s *step) isLast(t turn) bool  { return s.hasLast() && t.chunk == len(s.chunks)-1 }

func (s *step) run() (err error) {
	defer try.Caught(&err)
	start := time.Now()
	try.Ok(s.begin())
	for _, t := range s.turns() {
		switch t.pass {
		case forward:
			try.Ok(s.forward(t))
		case backward:
			try.Ok(s.backward(t))
		case weights:
			a := s.drop(t)
			try.Ok(a.rest())
		}
		s.sent = slices.DeleteFunc(s.sent, func(sent *shipment) bool { return sent.done() && sent.wait(s.ctx) == nil })
	}
	for _, sent := range s.sent {
		try.Ok(s.waiting(func() error { return sent.wait(s.ctx) }))
	}
	try.Ok(s.exchangeResults(time.Since(start) - s.idle))
	s.wall = time.Since(start)
	return nil
}

// turns returns this rank's turns; in evaluation, only the forward passes.
func (s *step) turns() []turn {
	list := s.schedule.turns(s.g.own, s.g.Size(), len(s.chunks), s.of)
	if !s.train {
		list = slices.DeleteFunc(list, func(t turn) bool { return t.pass != forward })
	}
	return list
}

// begin determines the number of micro-batches: the first stage divides the batch and tells the others.
func (s *step) begin() (err error) {
	defer try.Caught(&err)
	if s.hasFirst() {
		try.FailIf(s.x == nil || s.x.Dim() == 0 || s.x.Shape()[0] == 0, "this rank has the first stage, and needs a batch: a tensor of at least one row")
		s.rows = s.x.Shape()[0]
		s.of = min(s.micros, s.rows)
	} else {
		s.first = try.To(s.receive(s.g.own-1, tagActivation))
		s.of, s.rows = s.first.of, s.first.rows
	}
	if s.loss != nil && s.hasLast() && (s.y.Dim() == 0 || s.y.Shape()[0] != s.rows) {
		return fmt.Errorf("the batch has %d rows in the first stage, but y has shape %s in the last", s.rows, tensor.ShapeString(s.y.Shape()))
	}
	for range s.chunks {
		s.held = append(s.held, make([]*activation, s.of))
	}
	return nil
}

func (s *step) part(t *tensor.Tensor, micro int) (*tensor.Tensor, error) {
	start, n := share(s.rows, s.of, micro)
	return tensor.Narrow(t.Detach(), 0, start, n)
}

func (s *step) share(micro int) float64 {
	_, n := share(s.rows, s.of, micro)
	return float64(n) / float64(s.rows)
}

// forward takes a micro-batch through a chunk.
func (s *step) forward(t turn) (err error) {
	defer try.Caught(&err)
	a := &activation{}
	var in *tensor.Tensor
	if s.isFirst(t) {
		in = try.To(s.part(s.x, t.micro))
		if s.train && s.loss == nil && s.x.RequiresGrad() {
			a.in, in = try.To2(trained(in))
		}
	} else {
		from := s.first
		if s.hasFirst() || t.micro > 0 || t.chunk > 0 {
			from = try.To(s.receiveOf(t.micro, s.before(), tagOf(tagActivation, t.chunk)))
		}
		if in = from.t; from.grad {
			a.in, in = try.To2(trained(in))
		}
	}
	v := try.To(s.chunks[t.chunk].CallInternal(s.thread, starlark.Tuple{(*startensor.Value)(in)}, nil))
	result, ok := v.(*startensor.Value)
	try.FailIf(!ok, "a stage passes one tensor to the next, but this rank's stage returned a %s", v.Type())
	out := result.Tensor()
	switch {
	case s.isLast(t) && s.loss != nil:
		a.out, err = s.weigh(out, t.micro)
	case s.isLast(t):
		_, n := share(s.rows, s.of, t.micro)
		try.FailIf(s.train && (out.Dim() == 0 || out.Shape()[0] != n), "the last stage made a tensor of shape %s of %d rows, and must keep their number", tensor.ShapeString(out.Shape()), n)
		a.out, s.outs = out, append(s.outs, out)
	default:
		a.out = out
		chunk := t.chunk
		if s.hasLast() { // the next stage is in the first rank's next chunk
			chunk++
		}
		err = s.send(parcel{t: out.Detach(), grad: s.train && out.RequiresGrad(), micro: t.micro}, s.after(), tagOf(tagActivation, chunk))
	}
	if s.train && err == nil {
		s.held[t.chunk][t.micro] = a
		s.filled++
		s.most = max(s.most, s.filled)
	}
	return err
}

// weigh returns the loss of a micro-batch times its share of the rows.
func (s *step) weigh(out *tensor.Tensor, micro int) (_ *tensor.Tensor, err error) {
	defer try.Caught(&err)
	y := try.To(s.part(s.y, micro))
	v := try.To(starlark.Call(s.thread, s.loss, starlark.Tuple{(*startensor.Value)(out), (*startensor.Value)(y)}, nil))
	loss, ok := v.(*startensor.Value)
	if !ok || loss.Tensor().Len() != 1 {
		return nil, fmt.Errorf("the loss must be a tensor of one element, got %s", describe(v))
	}
	item := try.To(loss.Item())
	s.total += starlib.Number(item) * s.share(micro)
	return tensor.BinaryScalar(tensor.OpMul, loss.Tensor(), tensor.Float(s.share(micro)), false)
}

func describe(v starlark.Value) string {
	if t, ok := v.(*startensor.Value); ok {
		return "one of shape " + tensor.ShapeString(t.Tensor().Shape())
	}
	return v.Type()
}

// before and after are the ranks of the stages before and after this rank's.
func (s *step) before() int { return (s.g.own + s.g.Size() - 1) % s.g.Size() }
func (s *step) after() int  { return (s.g.own + 1) % s.g.Size() }

// backward takes the gradient of a micro-batch back through a chunk.
func (s *step) backward(t turn) (err error) {
	defer try.Caught(&err)
	var a *activation
	if s.halves {
		a = s.held[t.chunk][t.micro]
		a.rest = func() error { return nil }
	} else {
		a = s.drop(t)
	}
	if s.isLast(t) && s.loss != nil {
		try.Ok(s.pass(a, nil))
	} else if s.isLast(t) {
		if a.out.RequiresGrad() {
			try.Ok(s.pass(a, try.To(s.part(s.grad, t.micro))))
		}
	} else if a.out.RequiresGrad() {
		chunk := t.chunk
		if s.hasLast() {
			chunk++
		}
		from := try.To(s.receiveOf(t.micro, s.after(), tagOf(tagGradient, chunk)))
		if from.t != nil { // otherwise nothing after this stage uses its output
			try.Ok(s.pass(a, from.t))
		}
	}
	if a.in == nil {
		return nil
	}
	grad := a.in.Grad()
	if s.isFirst(t) {
		s.ins = append(s.ins, grad)
		return nil
	}
	return s.send(parcel{t: grad, micro: t.micro}, s.before(), tagOf(tagGradient, t.chunk))
}

// trained returns a tensor as the stage computes with it, and the leaf that gets its gradient: another one if t is of a type, such as
// bfloat16, whose gradients are float32.
func trained(t *tensor.Tensor) (leaf, in *tensor.Tensor, err error) {
	defer try.Caught(&err)
	leaf = try.To(tensor.Cast(t, gradType(t)))
	try.Ok(leaf.SetRequiresGrad(true))
	if leaf == t {
		return t, t, nil
	}
	return leaf, try.To(tensor.Cast(leaf, t.DType())), nil
}

func gradType(t *tensor.Tensor) dtype.Type {
	if d := t.DType(); d != dtype.BFloat16 && d != dtype.Float16 {
		return d
	}
	return dtype.Float32
}

// pass computes the gradients of a micro-batch from that of its output: those of the input alone, if the schedule puts the
// others off and somebody waits for it.
func (s *step) pass(a *activation, grad *tensor.Tensor) (err error) {
	switch {
	case !s.halves:
		return a.out.Backward(grad, false)
	case a.in == nil:
		a.rest = func() error { return a.out.Backward(grad, false) }
		return nil
	}
	a.rest, err = a.out.BackwardInput(a.in, grad)
	return err
}

// drop lets go of the activation of a micro-batch.
func (s *step) drop(t turn) *activation {
	a := s.held[t.chunk][t.micro]
	s.held[t.chunk][t.micro] = nil
	s.filled--
	return a
}

func (s *step) send(p parcel, to, tag int) error {
	p.of, p.rows = s.of, s.rows
	sent, err := sendParcel(s.g, s.ctx, p, to, tag, s.at)
	s.sent = append(s.sent, sent)
	return err
}

func (s *step) receive(from, tag int) (p parcel, err error) {
	err = s.waiting(func() error {
		p, err = receiveParcel(s.g, s.ctx, from, tag, s.at)
		return err
	})
	return p, err
}

func (s *step) receiveOf(micro, from, tag int) (parcel, error) {
	p, err := s.receive(from, tag)
	if err == nil && (p.micro != micro || p.of != s.of || p.rows != s.rows) {
		err = fmt.Errorf("rank %d is at micro-batch %d of %d of a batch of %d rows, this rank at %d of %d of %d rows",
			s.g.ranks[from], p.micro, p.of, p.rows, micro, s.of, s.rows)
	}
	return p, err
}

func (s *step) waiting(call func() error) error {
	start := time.Now()
	err := call()
	s.idle += time.Since(start)
	return err
}

// exchangeResults ends the step on all ranks: they learn the loss, and how long each has computed.
func (s *step) exchangeResults(busy time.Duration) error {
	own := []float64{s.total, busy.Seconds()}
	all := slices.Repeat(own, s.g.Size())
	if err := s.g.do(s.ctx, collective.NewAllGather(collective.Of(own), collective.Of(all)), s.at.In(collective.Step)); err != nil {
		return err
	}
	s.total = all[len(all)-2]
	for i := 1; i < len(all); i += 2 {
		s.ranks = append(s.ranks, all[i])
	}
	return nil
}

// output returns the last stage's output, on all ranks.
func (s *step) output() (_ starlark.Value, err error) {
	defer try.Caught(&err)
	var last *tensor.Tensor
	if s.hasLast() {
		last = try.To(tensor.Cat(s.outs, 0))
	}
	out, _ := try.To2(s.spreadLast(last))
	return (*startensor.Value)(out), nil
}

func (s *step) timing() starlark.Value {
	compute, sum := new(starlark.List), 0.0
	for _, seconds := range s.ranks {
		sum += seconds
		_ = compute.Append(starlark.Float(seconds)) // a new list is neither frozen nor iterated over
	}
	n := len(s.ranks)
	return starlarkstruct.FromStringDict(starlarkstruct.Default, starlark.StringDict{
		"wall": starlark.Float(s.wall.Seconds()), "compute": compute,
		"bubble":  starlark.Float(1 - sum/(float64(n)*s.wall.Seconds())),
		"formula": starlark.Float(s.schedule.bubble(float64(n), float64(len(s.chunks)), float64(s.of))), "held": starlark.MakeInt(s.most),
	})
}
