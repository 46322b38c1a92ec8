package disttest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"drun/collective"
	"drun/kernel/dtype"
)

// A plan is a random sequence of calls in random groups, which every rank derives from the seed; each rank makes its
// own calls, in order.
type plan struct {
	seed   uint64
	groups [][]int // by number less 1; overlapping
	steps  []step
}

// A step is a collective in one group, or a message within it.
type step struct {
	group int // 0: the world
	trial trial
	async bool
	arena bool
	keep  int // an asynchronous call is waited for this many steps later; -1: never

	message    bool
	from, to   int // in the group
	tag        int
	any        bool // the receiver takes it from any source
	count      int
	asyncAtEnd [2]bool // sender, receiver
}

func (s step) String() string {
	if s.message {
		return fmt.Sprintf("message of %d %v from %d to %d of group %d, tag %d, any %v, async %v", s.count, s.trial.dtype, s.from, s.to, s.group, s.tag, s.any, s.asyncAtEnd)
	}
	return fmt.Sprintf("%v in group %d, async %v, arena %v", s.trial, s.group, s.async, s.arena)
}

// sizes are those around which backends change their algorithm: nothing, one, odd, a slot, a chunk and its
// neighbours, several chunks.
var sizes = []int{0, 1, 2, 7, 15, 16, 17, 63, 64, 65, 255, 1023, 4095, 4096, 4097, 16383, 65535, 65536, 65537, 262_145, 600_011}

func (s suite) plan(seed uint64, ranks, calls, most int) plan {
	rng := rand.New(rand.NewPCG(seed, uint64(ranks)))
	p := plan{seed: seed}
	for range min(3, ranks-1) {
		p.groups = append(p.groups, rng.Perm(ranks)[:1+rng.IntN(ranks)])
	}
	for i := range calls {
		st := step{group: rng.IntN(len(p.groups) + 1), keep: rng.IntN(8) - 1}
		size := ranks
		if st.group > 0 {
			size = len(p.groups[st.group-1])
		}
		st.trial = s.draw(rng, size, 1)
		count := func() int { // half of them at a border, a few above it
			most := most
			if rng.IntN(32) == 0 {
				most *= 5
			}
			if n := sizes[rng.IntN(len(sizes))]; n <= most && rng.IntN(2) == 0 {
				return n
			}
			return rng.IntN(1 + rng.IntN(1+rng.IntN(most)))
		}
		st.trial.counts = equal(size, count())
		if st.trial.uneven {
			for k := range st.trial.counts {
				st.trial.counts[k] = count() / size
			}
		}
		st.async, st.arena = rng.IntN(3) == 0, rng.IntN(4) == 0
		if size > 1 && rng.IntN(4) == 0 {
			st.message, st.from, st.to, st.any = true, rng.IntN(size), rng.IntN(size-1), rng.IntN(4) == 0
			if st.to >= st.from {
				st.to++
			}
			// No two messages may be mistaken for each other: a receive from any source may take either.
			st.tag, st.count = i, st.trial.counts[0]
			st.asyncAtEnd = [2]bool{rng.IntN(2) == 0, rng.IntN(2) == 0}
		}
		p.steps = append(p.steps, st)
	}
	return p
}

// actor is one rank that follows a plan.
type actor struct {
	plan    plan
	world   collective.Comm
	comms   []collective.Comm // the world and the groups, nil where it is no member
	pending []*pendingStep
}

type pendingStep struct {
	number int
	step   step
	rank   int
	work   collective.Work
	call   collective.Call
	want   []byte
	due    int // the step before which it is waited for; -1: it is dropped
}

func (p plan) follow(t *testing.T, rank int, world collective.Comm) {
	a := &actor{plan: p, world: world, comms: []collective.Comm{world}}
	for i, ranks := range p.groups {
		comm, err := world.Split(Context, collective.Group{ID: uint32(i + 1), Ranks: ranks})
		if err != nil {
			t.Errorf("group %v: %v", ranks, err)
			return
		}
		a.comms = append(a.comms, comm)
	}
	for i, st := range p.steps {
		if err := a.do(i, st); err != nil {
			t.Errorf("rank %d, step %d of DRUN_TEST_SEED=%d: %v", rank, i, p.seed, err)
			world.Abort(err)
			return
		}
	}
	if err := a.waitForDue(-1); err != nil {
		t.Errorf("rank %d, DRUN_TEST_SEED=%d: %v", rank, p.seed, err)
		world.Abort(err)
	}
}

