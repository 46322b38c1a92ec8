package checkpoints

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"drun/internal/exit"
	"drun/internal/sqldb"
)

func open(t testing.TB, home string) *Store {
	t.Helper()
	s, err := Open(home)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// large is a size of data that does not go into the catalog.
const large = small + 1000

// noise is n bytes that depend on the seed alone.
func noise(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	data := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		v := r.Uint64()
		for j := range 8 {
			data[i+j] = byte(v >> (8 * j))
		}
	}
	return data
}

// remove deletes the checkpoint of a step.
func remove(s *Store, run string, step int64) error {
	info, err := s.Find(run, Step(step))
	if err != nil {
		return err
	}
	held, err := s.Delete(info)
	if err == nil && len(held) > 0 {
		err = fmt.Errorf("step %d is held", step)
	}
	return err
}

func packFiles(t testing.TB, home string) (names []string, bytes int64) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(home, "checkpoints"))
	ok(t, err)
	for _, f := range files {
		if f.IsDir() || f.Name() == heldFile {
			continue
		}
		info, err := f.Info()
		ok(t, err)
		names, bytes = append(names, f.Name()), bytes+info.Size()
	}
	return names, bytes
}

func TestSavedIsLoaded(t *testing.T) {
	home := t.TempDir() + "/a b?c#%20"
	s := open(t, home)
	parts := map[int][]Entry{
		0: {{Name: "w", Kind: "tensor", DType: "float32", Shape: []int{300, 1000, 2}, Data: noise(1, 2400000)}, {Name: "empty", Kind: "tensor", DType: "int64", Shape: []int{0}, Data: []byte{}},
			{Name: "epoch", Kind: "value", DType: "", Shape: []int{}, Data: []byte("7")}},
		1: {{Name: "only here", Kind: "value", DType: "", Shape: []int{}, Data: []byte("x")}},
	}
	info, err := s.Save("run-a", 3, nil, parts)
	ok(t, err)
	if info.Bytes != 2400002 || info.WorldSize != 2 {
		t.Errorf("info = %+v", info)
	}
	ro, err := OpenReadOnly(home)
	ok(t, err)
	defer ro.Close()
	for _, store := range []*Store{s, ro} {
		for rank := range 2 {
			info, entries, err := store.Load("run-a", Last, rank)
			ok(t, err)
			if info.Step != 3 || !reflect.DeepEqual(entries, parts[rank]) {
				t.Errorf("rank %d: step %d, %d entries differ", rank, info.Step, len(entries))
			}
		}
	}
	if _, _, err := s.Load("run-a", Last, 2); err == nil || !strings.Contains(err.Error(), "ranks 0 to 1, not 2") {
		t.Errorf("rank 2: %v", err)
	}
}

func TestWhichOne(t *testing.T) {
	s := open(t, t.TempDir())
	score := func(v float64) *float64 { return &v }
	for _, save := range []struct {
		step  int64
		score *float64
	}{{1, score(0.5)}, {2, score(0.9)}, {3, score(0.9)}, {4, score(math.NaN())}, {5, nil}, {4, score(0.1)}} {
		_, err := s.Save("r", save.step, save.score, map[int][]Entry{0: {{Name: "s", Data: []byte{byte(save.step)}}}})
		ok(t, err)
	}
	for want, ref := range map[int64]Ref{4: Last, 3: Best, 2: Step(2)} {
		if info, entries, err := s.Load("r", ref, 0); err != nil || info.Step != want || entries[0].Data[0] != byte(want) {
			t.Errorf("%s: %+v, %v, want step %d", ref.label, info, err, want)
		}
	}
	list, err := s.List("r")
	ok(t, err)
	var steps []int64
	for _, info := range list {
		steps = append(steps, info.Step)
	}
	if !reflect.DeepEqual(steps, []int64{1, 2, 3, 5, 4}) {
		t.Errorf("list = %v", steps)
	}
	var none *ErrNone
	for _, err := range []error{second(s.Find("r", Step(9))), second(s.Find("other", Last)), second(s.Find("other", Best))} {
		if !errors.As(err, &none) {
			t.Errorf("missing: %v", err)
		}
	}
	if _, err := OpenReadOnly(t.TempDir()); !errors.As(err, &none) {
		t.Errorf("no store: %v", err)
	}
}

func second(_ Info, err error) error { return err }

