package checkpoints

import (
	"database/sql"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"drun/internal/exit"
	"drun/internal/sqldb"
)

// tree lists the files beneath a folder with their contents.
func tree(t *testing.T, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	ok(t, filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			content, err := os.ReadFile(path)
			ok(t, err)
			name, err := filepath.Rel(folder, path)
			ok(t, err)
			files[name] = string(content)
		}
		return err
	}))
	return files
}

// saveOne saves what goes into a pack.
func saveOne(t *testing.T, s *Store, step int64) {
	t.Helper()
	_, err := s.Save("r", step, nil, map[int][]Entry{0: {{Name: "w", Data: noise(uint64(step), large)}}})
	ok(t, err)
}

// reopen opens a home and closes it again, as a run that saves nothing does.
func reopen(t *testing.T, home string) {
	t.Helper()
	s, err := Open(home)
	ok(t, err)
	ok(t, s.Close())
}

// Files that are not packs of the store stay, whatever they are called.
func TestOthersFilesStay(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	saveOne(t, s, 1)
	packs := filepath.Join(home, "checkpoints")
	database := func(path string) {
		db, err := sql.Open("sqlite3", path)
		ok(t, err)
		_, err = db.Exec("CREATE TABLE mine (x)")
		ok(t, err)
		ok(t, db.Close())
	}
	like := strings.Repeat("a", 26) + ".db" // as a pack is called
	database(filepath.Join(packs, "mine.db"))
	database(filepath.Join(packs, like))
	ok(t, os.WriteFile(filepath.Join(packs, strings.Repeat("b", 26)+".db"), []byte(strings.Repeat("no database ", 100)), 0o600))
	ok(t, os.WriteFile(filepath.Join(packs, "empty.db"), nil, 0o600))
	elsewhere := filepath.Join(t.TempDir(), "elsewhere.db")
	database(elsewhere)
	ok(t, os.Symlink(elsewhere, filepath.Join(packs, strings.Repeat("c", 26)+".db")))
	ok(t, unix.Mkfifo(filepath.Join(packs, strings.Repeat("d", 26)+".db"), 0o600))
	saveOne(t, s, 2)
	before := tree(t, packs)
	reopen(t, home)
	if after := tree(t, packs); !maps.Equal(before, after) {
		t.Errorf("there were %v, now there are %v", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
	}
	if _, err := os.Stat(elsewhere); err != nil {
		t.Error(err)
	}
}

// Whatever a catalog says of its packs, files outside of their folder, and those in
// it that are no packs, stay.
func TestCraftedCatalogRemovesNothing(t *testing.T) {
	for _, name := range []string{"../../x", "../x", "x", strings.Repeat("e", 26) + ".db", "/absolute", "sub/x", "."} {
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			top := t.TempDir()
			home := filepath.Join(top, "project", ".drun")
			s := open(t, home)
			saveOne(t, s, 1)
			folder := filepath.Join(home, "checkpoints")
			if filepath.IsAbs(name) {
				name = filepath.Join(top, "absolute")
			}
			target := name
			if !filepath.IsAbs(name) {
				target = filepath.Join(folder, name)
			}
			if name != "." {
				ok(t, os.MkdirAll(filepath.Dir(target), 0o700))
				ok(t, os.WriteFile(target, []byte("precious"), 0o600))
			}
			_, err := s.sql.Exec("INSERT INTO packs (file) VALUES (?)", name)
			ok(t, err)
			saveOne(t, s, 2)
			ok(t, remove(s, "r", 1))
			reopen(t, home)
			if _, err := os.Stat(target); err != nil {
				t.Error(err)
			}
		})
	}
}

// A folder of packs that is a link is refused, and nothing is written to or removed
// from where it leads.
func TestLinkedFolderIsRefused(t *testing.T) {
	home, other := t.TempDir(), t.TempDir()
	s := open(t, other)
	saveOne(t, s, 1)
	ok(t, s.Close())
	before := tree(t, filepath.Join(other, "checkpoints"))
	ok(t, os.Symlink(filepath.Join(other, "checkpoints"), filepath.Join(home, "checkpoints")))
	_, err := Open(home)
	var failure *sqldb.Error
	if !errors.As(err, &failure) || !strings.Contains(err.Error(), "is not a folder of its own but a link") || !strings.Contains(exit.HintOf(err), "--home") {
		t.Errorf("opened a linked folder: %v", err)
	}
	if after := tree(t, filepath.Join(other, "checkpoints")); !maps.Equal(before, after) {
		t.Error("the linked folder was changed")
	}
}

