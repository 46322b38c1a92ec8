package shm

import (
	"context"

	"drun/collective"
	"drun/collective/sharedmem"
)

// run is one collective call being carried out.
type run struct {
	*Comm
	ctx  context.Context
	call *collective.Call
	spin int

	fingerprint, passed uint64 // of the call
	started             bool   // its first round is over: the ranks agree on the call
}

// begin opens the next round and returns this rank's arrival in it.
func (r *run) begin() *arrival {
	r.round++
	return r.arrivals[r.round%2][r.rank]
}

// arrive says that this rank has published everything for the round, and waits for all others.
func (r *run) arrive() error {
	mine := r.arrivals[r.round%2]
	own := mine[r.rank]
	if !r.started {
		own.fingerprint, own.passed = r.fingerprint, r.passed
	}
	round := r.round
	if round%noteEvery == 0 {
		r.noteCore()
	}
	sharedmem.Publish(&own.round, round)
	// The arrival is visible before this rank looks for the others' and for sleepers: one that goes to sleep has either
	// seen it or is seen. The fence is here rather than after the wait so that the arrival reaches the others sooner.
	sharedmem.Fence()
	next := 0
	for next < len(mine) && mine[next].round.Load() == round {
		next++
	}
	slept := false
	if next < len(mine) {
		var err error
		if slept, err = r.awaitArrivals(mine, next, round); err != nil {
			return err
		}
	}
	if !slept {
		// A rank that was still spinning wakes the sleepers: they may have checked before it arrived.
		r.control.gate.Open()
	}
	if !r.started {
		r.started = true
		return agreed(mine, own)
	}
	return nil
}

// agreed compares the calls of all ranks, with the same outcome on each.
func agreed(all []*arrival, own *arrival) (err error) {
	for _, a := range all {
		if a.fingerprint != own.fingerprint {
			return collective.ErrFingerprint
		}
		if a.passed != own.passed {
			err = collective.ErrArguments
		}
	}
	return err
}

// awaitArrivals waits until the ranks from next on have arrived, and reports whether it slept.
func (r *run) awaitArrivals(all []*arrival, next int, round uint64) (slept bool, err error) {
	for n := range r.spin {
		if n == lookAround && r.sharesCore(next) {
			break // it cannot arrive before this one sleeps
		}
		sharedmem.Pause()
		for all[next].round.Load() == round {
			if next++; next == len(all) {
				return false, nil
			}
		}
	}
	arrived := func() bool {
		for next < len(all) && all[next].round.Load() == round {
			next++
		}
		return next == len(all)
	}
	var aborted error
	looks := 0
	ready := func() bool {
		looks++
		if !arrived() {
			aborted = r.failed()
		}
		return next == len(all) || aborted != nil
	}
	// Another rank may complete the call and fail later on before this one, which has looked for it already, looks for a
	// failure: the call is complete all the same.
	end := func(err error) error {
		if err != nil && arrived() {
			return nil
		}
		return err
	}
	if r.spin == 0 { // ranks outnumber cores: one that is missing may be waiting for this one
		if (sharedmem.Poll{Yields: 32}).Until(ready) {
			return false, end(aborted)
		}
	}
	looks = 0
	if err := r.control.gate.Wait(r.ctx, ready); err != nil {
		return true, end(err)
	}
	return looks > 1, end(aborted)
}

// A rank notes its core after polling lookAround times, and every noteEvery rounds, since the rank that is always last
// never polls that long.
const (
	lookAround = 100
	noteEvery  = 256
)

func (c *Comm) noteCore() (core uint32) {
	core = sharedmem.Core() + 1 // 0: not known
	c.core(c.rank).Store(core)
	return core
}

// sharesCore reports whether another rank last noted the same core as this one. On a busy machine both may stay there
// for long, and each would spin in vain at every call while the other needs the core.
func (c *Comm) sharesCore(other int) bool {
	core := c.noteCore()
	return core != 0 && c.core(other).Load() == core
}

// stage is where a rank publishes in the current round.
func (r *run) stage(rank int) []byte {
	at := r.layout.stages + (2*rank+int(r.round%2))*(stageSize+skew)
	return r.mem[at : at+stageSize : at+stageSize]
}

// result is where a rank publishes what it has reduced in the current round.
func (r *run) result(rank int) []byte {
	at := r.layout.results + (2*rank+int(r.round%2))*(stageSize+skew)
	return r.mem[at : at+stageSize : at+stageSize]
}

// outbox is where a rank publishes n bytes in the current round.
func (r *run) outbox(rank, n int) []byte {
	if n <= inlineSize { // not through the arrival: Go would read it first, to see that it is there
		at := arrivalsAt + (2*rank+int(r.round%2))*sharedmem.CacheLine + inlineAt
		return r.mem[at : at+n : at+n]
	}
	return r.stage(rank)[:n]
}

func (r *run) do() error {
	if r.size == 1 {
		return r.alone()
	}
	switch r.call.Kind {
	case collective.AllReduce, collective.Reduce:
		return r.allReduce()
	case collective.Broadcast:
		return r.broadcast()
	case collective.AllGather:
		return r.gather(true)
	case collective.Gather:
		return r.gather(r.rank == r.call.Root)
	case collective.Scatter:
		return r.scatter()
	case collective.ReduceScatter:
		return r.reduceScatter()
	case collective.AllToAll:
		return r.allToAll()
	}
	r.begin()
	return r.arrive()
}

// alone carries out any collective of a single rank: it receives what it sends.
func (r *run) alone() error {
	if err := r.failed(); err != nil {
		return err
	}
	if r.call.Kind != collective.Broadcast {
		copy(r.call.Recv.Data, r.call.Send.Data)
	}
	return nil
}

// Rounds is a call whose rounds are driven from outside: collective/hier builds calls from a node's rounds and messages
// between nodes. All ranks of the Comm make the same number of rounds. Such calls take part in the order of the Comm's
// collectives, one at a time, which the caller must ensure.
type Rounds struct{ run run }

// Rounds begins such a call. The first round compares the fingerprint.
func (c *Comm) Rounds(ctx context.Context, fingerprint uint64, async bool) *Rounds {
	spin := c.spin
	if async {
		spin = min(spin, spinAsync)
	}
	return &Rounds{run{Comm: c, ctx: ctx, fingerprint: fingerprint, spin: spin}}
}

// RoundBytes is the size of each of the two buffers in which a rank publishes in a round.
const RoundBytes = stageSize

// Next begins the next round, and returns the memory in which this rank publishes.
func (r *Rounds) Next() (stage, result []byte) {
	r.run.begin().arena = 0
	return r.run.stage(r.run.rank), r.run.result(r.run.rank)
}

// Lend announces with the round where this rank's data lies, if in the arena, so that the others can read and write it.
func (r *Rounds) Lend(data []byte) {
	r.run.arrivals[r.run.round%2][r.run.rank].arena = r.run.region.arena.where(data)
}

// Lent returns n bytes of what each rank has lent in the round that has ended; nil unless all have.
func (r *Rounds) Lent(n int) (all [][]byte, err error) {
	if _, every := r.run.inArena(); !every {
		return nil, nil
	}
	return r.run.lent(n)
}

// Arrive says that this rank has published, and waits until all have. It returns [collective.ErrFingerprint] if the
// ranks made different calls.
func (r *Rounds) Arrive() error {
	if err := r.run.failed(); err != nil {
		return err
	}
	return r.run.arrive()
}

// Of returns what a rank has published in the round, valid until this rank's next call of Arrive.
func (r *Rounds) Of(rank int) (stage, result []byte) { return r.run.stage(rank), r.run.result(rank) }
