package history

import (
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"drun/internal/exit"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// The agent of a running run holds an exclusive flock on <home>/locks/<id>.lock from before the run becomes visible
// until after its status is final. The kernel releases the lock when the process ends, however it ends, so a
// running run whose lock is free is lost.

func (db *DB) lockPath(id int64) string {
	return filepath.Join(db.home, "locks", strconv.FormatInt(id, 10)+".lock")
}

func (db *DB) lockRun(id int64) (*os.File, error) {
	path := db.lockPath(id)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, sqldb.Wrap(filepath.Dir(path), err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, sqldb.Wrap(path, err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		return nil, exit.WithHint(&sqldb.Error{Path: path, What: "could not be locked", Err: err},
			"the home folder must be on a file system with file locks")
	}
	// If the file system does not support this, a run on a full disk will be found lost.
	_ = unix.Fallocate(int(file.Fd()), 0, 0, reserve)
	return file, nil
}

// dropLock releases a lock, and removes its file if it is still the same one.
func dropLock(lock *os.File) {
	if there, err := os.Stat(lock.Name()); err == nil {
		if own, err := lock.Stat(); err == nil && os.SameFile(own, there) {
			os.Remove(lock.Name())
		}
	}
	lock.Close()
}

// reserve is how many bytes of the disk a run keeps for the record of its end.
const reserve = 64 << 10

// giveReserve frees that space, and reports whether there was any.
func (r *Run) giveReserve() bool {
	info, err := r.lock.Stat()
	return err == nil && info.Size() > 0 && r.lock.Truncate(0) == nil
}

// agentGone reports whether no living agent holds the run's lock. Readers ask
// with a shared lock, so that they never disturb each other.
func (db *DB) agentGone(id int64) bool {
	file, err := os.Open(db.lockPath(id))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) // not readable, so unknown
	}
	defer file.Close()
	return unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil
}

// findLost lists the runs that claim to be running although their agent is gone. It reads the status again after
// finding the lock free, since the agent may have finished in between.
func (db *DB) findLost() (_ []int64, err error) {
	defer try.Caught(&err)
	claim := try.To(db.running())
	gone := []int64{}
	for _, id := range claim {
		if db.agentGone(id) {
			gone = append(gone, id)
		}
	}
	if len(gone) == 0 {
		return gone, nil
	}
	still := try.To(db.running())
	return slices.DeleteFunc(gone, func(id int64) bool { return !slices.Contains(still, id) }), nil
}

func (db *DB) running() ([]int64, error) {
	return listColumn[int64](db, "SELECT id FROM runs WHERE status = 'running'")
}

// markLost sets the status of lost runs. It runs an update even if there are none, since only then does SQLite
// report that the file cannot be written.
func (db *DB) markLost() error {
	lost, err := db.findLost()
	if err != nil {
		return err
	}
	set := sqldb.JSON(lost)
	return db.write(func(tx *sql.Tx) (err error) {
		defer try.Caught(&err)
		try.Ok(sqldb.Each(tx, func(rows *sql.Rows) error {
			var uid string
			err := rows.Scan(&uid)
			os.Remove(db.livePath(uid))
			return err
		}, "SELECT uid FROM runs WHERE status = 'running' AND id IN (SELECT value FROM json_each(?))", set))
		for _, table := range []string{"runs SET status = 'lost' WHERE id", "attempts SET status = 'lost' WHERE run"} {
			try.To(tx.Exec("UPDATE "+table+" IN (SELECT value FROM json_each(?)) AND status = 'running'", set))
		}
		for _, id := range lost {
			os.Remove(db.lockPath(id))
		}
		return nil
	})
}
