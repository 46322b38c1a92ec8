package checkpoints

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// sized are entries whose chunks end wherever a row's payload may: in its leaf, at the end of an overflow page, and beyond; and so
// many that the pack's table has several levels.
func sized() (entries []Entry) {
	sizes := []int{1, 2000, 2031, 16200, 16270, 16271, 16272, 16273, 16274, 16275, 16276, 16277, 16278, 16279, 16280, 16349, 16350, 16380, 16384, 18330, 18340, 32700, ChunkSize - 1, ChunkSize, 2*ChunkSize + 7}
	for n := range 200 {
		sizes = append(sizes, 16260+n, 6000+160*n)
	}
	for i, n := range sizes {
		entries = append(entries, Entry{Name: fmt.Sprint(i), Kind: "tensor", DType: "uint8", Shape: []int{n}, Data: noise(uint64(i), n)})
	}
	return entries
}

// Chunks of a pack are read wherever they end, also when another program has written the pack anew.
func TestChunksOfAllSizes(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	want := sized()
	_, err := s.Save("r", 1, nil, map[int][]Entry{0: want})
	ok(t, err)
	files, _ := packFiles(t, home)
	pack := filepath.Join(home, "checkpoints", files[0])
	for _, change := range []string{"", "PRAGMA page_size = 1024; VACUUM"} {
		if change != "" {
			ok(t, alter(pack, change))
		}
		_, entries, err := s.Load("r", Last, 0)
		ok(t, err)
		for i, e := range entries {
			if !bytes.Equal(e.Data, want[i].Data) {
				t.Errorf("after %q: %q of %d bytes is not as it was saved", change, e.Name, len(want[i].Data))
			}
		}
	}
}

// A pack with other bytes gives what was saved or an error.
func TestGarbledPacks(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	want := sized()[:40]
	_, err := s.Save("r", 1, nil, map[int][]Entry{0: want})
	ok(t, err)
	files, _ := packFiles(t, home)
	pack := filepath.Join(home, "checkpoints", files[0])
	sound, err := os.ReadFile(pack)
	ok(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	const page, garbled = 16384, 60
	refused := 0
	for range garbled {
		data := bytes.Clone(sound)
		for range 1 + random.IntN(4) { // where the pages' headers and cells are, mostly
			at := random.IntN(len(data)/page) * page
			if random.IntN(2) == 0 {
				at = random.IntN(8) * page
			}
			data[at+random.IntN(64)] = byte(random.Uint32())
		}
		ok(t, os.WriteFile(pack, data, 0o600))
		info, entries, err := s.Load("r", Last, 0)
		if err != nil {
			refused++
			continue
		}
		for i, e := range entries {
			if !bytes.Equal(e.Data, want[i].Data) {
				t.Fatalf("step %d: %q is not as it was saved, without an error", info.Step, e.Name)
			}
		}
	}
	if refused == 0 || refused == garbled {
		t.Errorf("%d of %d garbled packs are refused", refused, garbled)
	}
}
