package checkpoints

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"drun/internal/sqldb"
)

func load(t *testing.T, s *Store, run string, step int64, want ...Entry) {
	t.Helper()
	_, entries, err := s.Load(run, Step(step), 0)
	ok(t, err)
	for i, w := range want {
		if entries[i].Name != w.Name || !bytes.Equal(entries[i].Data, w.Data) {
			t.Fatalf("step %d: %s is not what was saved", step, w.Name)
		}
	}
}

// stored are the bytes of all packs and of the catalog.
func stored(t *testing.T, s *Store) int64 {
	t.Helper()
	_, bytes := packFiles(t, filepath.Dir(s.path))
	catalog, _, err := s.pages()
	ok(t, err)
	return bytes + catalog
}

// Of a pack of which a checkpoint needs a part only, the rest is freed; what others
// need stays, and so does the quarantine.
func TestFree(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	fixed, own := Entry{Name: "fixed", Data: noise(50, 1<<20)}, func(step int) Entry { return Entry{Name: "w", Data: noise(uint64(step), 5<<19)} }
	for step := range 3 {
		_, err := s.Save("r", int64(step), nil, map[int][]Entry{0: {fixed, own(step)}})
		ok(t, err)
	}
	hidden := filepath.Join(home, "checkpoints", quarantine)
	ok(t, os.Mkdir(hidden, 0o700))
	ok(t, os.WriteFile(filepath.Join(hidden, "a.db"), []byte("precious"), 0o600))
	ok(t, remove(s, "r", 0))
	before := stored(t, s)
	f, err := s.Free()
	ok(t, err)
	after := stored(t, s)
	if freed := before - after; f.Bytes != freed || freed < 5<<19 || freed > 5<<19+100_000 {
		t.Errorf("freed %d, says %d; before there were %d", freed, f.Bytes, before)
	}
	if f.Quarantined != 1 || f.QuarantinedBytes != 8 || len(f.Damaged) != 0 {
		t.Errorf("%+v", f)
	}
	for step := 1; step < 3; step++ {
		load(t, s, "r", int64(step), fixed, own(step))
	}
	other := open(t, home)
	if f, err := other.Free(); err != nil || f.Bytes != 0 {
		t.Errorf("again: %+v, %v", f, err)
	}
	if _, err := os.Stat(filepath.Join(hidden, "a.db")); err != nil {
		t.Error(err)
	}
}

// A checkpoint that lost its place while it was held is freed when nobody holds it.
func TestReplacedIsFreed(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	reader, err := Open(home)
	ok(t, err)
	saveOne(t, s, 1)
	held := hold(t, reader, 1)
	_, err = s.Save("r", 1, nil, map[int][]Entry{0: {{Name: "w", Data: noise(99, large)}}})
	ok(t, err)
	_, err = s.Free()
	ok(t, err)
	if _, _, err := reader.Load("r", held.Ref(), 0); err != nil {
		t.Errorf("what is held was freed: %v", err)
	}
	ok(t, reader.Close())
	f, err := s.Free()
	ok(t, err)
	if names, _ := packFiles(t, home); f.Bytes <= 0 || len(names) != 1 {
		t.Errorf("freed %d, left are %v", f.Bytes, names)
	}
}

// A pack that cannot be read stays as it is, is named, and keeps nothing else from
// being freed.
func TestFreeLeavesDamage(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	fixed := func(run string) Entry { return Entry{Name: "fixed", Data: noise(uint64(run[0]), 1<<20)} }
	for _, run := range []string{"a", "b"} {
		for step := range int64(2) {
			_, err := s.Save(run, step, nil, map[int][]Entry{0: {fixed(run), {Name: "w", Data: noise(uint64(step), 1000)}}})
			ok(t, err)
		}
		ok(t, remove(s, run, 0))
	}
	names, _ := packFiles(t, home)
	bad := ""
	for _, name := range names {
		path := filepath.Join(home, "checkpoints", name)
		content, err := os.ReadFile(path)
		ok(t, err)
		if at := bytes.Index(content, fixed("a").Data[100:132]); at > 0 {
			content[at] ^= 1
			ok(t, os.WriteFile(path, content, 0o600))
			bad = name
		}
	}
	f, err := s.Free()
	ok(t, err)
	if len(f.Damaged) != 1 || !strings.Contains(f.Damaged[0].Error(), bad) || !errors.As(f.Damaged[0], new(*sqldb.Error)) {
		t.Errorf("damaged are %v, want %s", f.Damaged, bad)
	}
	load(t, s, "b", 1, fixed("b"))
	_, faults, err := s.Verify("a", Last)
	if err != nil || len(faults) != 1 || faults[0].Entry != "fixed" || faults[0].Chunk != 0 {
		t.Errorf("verified: %+v, %v", faults, err)
	}
	_, faults, err = s.Verify("b", Last)
	if err != nil || len(faults) != 0 {
		t.Errorf("verified: %+v, %v", faults, err)
	}
}

// Others save, remove and load while packs are rewritten.
func TestFreeWhileSaving(t *testing.T) {
	home := t.TempDir()
	var all sync.WaitGroup
	var done atomic.Int32
	const writers, saves = 2, 25
	for writer := range writers {
		s := open(t, home)
		run := string(rune('a' + writer))
		all.Go(func() {
			defer done.Add(1)
			for step := range saves {
				// Some of it was in the last checkpoints, of both runs.
				part := []Entry{{Name: "w", Data: noise(uint64(step/3), 200_000)}, {Name: "v", Data: noise(uint64(1000+step), 100_000)}}
				if _, err := s.Save(run, int64(step), nil, map[int][]Entry{0: part}); err != nil {
					t.Errorf("save: %v", err)
				}
				if _, err := s.Keep(run, 2); err != nil {
					t.Errorf("keep: %v", err)
				}
				_, entries, err := s.Load(run, Last, 0)
				if err != nil || !bytes.Equal(entries[0].Data, part[0].Data) || !bytes.Equal(entries[1].Data, part[1].Data) {
					t.Errorf("load: %v", err)
				}
			}
		})
	}
	collector := open(t, home)
	for done.Load() < writers {
		f, err := collector.Free()
		if err != nil || len(f.Damaged) > 0 {
			t.Errorf("free: %+v, %v", f, err)
		}
	}
	all.Wait()
	for writer := range writers {
		if _, faults, err := collector.Verify(string(rune('a'+writer)), Step(saves-2)); err != nil || len(faults) > 0 {
			t.Errorf("verify: %v, %v", faults, err)
		}
	}
}

// A catalog of a newer drun is refused, and not changed.
func TestNewerCatalog(t *testing.T) {
	home := t.TempDir()
	s, err := Open(home)
	ok(t, err)
	saveOne(t, s, 1)
	ok(t, s.Close())
	ok(t, alter(filepath.Join(home, "checkpoints.db"), "PRAGMA user_version = 99"))
	before := tree(t, home)
	for _, open := range []func(string) (*Store, error){Open, OpenReadOnly} {
		if _, err := open(home); !errors.As(err, new(*sqldb.Error)) || !strings.Contains(err.Error(), "was written by a newer drun: its schema is version 99") {
			t.Errorf("a newer catalog: %v", err)
		}
	}
	after := tree(t, home)
	for name, content := range before {
		if after[name] != content {
			t.Errorf("%s was changed", name)
		}
	}
}
