package checkpoints

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

func steps(t *testing.T, s *Store, run string) (list []int64) {
	t.Helper()
	infos, err := s.List(run)
	ok(t, err)
	for _, info := range infos {
		list = append(list, info.Step)
	}
	return list
}

// scored saves a checkpoint with a score.
func scored(t *testing.T, s *Store, step int64, score float64) {
	t.Helper()
	_, err := s.Save("r", step, &score, map[int][]Entry{0: {{Name: "w", Data: noise(uint64(step), large)}}})
	ok(t, err)
}

// hold holds the checkpoint of a step.
func hold(t *testing.T, s *Store, step int64) Info {
	t.Helper()
	info, err := s.Hold(func() (Info, error) { return s.Find("r", Step(step)) })
	ok(t, err)
	return info
}

// The best of a run and of those it came from: of equal scores the nearest run's.
func TestBestAmong(t *testing.T) {
	s := open(t, t.TempDir())
	for i, run := range []string{"first", "second", "third"} {
		score := []float64{9, 9, 1}[i]
		_, err := s.Save(run, int64(i), &score, map[int][]Entry{0: {}})
		ok(t, err)
	}
	for _, c := range []struct {
		runs []string
		want string
	}{{[]string{"third", "second", "first"}, "second"}, {[]string{"first", "second"}, "first"}, {[]string{"third", "first"}, "first"}} {
		if info, err := s.FindAmong(c.runs, Best); err != nil || info.Run != c.want {
			t.Errorf("of %v it is %v, %v; want %s", c.runs, info.Run, err, c.want)
		}
	}
}

// The newest and the best stay; of equal scores the latest is the best.
func TestKeep(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	for _, c := range []struct {
		score      float64
		want, gone []int64
	}{
		{5, []int64{0}, nil}, {9, []int64{0, 1}, nil}, {7, []int64{1, 2}, []int64{0}}, {9, []int64{2, 3}, []int64{1}},
		{1, []int64{3, 4}, []int64{2}}, {1, []int64{3, 4, 5}, nil}, {1, []int64{3, 5, 6}, []int64{4}},
	} {
		step := int64(0)
		if list := steps(t, s, "r"); len(list) > 0 {
			step = slices.Max(list) + 1
		}
		scored(t, s, step, c.score)
		gone, err := s.Keep("r", 2)
		ok(t, err)
		if got := steps(t, s, "r"); !slices.Equal(got, c.want) || !slices.Equal(gone, c.gone) {
			t.Errorf("step %d: there are %v, gone are %v; want %v, %v", step, got, gone, c.want, c.gone)
		}
	}
	if names, _ := packFiles(t, home); len(names) != 3 {
		t.Errorf("3 checkpoints have the packs %v", names)
	}
	_, err := s.Save("other", 1, nil, map[int][]Entry{0: {}})
	ok(t, err)
	if gone, err := s.Keep("other", 1); err != nil || gone != nil || len(steps(t, s, "r")) != 3 {
		t.Errorf("another run's checkpoints are gone: %v, %v", gone, err)
	}
}

// A value that never changes does not keep the whole of the first pack.
func TestKeepFreesBytes(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	fixed := Entry{Name: "fixed", Data: noise(9, 1000)}
	for step := range int64(5) {
		_, err := s.Save("r", step, nil, map[int][]Entry{0: {fixed, {Name: "w", Data: noise(uint64(100+step), 1<<20)}}})
		ok(t, err)
		_, err = s.Keep("r", 2)
		ok(t, err)
	}
	if names, bytes := packFiles(t, home); bytes > 2<<20+200_000 {
		t.Errorf("two checkpoints of 1 MiB take %d bytes in %v", bytes, names)
	}
	load(t, s, "r", 4, fixed)
	load(t, s, "r", 3, fixed)
}

