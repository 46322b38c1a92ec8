package shm

import (
	"context"
)

// Rounds is a call whose rounds are driven from outside: collective/hier makes calls of
// a node's rounds and of messages between nodes. All ranks of the Comm make the same
// number of them. They take part in the order of the Comm's collectives, one call at a time,
// which is the caller's to keep.
type Rounds struct{ run run }

// Rounds begins such a call. The first round compares the fingerprint.
func (c *Comm) Rounds(ctx context.Context, fingerprint uint64, async bool) *Rounds {
	spin := c.spin
	if async {
		spin = min(spin, spinAsync)
	}
	return &Rounds{run{Comm: c, ctx: ctx, fingerprint: fingerprint, spin: spin}}
}

// RoundBytes is the size of each of the two pieces of memory in which a rank publishes in a round.
const RoundBytes = stageSize

// Next begins the next round, and gives the memory in which this rank publishes.
func (r *Rounds) Next() (stage, result []byte) {
	r.run.begin().arena = 0
	return r.run.stage(r.run.rank), r.run.result(r.run.rank)
}

// Lend says with the round where data of this rank lies, if it lies in the arena: the others can
// read and write it then.
func (r *Rounds) Lend(data []byte) {
	r.run.arrivals[r.run.round%2][r.run.rank].arena = r.run.region.arena.where(data)
}

// Lent gives n bytes of what each rank has lent in the round that has ended; nil where not all have.
func (r *Rounds) Lent(n int) (all [][]byte, err error) {
	if _, every := r.run.inArena(); !every {
		return nil, nil
	}
	all = make([][]byte, r.run.size)
	for i, a := range r.run.arrivals[r.run.round%2] {
		if all[i], err = r.run.region.arena.view(r.run.world[i], int(a.arena-1), n); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Arrive says that this rank has published, and waits until all have. It gives
// [collective.ErrFingerprint] where the ranks made different calls.
func (r *Rounds) Arrive() error {
	if err := r.run.failed(); err != nil {
		return err
	}
	return r.run.arrive()
}

// Of is what a rank has published in the round, until this rank's next call of Arrive.
func (r *Rounds) Of(rank int) (stage, result []byte) { return r.run.stage(rank), r.run.result(rank) }
