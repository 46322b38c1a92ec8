package checkpoints

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"drun/internal/exit"
	"drun/internal/sqldb"
	"drun/internal/try"

	"golang.org/x/sys/unix"
)

// Delete removes checkpoints, and the bytes that no other checkpoint needs. Those that another store holds stay,
// and are returned.
func (s *Store) Delete(list ...Info) (held []Info, err error) {
	var unused []string
	err = sqldb.Write(s.sql, s.path, func(tx *sql.Tx) (err error) {
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
	defer try.Caught(&err)
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
	held := try.To(s.Delete(older...))
	for _, info := range older {
		if !slices.ContainsFunc(held, info.Same) {
			gone = append(gone, info.Step)
		}
	}
	// A small remainder of a pack is worth copying; otherwise a value that never changes would keep the whole first pack.
	return gone, s.rewrite(func(p packUse) (bool, error) { return p.size > 4*p.live+256<<10, nil }, nil)
}

// replace removes the run's checkpoint of a step from the catalog, if there is one, and returns its id if it is now
// locked. If another store holds it, it is renamed instead, and stays until Free finds that nobody holds it any more.
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

func (s *Store) unlock(id int64) { _, _ = s.lock(unix.F_UNLCK, id) }

// Freed is what Free did.
type Freed struct {
	Bytes int64 // of removed packs and the catalog's file, minus those of packs written instead
	// Quarantined counts the packs that Open moved to the quarantine, which Free does not touch.
	Quarantined      int
	QuarantinedBytes int64
	// Damaged are the errors of packs that could not be rewritten and stay.
	Damaged []error
}

// Free removes what no checkpoint needs: packs, parts of packs, and checkpoints whose step was saved again while a
// run held them. Others may save and load meanwhile.
func (s *Store) Free() (f Freed, err error) {
	defer try.Caught(&err)
	before, _ := try.To2(s.pages())
	try.To(s.Delete(try.To(s.list("instr(run, ?) > 0", replaced))...))
	f.Damaged = []error{}
	err = s.rewrite(func(p packUse) (bool, error) {
		if p.live <= small { // it moves to the catalog
			return true, nil
		}
		db, err := s.openPack(p.file)
		if err != nil {
			return false, err
		}
		defer db.Close()
		var chunks int64
		if err := db.QueryRow("SELECT count(*) FROM chunks").Scan(&chunks); err != nil {
			return false, damaged(filepath.Join(s.packs, p.file), err)
		}
		return chunks > p.chunks, nil
	}, &f.Damaged)
	f.Bytes = s.freed.Load()
	if err == nil {
		err = s.shrink()
	}
	if err != nil {
		return f, err
	}
	after, _ := try.To2(s.pages())
	f.Bytes += before - after
	f.Quarantined, f.QuarantinedBytes, err = s.quarantined()
	return f, err
}

// pages returns the bytes of the catalog's file, and how many of them are free.
func (s *Store) pages() (all, free int64, err error) {
	err = s.sql.QueryRow(`SELECT page_count * page_size, freelist_count * page_size
		FROM pragma_page_count, pragma_freelist_count, pragma_page_size`).Scan(&all, &free)
	return all, free, s.wrap(err)
}

// shrink returns the catalog's free space to the file system, if that is worth rewriting the catalog. Later saves
// use what stays, also because the catalog is locked or the disk full.
func (s *Store) shrink() error {
	all, free, err := s.pages()
	if err != nil || free < all/10 {
		return err
	}
	for _, statement := range []string{"VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"} {
		if _, err := s.sql.Exec(statement); err != nil && !sqldb.IsLocked(err) && !sqldb.IsFull(err) {
			return s.wrap(err)
		}
	}
	return nil
}

func (s *Store) quarantined() (packs int, bytes int64, err error) {
	folder, err := s.root.Open(quarantine)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, sqldb.Wrap(s.packs, err)
	}
	defer folder.Close()
	list, err := folder.Readdir(-1)
	for _, info := range list {
		if info.Mode().IsRegular() {
			packs, bytes = packs+1, bytes+info.Size()
		}
	}
	return packs, bytes, sqldb.Wrap(s.packs, err)
}

// packUse is how much of a pack the catalog still refers to.
type packUse struct {
	file         string
	size         int64 // of the file
	chunks, live int64 // how many, and their bytes
}

// rewriteBytes limits the chunks in memory while a pack is rewritten.
const rewriteBytes = 64 << 20

// rewrite copies what is still needed of the packs that are worth it into new packs, and removes the old. Errors in
// reading a pack are added to unread, and the pack stays; with nil they are ignored.
func (s *Store) rewrite(worth func(packUse) (bool, error), unread *[]error) (err error) {
	defer try.Caught(&err)
	packs := try.To(s.uses())
	for _, p := range packs {
		yes, err := worth(p)
		if err == nil && yes {
			err = s.rewritePack(p.file)
		}
		var read *readError
		switch {
		case err == nil:
		case errors.As(err, &read), !yes:
			if known, kerr := s.knows(p.file); kerr != nil || !known {
				err = kerr // another process has since removed it
			} else if unread != nil {
				*unread, err = append(*unread, err), nil
			} else {
				err = nil
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) uses() (list []packUse, err error) {
	list, err = sqldb.List(s.sql, func(p *packUse) []any { return []any{&p.file, &p.chunks, &p.live} },
		"SELECT p.file, count(*), sum(c.bytes) FROM packs p JOIN chunks c ON c.pack = p.id GROUP BY p.id")
	for i := range list {
		p := &list[i]
		if !packName().MatchString(p.file) {
			return nil, s.damaged("packs.file", fmt.Errorf("%s is not the name of a pack", quote(p.file)))
		}
		if info, err := s.root.Lstat(p.file); err == nil {
			p.size = info.Size()
		}
	}
	return list, s.wrap(err)
}

// RunBytes returns, by run, how many bytes of the store only its checkpoints need, and how many those of other runs
// need too. What several of its checkpoints need counts once.
func (s *Store) RunBytes() (own, shared map[string]int64, err error) {
	own, shared = map[string]int64{}, map[string]int64{}
	if s == nil {
		return own, shared, nil
	}
	err = sqldb.Each(s.sql, func(rows *sql.Rows) error {
		var run string
		var only, more int64
		err := rows.Scan(&run, &only, &more)
		own[run], shared[run] = only, more
		return err
	}, `WITH needs AS (SELECT DISTINCT iif(instr(c.run, ?1) > 0, substr(c.run, 1, instr(c.run, ?1) - 1), c.run) AS run, ec.chunk
			FROM checkpoints c JOIN entries e ON e.checkpoint = c.id JOIN entry_chunks ec ON ec.entry = e.id),
		counts AS (SELECT chunk, count(*) AS runs FROM needs GROUP BY chunk)
		SELECT n.run, sum(iif(runs = 1, k.bytes, 0)), sum(iif(runs > 1, k.bytes, 0))
		FROM needs n JOIN counts USING (chunk) JOIN chunks k ON k.id = n.chunk GROUP BY n.run`, replaced)
	return own, shared, s.wrap(err)
}

type readError struct{ error }

func (e *readError) Unwrap() error { return e.error }

// rewritePack moves what the catalog refers to out of a pack, in portions. A pack from which everything has been
// moved is removed.
func (s *Store) rewritePack(file string) (err error) {
	defer try.Caught(&err)
	rest := try.To(s.chunksOf(file))
	reader := s.chunkReader()
	defer reader.close()
	for len(rest) > 0 {
		chunks, bytes, n := map[string][]byte{}, int64(0), 0
		for ; n < len(rest) && (n == 0 || bytes+rest[n].bytes <= rewriteBytes); n++ {
			c := rest[n]
			if c.bytes < 1 || c.bytes > ChunkSize {
				return s.damaged("chunks.bytes of "+quote(c.sha), fmt.Errorf("is %d", c.bytes))
			}
			if chunks[c.sha], err = reader.read(c, fmt.Sprintf("chunk %d", c.row)); err != nil {
				return &readError{err}
			}
			bytes += c.bytes
		}
		try.Ok(s.move(file, chunks))
		rest = rest[n:]
	}
	return nil
}

func (s *Store) chunksOf(file string) (list []place, err error) {
	list, err = sqldb.List(s.sql, (*place).columns, "SELECT "+placeColumns+" FROM chunks c JOIN packs p ON p.id = c.pack WHERE p.file = ? ORDER BY c.row", file)
	return list, s.wrap(err)
}

// move writes chunks of a pack into a new one, which takes their place in the catalog. Chunks that have since been
// removed or moved stay as they are.
func (s *Store) move(file string, chunks map[string][]byte) (err error) {
	s.sweeping.RLock()
	defer s.sweeping.RUnlock()
	from, err := s.origin()
	if err != nil {
		return err
	}
	p := s.newPack(from)
	defer func() { p.close(err == nil) }()
	defer try.Caught(&err)
	try.Ok(p.add(chunks))
	try.Ok(p.sync())
	var unused []string
	err = sqldb.Write(s.sql, s.path, func(tx *sql.Tx) (err error) {
		try.Ok(count(tx, from.store))
		try.Ok(p.take(tx, file))
		unused = try.To(s.purge(tx, false))
		return nil
	})
	if p.lock != nil {
		if info, serr := p.lock.Stat(); err == nil && serr == nil {
			s.freed.Add(-info.Size())
		}
	}
	if err == nil {
		s.freed.Add(s.remove(unused))
	}
	return err
}
