package sqldb

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/mattn/go-sqlite3"
	"golang.org/x/sys/unix"

	"drun/internal/exit"
	"drun/internal/scratch"
	"drun/internal/try"
)

// Reader is a handle that cannot write.
type Reader struct {
	*sql.DB
	// Live reports whether later writes by other processes become visible.
	Live bool
	temp *scratch.Dir
}

func (r *Reader) Close() error {
	err := r.DB.Close()
	if r.temp != nil {
		r.temp.Remove()
	}
	return err
}

// OpenReadOnly opens the database for reading, even where nothing at all can be written. A missing or still empty
// file gives an error that is fs.ErrNotExist; a schema that this binary does not know is refused.
//
// SQLite reads a WAL database only with the help of a -shm file beside it. On a read-only folder without one there
// are two cases: no -wal file, then the file itself is complete and can be read as immutable; or a -wal left
// behind, whose transactions must not be lost, then both are read from a copy. So is a file with the rollback
// journal of a writer that was killed.
func OpenReadOnly(f File) (*Reader, error) {
	info, err := os.Stat(f.Path)
	if err != nil {
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
func (f File) openCopy(update bool) (_ *Reader, err error) {
	temp, err := scratch.Make("read-")
	if err != nil {
		return nil, Wrap(os.TempDir(), err)
	}
	defer try.CaughtOr(&err, func() {
		temp.Remove()
		err = Wrap(f.Path, err)
	})
	copied := f
	copied.Path = filepath.Join(temp.Path, filepath.Base(f.Path))
	for _, suffix := range []string{"", "-wal", "-journal"} {
		if err := copyFile(copied.Path+suffix, f.Path+suffix); suffix == "" || !errors.Is(err, fs.ErrNotExist) {
			try.Ok(err)
		}
	}
	if update {
		try.Ok(try.To(Open(copied)).Close())
	}
	r := try.To(copied.openReader("mode=rw", false))
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

func copyFile(to, from string) (err error) {
	defer try.Caught(&err)
	src := try.To(os.Open(from))
	defer src.Close()
	dst := try.To(os.Create(to))
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// Copy writes a copy of the database, as it is at one moment, to a new file at path, with SQLite's backup API.
// Others may keep writing to it. A missing file gives an error that is fs.ErrNotExist.
func Copy(f File, path string) (err error) {
	defer try.Caught(&err)
	reader := try.To(OpenReadOnly(f))
	defer reader.Close()
	to := f
	to.Path = path
	try.Ok(Wrap(path, to.create()))
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

func withConn(db *sql.DB, fn func(*sqlite3.SQLiteConn) error) (err error) {
	defer try.Caught(&err)
	conn := try.To(db.Conn(context.Background()))
	defer conn.Close()
	return conn.Raw(func(raw any) error { return fn(raw.(*sqlite3.SQLiteConn)) })
}

// SQLite's write-ahead log needs memory that all processes share, and so a local file system. On others the databases
// use a rollback journal.

// shared lists the file systems, by magic number, that several machines may mount, or that do not guarantee shared memory.
var shared = map[uint32]string{
	0x6969: "NFS", 0x0BD00BD0: "Lustre", 0x01021997: "9p", 0x65735546: "FUSE", 0x517B: "SMB", 0xFF534D42: "SMB",
	0xFE534D42: "SMB", 0x5346414F: "AFS", 0x6B414653: "AFS", 0x73757245: "Coda", 0x00C36400: "Ceph", 0x47504653: "GPFS",
	0x01161970: "GFS2", 0x7461636F: "OCFS2", 0x19830326: "BeeGFS", 0xAAD7AAEA: "PanFS", 0x20030528: "OrangeFS",
	0x786F4256: "VirtualBox", 0xBACBACBC: "VMware",
}

var statfs = unix.Statfs

// Journal reports whether databases in a folder use a write-ahead log; if not, on which file system they are. The
// folder need not exist yet.
func Journal(folder string) (wal bool, fileSystem string) {
	path, err := filepath.Abs(folder)
	if err != nil {
		return true, ""
	}
	var info unix.Statfs_t
	for err = statfs(path, &info); errors.Is(err, unix.ENOENT) && path != "/"; err = statfs(path, &info) {
		path = filepath.Dir(path)
	}
	if err != nil {
		return true, ""
	}
	fileSystem = shared[uint32(info.Type)]
	return fileSystem == "", fileSystem
}

// leaveWAL switches a database of drun's that was made on another file system to a rollback journal. With an
// exclusive lock SQLite needs no shared memory meanwhile.
func (f File) leaveWAL() (err error) {
	defer try.Caught(&err)
	file, err := os.Open(f.Path)
	if err != nil {
		return nil // Open gives the better error
	}
	header := make([]byte, 100)
	_, err = io.ReadFull(file, header)
	file.Close()
	id := int32(binary.BigEndian.Uint32(header[68:]))
	if err != nil || header[18] != 2 || id != f.ApplicationID && id != 0 { // 0: it is still in the log
		return nil
	}
	db := try.To(sql.Open("sqlite3", f.dsn("mode=rw&_locking_mode=EXCLUSIVE")))
	defer db.Close()
	db.SetMaxOpenConns(1)
	// SQLite sees the log once it has read the file.
	try.To2(f.examine(db))
	return retry(func() error { _, err := db.Exec("PRAGMA journal_mode = DELETE"); return err })
}

// interrupted recognises the error of a reader that finds the journal of a killed writer: only a process that may
// write can roll it back.
func interrupted(err error) bool {
	var lite sqlite3.Error
	return errors.As(err, &lite) && lite.ExtendedCode == sqlite3.ErrReadonlyRollback
}