func TestEqualChunksAreStoredOnce(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	same, other := noise(1, 8<<20), noise(2, 1<<20)
	changed := bytes.Clone(same)
	changed[5<<20]++ // one of the eight chunks
	save := func(step int64, a, b []byte) {
		t.Helper()
		_, err := s.Save("r", step, nil, map[int][]Entry{0: {{Name: "w", Data: a}, {Name: "m", Data: other}}, 1: {{Name: "w", Data: b}}})
		ok(t, err)
	}
	grow := func() func(want, slack int64) {
		_, before := packFiles(t, home)
		return func(want, slack int64) {
			t.Helper()
			if _, after := packFiles(t, home); after-before < want || after-before > want+slack {
				t.Errorf("grew by %d bytes, want %d", after-before, want)
			}
		}
	}
	check := grow()
	save(1, same, same)
	check(9<<20, 300000)
	check = grow()
	save(2, same, changed)
	check(1<<20, 100000)
	check = grow()
	save(3, changed, same)
	save(3, changed, same) // again: in place of itself
	check(0, 0)

	ok(t, remove(s, "r", 1))
	ok(t, remove(s, "r", 2))
	if _, entries, err := s.Load("r", Step(3), 0); err != nil || !bytes.Equal(entries[0].Data, changed) {
		t.Errorf("what another step shares was deleted: %v", err)
	}
	ok(t, remove(s, "r", 3))
	if names, _ := packFiles(t, home); len(names) != 0 {
		t.Errorf("after deleting all, these are left: %v", names)
	}
	save(4, same, same)
	if _, entries, err := s.Load("r", Last, 1); err != nil || !bytes.Equal(entries[0].Data, same) {
		t.Errorf("saved after deletion: %v", err)
	}
}

func TestRefusedParts(t *testing.T) {
	s := open(t, t.TempDir())
	_, err := s.Save("r", 1, nil, map[int][]Entry{0: {}, 2: {}})
	if err == nil || !strings.Contains(err.Error(), "part of rank 1 is missing") {
		t.Errorf("a rank is missing: %v", err)
	}
	_, err = s.Save("r", 1, nil, map[int][]Entry{0: {{Name: "a"}, {Name: "a"}}})
	if err == nil || !strings.Contains(err.Error(), `two entries "a"`) {
		t.Errorf("a name twice: %v", err)
	}
	if list, err := s.List("r"); err != nil || len(list) != 0 {
		t.Errorf("list = %v, %v", list, err)
	}
}

func TestDamageIsNoticed(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	data := noise(3, 1<<20)
	_, err := s.Save("r", 1, nil, map[int][]Entry{0: {{Name: "w", Data: data}}})
	ok(t, err)
	names, _ := packFiles(t, home)
	path := filepath.Join(home, "checkpoints", names[0])
	content, err := os.ReadFile(path)
	ok(t, err)
	at := bytes.Index(content, data[1000:1032])
	if at < 0 {
		t.Fatal("the bytes are not in the pack as they are")
	}
	content[at] ^= 1
	ok(t, os.WriteFile(path, content, 0o666))
	var failure *sqldb.Error
	if _, _, err := s.Load("r", Last, 0); !errors.As(err, &failure) || !strings.Contains(err.Error(), `chunk 0 of "w" does not have its SHA-256`) {
		t.Errorf("one bit changed: %v", err)
	}
	ok(t, os.Remove(path))
	if _, _, err := s.Load("r", Last, 0); !errors.As(err, &failure) || failure.ExitCode() != exit.Storage {
		t.Errorf("pack missing: %v", err)
	}
}

