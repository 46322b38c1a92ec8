package checkpoints

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// states are parts of three ranks, which have some values alike.
func states() map[int][]Entry {
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
	return parts
}

// viewed is a view of two ranks' parts, and what they must be.
func viewed(t *testing.T, s *Store) (*View, map[int][]Entry) {
	t.Helper()
	parts := states()
	_, err := s.Save("r", 1, nil, parts)
	ok(t, err)
	v, err := s.View("r", Last, []int{2, 0})
	ok(t, err)
	t.Cleanup(v.Close)
	return v, parts
}

// What ranks have alike is in a view once, and what only begins alike is not taken for it. It gives the same bytes whole and in
// pieces, to many at a time, of which it keeps little.
func TestView(t *testing.T) {
	v, parts := viewed(t, open(t, t.TempDir()))
	if want := 2*len(parts[0][0].Data) + 2*1000 + 4*64; v.Size > int64(want) {
		t.Errorf("%d bytes for two ranks, want at most %d", v.Size, want)
	}
	mem := make(slab, v.Size)
	ok(t, v.Copy(mem, 0, v.Size))
	for i, rank := range []int{2, 0} {
		for n, e := range v.Parts[i] {
			want := parts[rank][n]
			if e.Name != want.Name || fmt.Sprint(e.Shape) != fmt.Sprint(want.Shape) || e.Data != nil || e.Offset%64 != 0 || !bytes.Equal(mem[e.Offset:][:e.Bytes], want.Data) {
				t.Errorf("rank %d: %q is not as it was saved", rank, want.Name)
			}
			alone := make(slab, v.Size)
			ok(t, v.Copy(alone, e.Offset, e.Bytes))
			if !bytes.Equal(alone[e.Offset:][:e.Bytes], want.Data) || !bytes.Equal(alone[:e.Offset], make([]byte, e.Offset)) {
				t.Errorf("rank %d: %q alone is not as it was saved", rank, want.Name)
			}
		}
	}
	for i, rank := range []int{2, 0} {
		entries, want, got := slices.Clone(v.Parts[i]), []byte(nil), []byte(nil)
		slices.Reverse(entries)
		for _, e := range slices.Backward(parts[rank]) {
			want = append(want, e.Data...)
		}
		ok(t, v.InOrder(entries, func(data []byte) error { got = append(got, data...); return nil }))
		if !bytes.Equal(got, want) {
			t.Errorf("rank %d in order is not as it was saved", rank)
		}
		full, calls := errors.New("full"), 0
		if err := v.InOrder(entries, func([]byte) error { calls++; return full }); err != full || calls != 1 {
			t.Errorf("after an error, do was called %d times and returned %v", calls, err)
		}
	}
	var readers sync.WaitGroup
	for _, size := range []int64{997, 1 << 18, ChunkSize, 3 * ChunkSize, v.Size} {
		readers.Go(func() {
			for from := int64(0); from < v.Size; from += size {
				got := make([]byte, min(size, v.Size-from))
				if n, err := v.ReadAt(got, from); n < len(got) || err != nil || !bytes.Equal(got, mem[from:][:n]) {
					t.Errorf("%d bytes from %d: %d, %v", len(got), from, n, err)
					return
				}
				if from > v.Size/2 && size >= ChunkSize {
					v.Release() // in the middle
				}
			}
		})
	}
	readers.Wait()
	if n := len(v.recent); n > mostRecent {
		t.Errorf("%d chunks are kept", n)
	}
	for _, c := range []struct{ from, size, n int64 }{{v.Size, 1, 0}, {v.Size - 1, 2, 1}, {-1, 1, 0}, {v.Size + 1, 1, 0}} {
		if n, err := v.ReadAt(make([]byte, c.size), c.from); int64(n) != c.n || err == nil {
			t.Errorf("%d bytes from %d of %d: %d, %v", c.size, c.from, v.Size, n, err)
		}
	}
}

// What happens to the packs while a view is read is found, or does no harm.
func TestViewOfWhatChanges(t *testing.T) {
	piece := make([]byte, 1<<18)
	read := func(v *View) error {
		for from := int64(0); from < v.Size; from += int64(len(piece)) {
			if _, err := v.ReadAt(piece[:min(int64(len(piece)), v.Size-from)], from); err != nil {
				return err
			}
		}
		return nil
	}
	fails := func(what string, v *View, want string) {
		t.Helper()
		for _, err := range []error{read(v), v.InOrder(v.Parts[0], func([]byte) error { return nil })} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", what, err, want)
			}
		}
	}
	pack := func(home string) string {
		files, _ := packFiles(t, home)
		return filepath.Join(home, "checkpoints", files[0])
	}

	home := t.TempDir()
	v, _ := viewed(t, open(t, home))
	data, err := os.ReadFile(pack(home))
	ok(t, err)
	data[bytes.Index(data, noise(1, ChunkSize)[ChunkSize-100:ChunkSize])]++
	ok(t, os.WriteFile(pack(home), data, 0o600))
	fails("another byte", v, "does not have its SHA-256")

	home = t.TempDir()
	v, _ = viewed(t, open(t, home))
	ok(t, os.Truncate(pack(home), 1<<20))
	fails("torn", v, "is damaged")

	home = t.TempDir()
	s := open(t, home)
	v, _ = viewed(t, s)
	held, err := open(t, home).Delete(v.Info)
	if err != nil || len(held) > 0 {
		t.Fatal(held, err)
	}
	fails("removed", v, "the checkpoint was removed while it was read")

	s = open(t, t.TempDir())
	v, _ = viewed(t, s)
	ok(t, s.rewrite(func(packUse) (bool, error) { return true, nil }, nil))
	ok(t, read(v)) // it has been moved into another pack
	v.Release()
	s.Close()
	fails("the store is closed", v, "")
	v.Close()
	fails("closed", v, errClosed.Error())
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
