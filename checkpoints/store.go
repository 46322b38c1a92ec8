// Package checkpoints keeps the states that runs can be resumed from: the
// agent of a run (engine/launch) saves and loads them, the command line lists
// them.
//
// Data is cut into chunks that are addressed by their SHA-256 and stored once
// for all entries, ranks, steps and runs of a home. The chunks that a save
// adds go into a file of their own, a pack, <home>/checkpoints/NAME.db, which
// never changes afterwards. Saving is: write the pack without any journal,
// fsync it and its folder, then enter it into the catalog,
// <home>/checkpoints.db, in one durable transaction. So bytes are written
// once, a checkpoint is visible only when all of it is durable, and what a
// crash leaves is a pack that the catalog does not know: garbage, removed by
// the next Open.
package checkpoints

import (
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"drun/internal/sqldb"
)

//go:embed migrations/*.sql
var migrations embed.FS

// applicationID is "drck" in ASCII.
const applicationID = 0x6472636b

// Store is the checkpoints beneath one home. Its methods may be called from
// several goroutines, and several processes may share a home.
type Store struct {
	sql   *sql.DB
	path  string // of the catalog
	packs string // folder
	close func() error
}

// Entry is one named piece of a rank's state. Data is Shape times the size of
// DType for a tensor; the store itself only keeps these fields.
type Entry struct {
	Name  string
	Kind  string
	DType string
	Shape []int
	Data  []byte
}

// Info is a complete checkpoint.
type Info struct {
	Run       string
	Step      int64
	Score     *float64
	WorldSize int
	Bytes     int64 // of all ranks' entries, before equal ones are stored once
	Time      time.Time
}

// Ref names a checkpoint of a run: Step(n), Last or Best.
type Ref struct {
	clause, label string
	args          []any
}

// Last is the one saved last, Best the one with the highest score (the last
// of equals).
var (
	Last = Ref{"ORDER BY id DESC LIMIT 1", "last", nil}
	Best = Ref{"AND score IS NOT NULL ORDER BY score DESC, id DESC LIMIT 1", "best", nil}
)

// Step is the checkpoint of one step.
func Step(n int64) Ref { return Ref{"AND step = ?", strconv.FormatInt(n, 10), []any{n}} }

// ErrNone says that there is no such checkpoint.
type ErrNone struct{ Which string }

func (e *ErrNone) Error() string { return "there is no complete checkpoint: " + e.Which }

func file(home string) sqldb.File {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return sqldb.File{Path: filepath.Join(home, "checkpoints.db"), What: "checkpoint catalog",
		ApplicationID: applicationID, Migrations: sub, Pragmas: "PRAGMA synchronous = FULL"}
}

// Open opens the store beneath home for writing, creates what is missing and
// removes what unfinished saves left. Errors of the storage are *sqldb.Error.
func Open(home string) (*Store, error) {
	f := file(home)
	handle, err := sqldb.Open(f)
	if err != nil {
		return nil, err
	}
	s := &Store{sql: handle, path: f.Path, packs: filepath.Join(home, "checkpoints"), close: handle.Close}
	if err = os.MkdirAll(s.packs, 0o777); err == nil {
		err = s.collect()
	}
	if err != nil {
		s.Close()
		return nil, sqldb.Wrap(s.packs, err)
	}
	return s, nil
}

// OpenReadOnly opens the store for List and Load, also where nothing can be
// written. Where nothing was ever saved the error is *ErrNone.
func OpenReadOnly(home string) (*Store, error) {
	f := file(home)
	reader, err := sqldb.OpenReadOnly(f)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &ErrNone{"none was ever saved in " + home}
	}
	if err != nil {
		return nil, err
	}
	return &Store{sql: reader.DB, path: f.Path, packs: filepath.Join(home, "checkpoints"), close: reader.Close}, nil
}

// Close releases the catalog.
func (s *Store) Close() error { return sqldb.Wrap(s.path, s.close()) }

// List returns the complete checkpoints of a run in the order of saving.
func (s *Store) List(run string) ([]Info, error) {
	rows, err := s.sql.Query(selectInfo+"ORDER BY id", run)
	if err != nil {
		return nil, sqldb.Wrap(s.path, err)
	}
	defer rows.Close()
	list := []Info{}
	for rows.Next() {
		_, info, err := scanInfo(rows)
		if err != nil {
			return nil, sqldb.Wrap(s.path, err)
		}
		list = append(list, info)
	}
	return list, sqldb.Wrap(s.path, rows.Err())
}

const selectInfo = "SELECT id, run, step, score, world_size, bytes, time FROM checkpoints WHERE run = ? "

func scanInfo(row interface{ Scan(...any) error }) (id int64, info Info, err error) {
	var when string
	err = row.Scan(&id, &info.Run, &info.Step, &info.Score, &info.WorldSize, &info.Bytes, &when)
	if err == nil {
		info.Time, err = time.Parse(time.RFC3339, when)
	}
	return id, info, err
}

// find returns the catalog's id of a checkpoint.
func (s *Store) find(run string, ref Ref) (int64, Info, error) {
	row := s.sql.QueryRow(selectInfo+ref.clause, append([]any{run}, ref.args...)...)
	id, info, err := scanInfo(row)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, info, &ErrNone{fmt.Sprintf("%s of run %s", ref.label, run)}
	}
	return id, info, sqldb.Wrap(s.path, err)
}

// Find returns what is known of a checkpoint, *ErrNone where there is none.
func (s *Store) Find(run string, ref Ref) (Info, error) {
	_, info, err := s.find(run, ref)
	return info, err
}
