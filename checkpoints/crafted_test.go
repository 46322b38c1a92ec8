package checkpoints

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"drun/internal/sqldb"
)

// alter changes a database as somebody else could.
func alter(path, statement string, args ...any) error {
	db, err := sql.Open("sqlite3", packURI(path, "_foreign_keys=0"))
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	_, err = db.Exec(statement, args...)
	return err
}

func craftedPart(step int64, rank int) []Entry {
	part := []Entry{{Name: "w", Kind: "tensor", DType: "float32", Shape: []int{10, 25}, Data: noise(uint64(rank), 1000)}, {Name: "n", Kind: "value", Shape: []int{}, Data: []byte{5}}}
	if step == 1 {
		part = append(part, Entry{Name: "b", Kind: "tensor", DType: "uint8", Shape: []int{large}, Data: noise(9, large)})
	}
	return part
}

// crafted makes a home with checkpoints of two ranks, one in the catalog and one partly in a pack, and gives the path of that.
func crafted(t testing.TB, home string) string {
	t.Helper()
	s, err := Open(home)
	ok(t, err)
	for step := range int64(2) {
		_, err = s.Save("r", step, nil, map[int][]Entry{0: craftedPart(step, 0), 1: craftedPart(step, 1)})
		ok(t, err)
	}
	ok(t, s.Close())
	names, _ := packFiles(t, home)
	return filepath.Join(home, "checkpoints", names[0])
}

// readAll reads whatever there is to read, and gives the first error. What is read
// without one must be what was saved.
func readAll(home string) error {
	s, err := Open(home)
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.List("r"); err != nil {
		return err
	}
	for _, ref := range []Ref{Last, Best, Step(0), Step(1)} {
		if _, err := s.Differing("r", ref); err != nil && !errors.As(err, new(*ErrNone)) {
			return err
		}
		for rank := range 2 {
			info, entries, err := s.Load("r", ref, rank)
			if errors.As(err, new(*ErrNone)) {
				continue
			}
			if err != nil {
				return err
			}
			if !reflect.DeepEqual(entries, craftedPart(info.Step, rank)) || info.WorldSize != 2 || ref.label == "step 0" && info.Step != 0 {
				return fmt.Errorf("wrong weights: rank %d of %s is %+v, %+v", rank, ref.label, info, entries)
			}
		}
	}
	return nil
}

// in runs fn, which must end soon.
func in(t testing.TB, limit time.Duration, fn func() error) (err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	done := make(chan struct{})
	go func() {
		err = fn()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal("it does not end")
	}
	return err
}

const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "

