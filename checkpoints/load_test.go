package checkpoints

import (
	"bytes"
	"fmt"
	"io"
	"testing"
)

// What ranks have alike is read once, and what only begins alike is not taken for it.
func TestLoadInto(t *testing.T) {
	s := open(t, t.TempDir())
	big := noise(1, 2*ChunkSize+100)
	tail := bytes.Clone(big)
	tail[2*ChunkSize+50]++
	parts := map[int][]Entry{}
	for rank := range 3 {
		parts[rank] = []Entry{
			{Name: "equal", Kind: "tensor", DType: "uint8", Shape: []int{len(big)}, Data: big},
			{Name: "own", Kind: "tensor", DType: "uint8", Shape: []int{1000}, Data: noise(uint64(10+rank), 1000)},
			{Name: "empty", Kind: "tensor", DType: "uint8", Shape: []int{0}},
			{Name: "tail", Kind: "tensor", DType: "uint8", Shape: []int{len(tail)}, Data: tail},
		}
	}
	_, err := s.Save("r", 1, nil, parts)
	ok(t, err)
	var mem slab
	_, got, err := s.LoadInto("r", Last, []int{2, 0}, func(size int64) (io.WriterAt, error) {
		mem = make(slab, size)
		return mem, nil
	})
	ok(t, err)
	if want := 2*len(big) + 2*1000 + 4*64; len(mem) > want {
		t.Errorf("%d bytes for two ranks, want at most %d", len(mem), want)
	}
	for i, rank := range []int{2, 0} {
		for n, e := range got[i] {
			want := parts[rank][n]
			if e.Name != want.Name || fmt.Sprint(e.Shape) != fmt.Sprint(want.Shape) || e.Data != nil || e.Offset%64 != 0 || !bytes.Equal(mem[e.Offset:][:e.Bytes], want.Data) {
				t.Errorf("rank %d: %q is not as it was saved", rank, want.Name)
			}
		}
	}
	want := fmt.Errorf("no room")
	if _, _, err := s.LoadInto("r", Last, []int{0}, func(int64) (io.WriterAt, error) { return nil, want }); err != want {
		t.Errorf("got %v, want %v", err, want)
	}
}

// A checkpoint in which a tenth of the tensors has changed writes at most 15 % of the bytes.
func TestUnchangedIsNotWrittenAgain(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	var entries []Entry
	for i := range 20 {
		entries = append(entries, Entry{Name: fmt.Sprint(i), Kind: "tensor", DType: "uint8", Shape: []int{1200 << 10}, Data: noise(uint64(i), 1200<<10)})
	}
	_, err := s.Save("r", 1, nil, map[int][]Entry{0: entries})
	ok(t, err)
	_, first := packFiles(t, home)
	for _, i := range []int{3, 11} {
		entries[i].Data = noise(uint64(100+i), 1200<<10)
	}
	_, err = s.Save("r", 2, nil, map[int][]Entry{0: entries})
	ok(t, err)
	if _, both := packFiles(t, home); float64(both-first) > 0.15*float64(first) {
		t.Errorf("the second checkpoint has written %d bytes, the first %d", both-first, first)
	}
}

// A chunk's XXH3 only makes loading faster: without it, or when it is wrong, the SHA-256 decides.
func TestSumsAreNotNeeded(t *testing.T) {
	for _, sum := range []string{"NULL", "x''", "x'00112233445566778899aabbccddeeff'", "'text'", "7"} {
		s := open(t, t.TempDir())
		want := Entry{Name: "w", Kind: "tensor", DType: "uint8", Shape: []int{ChunkSize + 1}, Data: noise(7, ChunkSize+1)}
		_, err := s.Save("r", 1, nil, map[int][]Entry{0: {want}})
		ok(t, err)
		_, err = s.sql.Exec("UPDATE chunks SET sum = " + sum)
		ok(t, err)
		load(t, s, "r", 1, want)
	}
}
