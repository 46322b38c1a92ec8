package sqldb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"drun/internal/exit"
	"drun/internal/try"
)

// lockTimeout bounds every wait for another process.
const lockTimeout = 30 * time.Second

// File describes one of drun's databases.
type File struct {
	Path          string
	What          string // "history", for messages
	ApplicationID int32  // marks the file as drun's (PRAGMA application_id)
	Migrations    fs.FS  // 0001_name.sql, 0002_…, applied in order, and perhaps schemaFile
	Pragmas       string // further settings of every writing connection
	// Exact refuses files whose schema is not exactly what the migrations make: with foreign views, triggers or
	// expressions a query may never end.
	Exact bool
}

// Only the user may read what drun keeps. Files and folders that exist keep their
// modes, which the user may have changed.
const (
	FileMode   = 0o600
	FolderMode = 0o700
)

// Open opens the database for writing, creates it and its folder if they are missing, and brings its schema up to
// date. A file that it refuses (newer schema, not a database, not drun's) is not changed.
func Open(f File) (_ *sql.DB, err error) {
	if err := os.MkdirAll(filepath.Dir(f.Path), FolderMode); err != nil {
		return nil, Wrap(filepath.Dir(f.Path), err)
	}
	if err := f.create(); err != nil {
		return nil, Wrap(f.Path, err)
	}
	journal, sync := "WAL", "NORMAL"
	if wal, _ := Journal(filepath.Dir(f.Path)); !wal {
		journal, sync = "DELETE", "FULL"
		if err := f.leaveWAL(); err != nil {
			return nil, Wrap(f.Path, err)
		}
	}
	if info, err := os.Stat(f.Path); err == nil && info.Size() > 0 {
		err := f.probe("mode=ro")
		if interrupted(err) {
			err = f.probe("mode=rw")
		}
		if err != nil {
			return nil, err
		}
	}
	db, err := sql.Open("sqlite3", f.dsn("mode=rw&_txlock=immediate&_foreign_keys=1&_synchronous="+sync))
	if err != nil {
		return nil, Wrap(f.Path, err)
	}
	// One connection: SQLite has one writer, and the pragmas stay in force.
	db.SetMaxOpenConns(1)
	defer try.CaughtOr(&err, func() {
		db.Close()
		err = Wrap(f.Path, err)
	})
	try.Ok(f.prepare(db, journal))
	if f.Exact {
		try.Ok(f.checkExact(db))
	}
	if f.Pragmas != "" {
		try.Ok(retry(func() error { _, err := db.Exec(f.Pragmas); return err }))
	}
	return db, nil
}

