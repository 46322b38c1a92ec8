package shm

import (
	"context"

	"drun/collective"
	"drun/collective/sharedmem"
)

// run is one collective call being done.
type run struct {
	*Comm
	ctx     context.Context
	call    *collective.Call
	spin    int
	started bool // its first round is over: the ranks agree on the call
}

// begin opens the next round and gives this rank's part in it.
func (r *run) begin() *arrival {
	r.round++
	return r.arrivals[r.round%2][r.rank]
}

// arrive says that what this rank publishes in the round is complete, and
// waits for all others.
func (r *run) arrive() error {
	mine := r.arrivals[r.round%2]
	own := mine[r.rank]
	if !r.started {
		own.fingerprint = r.call.Fingerprint
	}
	round := r.round
	own.round.Store(round)
	next := 0
	for next < len(mine) && mine[next].round.Load() == round {
		next++
	}
	if next < len(mine) {
		if err := r.await(mine, next, round); err != nil {
			return err
		}
	} else {
		r.control.gate.Open() // the last to arrive wakes the others
	}
	if !r.started {
		r.started = true
		for _, a := range mine {
			if a.fingerprint != own.fingerprint {
				return collective.ErrFingerprint
			}
		}
	}
	return nil
}

// await waits until the ranks from next on have arrived.
func (r *run) await(all []*arrival, next int, round uint64) error {
	for range r.spin {
		sharedmem.Pause()
		for all[next].round.Load() == round {
			if next++; next == len(all) {
				return nil
			}
		}
	}
	var aborted error
	ready := func() bool {
		for next < len(all) && all[next].round.Load() == round {
			next++
		}
		if next == len(all) {
			return true
		}
		aborted = r.failed()
		return aborted != nil
	}
	if r.spin == 0 { // ranks outnumber cores: one that is missing may be waiting for this one
		for range yields {
			sharedmem.Yield()
			if ready() {
				return aborted
			}
		}
	}
	if err := r.control.gate.Wait(r.ctx, ready); err != nil {
		return err
	}
	return aborted
}

// yields is how often a wait gives its core to others before it sleeps.
const yields = 32

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
	if n <= inlineSize {
		return r.arrivals[r.round%2][rank].inline[:n]
	}
	return r.stage(rank)[:n]
}

// do carries the call out.
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

// alone is every collective of one rank: what it sends is what it receives.
func (r *run) alone() error {
	if err := r.failed(); err != nil {
		return err
	}
	if r.call.Kind != collective.Broadcast {
		copy(r.call.Recv.Data, r.call.Send.Data)
	}
	return nil
}
