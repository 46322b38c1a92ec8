package transfer

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// linked is a source of what is held, where change may alter what is said.
func linked(h *Held, change func(*Want, *Got)) *Source {
	var s *Source
	s = NewSource("node 1", func(w *Want) {
		go func() {
			got := h.Answer(w)
			if change != nil {
				change(w, got)
			}
			s.Deliver(got)
		}()
	})
	return s
}

func filled(t *testing.T, bytes int) *Region {
	t.Helper()
	var pool Regions
	g, err := pool.Take(int64(bytes))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	_, _ = rand.NewChaCha8([32]byte{}).Read(g.Mem[:bytes])
	return g
}

// What is fetched has the bits of what is held, wherever it is cut, and only so much of it is under way at a time.
func TestFetch(t *testing.T) {
	from, to := filled(t, 5<<20+123), filled(t, 6<<20)
	var held Held
	held.Put(7, from)
	var open, most atomic.Int64
	var s *Source
	s = NewSource("node 1", func(w *Want) {
		n := open.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		go func() {
			time.Sleep(time.Millisecond)
			got := held.Answer(w)
			open.Add(-1)
			s.Deliver(got)
		}()
	})
	r := Range{Offset: 77, Bytes: 5<<20 - 11}
	if err := s.Copy(to, 1000, 7, r); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(to.Mem[1000:][:r.Bytes], from.Mem[77:][:r.Bytes]) {
		t.Error("the copy differs")
	}
	if n := most.Load(); n > pieces {
		t.Errorf("%d pieces were under way, want %d at most", n, pieces)
	}
	var ranges []Range
	for i := range int64(mostSums + 3) {
		ranges = append(ranges, Range{Offset: i * 1000, Bytes: 999 + i})
	}
	sums, err := s.Sums(7, ranges)
	if err != nil || len(sums) != len(ranges) {
		t.Fatal(err, len(sums))
	}
	for i, r := range ranges {
		want := sha256.Sum256(from.Mem[r.Offset:][:r.Bytes])
		if sums[i] != want {
			t.Errorf("range %d has another SHA-256", i)
		}
		if data, err := s.Chunk(7, r, want); err != nil || !bytes.Equal(data, from.Mem[r.Offset:][:r.Bytes]) {
			t.Errorf("chunk %d: %v", i, err)
		}
	}
}

// A node that sends bytes that do not match the SHA-256 it gave, or more or fewer than it was asked for, is named.
func TestLies(t *testing.T) {
	g := filled(t, 1<<20)
	var held Held
	held.Put(1, g)
	r := Range{Offset: 0, Bytes: 1 << 20}
	sum := sha256.Sum256(g.Mem[:1<<20])
	for _, c := range []struct {
		name, want string
		change     func(*Want, *Got)
	}{
		{"another byte", "node 1 has offered a chunk with the SHA-256", func(w *Want, g *Got) { g.Data[len(g.Data)-1]++ }},
		{"too few", "node 1 has sent 1048575 bytes of a state where it was asked for 1048576", func(w *Want, g *Got) { g.Data = g.Data[1:] }},
		{"too many", "node 1 has sent 2097152 bytes", func(w *Want, g *Got) { g.Data = make([]byte, 2<<20) }},
		{"none", "node 1: it does not say", func(w *Want, g *Got) { g.Error = "it does not say" }},
	} {
		if _, err := linked(&held, c.change).Chunk(1, r, sum); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	more := linked(&held, func(w *Want, g *Got) { g.Data = append(g.Data, make([]byte, 32<<10)...) })
	if _, err := more.Sums(1, []Range{r}); err == nil || !strings.Contains(err.Error(), "node 1 has sent 32800 bytes of a state where it was asked for 32") {
		t.Errorf("a larger offer: %v", err)
	}
	s := linked(&held, nil)
	s.Deliver(&Got{ID: 99, Data: make([]byte, 10)}) // that nobody has asked for
	if err := s.Copy(g, 0, 1, Range{Offset: 1<<20 - 5, Bytes: 10}); err == nil {
		t.Error("bytes beyond the state were copied")
	}
}

// What is asked for is within the state and within bounds, or nothing is answered.
func TestAnswersAreBounded(t *testing.T) {
	g := filled(t, 3<<20)
	g.Used = 3<<20 - 100
	var held Held
	held.Put(1, g)
	held.Put(2, g)
	held.Remove(2)
	many := make([]Range, mostSums+1)
	for i := range many {
		many[i].Bytes = 1
	}
	for i, w := range []*Want{
		{State: 2, Ranges: []Range{{Bytes: 1}}}, {State: 3, Ranges: []Range{{Bytes: 1}}}, {State: 1}, {State: 1, Sums: true}, {State: 1, Ranges: []Range{{Offset: -1, Bytes: 1}}},
		{State: 1, Ranges: []Range{{Offset: 0, Bytes: -1}}}, {State: 1, Ranges: []Range{{Bytes: 0}}}, {State: 1, Ranges: []Range{{Bytes: mostBytes + 1}}},
		{State: 1, Ranges: []Range{{Offset: g.Used, Bytes: 1}}}, {State: 1, Ranges: []Range{{Offset: g.Used - 5, Bytes: 6}}}, {State: 1, Ranges: []Range{{Offset: 1<<63 - 1, Bytes: 1}}},
		{State: 1, Ranges: []Range{{Bytes: 1}, {Bytes: 1}}}, {State: 1, Ranges: many, Sums: true},
	} {
		if got := held.Answer(w); got.Error == "" || got.Data != nil {
			t.Errorf("question %d is answered with %d bytes", i, len(got.Data))
		}
	}
	if got := held.Answer(&Want{ID: 4, State: 1, Ranges: []Range{{Offset: g.Used - 5, Bytes: 5}}}); got.Error != "" || len(got.Data) != 5 || got.ID != 4 {
		t.Errorf("got %+v", got)
	}
}

// A wait for the other side ends with it, or when it has been silent for long.
func TestTheOtherSideEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSource("node 1", func(*Want) {})
		failed := make(chan error)
		go func() {
			_, err := s.Sums(1, []Range{{Bytes: 1}})
			failed <- err
		}()
		time.Sleep(time.Second)
		s.End(errors.New("cut"))
		if err := <-failed; !errors.As(err, new(*GoneError)) || !strings.Contains(err.Error(), "node 1 is gone, and with it the state that it had: cut") {
			t.Error(err)
		}
		if _, err := s.Chunk(1, Range{Bytes: 1}, [32]byte{}); !errors.As(err, new(*GoneError)) {
			t.Error(err)
		}
		s = NewSource("node 1", func(*Want) {})
		began := time.Now()
		go func() {
			_, err := s.Sums(1, []Range{{Bytes: 1}})
			failed <- err
		}()
		time.Sleep(silentFor / 2)
		s.Deliver(&Got{ID: 5}) // it answers something else
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "node 1 has not sent the data") || time.Since(began) != silentFor {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
