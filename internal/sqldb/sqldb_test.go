package sqldb

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/mattn/go-sqlite3"

	"drun/internal/exit"
	"drun/internal/try"
)

func versions(n int) fstest.MapFS {
	files := fstest.MapFS{"README": {Data: []byte("not SQL")}}
	for i := 1; i <= n; i++ {
		files[fmt.Sprintf("%04d_step.sql", i)] = &fstest.MapFile{Data: fmt.Appendf(nil, "CREATE TABLE t%d (x); INSERT INTO t%d VALUES (%d)", i, i, i)}
	}
	return files
}

func testFile(t *testing.T, migrations fs.FS) File {
	return File{Path: filepath.Join(t.TempDir(), "sub", "x.db"), What: "test", ApplicationID: 7, Migrations: migrations}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, f File) *sql.DB {
	t.Helper()
	db, err := Open(f)
	ok(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func tables(t *testing.T, db *sql.DB) (names string) {
	t.Helper()
	ok(t, db.QueryRow("SELECT group_concat(name, ' ' ORDER BY name) FROM sqlite_master").Scan(&names))
	return names
}

func TestMigrationsAreAppliedOnce(t *testing.T) {
	f := testFile(t, versions(1))
	for range 2 {
		db := open(t, f)
		if got := tables(t, db); got != "t1" {
			t.Errorf("tables: %s", got)
		}
		db.Close()
	}
	f.Migrations = versions(3)
	if _, err := OpenReadOnly(f); !errors.Is(err, ErrOldSchema) {
		t.Errorf("a reader of an older schema: %v", err)
	}
	db := open(t, f)
	var n int
	err := db.QueryRow("SELECT (SELECT count(*) FROM t1) + (SELECT count(*) FROM t2) + (SELECT count(*) FROM t3)").Scan(&n)
	if err != nil || n != 3 {
		t.Errorf("rows: %d, %v", n, err)
	}
	f.Migrations = versions(2)
	for _, open := range []func() error{func() error { _, err := Open(f); return err }, func() error { _, err := OpenReadOnly(f); return err }} {
		if err := open(); err == nil || !strings.Contains(err.Error(), "schema is version 3, this drun knows up to 2") {
			t.Errorf("newer schema: %v", err)
		}
	}
}

func TestAFailedMigrationChangesNothing(t *testing.T) {
	f := testFile(t, versions(1))
	open(t, f).Close()
	broken := versions(2)
	broken["0003_broken.sql"] = &fstest.MapFile{Data: []byte("CREATE TABLE t3 (x); SELEC")}
	f.Migrations = broken
	if _, err := Open(f); err == nil || !strings.Contains(err.Error(), "0003_broken.sql") {
		t.Errorf("broken migration: %v", err)
	}
	f.Migrations = versions(1)
	db := open(t, f)
	if got := tables(t, db); got != "t1" {
		t.Errorf("tables: %s", got)
	}
}

func TestMigrationNumbers(t *testing.T) {
	gap := versions(1)
	gap["0003_gap.sql"] = &fstest.MapFile{Data: []byte("SELECT 1")}
	if _, err := Open(testFile(t, gap)); err == nil || !strings.Contains(err.Error(), "0003_gap.sql should have number 0002") {
		t.Errorf("a gap: %v", err)
	}
}

func TestWritersWaitForEachOther(t *testing.T) {
	f := testFile(t, versions(1))
	var all sync.WaitGroup
	const writers, rounds = 4, 25
	for range writers {
		all.Go(func() {
			db, err := Open(f)
			if err != nil {
				t.Error(err)
				return
			}
			defer db.Close()
			for range rounds {
				err := Write(db, f.Path, func(tx *sql.Tx) error {
					var n int
					if err := tx.QueryRow("SELECT max(x) FROM t1").Scan(&n); err != nil {
						return err
					}
					time.Sleep(time.Millisecond) // others come in between, if they can
					_, err := tx.Exec("INSERT INTO t1 VALUES (?)", n+1)
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	r, err := OpenReadOnly(f)
	ok(t, err)
	defer r.Close()
	var n int
	if err := r.QueryRow("SELECT max(x) FROM t1").Scan(&n); err != nil || n != 1+writers*rounds {
		t.Errorf("the counter is %d, want %d, %v", n, 1+writers*rounds, err)
	}
	if _, err := r.Exec("INSERT INTO t1 VALUES (1)"); !IsReadOnly(err) {
		t.Errorf("a reader wrote: %v", err)
	}
}

func TestCreatedByManyAtOnce(t *testing.T) {
	for range 20 {
		f := testFile(t, versions(3))
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				db, err := Open(f)
				if err != nil {
					t.Error(err)
					return
				}
				if err := db.Close(); err != nil {
					t.Error(err)
				}
				if r, err := OpenReadOnly(f); err != nil {
					t.Error(err)
				} else {
					r.Close()
				}
			})
		}
		all.Wait()
	}
}

func TestFailedWriteIsRolledBack(t *testing.T) {
	f := testFile(t, versions(1))
	db := open(t, f)
	mine := errors.New("mine")
	err := Write(db, f.Path, func(tx *sql.Tx) error {
		if _, err := tx.Exec("DELETE FROM t1"); err != nil {
			return err
		}
		return mine
	})
	var n int
	if scan := db.QueryRow("SELECT count(*) FROM t1").Scan(&n); err != mine || n != 1 || scan != nil {
		t.Errorf("err = %v, %d rows, %v", err, n, scan)
	}
}

// Steps within a callback end it: what it has written is rolled back, and the error names the file.
func TestStepsEndCallbacks(t *testing.T) {
	f := testFile(t, versions(1))
	db := open(t, f)
	full := func() { try.Ok(sqlite3.Error{Code: sqlite3.ErrFull}) }
	for name, err := range map[string]error{
		"Write": Write(db, f.Path, func(tx *sql.Tx) error {
			try.To(tx.Exec("DELETE FROM t1"))
			full()
			return nil
		}),
		"Read": Read(db, f.Path, func(*sql.Conn) error { full(); return nil }),
		"Each": Wrap(f.Path, Each(db, func(*sql.Rows) error { full(); return nil }, "SELECT 1")),
	} {
		if known := (*Error)(nil); !errors.As(err, &known) || known.Path != f.Path || !IsFull(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if rows, err := Map[int, int](db, "SELECT 7, count(*) FROM t1"); err != nil || len(rows) != 1 || rows[7] != 1 {
		t.Errorf("rows: %v, %v", rows, err)
	}
}

func TestWrap(t *testing.T) {
	plain := errors.New("not about storage")
	if Wrap("p", nil) != nil || Wrap("p", plain) != plain {
		t.Error("errors that are not the storage's must come back unchanged")
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{sqlite3.Error{Code: sqlite3.ErrFull}, "disk is full"},
		{sqlite3.Error{Code: sqlite3.ErrIoErr, SystemErrno: syscall.ENOSPC}, "disk is full"},
		{sqlite3.Error{Code: sqlite3.ErrIoErr, SystemErrno: syscall.EDQUOT}, "quota"},
		{sqlite3.Error{Code: sqlite3.ErrNotADB}, "not a SQLite database"},
		{sqlite3.Error{Code: sqlite3.ErrCorrupt}, "damaged"},
		{sqlite3.Error{Code: sqlite3.ErrReadonly}, "no permission"},
		{sqlite3.Error{Code: sqlite3.ErrBusy}, "stayed locked by another process for 30s"},
		{sqlite3.Error{Code: sqlite3.ErrIoErr}, "could not be read or written"},
		{&fs.PathError{Op: "open", Path: "p", Err: syscall.EACCES}, "no permission"},
		{&fs.PathError{Op: "mkdir", Path: "p", Err: syscall.ENOTDIR}, "a file stands where a folder is needed"},
		{&fs.PathError{Op: "open", Path: "p", Err: syscall.EISDIR}, "it is a folder"},
	} {
		err := Wrap("p", c.err)
		var failure *Error
		if !errors.As(err, &failure) || exit.HintOf(err) == "" || failure.ExitCode() != exit.Storage ||
			!strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "p ") {
			t.Errorf("%v became %v, want %q", c.err, err, c.want)
		}
		if again := Wrap("q", err); again != err {
			t.Errorf("wrapped twice: %v", again)
		}
	}
	if _, err := os.Stat("/nonexistent"); !strings.Contains(Wrap("p", err).Error(), "p failed") {
		t.Errorf("missing file: %v", Wrap("p", err))
	}
}

// A crash of the machine may cost the last moments, never the file.
func TestDurability(t *testing.T) {
	db := open(t, testFile(t, versions(1)))
	var mode, level string
	if err := db.QueryRow("SELECT (SELECT journal_mode FROM pragma_journal_mode), (SELECT synchronous FROM pragma_synchronous)").Scan(&mode, &level); err != nil || mode != "wal" || level != "1" {
		t.Errorf("journal mode %s, synchronous %s, %v", mode, level, err)
	}
}

// A new file does not take the -wal and -shm of one that was deleted for its own,
// and is its owner's alone.
func TestNewFile(t *testing.T) {
	f := testFile(t, versions(1))
	open(t, f)
	ok(t, os.Remove(f.Path))
	shared, err := os.Stat(f.Path + "-shm")
	ok(t, err)
	open(t, f)
	if now, err := os.Stat(f.Path + "-shm"); err != nil || os.SameFile(shared, now) {
		t.Errorf("it shares the old one's memory, %v", err)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if info, err := os.Stat(f.Path + suffix); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", suffix, info, err)
		}
	}
}

// Whoever reads a copy sees no later writes, and is told so.
func TestLive(t *testing.T) {
	f := testFile(t, versions(1))
	writer := open(t, f)
	file, err := OpenReadOnly(f)
	ok(t, err)
	defer file.Close()
	copied, err := f.openCopy(false)
	ok(t, err)
	defer copied.Close()
	_, err = writer.Exec("INSERT INTO t1 VALUES (5)")
	ok(t, err)
	for _, r := range []*Reader{file, copied} {
		var sum int
		ok(t, r.QueryRow("SELECT sum(x) FROM t1").Scan(&sum))
		if seen := sum == 6; seen != r.Live {
			t.Errorf("the sum is %d, Live %v", sum, r.Live)
		}
	}
}
