package proof

import (
	"testing"

	"drun/history"
	"drun/history/records"
	"drun/runs/replay"
)

// The ranks of a run that failed were stopped wherever they were, in the run and here: one of them must come as far as all did.
func TestRanksOfAFailedRun(t *testing.T) {
	upTo := func(lasts ...int64) (all []map[int64][records.DigestSize]byte) {
		for _, last := range lasts {
			of := map[int64][records.DigestSize]byte{}
			for n := int64(1); n <= last; n++ {
				of[n] = [records.DigestSize]byte{byte(n)}
			}
			all = append(all, of)
		}
		return all
	}
	another := upTo(16, 16)
	another[1][15] = [records.DigestSize]byte{99}
	for _, c := range []struct {
		status       history.Status
		packed, here []map[int64][records.DigestSize]byte
		differs      int64 // after which update; 0: nowhere
	}{
		{history.Failed, upTo(16, 16), upTo(16, 15), 0},
		{history.Failed, upTo(16, 15), upTo(16, 16), 0},
		{history.Failed, upTo(16, 16), upTo(15, 15), 16},
		{history.Failed, upTo(16, 16), another, 15},
		{history.Failed, another, upTo(16, 16), 15},
		{history.Done, upTo(16, 16), upTo(16, 16), 0},
		{history.Done, upTo(16, 16), upTo(16, 15), 16},
		{history.Done, upTo(16, 15), upTo(16, 16), 16},
	} {
		of := &Run{made: &made{detail: &history.Detail{Summary: history.Summary{Status: c.status}}, digests: c.packed}, chain: &chain{Links: []link{{End: true, Updates: 16}}}}
		k := &check{run: of, verdict: &Verdict{}}
		got := int64(0)
		if d := k.digests(span{-1, 0}, &replay.Again{Digests: c.here}); d != nil {
			got = d.update
		}
		if got != c.differs {
			t.Errorf("%s, %d and %d updates of ranks, here %d and %d: differs after %d, want %d", c.status, len(c.packed[0]), len(c.packed[1]), len(c.here[0]), len(c.here[1]), got, c.differs)
		}
	}
}