// A catalog that was moved away, or is an older one, leaves all packs where they
// are, so that the right catalog finds them again.
func TestAnotherCatalogCollectsNothing(t *testing.T) {
	home := t.TempDir()
	path := filepath.Join(home, "checkpoints.db")
	keep := func(name string) { // the catalog as it is now
		t.Helper()
		for _, suffix := range []string{"", "-wal"} {
			content, err := os.ReadFile(path + suffix)
			if err == nil {
				ok(t, os.WriteFile(name+suffix, content, 0o600))
			}
		}
	}
	put := func(name string) {
		t.Helper()
		for _, suffix := range []string{"", "-wal", "-shm"} {
			os.Remove(path + suffix)
			if content, err := os.ReadFile(name + suffix); err == nil {
				ok(t, os.WriteFile(path+suffix, content, 0o600))
			}
		}
	}
	old, latest := filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "latest")
	s, err := Open(home)
	ok(t, err)
	saveOne(t, s, 1)
	keep(old)
	for step := range int64(4) {
		saveOne(t, s, 2+step)
	}
	ok(t, s.Close())
	keep(latest)
	for what, catalog := range map[string]string{"none": "", "an older one": old} {
		put(catalog)
		for step := range int64(6) { // it goes on, and passes the generation of the latest
			s, err := Open(home)
			ok(t, err)
			saveOne(t, s, 100+step)
			ok(t, s.Close())
		}
		reopen(t, home)
		put(latest)
		s, err := Open(home)
		ok(t, err)
		for step := int64(1); step < 6; step++ {
			if _, _, err := s.Load("r", Step(step), 0); err != nil {
				t.Errorf("after %s: step %d: %v", what, step, err)
			}
		}
		ok(t, s.Close())
	}
}

// What a writer that died leaves: an unfinished pack is removed, a whole one goes
// into the quarantine once the catalog is certainly newer.
func TestGarbage(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	from, err := s.origin()
	ok(t, err)
	write := func(sha string) *pack {
		p := s.newPack(from)
		ok(t, p.add(map[string][]byte{sha: make([]byte, large)}))
		ok(t, p.sync())
		return p
	}
	whole := write("00")
	reopen(t, home)
	if _, err := os.Stat(whole.path); err != nil {
		t.Errorf("another process took a pack that is being written: %v", err)
	}
	whole.lock.Close() // as if its writer had died
	part := s.newPack(from)
	ok(t, part.create())
	ok(t, part.tx.Rollback())
	ok(t, part.db.Close())
	part.lock.Close()
	half := write("01")
	half.lock.Close()
	db, err := sql.Open("sqlite3", half.path)
	ok(t, err)
	_, err = db.Exec("PRAGMA user_version = 0")
	ok(t, err)
	ok(t, db.Close())
	saveOne(t, s, 1)
	reopen(t, home)
	for _, p := range []*pack{whole, part, half} {
		if _, err := os.Lstat(p.path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a dead writer's pack is still there: %v", err)
		}
	}
	files := tree(t, filepath.Join(home, "checkpoints", quarantine))
	if len(files) != 1 || files[whole.name] == "" {
		t.Errorf("in the quarantine are %v", slices.Sorted(maps.Keys(files)))
	}
}

// What another process removes while this one opens the store is no error.
func TestRemovedMeanwhile(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	for range 40 {
		p := s.newPack(origin{})
		ok(t, p.create())
		ok(t, p.tx.Rollback())
		ok(t, p.db.Close())
		ok(t, p.lock.Close())
	}
	errs := make(chan error)
	for range 4 {
		go func() {
			other, err := Open(home)
			if err == nil {
				err = other.Close()
			}
			errs <- err
		}()
	}
	for range 4 {
		ok(t, <-errs)
	}
}

// What is kept is the user's alone; what exists keeps the mode that it has.
func TestModes(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	home := filepath.Join(t.TempDir(), "deeper", "home")
	s := open(t, home)
	saveOne(t, s, 1)
	modes := func() map[string]os.FileMode {
		found := map[string]os.FileMode{}
		ok(t, filepath.WalkDir(home, func(path string, d os.DirEntry, err error) error {
			ok(t, err)
			info, err := d.Info()
			ok(t, err)
			name := filepath.Base(path)
			if packName().MatchString(name) {
				name = "pack"
			}
			found[name] = info.Mode().Perm()
			return nil
		}))
		return found
	}
	want := map[string]os.FileMode{"home": 0o700, "checkpoints": 0o700, "pack": 0o600,
		"checkpoints.db": 0o600, "checkpoints.db-wal": 0o600, "checkpoints.db-shm": 0o600}
	if got := modes(); !maps.Equal(got, want) {
		t.Errorf("modes are %v", got)
	}
	ok(t, os.Chmod(home, 0o750))
	ok(t, s.Close())
	reopen(t, home)
	if got := modes()["home"]; got != 0o750 {
		t.Errorf("the home's mode was changed to %v", got)
	}
}
