package record

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"drun/engine"
	"drun/engine/transfer"
)

// shares are ranks that save a tensor of 10 bytes in parts: each text is from-to, "" a rank without one. Those
// after a "/" come apart.
func shares(texts ...string) *saving {
	s := newSaving()
	for rank, text := range texts {
		p := &engine.Part{}
		text, p.Apart = strings.CutPrefix(text, "/")
		if text != "" {
			var from, to int64
			fmt.Sscanf(text, "%d-%d", &from, &to)
			e := engine.Entry{Name: "t", DType: "uint8", Shape: []int{10}, Share: &engine.Share{Set: "[0, 1]", From: from, Whole: 10}}
			for b := from; b < to; b++ {
				e.Data = append(e.Data, byte(b))
			}
			if e.Bytes = to - from; p.Apart {
				e.Data = nil
			}
			p.Entries = []engine.Entry{e}
		}
		s.parts[rank] = p
	}
	return s
}

// Parts of a tensor become the whole on each of the ranks that have one, in whichever way they come.
func TestPartsBecomeAWhole(t *testing.T) {
	want := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	for _, c := range [][]string{
		{"0-10"}, {"0-4", "4-10"}, {"4-10", "0-4"}, {"/0-4", "/4-10"}, {"0-4", "/4-10"}, {"/0-8", "/8-10", "/10-10"}, {"0-0", "0-10", "10-10"}, {"/0-4", "", "4-10"},
	} {
		s := shares(c...)
		var pool transfer.Regions
		if err := s.prepare(func(int) bool { return true }, &pool); err != nil {
			t.Errorf("%q: %v", c, err)
			continue
		}
		for rank := range c {
			spans, asked := s.asked[rank]
			if !asked {
				continue
			}
			for _, span := range spans {
				e := s.parts[rank].Entries[span.Entry]
				copy(s.region.Mem[span.Offset:], want[e.Share.From:][:e.Bytes])
			}
			s.take(rank, &engine.Handed{})
		}
		if err := s.fill(); err != nil || s.err != nil {
			t.Errorf("%q: %v, %v", c, err, s.err)
		}
		for rank, text := range c {
			if text == "" {
				continue
			}
			if e := s.parts[rank].Entries[0]; !bytes.Equal(e.Data, want) || e.Bytes != 10 || e.Share != nil {
				t.Errorf("%q: rank %d has %v", c, rank, e)
			}
		}
		pool.Give(s.region)
		pool.Close()
	}
}

// Parts that do not make a whole are an error of the save, which names each.
func TestPartsThatAreNoWhole(t *testing.T) {
	for _, c := range [][]string{{"0-9"}, {"0-4", "5-10"}, {"0-5", "4-9"}, {"0-10", "0-10"}, {"/1-10"}, {"0-4", ""}} {
		s := shares(c...)
		if _, err := s.share(func(int) bool { return true }); err == nil || !strings.Contains(err.Error(), `the ranks' parts of "t" do not make a whole tensor`) ||
			!strings.Contains(err.Error(), "rank 0 has uint8[10], bytes") {
			t.Errorf("%q: %v", c, err)
		}
	}
	s := shares("0-4", "4-10")
	s.parts[1].Entries[0].Shape = []int{5, 2}
	if _, err := s.share(func(int) bool { return true }); err == nil {
		t.Error("parts of different shapes became a whole")
	}
	s = shares("0-4", "4-10")
	s.parts[1].Entries[0].Share.Set = "[1, 2]"
	if _, err := s.share(func(int) bool { return true }); err == nil {
		t.Error("parts of different sets became a whole")
	}
	s = shares("0-4", "4-10")
	s.parts[0].Entries[0].Share.Whole = 1 << 60
	if _, err := s.share(func(int) bool { return true }); err == nil {
		t.Error("a tensor of 2^60 bytes was taken")
	}
}
