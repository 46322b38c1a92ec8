package distributed

import (
	"fmt"
	"slices"

	"drun/collective"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/optim"
	"drun/tensor"

	"go.starlark.net/starlark"
)

// joinCall is a dist.join in progress (PyTorch's Join). Before each exchange of one of its objects, a rank announces it. A rank
// that has finished hears that too, and takes part with nothing of its own.
type joinCall struct {
	g       *Group
	ctx     *collective.WaitLimit
	at      collective.Origin
	thread  *starlark.Thread
	objects []joinable
	initial bool // averages divide by all ranks, not by those that still train
	throw   bool // that a rank finishes before others is an error on all

	active int  // how many ranks made the latest exchange for themselves
	leader int  // the first of them
	uneven bool // some rank has finished before others
}

// joinable is one of the objects of a dist.join.
type joinable interface {
	starlark.Value
	enter(j *joinCall) // nil: the dist.join is over
	// shadow takes part in an exchange that the object announced on other ranks.
	shadow(exchange int) error
	// end gives all ranks what the leader has.
	end() error
}

func unevenInputs(w *World) []*starlib.Def {
	return []*starlib.Def{
		{Sig: `join(fn: callable, *objects, divide_by_initial_world_size: bool = True, throw_on_early_termination: bool = False, timeout: number = None) -> any`, Fn: w.join,
			Doc: "Calls fn, which trains on this rank's batches, and returns its value; the ranks may have different numbers of\n" +
				"batches. A rank that has finished takes part, with gradients of 0, in what the objects exchange on the others,\n" +
				"until all have finished. Then all ranks get the parameters, buffers and optimizer state of one that trained to\n" +
				"the end. objects are the dist.ddp modules that fn trains, the optimizers of their parameters, a dist.join_hook\n" +
				"for each other kind of collective that fn makes, and what else has state that should stay equal, such as averages\n" +
				"of parameters. Averages divide by the number of all ranks or, if divide_by_initial_world_size is False, of those\n" +
				"that still train. With throw_on_early_termination it is an error on all ranks that one finishes before others."},
		{Sig: `join_hook(main_hook: callable, post_hook: callable = None, group: Group = None) -> JoinHook`,
			Doc: "For dist.join: other ranks call notify() before collectives of the recipe's own, and a rank that has finished\n" +
				"calls main_hook(), which makes the same ones. In the end all ranks call post_hook(rank) with a rank that trained\n" +
				"to the end.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				h := &joinHook{Opaque: "JoinHook", g: try.To(w.group(c)), main: c.Callable("main_hook")}
				if !c.IsNone("post_hook") {
					h.post = c.Callable("post_hook")
				}
				return h, nil
			}},
	}
}

func (w *World) join(c *starlib.Call) (starlark.Value, error) {
	fn, j := c.Callable("fn"), &joinCall{ctx: try.To(w.until(c)), at: origin(c), thread: c.Thread, initial: c.Bool("divide_by_initial_world_size"), throw: c.Bool("throw_on_early_termination")}
	try.FailIf(w.joining, "one dist.join is within another")
	try.Ok(j.take(w, c.Rest))
	key := ""
	for _, o := range j.objects {
		key += o.Type() + " "
	}
	key = fmt.Sprintf("%sdivide_by_initial_world_size = %v throw_on_early_termination = %v", key, j.initial, j.throw)
	try.Ok(j.g.agree(j.ctx, []byte(key), j.at, "the ranks join different objects", nil))
	enter := func(j *joinCall, objects []joinable) {
		w.joining = j != nil
		for _, o := range objects {
			o.enter(j)
		}
	}
	enter(j, j.objects)
	defer enter(nil, j.objects)
	value := try.To(starlark.Call(j.thread, fn, nil, nil))
	for {
		o, exchange, err := j.announce(nil, 0)
		if try.Ok(err); o == nil {
			break
		}
		try.Ok(o.shadow(exchange))
	}
	for _, o := range j.objects {
		try.Ok(o.end())
	}
	return value, nil
}