// What a catalog or a pack from elsewhere says is an error that names file and field,
// never a panic, a hang, or memory that is not there.
func TestCraftedCheckpoints(t *testing.T) {
	for _, c := range []struct{ statement, want string }{
		{"UPDATE entries SET bytes = 1 << 60", `checkpoints.db is damaged (entries.bytes of "w": is 1152921504606846976, but its chunks have 1000)`},
		{"UPDATE entries SET bytes = -1", `entries.bytes of "w": is -1`},
		{"UPDATE entries SET bytes = 'many'", `name "bytes"`},
		{"UPDATE entries SET shape = '[1099511627776, 1099511627776]'", `entries.shape of "w": [1099511627776 1099511627776] is not a shape`},
		{"UPDATE entries SET shape = '[-1]'", `entries.shape of "w": [-1] is not a shape`},
		{"UPDATE entries SET shape = '[1001]'", `entries.shape of "w": [1001] is more than 1000 bytes`},
		{"UPDATE entries SET shape = 'round'", `entries.shape of "w"`},
		{"UPDATE checkpoints SET world_size = 100000000", "checkpoints.db is damaged (checkpoints.world_size of step 0 is 100000000)"},
		{"UPDATE entries SET name = 'v' WHERE name = 'w'", `entries of step 1: "v" of rank 0 is not as it was saved`},
		{"UPDATE entries SET dtype = 'int32' WHERE name = 'w'", `entries of step 1: "w" of rank 0 is not as it was saved`},
		{"UPDATE entries SET rank = 2 WHERE rank = 0; UPDATE entries SET rank = 0 WHERE rank = 1", `is not as it was saved`},
		{"DELETE FROM entries WHERE name = 'n'", `"w" of rank 0 is not as it was saved`},
		{"UPDATE checkpoints SET step = 5 WHERE step = 1", `entries of step 5: "w" of rank 0 is not as it was saved`},
		{"UPDATE checkpoints SET score = 1", `"w" of rank 0 is not as it was saved`},
		{"UPDATE checkpoints SET world_size = 0", "checkpoints.world_size of step 0 is 0"},
		{"UPDATE checkpoints SET world_size = -1", "checkpoints.world_size of step 0 is -1"},
		{"UPDATE checkpoints SET world_size = 1e300", `name "world_size"`},
		{"UPDATE checkpoints SET bytes = -5", "checkpoints.bytes of step 0 is -5"},
		{"UPDATE checkpoints SET time = 'now'", "checkpoints.time of step 0"},
		{"UPDATE chunks SET bytes = 1 << 40", `chunks.bytes of "w": is 1099511627776`},
		{"UPDATE chunks SET bytes = 0", `chunks.bytes of "w": is 0`},
		{"UPDATE chunks SET row = 77 WHERE pack IS NOT NULL", "no such rowid"},
		{"UPDATE packs SET file = '../../x'", `packs.file of "b": "../../x" is not the name of a pack`},
		{"UPDATE entry_chunks SET chunk = (SELECT min(id) FROM chunks)", `entries.bytes of`},
		{"DROP TABLE entries; CREATE VIEW entries AS " + endless + "SELECT i AS id, 1 AS checkpoint, 0 AS rank, 'w' AS name, '' AS kind, '' AS dtype, '[]' AS shape, 0 AS bytes FROM n",
			"does not have the tables of drun's checkpoint catalog"},
		{"CREATE TRIGGER t AFTER INSERT ON packs BEGIN DELETE FROM checkpoints; END", "does not have the tables"},
		{"UPDATE chunks SET data = zeroblob(5000000) WHERE pack IS NULL", `checkpoints.db is damaged (chunk 0 of "w" does not have 1000 bytes`},
		{"UPDATE chunks SET data = zeroblob(length(data)) WHERE pack IS NULL", `checkpoints.db is damaged (chunk 0 of "w" does not have its SHA-256`},
		{"UPDATE chunks SET data = 'text' WHERE pack IS NULL", `chunk 0 of "w" does not have 1000 bytes`},
		{"UPDATE chunks SET data = NULL", `chunk 0 of "w" does not have 1000 bytes`},
		{"UPDATE chunks SET pack = 77 WHERE pack IS NULL", `checkpoints.db is damaged (chunk 0 of "w": file does not exist)`},
		{"UPDATE chunks SET pack = NULL", fmt.Sprintf(`chunk 0 of "b" does not have %d bytes`, large)},
		{"UPDATE chunks SET sha256 = zeroblob(32) WHERE bytes = 1000 AND id = (SELECT min(id) FROM chunks)", `is not as it was saved`},
		{"DELETE FROM chunks WHERE pack IS NULL", `entries.bytes of "w": is 1000, but its chunks have 0`},
		{"PACK UPDATE chunks SET data = zeroblob(5000000)", fmt.Sprintf("does not have %d bytes", large)},
		{"PACK UPDATE chunks SET data = zeroblob(length(data))", `chunk 0 of "b" does not have its SHA-256`},
		{"PACK UPDATE chunks SET data = 'text'", "does not have"},
		{"PACK DROP TABLE chunks; CREATE VIEW chunks AS " + endless + "SELECT i AS id, '' AS sha256, x'00' AS data FROM n WHERE i < 0", "its tables are not those of a pack"},
	} {
		t.Run(c.statement[:min(40, len(c.statement))], func(t *testing.T) {
			home := t.TempDir()
			pack := crafted(t, home)
			if statement, isPack := strings.CutPrefix(c.statement, "PACK "); isPack {
				ok(t, alter(pack, statement))
			} else {
				ok(t, alter(filepath.Join(home, "checkpoints.db"), c.statement))
			}
			err := in(t, 20*time.Second, func() error { return readAll(home) })
			var failure *sqldb.Error
			if !errors.As(err, &failure) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), home) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// FuzzCheckpoints changes a value or a byte of a home, and reads it.
func FuzzCheckpoints(f *testing.F) {
	home := f.TempDir()
	pack := filepath.Base(crafted(f, home))
	columns := strings.Fields(`checkpoints.id checkpoints.run checkpoints.step checkpoints.score checkpoints.world_size checkpoints.bytes checkpoints.time
		entries.id entries.checkpoint entries.rank entries.name entries.kind entries.dtype entries.shape entries.bytes
		entries.digest packs.id packs.file chunks.id chunks.sha256 chunks.pack chunks.row chunks.bytes chunks.sum chunks.data
		entry_chunks.entry entry_chunks.n entry_chunks.chunk catalog.store catalog.generation`)
	for i := range columns {
		f.Add(uint16(i), uint16(i), int64(-1), "")
		f.Add(uint16(i), uint16(i+1), int64(1)<<60, "[1, 2]")
		f.Add(uint16(i), uint16(0), int64(3), "\x00\xff")
	}
	flips := uint16(200)
	if testing.Short() {
		flips = 40
	}
	for at := range flips {
		f.Add(^(at % 2), at*331, int64(at), "")
	}
	f.Fuzz(func(t *testing.T, what, row uint16, number int64, text string) {
		copied := t.TempDir()
		ok(t, os.CopyFS(copied, os.DirFS(home)))
		catalog := filepath.Join(copied, "checkpoints.db")
		if int(what) < len(columns) {
			table, column, _ := strings.Cut(columns[what], ".")
			var value any = number
			if text != "" {
				value = text
			}
			// Either one row, or all.
			query := fmt.Sprintf("UPDATE OR IGNORE %s SET %s = ?", table, column)
			if n := row % 8; n > 0 {
				query += fmt.Sprintf(" WHERE %s IN (SELECT %s FROM %s LIMIT 1 OFFSET %d)", column, column, table, n-1)
			}
			if alter(catalog, query, value) != nil {
				return // SQLite refuses it
			}
		} else {
			path := catalog
			if what%2 == 0 {
				path = filepath.Join(copied, "checkpoints", pack)
			}
			content, err := os.ReadFile(path)
			ok(t, err)
			content[int(row)%len(content)] ^= byte(number)
			ok(t, os.WriteFile(path, content, 0o600))
		}
		err := in(t, 20*time.Second, func() error { return readAll(copied) })
		if err != nil && !errors.As(err, new(*sqldb.Error)) && !strings.Contains(err.Error(), "has ranks 0 to") {
			t.Errorf("the error names no file: %v", err)
		}
	})
}