// A save stores again chunks that the catalog knows but whose pack was cut short or removed. Earlier checkpoints with
// the same chunks are then whole again.
func TestTornPackIsNotBelieved(t *testing.T) {
	for what, harm := range map[string]func(path string) error{
		"cut in the middle":    func(path string) error { return os.Truncate(path, 3<<19) },
		"cut by its end":       func(path string) error { return shorten(path, 1<<14) },
		"cut to its header":    func(path string) error { return os.Truncate(path, 100) },
		"emptied":              func(path string) error { return os.Truncate(path, 0) },
		"removed":              os.Remove,
		"written over by text": func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("x", 3<<20)), 0o666) },
	} {
		t.Run(what, func(t *testing.T) {
			home := t.TempDir()
			s := open(t, home)
			kept, changed := noise(3, 2<<20), noise(4, 1<<19)
			_, err := s.Save("r", 1, nil, map[int][]Entry{0: {{Name: "w", Data: kept}, {Name: "v", Data: changed}}})
			ok(t, err)
			names, _ := packFiles(t, home)
			torn := filepath.Join(home, "checkpoints", names[0])
			ok(t, harm(torn))
			_, err = s.Save("r", 2, nil, map[int][]Entry{0: {{Name: "w", Data: kept}}})
			ok(t, err)
			for _, step := range []int64{1, 2} {
				_, faults, err := s.Verify("r", Step(step))
				ok(t, err)
				var names []string
				for _, f := range faults {
					names = append(names, f.Entry)
				}
				if step == 1 && !slices.Equal(names, []string{"v"}) || step == 2 && names != nil {
					t.Errorf("step %d: damaged are %q", step, names)
				}
			}
			if _, entries, err := s.Load("r", Step(2), 0); err != nil || !bytes.Equal(entries[0].Data, kept) {
				t.Errorf("step 2 is not what was saved: %v", err)
			}
			// The rest of it is stored again too: then nothing needs the torn pack.
			_, err = s.Save("r", 3, nil, map[int][]Entry{0: {{Name: "v", Data: changed}}})
			ok(t, err)
			if _, faults, err := s.Verify("r", Step(1)); err != nil || len(faults) > 0 {
				t.Errorf("step 1 is still damaged: %v, %v", faults, err)
			}
			if names, _ := packFiles(t, home); strings.HasPrefix(what, "cut") && len(names) != 2 {
				t.Errorf("packs: %v, not those of the last two saves", names)
			}
		})
	}
}

// shorten cuts n bytes off a file.
func shorten(path string, n int64) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, info.Size()-n)
}

func TestFullDiskLeavesTheOldState(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=3m"); err != nil {
		t.Skip("mounts and namespaces take root (in a container, CAP_SYS_ADMIN)")
	}
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
	s := open(t, filepath.Join(disk, "home"))
	small := map[int][]Entry{0: {{Name: "w", Data: noise(1, 1<<20)}}}
	_, err := s.Save("r", 1, nil, small)
	ok(t, err)
	_, err = s.Save("r", 2, nil, map[int][]Entry{0: {{Name: "w", Data: noise(2, 4<<20)}}})
	var failure *sqldb.Error
	if !errors.As(err, &failure) || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("full disk: %v", err)
	}
	info, entries, err := s.Load("r", Last, 0)
	if err != nil || info.Step != 1 || !bytes.Equal(entries[0].Data, small[0][0].Data) {
		t.Errorf("after a full disk: step %d, %v", info.Step, err)
	}
	if names, _ := packFiles(t, filepath.Join(disk, "home")); len(names) != 1 {
		t.Errorf("half a pack is left: %v", names)
	}
	_, err = s.Save("r", 3, nil, small) // what fits can still be saved
	ok(t, err)
}

func TestWithoutItsCatalogNothingIsSaved(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	_, err := s.sql.Exec("PRAGMA query_only = 1")
	ok(t, err)
	var failure *sqldb.Error
	_, err = s.Save("r", 1, nil, map[int][]Entry{0: {{Name: "w", Data: noise(1, large)}}})
	if !errors.As(err, &failure) {
		t.Errorf("save: %v", err)
	}
	if names, _ := packFiles(t, home); len(names) != 0 {
		t.Errorf("packs are left: %v", names)
	}
}

func TestSavesAtTheSameTime(t *testing.T) {
	home := t.TempDir()
	var all sync.WaitGroup
	for writer := range 4 {
		s := open(t, home)
		all.Go(func() {
			run := string(rune('a' + writer))
			for step := range int64(8) {
				// All writers save the same chunks and delete them again.
				data := noise(uint64(step), 300000)
				if _, err := s.Save(run, step, nil, map[int][]Entry{0: {{Name: "w", Data: data}}}); err != nil {
					t.Errorf("save: %v", err)
				}
				if other, err := Open(home); err != nil { // collects garbage meanwhile
					t.Errorf("open: %v", err)
				} else {
					other.Close()
				}
				if _, entries, err := s.Load(run, Last, 0); err != nil || !bytes.Equal(entries[0].Data, data) {
					t.Errorf("run %s step %d: %v", run, step, err)
				}
				if step%2 == 1 {
					if err := remove(s, run, step-1); err != nil {
						t.Errorf("delete: %v", err)
					}
				}
			}
		})
	}
	all.Wait()
}

