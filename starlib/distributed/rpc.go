package distributed

import (
	"errors"
	"fmt"
	"slices"

	"drun/collective"
	"drun/internal/try"
	"drun/starlib"

	"go.starlark.net/starlark"
)

// Remote calls. A rank has one thread, and executes other ranks' calls only in dist.serve: its state
// never changes behind the recipe's back, so a recipe that serves in rank order gives the same bits
// each time. A call is a message to the rank that executes it, and its answer is a message back; both
// go through the board's guard, which finds cycles of waiting ranks and ranks that will never answer.

// rpc makes and executes remote calls.
type rpc struct {
	*World
	asked   []*Work                  // this rank's calls, which the recipe may not have waited for
	kept    map[int64]starlark.Value // by the number of the reference
	serving bool                     // it is in serve
	served  int64                    // how many times serve has ended
	early   []*request               // from ranks that have already left the serve that this rank is in
}

// request is a message to the rank that executes it.
type request struct {
	from int
	kind starlark.Int
	// served is how many times serve had ended on the sender: it distinguishes a call from within the same serve from
	// one that belongs to the next.
	served     int64
	fn         starlark.Callable // not sent; instead
	file, name string            // where it is defined, and its name
	args       starlark.Tuple
	number     int64 // of a reference
}

// Kinds of requests.
var (
	callFunction = starlark.MakeInt(0)
	keepResult   = starlark.MakeInt(1)
	fetchKept    = starlark.MakeInt(2)
	enterServe   = starlark.MakeInt(3) // the sender is in serve
	leaveServe   = starlark.MakeInt(4) // and its own calls have been answered
)

// reference stands for a value that a rank keeps.
type reference struct {
	starlib.Opaque
	rpc           *rpc
	owner, number int64
}

func (r *reference) String() string {
	return fmt.Sprintf("<reference %d on rank %d>", r.number, r.owner)
}
func (r *reference) Hash() (uint32, error) { return uint32(r.owner*31 + r.number), nil }

// Refers returns what identifies the value on the ranks that the reference is sent to.
func (r *reference) Refers() (owner, number int64) { return r.owner, r.number }

func (r *reference) Attr(name string) (starlark.Value, error) {
	if name == "owner" {
		return starlark.MakeInt64(r.owner), nil
	}
	return referenceMethods.Attr(r, name)
}

func (r *reference) AttrNames() []string { return referenceMethods.AttrNames() }

func (s *rpc) refer(owner, number int64) starlark.Value {
	return &reference{"Reference", s, owner, number}
}

var referenceMethods = &starlib.Methods{
	Type: "Reference",
	Doc: "A value that a rank keeps until the run ends (dist.remote). It can be sent, broadcast and passed to functions\n" +
		"that are called on other ranks, but not saved.",
	Attrs: [][2]string{{"owner", "the rank that keeps the value"}},
	Defs: []*starlib.Def{{
		Sig: `to_here(timeout: number = None)`,
		Doc: "The value: on its owner the value itself, so that functions called there can change it; on\n" +
			"other ranks a copy, for which the owner must be in dist.serve.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			r := c.Recv.(*reference)
			return r.rpc.ask(c, int(r.owner), &request{kind: fetchKept, number: r.number})
		},
	}},
}

