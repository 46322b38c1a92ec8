package checkpoints

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// homeBytes is what all files beneath a home take.
func homeBytes(t *testing.T, home string) (bytes int64) {
	t.Helper()
	for _, content := range tree(t, home) {
		bytes += int64(len(content))
	}
	return bytes
}

const smallState = 38 << 10

// saveSmall saves a state of 38 KiB, which is cut into tensors of the given sizes; the last has the rest.
func saveSmall(t *testing.T, s *Store, step int64, sizes []int) {
	t.Helper()
	data := noise(uint64(step), smallState)
	var part []Entry
	for i, size := range append(slices.Clone(sizes), smallState) {
		size = min(size, len(data))
		part = append(part, Entry{Name: fmt.Sprintf("opt/exp_avg_sq.%d", i), Kind: "tensor", DType: "float32", Shape: []int{size / 4}, Data: data[:size]})
		data = data[size:]
	}
	_, err := s.Save("the run", step, nil, map[int][]Entry{0: part})
	ok(t, err)
}

// layers are the sizes of the tensors of a small network with an optimizer, beside its numbers.
var layers = []int{8, 8, 16, 48, 192, 6144, 96, 4608, 32, 768, 192, 6144, 96, 4608, 32, 768, 192, 6144, 96, 4608, 32, 768, 48, 8, 8}

// Small checkpoints of which nothing is equal take at most a quarter more than their bytes, all files of the home together.
func TestSmallTakesLittle(t *testing.T) {
	const saves, bytes = 120, 120 * smallState
	for what, sizes := range map[string][]int{"one tensor": nil, "a network": layers} {
		home := t.TempDir()
		s := open(t, home)
		for step := range int64(saves) {
			saveSmall(t, s, step, sizes)
		}
		live := homeBytes(t, home)
		ok(t, s.Close())
		closed := homeBytes(t, home)
		t.Logf("%s: %.3f times the bytes, %.3f while the store is open", what, float64(closed)/bytes, float64(live)/bytes)
		if closed > bytes*5/4 {
			t.Errorf("%s: %d bytes take %d, %.3f times as many", what, bytes, closed, float64(closed)/bytes)
		}
		if log := live - closed; log > 3<<19 {
			t.Errorf("%s: SQLite's log takes %d bytes", what, log)
		}
		if names, _ := packFiles(t, home); len(names) > 0 {
			t.Errorf("%s: there are packs: %v", what, names)
		}
	}
}

// Small chunks that are a lot together go into a file, however many at a time they come.
func TestManySmallChunksTakeAFile(t *testing.T) {
	s := open(t, t.TempDir())
	p := s.newPack(origin{})
	defer p.close(false)
	for i := range 3 {
		if p.lock != nil {
			t.Errorf("%d bytes have a file of their own", p.bytes)
		}
		ok(t, p.add(map[string][]byte{fmt.Sprint(i): noise(uint64(i), small/2)}))
	}
	if p.lock == nil || p.written != 3 {
		t.Errorf("%d of 3 chunks are in a file, %d bytes", p.written, p.bytes)
	}
}

// What removed checkpoints leave free the next saves use; gc gives it back.
func TestSmallSpaceIsUsedAgain(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	half := func() { // removes every second one
		t.Helper()
		list, err := s.List("the run")
		ok(t, err)
		var gone []Info
		for i, info := range list {
			if i%2 == 0 {
				gone = append(gone, info)
			}
		}
		_, err = s.Delete(gone...)
		ok(t, err)
	}
	for step := range int64(120) {
		saveSmall(t, s, step, layers)
	}
	full, free, err := s.pages()
	if err != nil || free > full/50 {
		t.Fatalf("%d of %d bytes are free: %v", free, full, err)
	}
	half()
	for step := range int64(60) {
		saveSmall(t, s, 200+step, layers)
	}
	before, _, err := s.pages()
	if err != nil || before > full+full/20 {
		t.Errorf("120 checkpoints took %d bytes; after half of them were replaced they take %d: %v", full, before, err)
	}
	half()
	reader, err := OpenReadOnly(home) // does not keep it from being freed
	ok(t, err)
	defer reader.Close()
	f, err := s.Free()
	ok(t, err)
	after, _, err := s.pages()
	ok(t, err)
	info, err := os.Stat(s.path)
	ok(t, err)
	if f.Bytes != before-after || after > 60*smallState*5/4 || info.Size() != after {
		t.Errorf("freed %d of %d bytes; 60 checkpoints take %d, the file has %d", f.Bytes, before, after, info.Size())
	}
	if f, err := s.Free(); err != nil || f.Bytes != 0 {
		t.Errorf("again: %+v, %v", f, err)
	}
	list, err := reader.List("the run")
	if err != nil || len(list) != 60 {
		t.Fatalf("%d checkpoints, %v", len(list), err)
	}
	for _, info := range list {
		_, entries, err := reader.Load("the run", info.Ref(), 0)
		ok(t, err)
		var data []byte
		for _, e := range entries {
			data = append(data, e.Data...)
		}
		if !bytes.Equal(data, noise(uint64(info.Step), smallState)) {
			t.Errorf("step %d is not as it was saved", info.Step)
		}
	}
	ok(t, s.CheckCatalog())
}

