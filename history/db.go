// Package history records runs and their results: parameters, metrics, logs, captured sources, attempts, tags and
// the catalog of checkpoints, in one SQLite file, <home>/history.db. The agent of a run (engine/run) writes it
// through Open, Begin and the methods of Run; the command line reads it through OpenReadOnly.
// docs/history-tables.md describes the tables for those who query them directly.
package history

import (
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"drun/internal/each"
	"drun/internal/exit"
	"drun/internal/sqldb"
	"drun/internal/try"
)

//go:embed migrations/*.sql
var migrations embed.FS

// applicationID is "drun" in ASCII; it marks drun's files.
const applicationID = 0x6472756e

// timeLayout has a fixed width, so that times sort as text.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// DB is an open history. Its methods have a file for each subject.
type DB struct {
	sql   *sql.DB
	home  string
	path  string
	known int // version of the schema that this drun writes
	live  bool
	scope []string // see Within
	Who   string   // who changes the history; "": this process's user
	// Waiting are the runs that have ended and whose last records were not in the history when it was opened for
	// reading, since it could not be written.
	Waiting []int64
	info    os.FileInfo // of the open file
	close   func() error
}

func file(home string) sqldb.File {
	return sqldb.File{Path: filepath.Join(home, "history.db"), What: "history",
		ApplicationID: applicationID, Migrations: must(fs.Sub(migrations, "migrations"))}
}

// must returns v; an error would be a mistake in the build.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Open opens the history beneath home for writing and creates what is missing. Runs whose agent is gone are marked
// lost, once what they left in their spools has been written. Storage errors are *sqldb.Error, exit code 7.
func Open(home string) (_ *DB, err error) {
	f := file(home)
	handle, err := sqldb.Open(f)
	if err != nil {
		return nil, err
	}
	db := &DB{sql: handle, home: home, path: f.Path, live: true, close: handle.Close}
	defer try.CaughtOr(&err, func() { db.Close() })
	db.info, err = os.Stat(f.Path)
	try.Ok(sqldb.Wrap(f.Path, err))
	db.known = try.To(f.Latest())
	try.Ok(db.unspool())
	try.Ok(db.markLost())
	return db, nil
}

// ErrNone is the error of OpenReadOnly if nothing was ever recorded.
type ErrNone struct{ Home string }

func (e *ErrNone) Error() string { return fmt.Sprintf("no history in %s", e.Home) }

func (e *ErrNone) Hint() string {
	return "nothing was run here yet; is this the right folder? (--home DIR, $DRUN_HOME)"
}

func (e *ErrNone) ExitCode() exit.Code { return exit.Usage }

// OpenReadOnly opens the history for reading, even if nothing can be written. If the file is writable, what agents that
// are gone left in their spools is written first, and their runs are marked lost; they are shown as lost in any case.
// Without a history the error is *ErrNone.
func OpenReadOnly(home string) (_ *DB, err error) {
	f := file(home)
	info, err := os.Stat(f.Path) // before it is opened: if another takes its place in between, that counts as replaced
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &ErrNone{home}
	}
	reader, err := sqldb.OpenCurrent(f)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &ErrNone{home}
	}
	if err != nil {
		return nil, err
	}
	db := &DB{sql: reader.DB, home: home, path: f.Path, live: reader.Live, info: info, close: reader.Close}
	defer try.CaughtOr(&err, func() { db.Close() })
	lost := try.To(db.findLost())
	left := try.To(db.abandoned()) // of a run that is not lost if another process marked it just after its agent's end
	if len(lost)+len(left) > 0 && db.live && !sqldb.Busy(f) {
		// Best effort, so that plain SQL sees it too.
		if writer, err := Open(home); err == nil {
			writer.Close()
			left = nil
		}
	}
	for _, r := range left {
		db.Waiting = append(db.Waiting, r.ID)
	}
	return db, nil
}

// Within is the history as somebody sees it who may see only runs of these projects; nil: all runs. It shares what is open.
func (db *DB) Within(projects []string) *DB {
	seen := *db
	seen.scope = projects
	return &seen
}

// visible is a condition on rows of runs.
func (db *DB) visible() string {
	if db.scope == nil {
		return "TRUE"
	}
	quoted := each.Of(db.scope, func(name string) string { return "'" + strings.ReplaceAll(name, "'", "''") + "'" })
	return "project_name IN (" + strings.Join(quoted, ", ") + ")"
}

// ofVisible limits rows that belong to runs.
func (db *DB) ofVisible() string {
	if db.scope == nil {
		return ""
	}
	return " WHERE run IN (SELECT id FROM runs WHERE " + db.visible() + ")"
}

// Schema is the version of the history's schema.
func (db *DB) Schema() int {
	latest, _ := file(db.home).Latest()
	return latest
}

// Replaced reports whether the open file has lost its name: the history was removed, or another put in its place.
func (db *DB) Replaced() bool {
	now, err := os.Stat(db.path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && db.info != nil && !os.SameFile(now, db.info)
}

func (db *DB) Close() error                       { return sqldb.Wrap(db.path, db.close()) }
func (db *DB) write(fn func(*sql.Tx) error) error { return sqldb.Write(db.sql, db.path, fn) }

func (db *DB) read(scan func(*sql.Rows) error, query string, args ...any) error {
	return sqldb.Wrap(db.path, sqldb.Each(db.sql, scan, query, args...))
}

// list reads the rows of a query, each into the columns of a new T; the result is never nil.
func list[T any](db *DB, columns func(*T) []any, query string, args ...any) ([]T, error) {
	all, err := sqldb.List(db.sql, columns, query, args...)
	return all, sqldb.Wrap(db.path, err)
}

// listColumn is list for a query with one column.
func listColumn[T any](db *DB, query string, args ...any) ([]T, error) {
	return list(db, func(v *T) []any { return []any{v} }, query, args...)
}

type timeColumn struct{ *time.Time }

func (c timeColumn) Scan(value any) (err error) {
	text, _ := value.(string)
	*c.Time, err = time.Parse(time.RFC3339, text)
	return err
}

// timeOrNone reads a time that may be NULL.
type timeOrNone struct{ to **time.Time }

func (c timeOrNone) Scan(value any) error {
	if value == nil {
		return nil
	}
	*c.to = new(time.Time)
	return timeColumn{*c.to}.Scan(value)
}

func formatTime(t time.Time) string { return t.UTC().Format(timeLayout) }

// Journal reports whether the databases of a home have a write-ahead log; if not, fileSystem is the one on which it
// would be unsafe.
func Journal(home string) (wal bool, fileSystem string) { return sqldb.Journal(home) }

// IsNewer reports whether an error of Write says that a newer drun has upgraded the history since it was opened.
func IsNewer(err error) bool { return errors.Is(err, errNewer) }

var errNewer = errors.New("a newer schema")

// stillKnown returns an error if a newer drun has changed the schema since the history was opened: what would be
// written might mean something else there.
func (db *DB) stillKnown(tx *sql.Tx) error {
	var version int
	if err := tx.QueryRow("PRAGMA user_version").Scan(&version); err != nil || version <= db.known {
		return err
	}
	return exit.WithHint(&sqldb.Error{Path: db.path, Err: errNewer,
		What: fmt.Sprintf("was brought up to date by a newer drun meanwhile: its schema is version %d, this drun knows up to %d", version, db.known)},
		"the next command of the newer drun enters what was kept beside the history")
}

// IsLocked reports whether an error of Write says that another process had the history locked.
func IsLocked(err error) bool { return sqldb.IsLocked(err) }
