package checkpoints

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// bucket is a place for chunks that can fail.
type bucket struct {
	mu     sync.Mutex
	chunks map[string][]byte
	puts   int
	fails  error
}

func (b *bucket) Put(sum string, data []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails != nil {
		return b.fails
	}
	b.puts++
	b.chunks[sum] = bytes.Clone(data)
	return nil
}

func (b *bucket) Get(sum string) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails != nil {
		return nil, b.fails
	}
	if data, has := b.chunks[sum]; has {
		return bytes.Clone(data), nil
	}
	return nil, fs.ErrNotExist
}

// Chunks that are kept outside of the home take no room there, are stored once, and are loaded again.
func TestObjects(t *testing.T) {
	home := t.TempDir()
	s, err := Open(home)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	large := bytes.Repeat([]byte("0123456789abcdef"), 3*ChunkSize/16+7)
	copy(large[ChunkSize:], "second")
	copy(large[2*ChunkSize:], "third")
	state := map[int][]Entry{0: {{Name: "w", Kind: "tensor", Data: large}, {Name: "n", Kind: "value", Data: []byte("7")}}}
	save := func(step int64) {
		t.Helper()
		if _, err := s.Save("run", step, nil, state); err != nil {
			t.Fatal(err)
		}
	}
	save(1) // in a pack, before there is a bucket
	b := &bucket{chunks: map[string][]byte{}}
	s.Objects = b
	copy(large[ChunkSize:], "changed")
	save(2)
	if b.puts != 1 {
		t.Errorf("%d chunks were written for one that is new", b.puts)
	}
	if err := s.Offload(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(home, "checkpoints", "*.db"))
	if len(files) != 0 || len(b.chunks) < 5 {
		t.Errorf("the home still has %v, the bucket %d chunks", files, len(b.chunks))
	}
	if info, err := os.Stat(filepath.Join(home, "checkpoints.db")); err != nil || info.Size() > 512<<10 {
		t.Errorf("the catalog has %d bytes, %v", info.Size(), err)
	}
	_, got, err := s.Load("run", Step(2), 0)
	if err != nil || !bytes.Equal(got[0].Data, large) || string(got[1].Data) != "7" {
		t.Fatalf("loaded something else: %v", err)
	}
	copy(large[ChunkSize:], "second")
	if _, got, err = s.Load("run", Step(1), 0); err != nil {
		t.Fatal(err)
	}
	for i := range got[0].Data[:ChunkSize] {
		if got[0].Data[i] != large[i] {
			t.Fatal("the first step's bytes differ")
		}
	}

	// What the bucket says of itself is no damage of the checkpoint; a chunk that is gone or has changed is.
	b.fails = errors.New("503")
	if _, _, err := s.Load("run", Step(2), 0); err == nil || err.Error() != "503" {
		t.Errorf("the bucket's error became %v", err)
	}
	copy(large, "new")
	if _, err := s.Save("run", 3, nil, state); !errors.Is(err, b.fails) {
		t.Errorf("a save without the bucket: %v", err)
	}
	if _, err := s.Find("run", Step(3)); err == nil {
		t.Error("a checkpoint was entered whose chunks are nowhere")
	}
	b.fails = nil
	sums := []string{}
	for sum := range b.chunks {
		sums = append(sums, sum)
	}
	b.chunks[sums[0]][0]++
	_, _, one := s.Load("run", Step(1), 0)
	_, _, two := s.Load("run", Step(2), 0)
	if err := errors.Join(one, two); err == nil || !strings.Contains(err.Error(), "does not have its SHA-256") {
		t.Errorf("a changed chunk: %v", err)
	}
	b.chunks[sums[0]][0]--

	// A sweep removes what no checkpoint has.
	info, err := s.Find("run", Step(2))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Delete(info); err != nil {
		t.Fatal(err)
	}
	removed := []string{}
	if err := s.Sweep(sums, func(sum string) error { removed = append(removed, sum); delete(b.chunks, sum); return nil }); err != nil || len(removed) != 1 {
		t.Errorf("removed %v, %v", removed, err)
	}
	if _, _, err := s.Load("run", Step(1), 0); err != nil {
		t.Errorf("after a sweep: %v", err)
	}

	// A store that does not know the bucket says so.
	s.Objects = nil
	if _, _, err := s.Load("run", Step(1), 0); err == nil || !strings.Contains(err.Error(), "in a bucket") {
		t.Errorf("without the bucket: %v", err)
	}
}