// What the catalog has is not saved again, nor does it count.
func TestSmallIsKnown(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	part := []Entry{{Name: "w", Data: noise(1, small-3000)}}
	for step := range int64(3) {
		_, err := s.Save("r", step, nil, map[int][]Entry{0: append(part, Entry{Name: "v", Data: noise(uint64(step), 2000+3000*int(step))})})
		ok(t, err)
	}
	if names, _ := packFiles(t, home); len(names) > 0 {
		t.Errorf("there are packs: %v", names)
	}
}

// A small pack, as every small checkpoint once had one, goes into the catalog, also while it is read;
// and what was removed from the catalog is found where it was stored anew.
func TestSmallMoves(t *testing.T) {
	home := t.TempDir()
	s := open(t, home)
	w := Entry{Name: "w", Data: noise(1, 1000)}
	_, err := s.Save("r", 1, nil, map[int][]Entry{0: {w, {Name: "b", Data: noise(2, large)}}})
	ok(t, err)
	_, err = s.Save("r", 2, nil, map[int][]Entry{0: {w}})
	ok(t, err)
	ok(t, remove(s, "r", 1))
	packs, _ := packFiles(t, home)
	ok(t, alter(filepath.Join(home, "checkpoints", packs[0]), "DELETE FROM chunks WHERE length(data) <> 1000"))
	reader, err := OpenReadOnly(home)
	ok(t, err)
	defer reader.Close()
	reads := func(v *View) {
		t.Helper()
		got := make([]byte, len(w.Data))
		if _, err := v.ReadAt(got, 0); err != nil || !bytes.Equal(got, w.Data) {
			t.Errorf("read: %v", err)
		}
	}
	view := func() *View {
		t.Helper()
		v, err := reader.View("r", Step(2), []int{0})
		ok(t, err)
		t.Cleanup(v.Close)
		return v
	}
	before := view()
	_, err = s.Free()
	ok(t, err)
	if names, _ := packFiles(t, home); len(names) > 0 {
		t.Errorf("there are packs: %v", names)
	}
	load(t, s, "r", 2, w)
	reads(before)
	before = view()
	gone := view()
	ok(t, remove(s, "r", 2))
	if _, err := gone.ReadAt(make([]byte, 10), 0); err == nil || !strings.Contains(err.Error(), "the checkpoint was removed while it was read") {
		t.Errorf("removed: %v", err)
	}
	if _, _, err := reader.Load("r", Step(2), 0); !errors.As(err, new(*ErrNone)) {
		t.Errorf("removed: %v", err)
	}
	_, err = s.Save("r", 3, nil, map[int][]Entry{0: {w, {Name: "b", Data: noise(2, large)}}})
	ok(t, err)
	reads(before)
}

// Two processes save and remove small checkpoints at once, and some of their values are the same.
func TestSmallFromTwoProcesses(t *testing.T) {
	home := t.TempDir()
	t.Setenv("DRUN_TEST_SMALL", "1")
	t.Setenv("DRUN_TEST_SAVE", home)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const saves = 60
	var errs [2]bytes.Buffer
	var children [2]*exec.Cmd
	begun := make(chan bool, 2)
	for i := range children {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("DRUN_TEST_RUN=%d", i), fmt.Sprintf("DRUN_TEST_SAVES=%d", saves))
		cmd.Stderr = &errs[i]
		children[i] = cmd
		out, err := cmd.StdoutPipe()
		ok(t, err)
		ok(t, cmd.Start())
		go func() {
			lines := bufio.NewScanner(out)
			lines.Scan()
			begun <- true
			for lines.Scan() {
			}
		}()
	}
	<-begun
	<-begun
	s := open(t, home)
	f, err := s.Free() // writes the catalog anew meanwhile
	if err != nil || len(f.Damaged) > 0 {
		t.Errorf("free: %+v, %v", f, err)
	}
	for i, cmd := range children {
		if err := cmd.Wait(); err != nil {
			t.Errorf("process %d: %v: %s", i, err, &errs[i])
		}
	}
	for i := range children {
		run := fmt.Sprint(i)
		if got := steps(t, s, run); !slices.Equal(got, []int64{saves - 3, saves - 2, saves - 1, saves}) {
			t.Errorf("run %s has the steps %v", run, got)
		}
		for _, step := range steps(t, s, run) {
			for rank := range crashRanks {
				_, entries, err := s.Load(run, Step(step), rank)
				ok(t, err)
				for n, want := range state(step, rank) {
					if !bytes.Equal(entries[n].Data, want.Data) {
						t.Errorf("run %s, step %d, rank %d: %s is not what was saved", run, step, rank, want.Name)
					}
				}
			}
		}
	}
	ok(t, s.CheckCatalog())
	var chunks int
	ok(t, s.sql.QueryRow("SELECT count(*) FROM chunks").Scan(&chunks))
	if want := 1 + 4*(1+crashRanks); chunks != want { // what both have alike is there once
		t.Errorf("there are %d chunks, want %d", chunks, want)
	}
}