func (s *rpc) defs() []*starlib.Def {
	return []*starlib.Def{
		{Sig: `rpc(to: int, fn: callable, *args, timeout: number = None)`,
			Doc: "Calls fn(*args) on rank to, which must call dist.serve, and returns its result. fn is a function\n" +
				"defined at the top level of the recipe or of a file that it loads: both ranks have it, and its\n" +
				"name is sent. Arguments and result are plain values, tensors and references, and are copied, even\n" +
				"if to is this rank, which calls fn at once. An error in fn is an error here, with the line in the\n" +
				"recipe where it arose; the other rank continues. While it waits, this rank executes no calls of\n" +
				"others: ranks that call each other from main() and wait get an error that says so. They call\n" +
				"rpc_async, then dist.serve, and then read the results.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				return s.ask(c, c.Int("to"), try.To(s.named(c, callFunction)))
			}},
		{Sig: `rpc_async(to: int, fn: callable, *args, timeout: number = None) -> Work`,
			Doc: "Like rpc, but does not wait: wait() of the returned Work gives the result, or the error. A rank\n" +
				"executes the calls of another in the order in which they were made. Calls whose Work was dropped are\n" +
				"waited for in dist.serve or at the end of main(), which fail if one of them has failed.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				return s.begin(c, c.Int("to"), try.To(s.named(c, callFunction)))
			}},
		{Sig: `remote(to: int, fn: callable, *args, timeout: number = None) -> Reference`,
			Doc: "Like rpc, but rank to keeps the result, which may be any value, until the run ends. Returns a\n" +
				"reference to it once it is there. If to is this rank, fn may be any function.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				return s.ask(c, c.Int("to"), try.To(s.named(c, keepResult)))
			}},
		{Sig: `serve(order: string = "rank", timeout: number = None)`, Fn: s.serve,
			Doc: "Executes other ranks' calls until all ranks of the world are in serve and have the answers to their own\n" +
				"calls, with rpc_async before it, too; every rank calls it. Ranks\n" +
				"take part in the calls of each other only here. order = \"rank\" takes one call of each rank in turn,\n" +
				"skipping those that are in serve themselves, and waits for the rank whose turn it is: what a\n" +
				"recipe computes is then the same each time. order = \"arrival\" takes calls as they come: no rank\n" +
				"waits for a slower one, but the order, and so the bits, may differ from run to run, which a line on\n" +
				"the console says. Functions that themselves call serving ranks need it. timeout bounds the wait for\n" +
				"the next call; without it serve waits as long as the other ranks live."},
	}
}

// named makes a request of the arguments fn and *args.
func (s *rpc) named(c *starlib.Call, kind starlark.Int) (*request, error) {
	r := &request{kind: kind, args: c.Rest, fn: c.Callable("fn")}
	if fn, ok := r.fn.(*starlark.Function); ok {
		r.file, r.name = fn.Position().Filename(), fn.Name()
		if s.rank.Global != nil && s.rank.Global(r.file, r.name) == starlark.Value(fn) {
			return r, nil
		}
	}
	if kind == keepResult && c.Int("to") == s.rank.Rank {
		return r, nil
	}
	return nil, fmt.Errorf("argument fn: a function is called by its name, so it must be defined with def at the top level of the recipe, which %s is not", r.fn.Name())
}

// ask makes a request and waits for the answer.
func (s *rpc) ask(c *starlib.Call, to int, r *request) (starlark.Value, error) {
	work := try.To(s.begin(c, to, r))
	return work.result()
}

// begin makes a request. The Work's result is the answer.
func (s *rpc) begin(c *starlib.Call, to int, r *request) (_ *Work, err error) {
	defer try.Caught(&err)
	try.FailIf(to < 0 || to >= s.rank.WorldSize, "%d is not a rank: ranks are 0 to %d", to, s.rank.WorldSize-1)
	ctx := try.To(s.until(c))
	if to == s.rank.Rank {
		v := try.To(s.own(c, r))
		return finished("rpc", v), nil
	}
	r.served = s.served
	data := try.To(s.all.encode(r.value()))
	// The receive comes first: answers are matched with calls by their order.
	answer, err := startReceive(s.all, to, tagAnswer, ctx, origin(c))
	if err == nil {
		_, err = sendBytes(s.all, data, to, tagCall, ctx, origin(c), "rpc", true)
	}
	if err != nil {
		return nil, err
	}
	result, failed := starlark.Value(nil), error(nil)
	work := &Work{Opaque: "Work", what: "rpc", ctx: ctx, at: origin(c).Pos, done: answer.ready}
	work.wait = func(*collective.WaitLimit) error {
		if result == nil && failed == nil {
			result, failed = s.result(answer, to)
		}
		return failed
	}
	work.then = finish(func() (starlark.Value, error) { return result, failed })
	s.asked = append(slices.DeleteFunc(s.asked, func(p *Work) bool { return p.over }), work)
	return work, nil
}

