package checkpoints

import (
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"drun/internal/sqldb"
	"drun/internal/try"
)

// quarantine is the folder, beneath that of the packs, for whole packs that the catalog does not know.
const quarantine = "quarantine"

// verdict says what to do with a file in the folder of packs.
type verdict int

const (
	leave    verdict = iota // it is in use, not a pack, or of another catalog
	discard                 // an unfinished pack, to which nothing can refer
	setAside                // a whole pack that nothing refers to
	younger                 // a pack of a later state of this catalog
)

// collect removes what crashes left. A pack may be missing in the catalog for another reason: the catalog was moved
// away, or an older one was put back. So packs of another catalog, or of a later state of this one, stay where they
// are, and whole packs are moved to the quarantine, not deleted. A catalog that finds packs of a later state of
// itself takes a new identity, since its next generations will not be those that the packs belong to.
func (s *Store) collect() (err error) {
	defer try.Caught(&err)
	folder := try.To(s.root.Open("."))
	names, err := folder.Readdirnames(-1)
	folder.Close()
	if err != nil {
		return err
	}
	var again string
	verdicts := map[string]verdict{}
	for _, name := range names {
		v := try.To(s.judge(name))
		verdicts[name] = v
		if v == younger {
			again = strings.ToLower(rand.Text())
		}
	}
	if again != "" {
		return sqldb.Write(s.sql, s.path, func(tx *sql.Tx) error {
			_, err := tx.Exec("UPDATE catalog SET store = ?", again)
			return err
		})
	}
	for name, v := range verdicts {
		switch v {
		case discard:
			info, _ := s.root.Lstat(name)
			if err = s.root.Remove(name); err == nil && info != nil {
				s.freed.Add(info.Size())
			}
		case setAside:
			if err = s.root.Mkdir(quarantine, sqldb.FolderMode); err == nil || errors.Is(err, fs.ErrExist) {
				err = s.root.Rename(name, quarantine+"/"+name)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // another process may have removed it
			return err
		}
	}
	return nil
}

// judge decides what to do with a file.
func (s *Store) judge(name string) (verdict, error) {
	if !packName().MatchString(name) {
		return leave, nil
	}
	if known, err := s.knows(name); known || err != nil {
		return leave, err
	}
	file, header := s.openOwn(name)
	if file == nil {
		return leave, nil
	}
	defer file.Close()
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return leave, nil // being written
	}
	// It may have been entered just before its lock was released.
	if known, err := s.knows(name); known || err != nil {
		return leave, err
	}
	switch {
	case header.empty: // its writer was killed before the first write
		return discard, nil
	case header.application != packID:
		return leave, nil
	case header.version == 0:
		return discard, nil
	}
	var dropped bool
	if err := s.sql.QueryRow("SELECT EXISTS (SELECT 1 FROM dropped WHERE file = ?)", name).Scan(&dropped); err != nil {
		return leave, s.wrap(err)
	} else if dropped {
		return discard, nil
	}
	db, err := s.openPack(name)
	if err != nil {
		return leave, nil // damaged
	}
	defer db.Close()
	var pack origin
	if err := db.QueryRow("SELECT store, generation FROM origin").Scan(&pack.store, &pack.generation); err != nil {
		return leave, nil
	}
	own, err := s.origin()
	switch {
	case err != nil:
		return leave, err
	case pack.store != own.store, pack.generation == own.generation: // an equal generation may be of the very next state
		return leave, nil
	case pack.generation > own.generation:
		return younger, nil
	}
	return setAside, nil
}

// knows reports whether the catalog lists a pack.
func (s *Store) knows(name string) (known bool, err error) {
	err = s.sql.QueryRow("SELECT EXISTS (SELECT 1 FROM packs WHERE file = ?)", name).Scan(&known)
	return known, s.wrap(err)
}

// origin reads the identity of the catalog and the number of its latest commit.
func (s *Store) origin() (o origin, err error) {
	err = s.sql.QueryRow("SELECT store, generation FROM catalog").Scan(&o.store, &o.generation)
	return o, s.wrap(err)
}

// packHeader is the part of a SQLite file's header that identifies it.
type packHeader struct {
	empty                bool // the file is empty
	application, version uint32
	bytes                int64 // the file's size
}