func BenchmarkSave64MiB(b *testing.B) {
	s := open(b, b.TempDir())
	data := noise(1, 64<<20)
	b.SetBytes(int64(len(data)))
	step := int64(0)
	for b.Loop() {
		step++
		for i := 0; i < len(data); i += ChunkSize {
			data[i] = byte(step) // nothing is known already
			data[i+1] = byte(step >> 8)
		}
		if _, err := s.Save("r", 1, nil, map[int][]Entry{0: {{Name: "w", Data: data}}}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSaveSmall(b *testing.B) {
	s := open(b, b.TempDir())
	for step := int64(0); b.Loop(); step++ {
		data := noise(uint64(step), 40000)
		if _, err := s.Save("r", step, nil, map[int][]Entry{0: {{Name: "w", Data: data}}, 1: {{Name: "w", Data: data}}}); err != nil {
			b.Fatal(err)
		}
	}
}

// A bit that has changed in the catalog's tables or indexes never gives the checkpoint of another step.
func TestDamagedIndex(t *testing.T) {
	home := t.TempDir()
	var steps []int64 // found in the file as they are
	for k := range int64(6) {
		steps = append(steps, 0x1112131415161718+k<<56)
	}
	entry := func(k int) []Entry { return []Entry{{Name: "w", Kind: "value", Data: noise(uint64(k), 1000+k)}} }
	s := open(t, home)
	for k, step := range steps {
		_, err := s.Save("the run", step, nil, map[int][]Entry{0: entry(k)})
		ok(t, err)
	}
	ok(t, s.CheckCatalog())
	ok(t, s.Close())
	path := filepath.Join(home, "checkpoints.db")
	whole, err := os.ReadFile(path)
	ok(t, err)
	check := func(at int, wrong []byte) (noticed bool) {
		ok(t, os.WriteFile(path, wrong, 0o600))
		s, err := OpenReadOnly(home)
		if err != nil {
			return true
		}
		defer s.Close()
		for k, step := range steps {
			info, got, err := s.Load("the run", Step(step), 0)
			if err == nil && (info.Step != step || !bytes.Equal(got[0].Data, entry(k)[0].Data)) {
				t.Errorf("byte %d: step %x is another", at, step)
			}
			noticed = noticed || err != nil
		}
		return noticed || s.CheckCatalog() != nil
	}
	bits, most := []byte{1, 8, 128}, 900
	if testing.Short() {
		bits, most = bits[1:2], 300
	}
	tried, noticed := 0, 0
	for i := range whole {
		for k, step := range steps {
			if !bytes.HasPrefix(whole[i:], binary.BigEndian.AppendUint64(nil, uint64(step))) {
				continue
			}
			for at := i - 16; at < i+10; at++ {
				for _, bit := range bits {
					wrong := bytes.Clone(whole)
					wrong[at] ^= bit
					if tried++; check(at, wrong) {
						noticed++
					}
				}
			}
			wrong := bytes.Clone(whole)
			binary.BigEndian.PutUint64(wrong[i:], uint64(steps[(k+1)%len(steps)]))
			if !check(i, wrong) {
				t.Errorf("byte %d: a step that was exchanged is not noticed", i)
			}
		}
	}
	if tried < most || noticed < tried*9/10 {
		t.Errorf("%d of %d bits were noticed", noticed, tried)
	}
}

// A save into a catalog that has lost its name is an error: it would vanish with the process.
func TestCatalogRemovedWhileInUse(t *testing.T) {
	for name, put := range map[string]func(home string) error{
		"removed":  func(string) error { return nil },
		"replaced": func(home string) error { s, err := Open(home); return errors.Join(err, s.Close()) },
	} {
		for _, size := range []int{100, large} {
			home := t.TempDir()
			s := open(t, home)
			save := func(step int64) error {
				_, err := s.Save("run", step, nil, map[int][]Entry{0: {{Name: "x", Data: noise(uint64(step), size)}}})
				return err
			}
			ok(t, save(1))
			ok(t, os.Rename(s.Path(), s.Path()+".moved"))
			ok(t, put(home))
			if err := save(2); exit.CodeOf(err) != exit.Storage || !strings.Contains(err.Error(), "checkpoints.db was removed or replaced while it was in use") {
				t.Errorf("%s, %d bytes: %v", name, size, err)
			}
			ok(t, os.Rename(s.Path()+".moved", s.Path()))
			ok(t, save(3))
		}
	}
}