func (s *rpc) result(answer *receive, to int) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	v, _, err := answer.wait()
	if e := (*collective.MismatchError)(nil); errors.As(err, &e) && e.Do == "" {
		e.Do = "a rank executes the calls of others only in dist.serve(): ranks that call each other call dist.rpc_async, then dist.serve(), and then wait() for the results"
	}
	try.Ok(err)
	t, ok := v.(starlark.Tuple)
	try.FailIf(!ok || len(t) != 2, "instead of an answer rank %d sent %s", to, v)
	if t[0] == starlark.False {
		return nil, fmt.Errorf("rank %d: %s", to, string(t[1].(starlark.String)))
	}
	return t[1], nil
}

// settle waits for the answers to this rank's calls, which the recipe may have dropped, and returns the error of the
// first that failed.
func (s *rpc) settle() error {
	calls := s.asked
	s.asked = nil
	return answered(calls)
}

func answered(calls []*Work) error {
	for _, work := range calls {
		if work.over {
			continue
		}
		if err := work.wait(work.ctx); err != nil {
			return fmt.Errorf("%s: %s, which was not waited for: %w", work.at, work.what, err)
		}
	}
	return nil
}

// own executes a request of this rank to itself.
func (s *rpc) own(c *starlib.Call, r *request) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	switch {
	case r.kind == fetchKept:
		return s.find(r.number)
	case r.kind == keepResult:
		v := try.To(starlark.Call(c.Thread, r.fn, r.args, nil))
		return s.keepValue(v), nil
	}
	args := try.To(s.copied(r.args))
	v := try.To(starlark.Call(c.Thread, r.fn, args.(starlark.Tuple), nil))
	return s.copied(v)
}

// copied returns a value as another rank would receive it.
func (s *rpc) copied(v starlark.Value) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	data := try.To(s.all.encode(v))
	return s.all.decode(data)
}

func (s *rpc) keepValue(v starlark.Value) *reference {
	n := int64(len(s.kept))
	s.kept[n] = v
	return &reference{"Reference", s, int64(s.rank.Rank), n}
}

func (s *rpc) find(number int64) (starlark.Value, error) {
	if v := s.kept[number]; v != nil {
		return v, nil
	}
	return nil, fmt.Errorf("rank %d keeps no value %d", s.rank.Rank, number)
}

// value returns a request as it is sent.
func (r *request) value() starlark.Tuple {
	return starlark.Tuple{r.kind, starlark.MakeInt64(r.served), starlark.String(r.file), starlark.String(r.name), r.args, starlark.MakeInt64(r.number)}
}

func newRequest(from int, v starlark.Value) (*request, error) {
	t, ok := v.(starlark.Tuple)
	if !ok || len(t) != 6 {
		return nil, fmt.Errorf("instead of a call rank %d sent %s", from, v)
	}
	r := &request{from: from, kind: t[0].(starlark.Int), file: string(t[2].(starlark.String)), name: string(t[3].(starlark.String)), args: t[4].(starlark.Tuple)}
	r.served, _ = t[1].(starlark.Int).Int64()
	r.number, _ = t[5].(starlark.Int).Int64()
	return r, nil
}

func (s *rpc) serve(c *starlib.Call) (starlark.Value, error) {
	order := c.String("order")
	try.FailIf(order != "rank" && order != "arrival", "argument order: want \"rank\" or \"arrival\", got %q", order)
	ctx := s.forever
	if !c.IsNone("timeout") {
		ctx = try.To(s.until(c))
	}
	try.FailIf(s.serving, "this function is already executed in dist.serve")
	if s.all.comm == nil {
		return nil, s.settle()
	}
	s.serving = true
	defer func() { s.serving = false }()
	loop := &serving{rpc: s, c: c, ctx: ctx, at: origin(c), inTurn: order == "rank", in: make([]bool, s.rank.WorldSize), out: make([]bool, s.rank.WorldSize)}
	return nil, loop.run()
}

// serving is one call of serve.
type serving struct {
	*rpc
	c      *starlib.Call
	ctx    *collective.WaitLimit
	at     collective.Origin
	inTurn bool
	in     []bool // by rank: it is in serve, too
	out    []bool // and its calls have been answered
	told   bool
}

