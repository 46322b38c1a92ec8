package distributed

import (
	"fmt"
	"slices"
	"time"

	"drun/collective"
	"drun/internal/try"
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
	world    *World
	g        *Group
	micros   int
	schedule string
	last     *step // the latest completed step
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
		{
			Sig: `timing() -> struct`,
			Doc: "Times of the latest step, in seconds; they differ from run to run. wall: how long it took; compute: how\n" +
				"long each rank's stages computed, a list by rank of the group; bubble: the share of the\n" +
				"ranks' time in which they did not compute; formula: (p-1)/(m+p-1), its value for p ranks and m\n" +
				"micro-batches that all take equally long; held: the most micro-batches whose activations this\n" +
				"rank held at once.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				p := c.Recv.(*pipeline)
				try.FailIf(p.last == nil, "no step has completed yet")
				return p.last.timing(), nil
			},
		},
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
			"starts backward as early as it can, and so holds fewer activations.",
		Fn: w.inGroup(newPipeline),
	}}
}

func newPipeline(g *Group, c *starlib.Call, ctx *collective.WaitLimit) (starlark.Value, error) {
	p := &pipeline{world: g.world, g: g, micros: c.Int("micro_batches"), schedule: c.String("schedule")}
	var stages starlark.Tuple
	for stage := range starlark.Elements(c.Arg("stages").(starlark.Iterable)) {
		stages = append(stages, stage)
	}
	try.FailIf(schedules[p.schedule] == nil, "argument schedule: want \"1f1b\" or \"gpipe\", got %q", p.schedule)
	try.FailIf(p.micros < 1, "argument micro_batches: want at least 1, got %d", p.micros)
	try.FailIf(len(stages) == 0 || len(stages)%g.Size() != 0, "%d stages cannot be spread evenly over %d ranks: the number of stages must be a multiple of the number of ranks", len(stages), g.Size())
	key := fmt.Appendf(nil, "%d stages, %d micro-batches, schedule %q", len(stages), p.micros, p.schedule)
	try.Ok(g.agree(ctx, key, origin(c), "the ranks make different pipelines", nil))
	each := len(stages) / g.Size()
	first := g.own * each
	own := stages[first : first+each]
	for i, stage := range own {
		_, ok := stage.(starlark.Callable)
		try.FailIf(!ok, "stage %d, which is this rank's: want a module or function, got %s", first+i, stage.Type())
	}
	var err error
	p.Model, err = nn.Sequential(g.world.tensors, own, first)
	return p, err
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

	first  parcel        // the first one from the stage before; it says of and rows
	of     int           // micro-batches
	rows   int           // of the batch
	held   []*activation // by micro-batch; nil before forward and after backward
	most   int           // held at once
	sent   []*shipment
	outs   []*tensor.Tensor // the last stage's outputs, in evaluation
	total  float64          // loss, of the last stage
	idle   time.Duration    // spent waiting for other stages
	wall   time.Duration
	ranks  []float64 // seconds that each computed
	filled int       // activations held now
}

// activation is what backward needs of a micro-batch.
type activation struct {
	in  *tensor.Tensor // from the stage before; nil in the first
	out *tensor.Tensor // the output or, in the last stage, the weighted loss
}

