package board

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"drun/collective"
)

// sent gives a mirror as it comes over a link, and its bytes there.
func sent(t *testing.T, m *Mirror) (*Mirror, int) {
	t.Helper()
	data, err := cbor.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	got := new(Mirror)
	if err := cbor.Unmarshal(data, got); err != nil {
		t.Fatal(err)
	}
	return got, len(data)
}

// Whatever ranks do, a board that is told only what is new has what one has that is told everything.
func TestNews(t *testing.T) {
	const world = 200
	from, few, full := observer(t, world), observer(t, world), observer(t, world)
	few.Near(0, 1)
	full.Near(0, 1)
	group, err := from.window(0)
	if err != nil {
		t.Fatal(err)
	}
	from.use(0)
	r := rand.New(rand.NewPCG(1, 2))
	ranks := []int{1, 2, 77, 199}
	var had Sent
	marks, saved := uint64(0), 0
	for round := range 400 {
		for _, rank := range ranks {
			n, s := from.needsOf(rank), from.slot(rank)
			switch r.IntN(10) {
			case 0: // another wait
				marks++
				n.mark.Store(marks)
				n.message.Store(r.Uint64N(3))
				n.ranks.clear()
				n.moving.clear()
				for range r.IntN(100) {
					n.ranks.add(r.IntN(world))
				}
				s.state.Store(uint32(collective.Waiting))
				s.since = now()
			case 1: // it waits for fewer
				if n.mark.Load() != 0 {
					n.ranks[r.IntN(len(n.ranks))].Store(0)
					n.moving.add(r.IntN(world))
				}
			case 2: // the wait ends
				n.mark.Store(0)
				s.state.Store(uint32(collective.Running))
			case 3: // another call
				l := group.line(rank)
				e := group.entry(rank, l.calls.Load(), world)
				e.ver.Add(2)
				e.seq, e.count, e.began = l.calls.Load(), r.Int64N(5), 0
				l.arrived.Add(1)
				l.calls.Add(1)
			case 4:
				s.line = r.Int32N(100)
				table := from.mem[from.namesAt+rank*tableSize:][:tableSize]
				clear(table[:40])
				copy(table, bytes.Repeat([]byte{'a'}, r.IntN(40)))
			case 5, 6:
				n.looks.Add(1)
			case 7: // a message that it waits for has come
				from.ended(rank, r.IntN(world)).Add(1)
			case 8: // it has returned
				f := from.flow(rank, r.IntN(world))
				f.started.Add(r.Uint64N(2))
				f.received.Add(r.Uint64N(2))
				n.spoke.Store(1)
				s.state.Store(uint32(collective.Returned))
			}
		}
		all := r.IntN(5) == 0
		m, size := sent(t, from.Show(ranks, all))
		full.Adopt(m)
		news := from.Show(ranks, all)
		news.Now = m.Now
		had.Trim(news)
		news, less := sent(t, news)
		few.Adopt(news)
		saved += size - less
		for _, rank := range ranks {
			a, b := few.needsOf(rank), full.needsOf(rank)
			same := a.mark.Load() == b.mark.Load() && a.looks.Load() == b.looks.Load() && a.message.Load() == b.message.Load()
			for i := range a.ranks {
				same = same && (a.mark.Load() == 0 || a.ranks[i].Load() == b.ranks[i].Load() && a.moving[i].Load() == b.moving[i].Load())
			}
			for other := range world {
				x, y := few.flow(rank, other), full.flow(rank, other)
				same = same && few.ended(rank, other).Load() == full.ended(rank, other).Load() && x.started.Load() == y.started.Load() && x.received.Load() == y.received.Load()
			}
			x, y := few.slot(rank), full.slot(rank)
			same = same && x.line == y.line && x.state.Load() == y.state.Load() && (x.since == 0) == (y.since == 0) &&
				bytes.Equal(few.mem[few.namesAt+rank*tableSize:][:tableSize], full.mem[full.namesAt+rank*tableSize:][:tableSize])
			v, err := few.window(0)
			w, err2 := full.window(0)
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			calls := w.line(rank).calls.Load()
			same = same && v.line(rank).arrived.Load() == w.line(rank).arrived.Load() && v.line(rank).calls.Load() == calls
			for n := calls - min(calls, shown); n < calls && same; n++ {
				same = v.entry(rank, n, world).count == w.entry(rank, n, world).count && v.entry(rank, n, world).seq == w.entry(rank, n, world).seq
			}
			if !same {
				t.Fatalf("round %d: of rank %d the boards differ", round, rank)
			}
		}
	}
	if saved <= 0 {
		t.Errorf("%d bytes were left out", saved)
	}
}

// Sets are unpacked as they were packed, and invalid data is refused.
func TestPack(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		sets := make([]byte, 8*(1+r.IntN(40)))
		for at := 0; at < len(sets); {
			n := min(8*(1+r.IntN(10)), len(sets)-at)
			if kind := r.IntN(4); kind == 1 {
				copy(sets[at:], bytes.Repeat([]byte{255}, n))
			} else if kind > 1 {
				for i := range n {
					sets[at+i] = byte(r.IntN(256))
				}
			}
			at += n
		}
		packed := pack(sets)
		if got, ok := unpack(packed, len(sets)); !ok || !bytes.Equal(got, sets) {
			t.Fatalf("%x came back as %x", sets, got)
		}
		for _, size := range []int{len(sets) - 8, len(sets) + 8} {
			if _, ok := unpack(packed, size); ok {
				t.Errorf("%d bytes are taken for %d", len(sets), size)
			}
		}
		if _, ok := unpack(packed[:len(packed)-1], len(sets)); ok {
			t.Error("a part is taken for all")
		}
		packed[r.IntN(len(packed))] ^= byte(1 + r.IntN(255))
		_, _ = unpack(packed, len(sets)) // anything, but no panic and no more memory
	}
	for _, bad := range [][]byte{{255, 255, 255, 255, 255, 255, 255, 255, 255, 1}, {7}, {128}, {64, 1}} {
		if got, ok := unpack(bad, 64); ok {
			t.Errorf("%x is %x", bad, got)
		}
	}
}

// What all nodes of eight ranks tell grows with the ranks, however many they wait for, and what they repeat is little.
func TestReportsGrowWithTheRanks(t *testing.T) {
	for _, world := range []int{8, 64, 512, 2000} {
		b := halves(t, world, 2)
		had := make([]Sent, world/8)
		var rounds [3]int
		for round := range rounds {
			for node := range had {
				var ranks []int
				for r := range 8 {
					ranks = append(ranks, 8*node+r)
					b.needsOf(8*node + r).looks.Add(1)
				}
				m := b.Show(ranks, false)
				had[node].Trim(m)
				_, n := sent(t, m)
				rounds[round] += n
			}
		}
		t.Logf("%d ranks: %d bytes, then %d for each round", world, rounds[0], rounds[2])
		if rounds[0] > 320*world || rounds[1] > 113*world || rounds[2] != rounds[1] {
			t.Errorf("%d ranks take %v bytes", world, rounds)
		}
	}
}
