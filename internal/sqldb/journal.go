package sqldb

import (
	"database/sql"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/mattn/go-sqlite3"
	"golang.org/x/sys/unix"
)

// SQLite's write-ahead log needs memory that all processes share, and so a local file system. On others the databases
// use a rollback journal.

// shared are the file systems, by magic number, that several machines may mount, or that do not guarantee shared memory.
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
func (f File) leaveWAL() error {
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
	db, err := sql.Open("sqlite3", f.dsn("mode=rw&_locking_mode=EXCLUSIVE"))
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	// SQLite sees the log once it has read the file.
	if _, _, err := f.examine(db); err != nil {
		return err
	}
	return retry(func() error { _, err := db.Exec("PRAGMA journal_mode = DELETE"); return err })
}

// interrupted recognises the error of a reader that finds the journal of a killed writer: only a process that may
// write can roll it back.
func interrupted(err error) bool {
	var lite sqlite3.Error
	return errors.As(err, &lite) && lite.ExtendedCode == sqlite3.ErrReadonlyRollback
}
