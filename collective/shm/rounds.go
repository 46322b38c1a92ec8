package shm

import (
	"context"
)

// Rounds is a call whose rounds are driven from outside: collective/hier builds calls from a
// node's rounds and messages between nodes. All ranks of the Comm make the same number of
// rounds. Such calls take part in the order of the Comm's collectives, one at a time, which
// the caller must ensure.
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

// Lend announces with the round where this rank's data lies, if in the arena, so that the others can read and write
// it.
func (r *Rounds) Lend(data []byte) {
	r.run.arrivals[r.run.round%2][r.run.rank].arena = r.run.region.arena.where(data)
}

// Lent returns n bytes of what each rank has lent in the round that has ended; nil unless all have.
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