// take reads the objects of the call.
func (j *joinCall) take(w *World, values starlark.Tuple) (err error) {
	defer try.Caught(&err)
	var names []string
	var trained, stepped []*tensor.Tensor
	for i, v := range values {
		var o joinable
		g := (*Group)(nil)
		switch v := v.(type) {
		case *ddp:
			o, g = v, v.g
			names, trained = append(names, v.names...), append(trained, v.params...)
		case *optim.Optimizer:
			for _, group := range v.Tensors().Groups() {
				stepped = append(stepped, group.Params...)
			}
			if z, divided := v.Partner().(*zero); divided {
				o, g = &joinedZero{Optimizer: v, z: z}, z.g
			} else {
				o = &joinedState{Value: v, state: v, renew: v.Renew}
			}
		case *joinHook:
			o, g = v, v.g
		case *fsdp:
			return fmt.Errorf("object %d: dist.fsdp gathers parameters in each pass, which needs all ranks: use dist.ddp, or give all ranks equally many batches (drop_last = True or pad = True in data.loader)", i)
		default:
			state, ok := v.(starlib.Stateful)
			try.FailIf(!ok, "object %d is a %s: want a DDP, an Optimizer, a JoinHook or something else that has state", i, v.Type())
			o = &joinedState{Value: v, state: state}
		}
		try.FailIf(g != nil && j.g != nil && g != j.g, "object %d, a %s, is of another group than those before it", i, v.Type())
		if g != nil {
			j.g = g
		}
		j.objects = append(j.objects, o)
	}
	if j.g == nil && w.rank.WorldSize == 1 {
		j.g = w.all // dist.zero leaves an optimizer as it is
	}
	try.FailIf(j.g == nil, "among the objects is nothing that exchanges: want a dist.ddp module, an optimizer of dist.zero or a dist.join_hook")
	for i, p := range trained {
		try.FailIf(p.Optimized() && !slices.Contains(stepped, p), "the optimizer of parameter %s is not among the objects: a rank that finishes before others needs its state in the end", names[i])
	}
	return nil
}

// kinds is how many exchanges an object can have.
const kinds = 4

// The exchanges of a ddp.
const (
	forwardBuffers = iota
	oneBucket
	endOfPass
	endWithBuffers
)

// announce says that this rank makes an exchange of an object, or that it has finished (nil), and returns what the ranks make that
// have not finished; nil if all have.
func (j *joinCall) announce(o joinable, exchange int) (_ joinable, _ int, err error) {
	defer try.Caught(&err)
	own := 0
	if o != nil {
		own = 1 + slices.Index(j.objects, o)*kinds + exchange
	}
	all := try.To(j.g.gatherSizes(j.ctx, int64(own), nil, dtype.None, j.at.In(collective.Step)))
	finished := slices.Index(all, 0)
	leader := slices.IndexFunc(all, func(n int64) bool { return n != 0 })
	if leader < 0 {
		return nil, 0, nil
	}
	j.leader, j.active = leader, 0
	object := func(n int64) joinable { return j.objects[int(n-1)/kinds] }
	for rank, n := range all {
		if n == 0 {
			continue
		}
		j.active++
		try.FailIf(n != all[leader], "the ranks are in different exchanges: rank %d in one of a %s, rank %d in one of a %s", j.g.ranks[leader], object(all[leader]).Type(), j.g.ranks[rank], object(n).Type())
	}
	if finished >= 0 {
		try.FailIf(j.throw, "rank %d has finished before others (throw_on_early_termination = True)", j.g.ranks[finished])
		j.uneven = true
	}
	return object(all[leader]), int(all[leader]-1) % kinds, nil
}

// ofLeader is a call that gives the leader's data to all ranks.
func (j *joinCall) ofLeader(b collective.Buffer) collective.Call {
	return collective.NewBroadcast(b, j.leader)
}

// share gives the leader's tensors to all ranks.
func (j *joinCall) share(all []*tensor.Tensor) error {
	return spreadAgreed(j.g, j.ctx, all, j.ofLeader, anyType, j.at)
}

func (d *ddp) enter(j *joinCall) {
	if d.joined = j; j != nil {
		d.thread = j.thread
	}
}

// announce says that this rank makes an exchange, if it is within a dist.join.
func (d *ddp) announce(exchange int) (err error) {
	if d.joined != nil {
		_, _, err = d.joined.announce(d, exchange)
	}
	return err
}

func (d *ddp) shadow(exchange int) (err error) {
	defer try.Caught(&err)
	switch exchange {
	case forwardBuffers:
		return d.spreadBuffers("dist.ddp in forward")
	case oneBucket:
		b := d.buckets[d.next]
		d.next++
		for _, p := range b.params {
			try.Ok(zeroGrad(p))
		}
		return d.start(b)
	}
	err = d.endPass(slices.Clone(d.params), exchange == endWithBuffers, true)
	clearGrads(d.params)
	return err
}

func clearGrads(params []*tensor.Tensor) {
	for _, p := range params {
		try.Ok(p.SetGrad(nil))
	}
}

func (d *ddp) end() error {
	if !d.joined.uneven {
		return nil
	}
	return d.joined.share(stateTensors(d.State()))
}

