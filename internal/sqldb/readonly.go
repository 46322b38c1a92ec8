package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/mattn/go-sqlite3"

	"drun/internal/exit"
	"drun/internal/scratch"
)

// Reader is a handle that cannot write.
type Reader struct {
	*sql.DB
	// Live reports whether later writes by other processes become visible.
	Live bool
	temp *scratch.Dir
}

// Close releases the handle.
func (r *Reader) Close() error {
	err := r.DB.Close()
	if r.temp != nil {
		r.temp.Remove()
	}
	return err
}

// OpenReadOnly opens the database for reading, even where nothing at all can
// be written. A missing or still empty file gives an error that is
// fs.ErrNotExist; a schema that this binary does not know is refused.
//
// SQLite reads a WAL database only with the help of a -shm file beside it. On
// a read-only folder without one there are two cases: no -wal file, then the
// file itself is complete and can be read as immutable; or a -wal left behind,
// whose transactions must not be lost, then both are read from a copy. So is a
// file with the rollback journal of a writer that was killed.
func OpenReadOnly(f File) (*Reader, error) {
	info, err := os.Stat(f.Path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, Wrap(f.Path, err)
	}
	if info.Size() == 0 && size(f.Path+"-wal") == 0 {
		return nil, &fs.PathError{Op: "open", Path: f.Path, Err: fs.ErrNotExist}
	}
	if wal, _ := Journal(filepath.Dir(f.Path)); !wal {
		_ = f.leaveWAL() // where nothing can be written, the log is read as well as possible
	}
	r, err := f.openReader("mode=ro", true)
	if interrupted(err) {
		r, err = f.openReader("mode=rw", true)
	}
	if cannotShare(err) && size(f.Path+"-wal") == 0 && size(f.Path+"-journal") == 0 {
		r, err = f.openReader("immutable=1", false)
	}
	if cannotShare(err) {
		r, err = f.openCopy(false)
	}
	return r, err
}

// OpenCurrent is OpenReadOnly, but brings an older schema up to date: in a copy, if nothing can be written.
func OpenCurrent(f File) (*Reader, error) {
	reader, err := OpenReadOnly(f)
	if !errors.Is(err, ErrOldSchema) {
		return reader, err
	}
	writer, werr := Open(f)
	switch {
	case werr == nil:
		writer.Close()
		return OpenReadOnly(f)
	case IsReadOnly(werr), errors.Is(werr, fs.ErrPermission), errors.Is(werr, syscall.EROFS):
		return f.openCopy(true)
	case IsLocked(werr):
		return nil, werr
	}
	return nil, err
}

func (f File) openReader(mode string, live bool) (*Reader, error) {
	db, err := sql.Open("sqlite3", f.dsn(mode+"&_query_only=1"))
	if err != nil {
		return nil, Wrap(f.Path, err)
	}
	state, latest, err := f.examine(db)
	if err == nil && state.version < latest {
		err = f.older(state.version, latest)
	}
	if err == nil && f.Exact {
		err = f.checkExact(db)
	}
	if err != nil {
		db.Close()
		return nil, Wrap(f.Path, err)
	}
	return &Reader{DB: db, Live: live}, nil
}

// older is the error for a schema that only a writer can bring up to date.
func (f File) older(version, latest int) error {
	if version == 0 {
		return &fs.PathError{Op: "open", Path: f.Path, Err: fs.ErrNotExist}
	}
	return exit.WithHint(&Error{Path: f.Path, What: "was written by an older drun and cannot be updated here", Err: ErrOldSchema},
		"make the file and its folder writable once, or copy the folder and use --home COPY")
}

// ErrOldSchema says that the file must be opened for writing once.
var ErrOldSchema = errors.New("older schema")

// openCopy reads a copy, whose schema it may bring up to date.
func (f File) openCopy(update bool) (*Reader, error) {
	temp, err := scratch.Make("read-")
	if err != nil {
		return nil, Wrap(os.TempDir(), err)
	}
	copied := f
	copied.Path = filepath.Join(temp.Path, filepath.Base(f.Path))
	for _, suffix := range []string{"", "-wal", "-journal"} {
		err = copyFile(copied.Path+suffix, f.Path+suffix)
		if suffix != "" && errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err != nil {
			break
		}
	}
	if err == nil && update {
		var db *sql.DB
		if db, err = Open(copied); err == nil {
			err = db.Close()
		}
	}
	var r *Reader
	if err == nil {
		r, err = copied.openReader("mode=rw", false)
	}
	if err != nil {
		temp.Remove()
		return nil, Wrap(f.Path, err)
	}
	r.temp = temp
	return r, nil
}

// cannotShare recognises the errors that SQLite returns when it finds no -shm file and may not create one.
func cannotShare(err error) bool {
	return isCode(err, sqlite3.ErrCantOpen, sqlite3.ErrReadonly, sqlite3.ErrIoErr)
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

func copyFile(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		return err
	}
	return dst.Close()
}

// Copy writes a copy of the database, as it is at one moment, to a new file at
// path, with SQLite's backup API. Others may keep writing to it. A missing file
// gives an error that is fs.ErrNotExist.
func Copy(f File, path string) error {
	reader, err := OpenReadOnly(f)
	if err != nil {
		return err
	}
	defer reader.Close()
	to := f
	to.Path = path
	if err := to.create(); err != nil {
		return Wrap(path, err)
	}
	copied, err := sql.Open("sqlite3", to.dsn("mode=rw"))
	if err != nil {
		return Wrap(path, err)
	}
	err = withConn(reader.DB, func(from *sqlite3.SQLiteConn) error {
		return withConn(copied, func(to *sqlite3.SQLiteConn) error {
			backup, err := to.Backup("main", from, "main")
			if err != nil {
				return err
			}
			done, err := backup.Step(-1)
			if err == nil && !done {
				err = errors.New("the copy is not complete")
			}
			return errors.Join(err, backup.Finish())
		})
	})
	return Wrap(path, errors.Join(err, copied.Close()))
}

func withConn(db *sql.DB, fn func(*sqlite3.SQLiteConn) error) error {
	conn, err := db.Conn(context.Background())
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(raw any) error { return fn(raw.(*sqlite3.SQLiteConn)) })
}