// do makes the rank's call of a step.
func (a *actor) do(number int, st step) error {
	if err := a.waitForDue(number); err != nil {
		return err
	}
	comm := a.comms[st.group]
	if comm == nil {
		return nil
	}
	p := &pendingStep{number: number, step: st, rank: comm.Rank(), due: -1}
	switch {
	case !st.message:
		p.call, p.want = st.trial.call(comm.Rank())
		p.call.Async = st.async
		if st.arena {
			a.inArena(&p.call)
		}
	case comm.Rank() == st.from:
		p.call = collective.NewSend(st.data(), st.to, st.tag)
		p.call.Async = st.asyncAtEnd[0]
	case comm.Rank() == st.to:
		from := st.from
		if st.any {
			from = collective.AnySource
		}
		data := st.data()
		p.want = bytes.Clone(data.Data)
		clear(data.Data)
		p.call = collective.NewRecv(data, from, st.tag)
		p.call.Async = st.asyncAtEnd[1]
	default:
		return nil
	}
	var err error
	if p.work, err = comm.Start(&p.call); err != nil {
		return fmt.Errorf("%v: %w", st, err)
	}
	if !p.call.Async {
		return p.wait()
	}
	if st.keep >= 0 {
		p.due = number + st.keep
	}
	a.pending = append(a.pending, p)
	return nil
}

func (s step) data() collective.Buffer {
	return collective.Buffer{DType: s.trial.dtype, Data: random(rand.New(rand.NewPCG(s.trial.seed, 99)), s.trial.dtype, s.count)}
}

// inArena moves a call's buffers to the backend's arena, if it has one with room.
func (a *actor) inArena(c *collective.Call) {
	arena, ok := a.world.(collective.Arena)
	if !ok {
		return
	}
	shared := len(c.Send.Data) > 0 && len(c.Recv.Data) > 0 && &c.Send.Data[0] == &c.Recv.Data[0]
	for _, b := range []*collective.Buffer{&c.Send, &c.Recv} {
		if b.DType == dtype.None {
			continue
		}
		in, err := arena.Alloc(b.DType, b.Count())
		if err != nil {
			return
		}
		copy(in.Data, b.Data)
		*b = in
		if shared {
			c.Send, c.Recv = in, in
			return
		}
	}
}

// waitForDue waits for what is due before a step, or for everything at the end (-1): dropped collectives are checked
// after a barrier, dropped messages are waited for.
func (a *actor) waitForDue(number int) error {
	if number < 0 {
		for _, comm := range a.comms {
			if comm == nil {
				continue
			}
			if err := Do(comm, collective.NewBarrier()); err != nil {
				return err
			}
		}
	}
	for i := 0; i < len(a.pending); i++ {
		p := a.pending[i]
		if number >= 0 && (p.due < 0 || p.due > number) {
			continue
		}
		check := p.wait
		if number < 0 && p.due < 0 && !p.step.message {
			check = p.compare
		}
		if err := check(); err != nil {
			return fmt.Errorf("started in step %d: %w", p.number, err)
		}
		a.pending = slices.Delete(a.pending, i, i+1)
		i--
	}
	return nil
}

func (p *pendingStep) wait() error {
	if err := p.work.Wait(Context); err != nil {
		return fmt.Errorf("%v: %w", p.step, err)
	}
	if receipt, ok := p.work.(collective.Receipt); ok && p.step.any && p.call.Kind == collective.Recv && receipt.Source() != p.step.from {
		return fmt.Errorf("%v: it is said to be from %d", p.step, receipt.Source())
	}
	return p.compare()
}

func (p *pendingStep) compare() error {
	if p.call.Kind == collective.Send {
		return nil
	}
	if p.step.message {
		if !bytes.Equal(p.call.Recv.Data, p.want) {
			return fmt.Errorf("%v: another message came", p.step)
		}
		return nil
	}
	return p.step.trial.compare(p.rank, p.call, p.want)
}

// mixed runs random plans and compares with the model: collectives and messages of overlapping groups, some
// asynchronous, some of those never waited for, with data on the heap and in the arena.
func (s suite) mixed(t *testing.T, factory Factory) {
	seed, calls, most := Seed(t), times(40, 60, 120), times(10_000, 70_000, 70_000)
	for _, n := range []int{1, 2, 3, 5} {
		RunWith(t, factory, n, s.plan(seed, n, calls, most).follow)
	}
}
