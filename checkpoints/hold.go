package checkpoints

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"drun/internal/exit"
	"drun/internal/sqldb"
)

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