func (p *pipeline) step(c *starlib.Call) (starlark.Value, error) {
	s := &step{pipeline: p, at: origin(c), thread: c.Thread, train: true, ctx: try.To(p.world.until(c)),
		x: startensor.Optional(c, "x"), y: startensor.Optional(c, "y")}
	s.loss, _ = c.Arg("loss").(starlark.Callable)
	try.FailIf(!p.world.tensors.Recording(), "it computes gradients, which tensor.no_grad forbids: call the pipeline itself to evaluate")
	try.FailIf(s.isLast() && s.loss == nil, "argument loss: this rank has the last stage, and needs a function of the output and y")
	try.FailIf(s.isLast() && s.y == nil, "argument y: this rank has the last stage, and needs the targets")
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

func (s *step) isFirst() bool { return s.g.own == 0 }
func (s *step) isLast() bool  { return s.g.own == s.g.Size()-1 }

func (s *step) run() (err error) {
	defer try.Caught(&err)
	start := time.Now()
	try.Ok(s.begin())
	for _, t := range s.turns() {
		turn := s.forward
		if t.backward {
			turn = s.backward
		}
		try.Ok(turn(t.micro))
		s.sent = slices.DeleteFunc(s.sent, (*shipment).done)
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
	list := schedules[s.schedule](s.g.own, s.g.Size(), s.of)
	if !s.train {
		list = slices.DeleteFunc(list, func(t turn) bool { return t.backward })
	}
	return list
}

// begin determines the number of micro-batches: the first stage divides the batch and tells the others.
func (s *step) begin() (err error) {
	defer try.Caught(&err)
	if s.isFirst() {
		try.FailIf(s.x == nil || s.x.Dim() == 0 || s.x.Shape()[0] == 0, "this rank has the first stage, and needs a batch: a tensor of at least one row")
		s.rows = s.x.Shape()[0]
		s.of = min(s.micros, s.rows)
	} else {
		s.first = try.To(s.receive(s.g.own-1, tagActivation))
		s.of, s.rows = s.first.of, s.first.rows
	}
	if s.train && s.isLast() && (s.y.Dim() == 0 || s.y.Shape()[0] != s.rows) {
		return fmt.Errorf("the batch has %d rows in the first stage, but y has shape %s in the last", s.rows, tensor.ShapeString(s.y.Shape()))
	}
	s.held = make([]*activation, s.of)
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

// forward takes a micro-batch through this rank's stages.
func (s *step) forward(micro int) (err error) {
	defer try.Caught(&err)
	a := &activation{}
	var in *tensor.Tensor
	if s.isFirst() {
		in = try.To(s.part(s.x, micro))
	} else {
		from := s.first
		if micro > 0 {
			from = try.To(s.receiveOf(micro, s.g.own-1, tagActivation))
		}
		if in = from.t; from.grad {
			try.Ok(in.SetRequiresGrad(true))
			a.in = in
		}
	}
	v := try.To(s.Model.CallInternal(s.thread, starlark.Tuple{(*startensor.Value)(in)}, nil))
	result, ok := v.(*startensor.Value)
	try.FailIf(!ok, "a stage passes one tensor to the next, but this rank's stage returned a %s", v.Type())
	out := result.Tensor()
	switch {
	case s.isLast() && s.train:
		a.out, err = s.weigh(out, micro)
	case s.isLast():
		s.outs = append(s.outs, out)
	default:
		a.out = out
		err = s.send(parcel{t: out.Detach(), grad: s.train && out.RequiresGrad(), micro: micro}, s.g.own+1, tagActivation)
	}
	if s.train && err == nil {
		s.held[micro] = a
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

// backward takes the gradient of a micro-batch back through this rank's stages.
func (s *step) backward(micro int) (err error) {
	defer try.Caught(&err)
	a := s.held[micro]
	s.held[micro] = nil
	s.filled--
	if s.isLast() {
		try.Ok(a.out.Backward(nil, false))
	} else if a.out.RequiresGrad() {
		from := try.To(s.receiveOf(micro, s.g.own+1, tagGradient))
		if from.t != nil { // otherwise nothing after this stage uses its output
			try.Ok(a.out.Backward(from.t, false))
		}
	}
	if a.in == nil {
		return nil
	}
	return s.send(parcel{t: a.in.Grad(), micro: micro}, s.g.own-1, tagGradient)
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
	var data []byte
	if s.isLast() {
		out, err := tensor.Cat(s.outs, 0)
		if err != nil || s.g.comm == nil {
			return startensor.Result(out, err)
		}
		data = try.To(s.g.encode((*startensor.Value)(out)))
	}
	data = try.To(s.g.broadcastBytes(s.ctx, data, s.g.Size()-1, s.at.In(collective.Step)))
	return s.g.decode(data)
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
		"formula": starlark.Float(bubble(n, s.of)), "held": starlark.MakeInt(s.most),
	})
}

// A turn is one piece of a stage's work in a step of a pipeline: the forward or the backward pass of one micro-batch.
type turn struct {
	backward bool
	micro    int
}

// Schedules are the orders in which a pipeline's stages take their turns. All do the backward passes
// in the order of the micro-batches, so that gradients are added in the order in which one process
// would add them.
//
//   - gpipe does all forward passes, then all backward passes (Huang et al. 2019).
//   - 1f1b begins with as many forward passes as there are stages after this one, then does a forward
//     and a backward pass in turn (Narayanan et al. 2019): a stage holds what backward needs of at
//     most as many micro-batches as there are stages from it to the end.
//
// If all stages take equally long, both leave a stage idle for (p-1)/(m+p-1) of a step of m micro-batches and p stages.
var schedules = map[string]func(stage, stages, micros int) []turn{
	"gpipe": func(_, _, micros int) []turn { return turns(micros, micros) },
	"1f1b":  func(stage, stages, micros int) []turn { return turns(stages-1-stage, micros) },
}

// turns returns the turns of a stage that does ahead forward passes before it starts alternating.
func turns(ahead, micros int) []turn {
	var list []turn
	next := 0 // the next backward pass
	for micro := range micros {
		list = append(list, turn{micro: micro})
		if micro >= ahead {
			list = append(list, turn{true, next})
			next++
		}
	}
	for ; next < micros; next++ {
		list = append(list, turn{true, next})
	}
	return list
}

// bubble returns the share of a step in which a stage is idle, if all take equally long.
func bubble(stages, micros int) float64 { return float64(stages-1) / float64(micros+stages-1) }
