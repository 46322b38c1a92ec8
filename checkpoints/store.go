// Package checkpoints keeps the states that runs can be resumed from: the agent of a run (engine/run) saves and
// loads them, the command line lists them.
//
// Data is cut into chunks that are addressed by their SHA-256 and stored once for all entries, ranks, steps and
// runs of a home. The chunks that a save adds go into a file of their own, a pack, <home>/checkpoints/NAME.db,
// which never changes afterwards. Saving is: write the pack without a journal, fsync it and its folder, then enter
// it into the catalog, <home>/checkpoints.db, in one durable transaction. So bytes are written once, a checkpoint
// is visible only when all of it is durable, and a crash leaves at most a pack that the catalog does not list:
// garbage, which a later Open removes (see collect).
//
// A save that adds little (see small) has no pack: its chunks are in the catalog, written by the same transaction.
// Later saves reuse the space that removed ones leave there, until Free gives it back.
//
// A pack is a SQLite file too, with pages of 16 KiB. By measurement it is as fast as a plain file, because hashing,
// writing and the disk work at the same time (see cutting and flushEvery).
//
// A home may come from anywhere: everything read from it is limited and checked before use, and only packs of this
// store are removed.
package checkpoints

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"drun/internal/exit"
	"drun/internal/sqldb"
	"drun/internal/try"
)

//go:embed migrations/*.sql
var migrations embed.FS

// applicationID is "drck" in ASCII.
const applicationID = 0x6472636b

// Store is the checkpoints beneath one home. Several goroutines may call its methods, and several processes may
// share a home. Saving, loading, removing and collecting have a file each.
type Store struct {
	sql   *sql.DB
	path  string      // of the catalog
	file  fs.FileInfo // of the catalog, opened for writing
	packs string      // folder
	root  *os.Root    // packs, opened; nil: there is none
	close func() error

	// Objects keeps chunks outside of the home; nil: packs do. It is set before the store is used.
	Objects  Objects
	sweeping sync.RWMutex // held for reading while chunks are there that the catalog does not list yet

	freed atomic.Int64 // bytes of packs that this store has removed, minus those it has rewritten
	holds sync.Mutex
	held  *os.File // see Hold; nil: not open yet
}

// Entry is one named piece of a rank's state. For a tensor, Data is Shape times the size of DType; the store itself
// only keeps these fields.
type Entry struct {
	Name  string
	Kind  string
	DType string
	Shape []int
	Data  []byte
	// Chunks replace Data if not all of it is in this process; each but the last has ChunkSize bytes.
	Chunks []Chunk
}

// Chunk is a chunk of an entry to be saved.
type Chunk struct {
	Data []byte // nil: it is elsewhere
	// If it is elsewhere:
	SHA256 string // in hexadecimal digits
	Bytes  int
	// Fetch returns the bytes with this SHA-256. Several goroutines call it, for chunks that the store does not have.
	Fetch func() ([]byte, error)
}

func (e *Entry) size() (bytes int64) {
	for _, c := range e.Chunks {
		bytes += int64(max(len(c.Data), c.Bytes))
	}
	return bytes + int64(len(e.Data))
}

// Info is a complete checkpoint.
type Info struct {
	Run       string
	Step      int64
	Score     *float64
	WorldSize int
	Bytes     int64 // of all ranks' entries, before equal ones are merged
	Time      time.Time
	Points    int64 // of the run's metrics, recorded before it; -1: unknown
	id        int64
}

// Ref names exactly this checkpoint, even if its step is saved again.
func (i Info) Ref() Ref {
	return Ref{exactly, "step " + strconv.FormatInt(i.Step, 10), []any{i.id}, &i.Step}
}

// Same reports whether this is the same checkpoint, not only of the same run and step.
func (i Info) Same(other Info) bool { return i.id == other.id }

// Ref names a checkpoint of a run: Step(n), Last or Best.
type Ref struct {
	clause, label string // ?1 is the run
	args          []any
	step          *int64 // nil: any
}

const exactly = "id = ?2" // finds it even if its run has saved the step again, when it has another name

// names reports whether the Ref, for a run, can name a checkpoint.
func (r Ref) names(run string, info Info) bool {
	return (info.Run == run || r.clause == exactly) && (r.step == nil || *r.step == info.Step)
}

// Last is the checkpoint saved last, Best the one with the highest score (of equals, the last).
var (
	Last = Ref{"run = ?1 ORDER BY id DESC LIMIT 1", "last", nil, nil}
	Best = Ref{"run = ?1 AND score IS NOT NULL ORDER BY score DESC, id DESC LIMIT 1", "best", nil, nil}
)