// create makes the file if it is missing, readable only by its owner. The -wal, -shm and -journal of a deleted
// file may still exist, and be open elsewhere: a new file must not take them for its own.
func (f File) create() (err error) {
	defer try.Caught(&err)
	if _, err := os.Lstat(f.Path); !errors.Is(err, fs.ErrNotExist) {
		return nil // Open gives the better error
	}
	dir := try.To(os.Open(filepath.Dir(f.Path)))
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.ENOLCK) && !errors.Is(err, unix.EBADF) {
		return err
	}
	if _, err := os.Lstat(f.Path); !errors.Is(err, fs.ErrNotExist) {
		return nil // another process has made it
	}
	for _, suffix := range []string{"-wal", "-shm", "-journal"} {
		if err := os.Remove(f.Path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return try.To(os.OpenFile(f.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, FileMode)).Close()
}

// prepare brings a new or older file up to date. Several processes may try at
// once: the write lock lets one of them migrate, the others find it done.
func (f File) prepare(db *sql.DB, journal string) (err error) {
	defer try.Caught(&err)
	state, latest, err := f.examine(db)
	if err != nil || state.version == latest {
		return err
	}
	try.Ok(retry(func() error { _, err := db.Exec("PRAGMA journal_mode = " + journal); return err }))
	return Write(db, f.Path, func(tx *sql.Tx) error { return f.migrate(tx, latest) })
}

// probe looks at a file without changing it, unless it may write and a killed writer left a rollback journal.
func (f File) probe(mode string) error {
	db, err := sql.Open("sqlite3", f.dsn(mode+"&_query_only=1"))
	if err != nil {
		return Wrap(f.Path, err)
	}
	defer db.Close()
	_, _, err = f.examine(db)
	return Wrap(f.Path, err)
}

// examine reads the state of a file, and refuses those that this binary must not
// write to; latest is the version that this binary knows.
func (f File) examine(db *sql.DB) (state schemaState, latest int, err error) {
	defer try.Caught(&err)
	latest = try.To(f.Latest())
	if err = retry(func() error { state, err = readState(db); return err }); err == nil {
		err = f.check(state, latest)
	}
	return state, latest, err
}

func (f File) dsn(params string) string {
	abs, err := filepath.Abs(f.Path)
	if err != nil {
		abs = f.Path
	}
	return "file:" + (&url.URL{Path: abs}).EscapedPath() + "?_busy_timeout=30000&" + params
}

// Write runs fn in one transaction that holds the write lock from its start:
// a lock taken later, by the first write, cannot be waited for. What fn does may end by package try.
func Write(db *sql.DB, path string, fn func(*sql.Tx) error) (err error) {
	var tx *sql.Tx
	defer try.CaughtOr(&err, func() {
		if tx != nil {
			_ = tx.Rollback()
		}
		err = Wrap(path, err)
	})
	try.Ok(retry(func() (err error) { tx, err = db.BeginTx(context.Background(), nil); return }))
	try.Ok(fn(tx))
	return tx.Commit()
}

// Busy reports whether another process is writing at this moment, or nothing can be written.
func Busy(f File) bool {
	db, err := sql.Open("sqlite3", f.dsn("mode=rw&_txlock=immediate"))
	if err != nil {
		return true
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("PRAGMA busy_timeout = 0"); err != nil {
		return true
	}
	tx, err := db.Begin()
	if err != nil {
		return true
	}
	_ = tx.Rollback()
	return false
}

// Read runs fn on one connection in a transaction that sees the database at one moment, and blocks no writer. What fn
// does may end by package try.
func Read(db *sql.DB, path string, fn func(*sql.Conn) error) (err error) {
	defer try.CaughtOr(&err, func() { err = Wrap(path, err) })
	ctx := context.Background()
	conn := try.To(db.Conn(ctx))
	defer conn.Close()
	try.Ok(retry(func() error { _, err := conn.ExecContext(ctx, "BEGIN DEFERRED"); return err }))
	defer func() { _, _ = conn.ExecContext(ctx, "ROLLBACK") }()
	return fn(conn)
}

// retry repeats fn while the database is busy in one of the ways for which
// SQLite's own busy timeout does not wait (recovery, a change of mode).
func retry(fn func() error) error {
	deadline := time.Now().Add(lockTimeout)
	for {
		err := fn()
		if !IsLocked(err) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Sync makes a file or a folder durable.
func Sync(path string) (err error) {
	defer try.Caught(&err)
	file := try.To(os.Open(path))
	defer file.Close()
	return file.Sync()
}

// Queryer is a database handle, a connection or a transaction.
type Queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Each runs a query and calls scan, whose steps may end by package try, for each row.
func Each(from Queryer, scan func(*sql.Rows) error, query string, args ...any) (err error) {
	defer try.Caught(&err)
	rows := try.To(from.QueryContext(context.Background(), query, args...))
	defer rows.Close()
	for rows.Next() {
		try.Ok(scan(rows))
	}
	return rows.Err()
}

// List reads the rows of a query, each into the columns of a new T; the result is never nil.
func List[T any](from Queryer, columns func(*T) []any, query string, args ...any) ([]T, error) {
	all := []T{}
	err := Each(from, func(rows *sql.Rows) error {
		var row T
		err := rows.Scan(columns(&row)...)
		all = append(all, row)
		return err
	}, query, args...)
	return all, err
}

// Column is List for a query with one column.
func Column[T any](from Queryer, query string, args ...any) ([]T, error) {
	return List(from, func(v *T) []any { return []any{v} }, query, args...)
}

// Map reads the rows of a query with two columns, the first of which is the key.
func Map[K comparable, V any](from Queryer, query string, args ...any) (map[K]V, error) {
	all := map[K]V{}
	err := Each(from, func(rows *sql.Rows) error {
		var key K
		var value V
		err := rows.Scan(&key, &value)
		all[key] = value
		return err
	}, query, args...)
	return all, err
}

// JSON is a list of numbers or texts as JSON, for a column or for json_each.
func JSON[T any](list []T) string {
	text, _ := json.Marshal(list) // plain data: it cannot fail
	return string(text)
}

// schemaState identifies a file and its schema.
type schemaState struct {
	application int32 // PRAGMA application_id; 0: not set
	version     int   // PRAGMA user_version: number of the last migration
	objects     int   // tables, views and indexes
}

func readState(from interface {
	QueryRow(string, ...any) *sql.Row
}) (s schemaState, err error) {
	err = from.QueryRow(`SELECT (SELECT application_id FROM pragma_application_id),
		(SELECT user_version FROM pragma_user_version),
		(SELECT count(*) FROM sqlite_master)`).Scan(&s.application, &s.version, &s.objects)
	return s, err
}

// check refuses files that this binary must not write to.
func (f File) check(s schemaState, latest int) error {
	switch {
	case s.application != f.ApplicationID && (s.application != 0 || s.objects > 0):
		return exit.WithHint(&Error{Path: f.Path, What: "is a SQLite database, but not drun's " + f.What},
			"move the file away, or "+hintElsewhere)
	case s.version < 0:
		return exit.WithHint(&Error{Path: f.Path, What: fmt.Sprintf("is damaged: its schema has the version %d", s.version)}, hintRescue(f.Path))
	case s.version > latest:
		return exit.WithHint(&Error{Path: f.Path,
			What: fmt.Sprintf("was written by a newer drun: its schema is version %d, this drun knows up to %d", s.version, latest)},
			"use the newer drun, or "+hintElsewhere+"; the file was left as it is")
	}
	return nil
}

// migrate applies what is missing; tx holds the write lock.
func (f File) migrate(tx *sql.Tx, latest int) (err error) {
	defer try.Caught(&err)
	s := try.To(readState(tx))
	try.Ok(f.check(s, latest))
	try.Ok(f.apply(tx, s.version))
	_, err = tx.Exec(fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", f.ApplicationID, latest))
	return err
}

// schemaFile makes in a new file, several times faster, what all migrations make.
const schemaFile = "schema.sql"

// apply runs the migrations after a version.
func (f File) apply(to interface {
	Exec(string, ...any) (sql.Result, error)
}, version int) (err error) {
	defer try.Caught(&err)
	names := try.To(f.migrations())[version:]
	if _, err := fs.Stat(f.Migrations, schemaFile); version == 0 && err == nil {
		names = []string{schemaFile}
	}
	for _, name := range names {
		text, err := fs.ReadFile(f.Migrations, name)
		if err == nil {
			_, err = to.Exec(string(text))
		}
		try.FailIf(err != nil, "migration %s: %w", name, err)
	}
	return nil
}

// Latest is the version of the schema that this binary writes.
func (f File) Latest() (int, error) {
	names, err := f.migrations()
	return len(names), err
}

// migrations lists the files in order; their numbers must be 1, 2, 3, …
func (f File) migrations() (_ []string, err error) {
	defer try.Caught(&err)
	names := try.To(fs.Glob(f.Migrations, "[0-9]*.sql"))
	slices.Sort(names)
	for i, name := range names {
		number, _, _ := strings.Cut(name, "_")
		if n, err := strconv.Atoi(number); err != nil || n != i+1 {
			return nil, fmt.Errorf("migration %s should have number %04d", name, i+1)
		}
	}
	return names, nil
}

// checkExact compares the schema with that of a new file.
func (f File) checkExact(db *sql.DB) (err error) {
	defer try.Caught(&err)
	fresh := try.To(sql.Open("sqlite3", ":memory:"))
	defer fresh.Close()
	fresh.SetMaxOpenConns(1)
	try.Ok(f.apply(fresh, 0))
	// SQLite reserves such names for its own tables, such as statistics; two more are Litestream's, which replicates files.
	const query = "SELECT group_concat(json_array(type, name, tbl_name, sql), char(10) ORDER BY name) FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'" +
		" AND coalesce(sql, '') NOT IN ('CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)', 'CREATE TABLE _litestream_lock (id INTEGER)')"
	var want, got string
	try.Ok(fresh.QueryRow(query).Scan(&want))
	try.Ok(db.QueryRow(query).Scan(&got))
	if got != want {
		return exit.WithHint(&Error{Path: f.Path, What: "does not have the tables of drun's " + f.What + ": it was changed, or made by something else"},
			"move the file away, or "+hintElsewhere)
	}
	return nil
}