// What another store holds stays as it is until that store is closed, even if its
// step is saved again.
func TestHeldStays(t *testing.T) {
	home := t.TempDir()
	s, reader := open(t, home), open(t, home)
	for step := range int64(3) {
		saveOne(t, s, step)
	}
	held := hold(t, reader, 1)
	gone, err := s.Keep("r", 1)
	if err != nil || !slices.Equal(gone, []int64{0}) || !slices.Equal(steps(t, s, "r"), []int64{1, 2}) {
		t.Errorf("gone are %v, %v, left %v", gone, err, steps(t, s, "r"))
	}
	if refused, err := s.Delete(held); err != nil || len(refused) != 1 {
		t.Errorf("deleted: %v, %v", refused, err)
	}
	_, err = s.Save("r", 1, nil, map[int][]Entry{0: {{Name: "w", Data: []byte("another")}}})
	ok(t, err)
	if _, entries, err := reader.Load("r", held.Ref(), 0); err != nil || string(entries[0].Data) != string(noise(1, large)) {
		t.Errorf("what is held has changed: %v", err)
	}
	if _, entries, err := reader.Load("r", Step(1), 0); err != nil || string(entries[0].Data) != "another" {
		t.Errorf("the new one of the step: %v", err)
	}
	if got := steps(t, s, "r"); !slices.Equal(got, []int64{2, 1}) {
		t.Errorf("the run has the steps %v", got)
	}
	now := hold(t, reader, 2)
	ok(t, reader.Close())
	if refused, err := s.Delete(now); err != nil || len(refused) != 0 {
		t.Errorf("held by nobody: %v, %v", refused, err)
	}
}

// A checkpoint that is removed while a run begins to hold it is found again, or not
// at all: what Hold returns can be loaded.
func TestHoldAgainstKeep(t *testing.T) {
	home := t.TempDir()
	s, reader := open(t, home), open(t, home)
	saveOne(t, s, 1000)
	asked := 0
	info, err := reader.Hold(func() (Info, error) {
		info, err := reader.Find("r", Last)
		if asked++; asked == 1 { // and now it is removed
			saveOne(t, s, 1001)
			_, kerr := s.Keep("r", 1)
			ok(t, kerr)
		}
		return info, err
	})
	if err != nil || info.Step != 1001 || asked != 2 {
		t.Errorf("found step %d after asking %d times, %v", info.Step, asked, err)
	}
	var done atomic.Bool
	var all sync.WaitGroup
	all.Go(func() {
		defer done.Store(true)
		for step := range int64(60) { // by turns in a pack and in the catalog
			if _, err := s.Save("r", 1+step, nil, map[int][]Entry{0: {{Name: "w", Data: noise(uint64(1+step), []int{1000, large}[step%2])}}}); err != nil {
				t.Error(err)
			}
			if _, err := s.Keep("r", 1); err != nil {
				t.Error(err)
			}
		}
	})
	held := 0
	for ; !done.Load(); held++ {
		info, err := reader.Hold(func() (Info, error) { return reader.Find("r", Last) })
		ok(t, err)
		_, entries, err := reader.Load("r", info.Ref(), 0)
		if err != nil || string(entries[0].Data) != string(noise(uint64(info.Step), len(entries[0].Data))) {
			t.Fatalf("step %d: %v", info.Step, err)
		}
		reader.unlock(info.id)
	}
	all.Wait()
	if _, err := reader.Hold(func() (Info, error) { return reader.Find("r", Step(3)) }); !errors.As(err, new(*ErrNone)) {
		t.Errorf("a step that is gone: %v", err)
	}
	t.Logf("held %d", held)
}

// A pack whose checkpoints were removed but whose file a kill left behind is removed at
// the next opening, and not put into quarantine.
func TestDroppedPackIsRemoved(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	saveOne(t, s, 1)
	saveOne(t, s, 2)
	names, _ := packFiles(t, home)
	folder := filepath.Join(home, "checkpoints")
	before := tree(t, folder)
	ok(t, remove(s, "r", 1))
	left, _ := packFiles(t, home)
	for _, name := range names { // as if the process had died before
		if !slices.Contains(left, name) {
			ok(t, os.WriteFile(filepath.Join(folder, name), []byte(before[name]), 0o600))
		}
	}
	saveOne(t, s, 3)
	if after, _ := packFiles(t, home); len(after) != 2 {
		t.Errorf("after the next save: %v", after)
	}
	ok(t, unix.Access(filepath.Join(folder, left[0]), unix.R_OK))
	ok(t, remove(s, "r", 2))
	ok(t, os.WriteFile(filepath.Join(folder, left[0]), []byte(before[left[0]]), 0o600))
	reopen(t, home)
	if after, _ := packFiles(t, home); len(after) != 1 {
		t.Errorf("after opening: %v", after)
	}
	if _, err := os.Stat(filepath.Join(folder, quarantine)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a quarantine: %v", err)
	}
}