// run executes calls until all ranks have entered serve. By then it has executed all calls from their main(), and they those of this
// one, whose answers it waits for. A function's calls to other ranks are answered before the function's own, so once all
// ranks have their answers, no call is under way.
func (s *serving) run() (err error) {
	defer try.Caught(&err)
	asked := s.asked // functions that are executed make calls of their own
	s.asked = nil
	try.Ok(s.announce(enterServe, s.in))
	try.Ok(s.until(s.in))
	try.Ok(answered(asked))
	try.Ok(s.announce(leaveServe, s.out))
	try.Ok(s.until(s.out))
	s.served++
	return nil
}

// announce tells all ranks that this one has come so far.
func (s *serving) announce(kind starlark.Int, there []bool) (err error) {
	defer try.Caught(&err)
	there[s.rank.Rank] = true
	data := try.To(s.all.encode((&request{kind: kind, served: s.served}).value()))
	for r := range there {
		if r != s.rank.Rank {
			try.To(sendBytes(s.all, data, r, tagCall, s.forever, s.at, "serve", true))
		}
	}
	return nil
}

// until executes calls until all ranks are there.
func (s *serving) until(there []bool) (err error) {
	defer try.Caught(&err)
	for turn := s.rank.Rank; slices.Contains(there, false); {
		source := collective.AnySource
		if s.inTurn {
			for turn = (turn + 1) % len(there); there[turn]; {
				turn = (turn + 1) % len(there)
			}
			source = turn
		}
		switch r := try.To(s.next(source)); r.kind {
		case enterServe:
			s.in[r.from] = true
		case leaveServe:
			s.out[r.from] = true
		default:
			try.Ok(s.execute(r))
		}
	}
	return nil
}

func (s *serving) next(source int) (_ *request, err error) {
	defer try.Caught(&err)
	for i, r := range s.early {
		if r.served == s.served && (source < 0 || source == r.from) {
			s.early = append(s.early[:i:i], s.early[i+1:]...)
			return r, nil
		}
	}
	for {
		receive := try.To(startReceive(s.all, source, tagCall, s.ctx, s.at))
		v, from := try.To2(receive.wait())
		r, err := newRequest(from, v)
		if err != nil || r.served == s.served {
			return r, err
		}
		s.early = append(s.early, r)
	}
}

// execute carries out a call and answers it. A failed call is the caller's error, unless this rank cannot continue either.
func (s *serving) execute(r *request) error {
	if !s.inTurn && !s.told {
		s.told = true
		s.c.Thread.Print(s.c.Thread, fmt.Sprintf("%s: dist.serve: calls are executed as they arrive, so results may differ from run to run; order = \"rank\" keeps them the same", s.at.Pos))
	}
	v, failed := s.carryOut(r)
	answer := starlark.Tuple{starlark.True, v}
	if failed == nil {
		data, err := s.all.encode(answer)
		if err == nil {
			return s.reply(r, data)
		}
		failed = fmt.Errorf("the result of %s: %w", r.name, err)
	}
	where, what, ended := s.rank.Explain(s.c.Thread, failed)
	if where != "" {
		what = where + ": " + what
	}
	data, err := s.all.encode(starlark.Tuple{starlark.False, starlark.String(what)})
	if ended || err != nil || s.reply(r, data) != nil {
		return failed // which is why there are no more messages
	}
	return nil
}

func (s *serving) reply(r *request, data []byte) error {
	_, err := sendBytes(s.all, data, r.from, tagAnswer, s.within, s.at, "the answer to rpc", true)
	return err
}

func (s *serving) carryOut(r *request) (starlark.Value, error) {
	if r.kind == fetchKept {
		return s.find(r.number)
	}
	fn, ok := s.rank.Global(r.file, r.name).(starlark.Callable)
	if !ok {
		return nil, fmt.Errorf("there is no function %s in %s here", r.name, r.file)
	}
	v, err := starlark.Call(s.c.Thread, fn, r.args, nil)
	if err == nil {
		err = s.settle()
	}
	if err == nil && r.kind == keepResult {
		v = s.keepValue(v)
	}
	return v, err
}
