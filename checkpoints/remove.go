package checkpoints

import (
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"drun/internal/exit"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// Delete removes checkpoints, and the bytes that no other checkpoint needs. Those that another store holds stay,
// and are returned.
func (s *Store) Delete(list ...Info) (held []Info, err error) {
	var unused []string
	err = sqldb.Write(s.sql, s.path, func(tx *sql.Tx) (err error) {
		defer try.Caught(&err)
		try.To(tx.Exec("UPDATE catalog SET generation = generation + 1"))
		for _, info := range list {
			if dropped := try.To(s.drop(tx, info.id)); !dropped {
				held = append(held, info)
			}
		}
		unused = try.To(s.purge(tx, true))
		return nil
	})
	for _, info := range list {
		if !slices.ContainsFunc(held, info.Same) {
			s.unlock(info.id)
		}
	}
	if err == nil {
		s.freed.Add(s.remove(unused))
	}
	return held, err
}

// Keep removes the checkpoints of a run except the newest n, the best, and those that another store holds. It
// returns the steps that are gone.
func (s *Store) Keep(run string, n int) (gone []int64, err error) {
	list, err := s.List(run)
	if err != nil || len(list) <= n {
		return nil, err
	}
	best, err := s.Find(run, Best)
	if err != nil && !errors.As(err, new(*ErrNone)) {
		return nil, err
	}
	older := slices.DeleteFunc(list[:len(list)-n], func(i Info) bool { return i.id == best.id })
	if len(older) == 0 {
		return nil, nil
	}
	held, err := s.Delete(older...)
	if err != nil {
		return nil, err
	}
	for _, info := range older {
		if !slices.ContainsFunc(held, info.Same) {
			gone = append(gone, info.Step)
		}
	}
	// A small rest of a pack is worth copying; otherwise a value that never changes would keep the whole first
	// pack.
	return gone, s.rewrite(func(p packUse) (bool, error) { return p.size > 4*p.live+256<<10, nil }, nil)
}

// replace removes the run's checkpoint of a step from the catalog, if there is one, and returns its id if it is now
// locked. If another store holds it, it is renamed instead, and stays until Free finds that nobody holds it any
// more.
func (s *Store) replace(tx *sql.Tx, run string, step int64) (locked int64, err error) {
	var id int64
	err = tx.QueryRow("SELECT id FROM checkpoints WHERE run = ? AND step = ?", run, step).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if dropped, err := s.drop(tx, id); dropped || err != nil {
		return id, err
	}
	_, err = tx.Exec("UPDATE checkpoints SET run = run || ? || id WHERE id = ?", replaced, id)
	return 0, err
}

// replaced precedes the id in the run name of such a checkpoint.
const replaced = " replaced "

// drop removes a checkpoint from the catalog unless another store holds it. It stays locked, so that nobody begins
// to hold it before the transaction ends.
func (s *Store) drop(tx *sql.Tx, id int64) (bool, error) {
	locked, err := s.lock(unix.F_WRLCK, id)
	if !locked || err != nil {
		return false, err
	}
	_, err = tx.Exec("DELETE FROM checkpoints WHERE id = ?", id)
	return err == nil, err
}

// purge removes from the catalog, after checkpoints were dropped, the chunks that no checkpoint refers to and the
// packs without others. It returns the files that may be removed once that is durable, including those of earlier
// calls that still exist.
func (s *Store) purge(tx *sql.Tx, dropped bool) (unused []string, err error) {
	defer try.Caught(&err)
	if dropped {
		try.To(tx.Exec("DELETE FROM chunks WHERE id IN (SELECT c.id FROM chunks c WHERE NOT EXISTS (SELECT 1 FROM entry_chunks WHERE chunk = c.id))"))
	}
	earlier := try.To(sqldb.Column[string](tx, "SELECT file FROM dropped"))
	now := try.To(sqldb.Column[string](tx, "DELETE FROM packs WHERE NOT EXISTS (SELECT 1 FROM chunks WHERE pack = packs.id) RETURNING file"))
	for _, name := range earlier {
		if _, lerr := s.root.Lstat(name); errors.Is(lerr, fs.ErrNotExist) {
			try.To(tx.Exec("DELETE FROM dropped WHERE file = ?", name))
		} else {
			unused = append(unused, name)
		}
	}
	for _, name := range now {
		try.To(tx.Exec("INSERT OR IGNORE INTO dropped VALUES (?)", name))
	}
	return append(unused, now...), nil
}

// remove deletes packs that left the catalog. The catalog may come from anywhere, so it checks that they are packs.
// A later Open removes what could not be removed here.
func (s *Store) remove(files []string) (freed int64) {
	for _, name := range files {
		if !packName().MatchString(name) {
			continue
		}
		file, header := s.openOwn(name)
		if file == nil {
			continue
		}
		if header.application == packID || header.application == applicationID { // the latter as packs once had
			if info, err := file.Stat(); err == nil && s.root.Remove(name) == nil {
				freed += info.Size()
			}
		}
		file.Close()
	}
	return freed
}

// A run that was resumed from a checkpoint may read it at any time until its end, while another process wants to
// remove it. So the run holds the checkpoint: a shared lock on one byte of the file checkpoints/held, at the
// checkpoint's id. To remove a checkpoint, a process takes an exclusive lock on that byte. The kernel releases a
// process's locks when it ends, however it ends.
const heldFile = "held"

// holdTimeout limits the wait for a process that is removing the checkpoint.
const holdTimeout = 30 * time.Second

// Hold keeps the checkpoint that find returns from being removed until the store is closed. If it is removed in
// that moment, find is called again.
func (s *Store) Hold(find func() (Info, error)) (Info, error) {
	for deadline := time.Now().Add(holdTimeout); ; time.Sleep(5 * time.Millisecond) {
		info, err := find()
		if err != nil {
			return info, err
		}
		locked, err := s.lock(unix.F_RDLCK, info.id)
		if err != nil {
			return info, err
		}
		if locked {
			_, err := s.Find(info.Run, info.Ref())
			if !errors.As(err, new(*ErrNone)) {
				return info, err
			}
			s.unlock(info.id)
		} else if time.Now().After(deadline) {
			return info, exit.WithHint(&sqldb.Error{Path: s.path, What: "has been locked by a process that removes a checkpoint for " + holdTimeout.String()},
				"end that process, and try again")
		}
	}
}

// lock takes this store's lock on a checkpoint, unless another store has one that excludes it.
func (s *Store) lock(kind int16, id int64) (bool, error) {
	s.holds.Lock()
	defer s.holds.Unlock()
	var err error
	if s.held == nil {
		if s.held, err = s.root.OpenFile(heldFile, os.O_CREATE|os.O_RDWR, sqldb.FileMode); err != nil {
			return false, sqldb.Wrap(s.packs, err)
		}
	}
	err = unix.FcntlFlock(s.held.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind, Start: id, Len: 1})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, sqldb.Wrap(s.held.Name(), err)
}

// unlock releases this store's lock.
func (s *Store) unlock(id int64) { _, _ = s.lock(unix.F_UNLCK, id) }