// older gives a home the catalog of the version before small chunks were in it; all it has must be in packs.
func older(t *testing.T, home string) {
	t.Helper()
	path := filepath.Join(home, "checkpoints.db")
	newer := filepath.Join(t.TempDir(), "newer.db")
	ok(t, os.Rename(path, newer))
	names, err := fs.Glob(migrations, "migrations/*.sql")
	ok(t, err)
	var script strings.Builder
	for _, name := range names[:6] {
		text, err := fs.ReadFile(migrations, name)
		ok(t, err)
		script.Write(text)
	}
	db, err := sql.Open("sqlite3", packURI(path, "_foreign_keys=1"))
	ok(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	fmt.Fprintf(&script, `PRAGMA application_id = %d; PRAGMA user_version = 6; PRAGMA journal_mode = WAL;
		ATTACH '%s' AS newer;
		UPDATE catalog SET (store, generation) = (SELECT store, generation FROM newer.catalog);
		INSERT INTO checkpoints SELECT * FROM newer.checkpoints;
		INSERT INTO packs SELECT * FROM newer.packs;
		INSERT INTO chunks SELECT lower(hex(sha256)), pack, row, bytes, sum FROM newer.chunks;
		INSERT INTO entries SELECT id, checkpoint, rank, name, kind, dtype, shape, bytes, lower(hex(digest)) FROM newer.entries;
		INSERT INTO entry_chunks SELECT ec.entry, ec.n, lower(hex(c.sha256)) FROM newer.entry_chunks ec JOIN newer.chunks c ON c.id = ec.chunk`, applicationID, newer)
	_, err = db.Exec(script.String())
	ok(t, err)
}

// A home of an older drun opens with all that is in it, and goes on.
func TestOlderCatalog(t *testing.T) {
	part := func(step int64) []Entry {
		return []Entry{{Name: "fixed", Data: noise(9, 2000)}, {Name: "w", Data: noise(uint64(step), large)}}
	}
	home := t.TempDir()
	s := open(t, home)
	for step := range int64(3) {
		_, err := s.Save("r", step, nil, map[int][]Entry{0: part(step)})
		ok(t, err)
	}
	ok(t, s.Close())
	older(t, home)
	damaged := t.TempDir()
	ok(t, os.CopyFS(damaged, os.DirFS(home)))
	s = open(t, home)
	check := func(steps ...int64) {
		t.Helper()
		for _, step := range steps {
			load(t, s, "r", step, part(step)...)
			if _, faults, err := s.Verify("r", Step(step)); err != nil || len(faults) > 0 {
				t.Errorf("step %d: %v, %v", step, faults, err)
			}
		}
		ok(t, s.CheckCatalog())
		var dangling int
		if err := s.sql.QueryRow("SELECT count(*) FROM pragma_foreign_key_check").Scan(&dangling); err != nil || dangling > 0 {
			t.Errorf("%d rows refer to what is not there: %v", dangling, err)
		}
	}
	check(0, 1, 2)
	_, err := s.Save("r", 3, nil, map[int][]Entry{0: part(2)})
	ok(t, err)
	ok(t, remove(s, "r", 0))
	_, err = s.Free()
	ok(t, err)
	if packs, _ := packFiles(t, home); len(packs) != 2 {
		t.Errorf("there are the packs %v, want those of two steps", packs)
	}
	check(1, 2)

	// What refers to nothing does not keep the rest from being opened.
	ok(t, alter(filepath.Join(damaged, "checkpoints.db"), `UPDATE chunks SET pack = 77 WHERE sha256 = (SELECT sha256 FROM entry_chunks WHERE entry = 2);
		UPDATE entries SET digest = 'none' WHERE id = 4; DELETE FROM entries WHERE id = 5; UPDATE entries SET checkpoint = 88 WHERE id = 6`))
	s = open(t, damaged)
	for step, want := range []string{`entries.bytes of "w"`, `"w" of rank 0 is not as it was saved`, "are missing"} {
		if _, _, err := s.Load("r", Step(int64(step)), 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("step %d: %v, want %q", step, err, want)
		}
	}
}