// isWhole reports whether a pack's file is complete, as far as that can be told without reading it. Its content is
// checked when it is read.
func (s *Store) isWhole(name string) bool {
	file, header := s.openOwn(name)
	if file == nil {
		return false
	}
	defer file.Close()
	info, err := file.Stat()
	return err == nil && !header.empty && info.Size() >= header.bytes
}

// openOwn opens a file of the folder that may be a pack; nil if it cannot be one: a link, not a plain file, or
// neither empty nor SQLite.
func (s *Store) openOwn(name string) (*os.File, packHeader) {
	file, err := s.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, packHeader{}
	}
	opened, err := file.Stat()
	named, lerr := s.root.Lstat(name)
	if err == nil && lerr == nil && opened.Mode().IsRegular() && os.SameFile(opened, named) {
		header := make([]byte, 100)
		_, err = io.ReadFull(file, header)
		switch {
		case opened.Size() == 0:
			return file, packHeader{empty: true}
		case err == nil && string(header[:16]) == "SQLite format 3\x00":
			page := int64(binary.BigEndian.Uint16(header[16:]))
			if page == 1 {
				page = 1 << 16
			}
			return file, packHeader{false, binary.BigEndian.Uint32(header[68:]), binary.BigEndian.Uint32(header[60:]), page * int64(binary.BigEndian.Uint32(header[28:]))}
		}
	}
	file.Close()
	return nil, packHeader{}
}

// Copy writes a copy of the catalog to a new file at path and lists the packs that it refers to, which OpenPack
// opens. If nothing was ever saved, the error is *ErrNone.
func Copy(home, path string) (packs []string, err error) {
	defer try.Caught(&err)
	current := try.To(openCatalog(home))
	defer current.Close()
	try.Ok(sqldb.Copy(file(home), path))
	copied := file(home)
	copied.Path = path
	reader := try.To(sqldb.OpenReadOnly(copied))
	defer reader.Close()
	packs, err = sqldb.Column[string](reader, "SELECT file FROM packs ORDER BY id")
	for _, name := range packs {
		if !packName().MatchString(name) {
			return nil, damaged(filepath.Join(home, "checkpoints.db"), fmt.Errorf("packs.file: %s is not the name of a pack", quote(name)))
		}
	}
	return packs, sqldb.Wrap(path, err)
}

// OpenPack opens the file of a pack. A pack never changes, but may be gone: the error is then fs.ErrNotExist.
func OpenPack(home, name string) (*os.File, error) {
	path := filepath.Join(home, "checkpoints", name)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, sqldb.Wrap(path, err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, damaged(path, errors.Join(err, errors.New("it is not a file of its own")))
	}
	return f, nil
}

// Fault is a chunk that differs from what was saved, or cannot be read.
type Fault struct {
	Rank   int    // the first rank that needs it
	Entry  string // the entry of that rank
	Chunk  int    // its number in the entry, from 0
	SHA256 string // the expected sum
	Err    error
}

// Verify reads back every chunk of a checkpoint and compares its SHA-256. It returns the damaged ones, each once.
// The error says why it could not check.
func (s *Store) Verify(run string, ref Ref) (info Info, faults []Fault, err error) {
	if info, err = s.Find(run, ref); err != nil {
		return info, nil, err
	}
	if faults, err = s.verify(info); len(faults) > 0 {
		if _, gone := s.Find(info.Run, info.Ref()); gone != nil { // another process has removed the checkpoint
			return info, nil, gone
		}
	}
	return info, faults, err
}

func (s *Store) verify(info Info) (faults []Fault, err error) {
	reader := s.chunkReader()
	defer reader.close()
	seen := map[string]bool{}
	for rank := range info.WorldSize {
		_, plans, err := s.plan(info.Run, info.Ref(), []int{rank})
		if err != nil {
			return nil, err
		}
		for _, e := range plans[0] {
			for i, c := range e.chunks {
				if seen[c.sha] {
					continue
				}
				seen[c.sha] = true
				if _, err := reader.read(c, fmt.Sprintf("chunk %d of %s, rank %d,", i, quote(e.Name), rank)); err != nil {
					faults = append(faults, Fault{rank, e.Name, i, c.sha, err})
				}
			}
		}
	}
	return faults, nil
}