// Step is the checkpoint of one step.
func Step(n int64) Ref {
	return Ref{"run = ?1 AND step = ?2", "step " + strconv.FormatInt(n, 10), []any{n}, &n}
}

// ParseRef parses a step's number, last or best, as after the @ in RUN@STEP; "" is last.
func ParseRef(text string) (Ref, error) {
	switch text {
	case "", "last":
		return Last, nil
	case "best":
		return Best, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return Ref{}, errors.New("want a step's number, last or best after the @")
	}
	return Step(n), nil
}

// ErrNone says that there is no such checkpoint.
type ErrNone struct{ Which string }

func (e *ErrNone) Error() string { return "there is no complete checkpoint: " + e.Which }

func file(home string) sqldb.File {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return sqldb.File{Path: filepath.Join(home, "checkpoints.db"), What: "checkpoint catalog",
		ApplicationID: applicationID, Migrations: sub, Pragmas: "PRAGMA synchronous = EXTRA; PRAGMA wal_autocheckpoint = 256", Exact: true}
}

// Open opens the store beneath home for writing, creates what is missing and removes what unfinished saves left.
// Storage errors are *sqldb.Error.
func Open(home string) (_ *Store, err error) {
	f := file(home)
	handle, err := sqldb.Open(f)
	if err != nil {
		return nil, err
	}
	s := &Store{sql: handle, path: f.Path, packs: filepath.Join(home, "checkpoints"), close: handle.Close}
	s.file, _ = os.Stat(f.Path) // lost already: named will say so
	defer try.CaughtOr(&err, func() {
		s.Close()
		err = sqldb.Wrap(s.packs, err)
	})
	try.Ok(os.MkdirAll(s.packs, sqldb.FolderMode))
	try.Ok(s.openFolder())
	try.Ok(s.collect())
	return s, nil
}

// OpenReadOnly opens the store for List and Load, even if nothing can be written. If nothing was ever saved, the
// error is *ErrNone.
func OpenReadOnly(home string) (_ *Store, err error) {
	defer try.Caught(&err)
	f := file(home)
	reader := try.To(openCatalog(home))
	s := &Store{sql: reader.DB, path: f.Path, packs: filepath.Join(home, "checkpoints"), close: reader.Close}
	if err := s.openFolder(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Close()
		return nil, sqldb.Wrap(s.packs, err)
	}
	return s, nil
}

// OpenIfAny is like OpenReadOnly, but returns nil, a store without checkpoints, if nothing was ever saved.
func OpenIfAny(home string) (*Store, error) {
	s, err := OpenReadOnly(home)
	if errors.As(err, new(*ErrNone)) {
		return nil, nil
	}
	return s, err
}

// openCatalog opens the catalog for reading, and upgrades it if possible. Without one the error is *ErrNone.
func openCatalog(home string) (*sqldb.Reader, error) {
	reader, err := sqldb.OpenCurrent(file(home))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &ErrNone{"none was ever saved in " + home}
	}
	return reader, err
}

// openFolder opens the folder of packs. Files are removed there, so it must be the store's own, not a link to
// another.
func (s *Store) openFolder() (err error) {
	defer try.Caught(&err)
	before := try.To(os.Lstat(s.packs))
	if before.IsDir() {
		s.root = try.To(os.OpenRoot(s.packs))
		if opened, err := s.root.Stat("."); err == nil && os.SameFile(before, opened) {
			return nil
		}
		s.root.Close()
		s.root = nil
	}
	return exit.WithHint(&sqldb.Error{Path: s.packs, What: "is not a folder of its own but a link or a file, in which drun does not keep checkpoints"},
		"put the whole home elsewhere, with --home DIR or $DRUN_HOME")
}

// named returns an error if the catalog has lost its name: SQLite goes on with the open file, which vanishes with the processes
// that have it open.
func (s *Store) named() error {
	if now, err := os.Stat(s.path); err == nil && os.SameFile(now, s.file) || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return exit.WithHint(&sqldb.Error{Path: s.path, What: "was removed or replaced while it was in use: what is saved now would be lost"},
		"leave a home where it is while its runs go on; they can be resumed once the file is back")
}

func (s *Store) Path() string { return s.path }

// checkedSize is the size up to which Check reads the whole catalog, in bytes.
const checkedSize = 4 << 20

// Check notices a damaged catalog before anything depends on it: it reads all of a small one.
func Check(home string) (err error) {
	defer try.Caught(&err)
	s := try.To(OpenReadOnly(home))
	defer s.Close()
	try.To(s.origin())
	if info, err := os.Stat(s.path); err != nil || info.Size() > checkedSize {
		return sqldb.Wrap(s.path, err)
	}
	return s.check("PRAGMA quick_check(1)")
}