func stateTensors(entries []starlib.Entry) (all []*tensor.Tensor) {
	for _, e := range entries {
		if t, ok := tensorOf(e.Value); ok {
			all = append(all, t)
		}
	}
	return all
}

// joinedState is what exchanges nothing by itself, and has state.
type joinedState struct {
	starlark.Value
	state starlib.Stateful
	renew func() // of an optimizer, after the ranks made different numbers of steps
	join  *joinCall
}

func (s *joinedState) enter(j *joinCall) { s.join = j }
func (s *joinedState) shadow(int) error  { return nil } // never announced

func (s *joinedState) end() (err error) {
	defer try.Caught(&err)
	j := s.join
	if !j.uneven {
		return nil
	}
	entries := s.state.State()
	try.Ok(j.share(stateTensors(entries)))
	plain := new(starlark.Dict)
	for _, e := range entries {
		if _, ok := tensorOf(e.Value); !ok {
			try.Ok(plain.SetKey(starlark.String(e.Name), e.Value))
		}
	}
	leaders := try.To(broadcastValue(j.g, j.ctx, plain, j.leader, j.at)).(*starlark.Dict)
	for i, e := range entries {
		if v, has, _ := leaders.Get(starlark.String(e.Name)); has {
			entries[i].Value = v
		}
	}
	try.Ok(s.state.SetState(entries))
	if s.renew != nil {
		s.renew()
	}
	return nil
}

// joinedZero is an optimizer whose state dist.zero divides: each rank updates a part of the parameters, also once it has
// finished.
type joinedZero struct {
	*optim.Optimizer
	z         *zero
	join      *joinCall
	shadowing bool
}

func (o *joinedZero) enter(j *joinCall) {
	if o.join, o.z.joined = j, nil; j != nil {
		o.z.joined = o
	}
}

func (o *joinedZero) shadow(int) error {
	o.shadowing = true
	err := o.Step(o.join.thread)
	params, _ := o.z.params()
	clearGrads(params)
	return err
}

func (o *joinedZero) end() error { return nil } // it has made every step

// before comes before a step: ranks that have finished get the leader's gradients.
func (o *joinedZero) before(at collective.Origin) (err error) {
	defer try.Caught(&err)
	j := o.join
	if !o.shadowing {
		_, _, err := j.announce(o, 0)
		try.Ok(err)
	}
	if j.active == j.g.Size() {
		return nil
	}
	params, _ := o.z.params()
	moves := appendMarks(nil, params, (*tensor.Tensor).Moves)
	try.Ok(j.g.do(j.ctx, collective.NewBroadcast(collective.Of(moves), j.leader), at.In(collective.Step)))
	write := writeRaw
	if o.shadowing {
		clearGrads(params)
	} else {
		write = func(*tensor.Tensor, []byte) error { return nil } // it has its own, which are compared
	}
	var grads []*tensor.Tensor
	for i, p := range params {
		if moves[i] == '0' {
			continue
		}
		if o.shadowing {
			try.Ok(zeroGrad(p))
		}
		grad := p.Grad()
		if grad == nil {
			grad = try.To(zerosLike(p))
		}
		grads = append(grads, grad)
	}
	return staged(j.g, j.ctx, dtype.Uint8, grads, j.ofLeader, at.In(collective.Step), write)
}

// joinHook is a recipe's own exchange within a dist.join.
type joinHook struct {
	starlib.Opaque
	g          *Group
	main, post starlark.Callable
	join       *joinCall
}

func (h *joinHook) String() string                           { return "<JoinHook>" }
func (h *joinHook) Attr(name string) (starlark.Value, error) { return joinHookMethods.Attr(h, name) }
func (h *joinHook) AttrNames() []string                      { return joinHookMethods.AttrNames() }
func (h *joinHook) enter(j *joinCall)                        { h.join = j }

func (h *joinHook) shadow(int) error {
	_, err := starlark.Call(h.join.thread, h.main, nil, nil)
	return err
}

func (h *joinHook) end() error {
	if h.post == nil {
		return nil
	}
	_, err := starlark.Call(h.join.thread, h.post, starlark.Tuple{starlark.MakeInt(h.g.ranks[h.join.leader])}, nil)
	return err
}

var joinHookMethods = &starlib.Methods{
	Type: "JoinHook",
	Doc:  "An exchange of the recipe's own within dist.join.",
	Defs: []*starlib.Def{{
		Sig: `notify()`,
		Doc: "Says that this rank's own exchange comes next; ranks that have finished then call main_hook. Outside dist.join it\ndoes nothing.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			h := c.Recv.(*joinHook)
			if h.join == nil {
				return nil, nil
			}
			_, _, err := h.join.announce(h, 0)
			return nil, err
		},
	}},
}
