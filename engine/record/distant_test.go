package record

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"drun/checkpoints"
	"drun/engine"
	"drun/engine/transfer"
	"drun/internal/exit"
)

// machine is another node's memory of a state.
type machine struct {
	*transfer.Source
	region *transfer.Region
	chunks atomic.Int64 // that were asked for
}

func newMachine(t *testing.T, state uint64, size int64) *machine {
	t.Helper()
	var pool transfer.Regions
	g, err := pool.Take(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	held := &transfer.Held{}
	held.Put(state, g)
	m := &machine{region: g}
	m.Source = transfer.NewSource("a node", func(w *transfer.Want) {
		if !w.Sums {
			m.chunks.Add(1)
		}
		go func() { m.Deliver(held.Answer(w)) }()
	})
	return m
}

// Ranks 0 and 1 are here, 2 and 3 on one other node, 4 on another. Of data that they hand over there the store gets what it would
// get on one machine, and asks for what it does not have, once; parts of one tensor on several nodes are put together here.
func TestStatesOfOtherNodes(t *testing.T) {
	data := map[string][]byte{}
	source := rand.NewChaCha8([32]byte{})
	of := func(name string, size int) []byte {
		if data[name] == nil {
			data[name] = make([]byte, size)
			_, _ = source.Read(data[name])
		}
		return data[name]
	}
	const large = 5<<19 + 77 // two chunks and a half
	shared, whole := of("shared", large), of("whole", large)
	// Of the whole: here, with a node, here, with the other node, with the first again.
	cuts := map[int][2]int64{0: {0, 100}, 2: {100, 1_200_000}, 1: {1_200_000, 2<<20 + 10}, 4: {2<<20 + 10, 2_300_000}, 3: {2_300_000, large}}
	names := func(rank int) []string {
		return []string{"equal", fmt.Sprintf("own %d", rank), fmt.Sprintf("pair %d", rank/2), "whole"}
	}
	for _, memory := range []bool{false, true} {
		s := newSaving()
		for rank := range 5 {
			part := &engine.Part{Apart: true, Memory: memory}
			for _, name := range names(rank)[:3] {
				part.Entries = append(part.Entries, engine.Entry{Name: name, DType: "uint8", Shape: []int{large}, Bytes: large, Sum: []byte(name)})
				of(name, large)
			}
			part.Entries = append(part.Entries, engine.Entry{Name: "whole", DType: "uint8", Shape: []int{large}, Bytes: cuts[rank][1] - cuts[rank][0],
				Share: &engine.Share{Set: "all", From: cuts[rank][0], Whole: large}})
			s.parts[rank] = part
		}
		copy(data["own 4"], data["own 3"][:2<<20]) // two chunks of different ranks, here on different nodes, are equal
		copy(data["own 2"], shared)                // what the store has already
		var pool transfer.Regions
		if err := s.prepare(func(rank int) bool { return rank < 2 }, &pool); err != nil {
			t.Fatal(err)
		}
		nodes := []*machine{newMachine(t, s.number, s.region.Used), newMachine(t, s.number, s.region.Used)}
		for rank := 2; rank < 5; rank++ {
			s.nodes[rank] = nodes[(rank-2)/2]
		}
		for rank := range 5 {
			for _, span := range s.asked[rank] {
				e := s.parts[rank].Entries[span.Entry]
				bytes := data[e.Name]
				if e.Share != nil {
					bytes = whole[e.Share.From:][:e.Bytes]
				}
				to := s.region
				if rank >= 2 {
					to = nodes[(rank-2)/2].region
				}
				if _, err := to.WriteAt(bytes, span.Offset); err != nil {
					t.Fatal(err)
				}
			}
			s.take(rank, &engine.Handed{})
		}
		s.sort()
		if memory {
			if err := s.bringAll(); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(s.err, s.fill()); err != nil {
			t.Fatal(err)
		}
		chunks, err := s.chunks()
		if err != nil {
			t.Fatal(err)
		}
		want := map[int][]checkpoints.Entry{}
		for rank := range 5 {
			for i, name := range names(rank) {
				e := s.parts[rank].Entries[i]
				if (memory || len(s.overlapping(e.Offset, e.Bytes)) == 0) && !bytes.Equal(e.Data, data[name]) {
					t.Errorf("memory %v: %q of rank %d is not what was handed over", memory, name, rank)
				}
				want[rank] = append(want[rank], checkpoints.Entry{Name: name, Kind: "tensor", DType: "uint8", Shape: []int{large}, Data: data[name]})
			}
		}
		if memory && len(chunks) > 0 {
			t.Error("of a checkpoint in memory something is still elsewhere")
		}
		home := t.TempDir()
		store, err := checkpoints.Open(home)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		if _, err := store.Save("before", 1, nil, map[int][]checkpoints.Entry{0: {{Name: "x", Kind: "tensor", DType: "uint8", Shape: []int{large}, Data: shared}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := store.SaveAfter(0, "run", 1, nil, entriesOf(s.parts, chunks)); err != nil {
			t.Fatal(err)
		}
		for rank := range 5 {
			_, got, err := store.Load("run", checkpoints.Last, rank)
			if err != nil {
				t.Fatal(err)
			}
			for i, e := range got {
				if e.Name != want[rank][i].Name || !bytes.Equal(e.Data, want[rank][i].Data) {
					t.Errorf("memory %v: the store has another %q of rank %d", memory, e.Name, rank)
				}
			}
		}
		if _, err := store.Save("plain", 1, nil, want); err != nil {
			t.Fatal(err)
		}
		if !memory {
			// Of what ranks have alone: nothing of rank 2's, three chunks of rank 3's, the last of rank 4's; both pairs; and in pieces of a quarter
			// of a chunk what nodes have of the whole, no chunk of which one node has.
			if n := nodes[0].chunks.Load() + nodes[1].chunks.Load(); n != 3+1+3+3+4+1+1+2 {
				t.Errorf("%d chunks and pieces were asked for, want 18", n)
			}
		}
		pool.Close()
	}
}

// The loss of a node fails the checkpoint that it had, but no later attempt; another error fails all that follow.
func TestLostWithItsNode(t *testing.T) {
	r := &Checkpoints{rows: rows{attempt: newAttempt(1, time.Time{}, 0)}}
	r.saved.fail(fmt.Errorf("checkpoint of step 3: %w", &transfer.GoneError{Name: "node 1", Why: errors.New("cut")}), 1)
	if err := r.SaveError(); err == nil || exit.CodeOf(err) != exit.RankLost {
		t.Errorf("got %v", err)
	}
	r.attempt = newAttempt(2, time.Time{}, 0)
	if err := r.SaveError(); err != nil {
		t.Errorf("the next attempt: %v", err)
	}
	r.saved.fail(exit.Errorf(exit.Storage, "full"), 2)
	r.attempt = newAttempt(3, time.Time{}, 0)
	if err := r.SaveError(); err == nil || exit.CodeOf(err) != exit.Storage {
		t.Errorf("got %v", err)
	}
}
