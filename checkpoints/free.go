package checkpoints

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"drun/internal/sqldb"
	"drun/internal/try"
)

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
	lost := try.To(s.list("instr(run, ?) > 0", replaced))
	try.To(s.Delete(lost...))
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
	chunks, live int64 // a number, and their bytes
}

// rewriteBytes limits the chunks in memory while a pack is rewritten.
const rewriteBytes = 64 << 20

// rewrite copies what is still needed of the packs that are worth it into new packs, and removes the old. Errors in
// reading a pack are added to unread, and the pack stays; with nil they are ignored.
func (s *Store) rewrite(worth func(packUse) (bool, error), unread *[]error) error {
	packs, err := s.uses()
	if err != nil {
		return err
	}
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
			return nil, s.damaged("packs.file", fmt.Errorf("%s is no name of a pack", quote(p.file)))
		}
		if info, err := s.root.Lstat(p.file); err == nil {
			p.size = info.Size()
		}
	}
	return list, s.wrap(err)
}

// readError says that a pack cannot be read.
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
	store, generation, err := s.generation(s.sql)
	if err != nil {
		return err
	}
	p := s.newPack(origin{store, generation})
	defer func() { p.close(err == nil) }()
	defer try.Caught(&err)
	try.Ok(p.add(chunks))
	try.Ok(p.sync())
	var unused []string
	err = sqldb.Write(s.sql, s.path, func(tx *sql.Tx) (err error) {
		defer try.Caught(&err)
		try.Ok(count(tx, store))
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