// CheckCatalog reads the whole catalog, and compares its indexes with its tables.
func (s *Store) CheckCatalog() error { return s.check("PRAGMA integrity_check(1)") }

func (s *Store) check(pragma string) error {
	var verdict string
	if err := s.sql.QueryRow(pragma).Scan(&verdict); err != nil {
		return s.wrap(err)
	}
	if verdict != "ok" {
		return damaged(s.path, errors.New(verdict))
	}
	return nil
}

func (s *Store) Close() error {
	if s == nil {
		return nil
	}
	if s.root != nil {
		s.root.Close()
	}
	if s.held != nil {
		s.held.Close()
	}
	return sqldb.Wrap(s.path, s.close())
}

// wrap turns an error in reading the catalog into a *sqldb.Error: a value that cannot be scanned has the wrong
// type, and the error names its column.
func (s *Store) wrap(err error) error {
	if err == nil || errors.As(err, new(*ErrNone)) {
		return err
	}
	if err = sqldb.Wrap(s.path, err); errors.As(err, new(*sqldb.Error)) {
		return err
	}
	return damaged(s.path, err)
}

func (s *Store) damaged(field string, err error) error {
	return damaged(s.path, fmt.Errorf("%s: %w", field, err))
}

// List returns the complete checkpoints of a run in the order of saving.
func (s *Store) List(run string) ([]Info, error) { return s.list("run = ?", run) }

// All returns the complete checkpoints of all runs.
func (s *Store) All() ([]Info, error) { return s.list("? IS NOT NULL", 1) }

func (s *Store) list(where string, arg any) ([]Info, error) {
	if s == nil {
		return nil, nil
	}
	list := []Info{}
	err := sqldb.Each(s.sql, func(rows *sql.Rows) error {
		info, err := scanInfo(rows)
		list = append(list, info)
		return err
	}, selectInfo+where+" ORDER BY id", arg)
	return list, s.wrap(err)
}

const selectInfo = "SELECT id, run, step, score, world_size, bytes, time, points FROM checkpoints WHERE "

// maxRanks limits the world size of a checkpoint.
const maxRanks = 1 << 20

func scanInfo(row interface{ Scan(...any) error }) (info Info, err error) {
	var when string
	if err := row.Scan(&info.id, &info.Run, &info.Step, &info.Score, &info.WorldSize, &info.Bytes, &when, &info.Points); err != nil {
		return info, err
	}
	info.Time, err = time.Parse(time.RFC3339, when)
	switch {
	case err != nil:
		err = fmt.Errorf("checkpoints.time of step %d: %w", info.Step, err)
	case info.WorldSize < 1 || info.WorldSize > maxRanks:
		err = fmt.Errorf("checkpoints.world_size of step %d is %d", info.Step, info.WorldSize)
	case info.Bytes < 0:
		err = fmt.Errorf("checkpoints.bytes of step %d is %d", info.Step, info.Bytes)
	}
	return info, err
}

// Find returns the catalog's record of a checkpoint, or *ErrNone.
func (s *Store) Find(run string, ref Ref) (Info, error) {
	if s == nil {
		return Info{}, &ErrNone{fmt.Sprintf("%s of run %s", ref.label, run)}
	}
	return s.find(s.sql, run, ref)
}

// rower is a database handle, a connection or a transaction.
type rower interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (s *Store) find(from rower, run string, ref Ref) (Info, error) {
	info, err := scanInfo(from.QueryRowContext(context.Background(), selectInfo+ref.clause, append([]any{run}, ref.args...)...))
	if errors.Is(err, sql.ErrNoRows) {
		return info, &ErrNone{fmt.Sprintf("%s of run %s", ref.label, run)}
	}
	if err == nil && !ref.names(run, info) { // the index does not match the table
		err = s.damaged("checkpoints", fmt.Errorf("%s of run %s is found as step %d of run %s", ref.label, quote(run), info.Step, quote(info.Run)))
	}
	return info, s.wrap(err)
}

// FindAmong finds a checkpoint of several runs: Best is the best of all, of equals that of the first run; any other
// is that of the first run that has it. If there is none, the error is *ErrNone.
func (s *Store) FindAmong(runs []string, ref Ref) (info Info, err error) {
	err = &ErrNone{ref.label}
	for _, run := range runs {
		next, ferr := s.Find(run, ref)
		switch {
		case errors.As(ferr, new(*ErrNone)):
			continue
		case ferr != nil:
			return info, ferr
		case ref.label != Best.label:
			return next, nil
		}
		if err != nil || *next.Score > *info.Score {
			info, err = next, nil
		}
	}
	return info, err
}
